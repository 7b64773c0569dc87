//! Keys, ways to a peer, and the links over them.

use crate::arguments::{deadline, put, text, Buffer};
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::halves::{OnbeatIncoming, OnbeatOutgoing};
use crate::handle::{give, opaque, take_back, using, Handle};
use onbeat_link::interface::{Backend, Memory, SetupError, Sizes};
use onbeat_link::{Key, KeyError, Shm, Tcp};
use std::ffi::{c_char, c_void};
use std::net::SocketAddr;
use std::time::Duration;

/// A key that both ends of a link have.
#[derive(Debug)]
pub struct OnbeatKey(Handle<Key>);

opaque!(OnbeatKey, Key);

fn no_key(error: KeyError) -> Failure {
    Failure::new(OnbeatCode::Key, error)
}

/// Makes a new key file with mode 0600; refused if there is a file.
///
/// # Safety
/// `path` is null (refused) or ends with 0.
#[no_mangle]
pub unsafe extern "C" fn onbeat_key_create_file(path: *const c_char) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let path = text(path)?;
        let made = Key::generate().create_file(path.as_ref());
        made.map(|()| OnbeatCode::Ok).map_err(no_key)
    })
}

/// Reads a key file, which must be this user's (or root's) alone.
///
/// # Safety
/// `path` ends with 0, `key` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_key_read_file(
    path: *const c_char,
    key: *mut *mut OnbeatKey,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(key, || {
            let read = Key::read_file(text(path)?.as_ref()).map_err(no_key)?;
            Ok(OnbeatKey(Handle::from(read)))
        })
    })
}

/// Forgets the key. Null is fine.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_key_close(key: *mut OnbeatKey) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(key) })
}

/// What connects the ends.
#[derive(Debug)]
pub(crate) enum Way {
    Shm(Shm),
    /// `None` only while an option is set.
    Tcp(Option<Tcp>),
}

/// One of the two ends, before and while it has a peer.
#[derive(Debug)]
pub struct OnbeatEnd(Handle<Way>);

opaque!(OnbeatEnd, Way);

/// One end of a link between processes, in shared memory. One of the two listens; either may come
/// first.
///
/// # Safety
/// `name` ends with 0, `end` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_shm(
    name: *const c_char,
    listens: bool,
    end: *mut *mut OnbeatEnd,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(end, || {
            let name = text(name)?;
            let way = if listens {
                Shm::listen(name)
            } else {
                Shm::connect(name)
            };
            Ok(OnbeatEnd(Handle::from(Way::Shm(way))))
        })
    })
}

/// One end of a link over TCP: it listens at this address ("0.0.0.0:7400"; with port 0 the kernel
/// chooses one), or connects to it. Encrypted and resumed as onbeat_end_in_clear() and
/// onbeat_end_resume_within() say. The key may be closed afterwards.
///
/// # Safety
/// `address` ends with 0, `key` is open, `end` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_tcp(
    address: *const c_char,
    listens: bool,
    key: *mut OnbeatKey,
    end: *mut *mut OnbeatEnd,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(end, || {
            let address = text(address)?;
            let address: SocketAddr = address.parse().map_err(|_| {
                let shown = address.escape_debug();
                let text = format!("'{shown}' is no address: give IP:PORT, as 10.0.0.2:7400");
                Failure::new(OnbeatCode::Argument, text)
            })?;
            let key = using(key, |k| Ok(k.clone()))?;
            let tcp = if listens {
                Tcp::listen(address, key).map_err(no_link)?
            } else {
                Tcp::connect(address, key)
            };
            Ok(OnbeatEnd(Handle::from(Way::Tcp(Some(tcp)))))
        })
    })
}

impl Way {
    /// Sets an option that only TCP has.
    fn option(&mut self, set: impl FnOnce(Tcp) -> Tcp) -> Outcome<OnbeatCode> {
        let Way::Tcp(place) = self else {
            let text = "only an end over TCP has this option";
            return Err(Failure::plain(OnbeatCode::Argument, text));
        };
        let tcp = place.take().ok_or(OnbeatCode::Panic)?;
        *place = Some(set(tcp));
        Ok(OnbeatCode::Ok)
    }

    fn backend(&self) -> Outcome<&dyn Backend> {
        match self {
            Way::Shm(shm) => Ok(shm),
            Way::Tcp(Some(tcp)) => Ok(tcp),
            Way::Tcp(None) => Err(OnbeatCode::Panic.into()),
        }
    }
}

/// Without encryption after the handshake: for networks of one's own. Both ends must do the same.
///
/// # Safety
/// `end` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_in_clear(end: *mut OnbeatEnd) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { using(end, |way| way.option(Tcp::in_clear)) })
}

/// How long a broken link is to be resumed, in ns; 30 s by default.
///
/// # Safety
/// `end` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_resume_within(end: *mut OnbeatEnd, time_ns: u64) -> OnbeatCode {
    let time = Duration::from_nanos(time_ns);
    // SAFETY: the caller promises it.
    guarded(|| unsafe { using(end, |way| way.option(|tcp| tcp.resume_within(time))) })
}

/// The address at which the end listens or to which it connects, with its 0, for a buffer of 64
/// bytes.
///
/// # Safety
/// `end` is open, `buffer` has `capacity` bytes; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_address(
    end: *mut OnbeatEnd,
    buffer: *mut c_char,
    capacity: usize,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(end, |way| {
            let Way::Tcp(Some(tcp)) = way else {
                let text = "only an end over TCP has an address";
                return Err(Failure::plain(OnbeatCode::Argument, text));
            };
            let address = format!("{}\0", tcp.address());
            Buffer::new(buffer.cast(), capacity, address.len())?.copy(address.as_bytes());
            Ok(OnbeatCode::Ok)
        })
    })
}

/// What both ends must agree on.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OnbeatSizes {
    /// Messages on their way in each direction, sent and not consumed yet: 1 to 1024.
    pub credits: usize,
    /// Bytes of the largest message: 1 to 1 GiB.
    pub message_bytes: usize,
    /// Bytes of the largest value: 0 (none) to 1 GiB.
    pub value_bytes: usize,
}

impl OnbeatSizes {
    fn sizes(self) -> Sizes {
        Sizes {
            credits: self.credits,
            message_bytes: self.message_bytes,
            value_bytes: self.value_bytes,
        }
    }
}

/// # Safety
/// The pointer is null or leads to sizes.
unsafe fn sizes_at(sizes: *const OnbeatSizes) -> Outcome<Sizes> {
    if sizes.is_null() {
        return Err(Failure::null("the sizes are null"));
    }
    // SAFETY: not null, and the caller promises the rest.
    Ok(unsafe { sizes.read() }.sizes())
}

/// Bytes of memory that an end of these sizes needs.
///
/// # Safety
/// `sizes` can be read, `bytes` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_memory_bytes(
    sizes: *const OnbeatSizes,
    bytes: *mut usize,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        if bytes.is_null() {
            return Err(Failure::null("the place for the number is null"));
        }
        put(bytes, sizes_at(sizes)?.memory_bytes().map_err(no_link)?);
        Ok(OnbeatCode::Ok)
    })
}

/// An application's own memory, or what the backend allots.
///
/// # Safety
/// The pointer is null, or nobody else uses so many bytes until the process ends.
unsafe fn memory_at(start: *mut c_void, bytes: usize) -> Outcome<Memory> {
    if start.is_null() && bytes == 0 {
        return Ok(Memory::Allot);
    }
    // SAFETY: only looked at, not used.
    unsafe { Buffer::new(start, bytes, bytes.max(1))? };
    // SAFETY: not null, not too long, and the caller promises the rest.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) };
    Ok(Memory::Mapped(bytes))
}

fn no_link(error: SetupError) -> Failure {
    let code = match &error {
        SetupError::Number { .. } | SetupError::Memory { .. } | SetupError::OwnMemory => {
            OnbeatCode::Argument
        }
        SetupError::Refused { .. } => OnbeatCode::Refused,
        SetupError::NoPeer { .. } => OnbeatCode::NoPeer,
        SetupError::System { .. } | SetupError::Port(_) => OnbeatCode::System,
        SetupError::Channel(onbeat_link::LinkError::Name { .. }) => OnbeatCode::Argument,
        SetupError::Channel(_) => OnbeatCode::Mismatch,
        SetupError::Attach { .. } => OnbeatCode::InUse,
    };
    Failure::new(code, error)
}

/// Connects to the peer, makes sure of it (key, version, sizes), and gives the two halves of the
/// link. Both ends call it; it waits for the other until the deadline. `memory` is null, or of
/// onbeat_memory_bytes() and the link's alone until the process ends (TCP only).
///
/// # Safety
/// `end` is open, `sizes` can be read, `outgoing` and `incoming` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_initialize(
    end: *mut OnbeatEnd,
    sizes: *const OnbeatSizes,
    memory: *mut c_void,
    memory_bytes: usize,
    deadline_ns: u64,
    outgoing: *mut *mut OnbeatOutgoing,
    incoming: *mut *mut OnbeatIncoming,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let mut second = None;
        give(outgoing, || {
            if incoming.is_null() {
                return Err(Failure::null("the place for the handle is null"));
            }
            let sizes = sizes_at(sizes)?;
            let memory = memory_at(memory, memory_bytes)?;
            let deadline = deadline(deadline_ns);
            let halves = using(end, |way| {
                way.backend()?
                    .initialize(sizes, memory, deadline)
                    .map_err(no_link)
            })?;
            second = Some(OnbeatIncoming::of(halves.1, sizes));
            Ok(OnbeatOutgoing::of(halves.0))
        })?;
        give(incoming, || second.ok_or(OnbeatCode::Panic.into()))
    })
}

/// Closes an end: the halves of a link stay. Null is fine.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_close(end: *mut OnbeatEnd) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(end) })
}
