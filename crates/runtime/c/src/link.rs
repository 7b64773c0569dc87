//! Keys, ends and links to a peer, for C.

use crate::arguments::{deadline, text, write_unless_null, Buffer};
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::halves::{OnbeatIncoming, OnbeatOutgoing};
use crate::handle::{give, opaque, take_back, using, Handle};
use onbeat_link::interface::{Backend, Memory, SetupError, Sizes};
use onbeat_link::{Key, KeyError, Shm, Tcp};
use std::ffi::{c_char, c_void};
use std::net::SocketAddr;
use std::time::Duration;

/// A handle of a key that both ends of a link have.
#[derive(Debug)]
pub struct OnbeatKey(Handle<Key>);

opaque!(OnbeatKey, Key);

fn key_failure(error: KeyError) -> Failure {
    Failure::new(OnbeatCode::Key, error)
}

/// Makes a new key file with mode 0600. Fails if the file exists.
///
/// # Safety
/// `path` is null (refused) or ends with 0.
#[no_mangle]
pub unsafe extern "C" fn onbeat_key_create_file(path: *const c_char) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let path = text(path)?;
        let made = Key::generate().create_file(path.as_ref());
        made.map(|()| OnbeatCode::Ok).map_err(key_failure)
    })
}

/// Reads a key file. Only this user (or root) may have access to the file.
///
/// # Safety
/// `path` ends with 0, `key` can be written. Null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_key_read_file(
    path: *const c_char,
    key: *mut *mut OnbeatKey,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(key, || {
            let read = Key::read_file(text(path)?.as_ref()).map_err(key_failure)?;
            Ok(OnbeatKey(Handle::from(read)))
        })
    })
}

/// Closes the handle of the key. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_key_close(key: *mut OnbeatKey) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(key) })
}

#[derive(Debug)]
pub(crate) enum Transport {
    Shm(Shm),
    /// An end over TCP. The value is `None` only while a call sets an option of the end.
    Tcp(Option<Tcp>),
}

/// A handle of one of the two ends of a link, before and while it has a peer.
#[derive(Debug)]
pub struct OnbeatEnd(Handle<Transport>);

opaque!(OnbeatEnd, Transport);

/// Creates one end of a link between processes, in shared memory. One of the two ends listens.
/// Either end may be created first.
///
/// # Safety
/// `name` ends with 0, `end` can be written. Null is refused.
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
            let transport = if listens {
                Shm::listen(name)
            } else {
                Shm::connect(name)
            };
            Ok(OnbeatEnd(Handle::from(Transport::Shm(transport))))
        })
    })
}

/// Creates one end of a link over TCP. The end listens at this address ("0.0.0.0:7400"; with port 0
/// the kernel chooses one), or connects to it. onbeat_end_in_clear() turns the encryption of the
/// end off. onbeat_end_resume_within() sets for how long the end tries to resume a broken link. The
/// key may be closed after this call.
///
/// # Safety
/// `address` ends with 0, `key` is open, `end` can be written. Null is refused.
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
                let text = format!(
                    "'{shown}' is not an address. Write IP:PORT, for example 10.0.0.2:7400"
                );
                Failure::new(OnbeatCode::Argument, text)
            })?;
            let key = using(key, |k| Ok(k.clone()))?;
            let tcp = if listens {
                Tcp::listen(address, key).map_err(setup_failure)?
            } else {
                Tcp::connect(address, key)
            };
            Ok(OnbeatEnd(Handle::from(Transport::Tcp(Some(tcp)))))
        })
    })
}

impl Transport {
    fn set_tcp_option(&mut self, set: impl FnOnce(Tcp) -> Tcp) -> Outcome<OnbeatCode> {
        let Transport::Tcp(place) = self else {
            let text = "only an end over TCP has this option. Make the end with onbeat_end_tcp().";
            return Err(Failure::plain(OnbeatCode::Argument, text));
        };
        let tcp = place.take().ok_or(OnbeatCode::Panic)?;
        *place = Some(set(tcp));
        Ok(OnbeatCode::Ok)
    }

    fn backend(&self) -> Outcome<&dyn Backend> {
        match self {
            Transport::Shm(shm) => Ok(shm),
            Transport::Tcp(Some(tcp)) => Ok(tcp),
            Transport::Tcp(None) => Err(OnbeatCode::Panic.into()),
        }
    }
}

/// Makes this end send without encryption after the handshake. Use this in private networks only.
/// Both ends must do the same.
///
/// # Safety
/// `end` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_in_clear(end: *mut OnbeatEnd) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { using(end, |transport| transport.set_tcp_option(Tcp::in_clear)) })
}

/// Sets for how long a broken link may be resumed, in ns. The default is 30 s.
///
/// # Safety
/// `end` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_resume_within(end: *mut OnbeatEnd, time_ns: u64) -> OnbeatCode {
    let time = Duration::from_nanos(time_ns);
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(end, |transport| {
            transport.set_tcp_option(|tcp| tcp.resume_within(time))
        })
    })
}

/// Writes the address at which the end listens or to which it connects, with a terminating 0. A
/// buffer of 64 bytes is enough.
///
/// # Safety
/// `end` is open, `buffer` has `capacity` bytes. Null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_address(
    end: *mut OnbeatEnd,
    buffer: *mut c_char,
    capacity: usize,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(end, |transport| {
            let Transport::Tcp(Some(tcp)) = transport else {
                let text =
                    "only an end over TCP has an address. Make the end with onbeat_end_tcp().";
                return Err(Failure::plain(OnbeatCode::Argument, text));
            };
            let address = format!("{}\0", tcp.address());
            Buffer::new(buffer.cast(), capacity, address.len())?.copy(address.as_bytes());
            Ok(OnbeatCode::Ok)
        })
    })
}

/// The sizes of a link. Both ends must use the same sizes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OnbeatSizes {
    /// The largest number of messages in each direction that are sent and not consumed yet: 1 to
    /// 1024.
    pub credits: usize,
    /// The size of the largest message in bytes, from 1 byte to 1 GiB.
    pub message_bytes: usize,
    /// The size of the largest value in bytes, at most 1 GiB. 0 means that the link has no values.
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

/// Reads the sizes that a pointer leads to.
///
/// # Safety
/// The pointer is null or leads to sizes.
unsafe fn sizes_at(sizes: *const OnbeatSizes) -> Outcome<Sizes> {
    if sizes.is_null() {
        return Err(Failure::null("the pointer to the sizes is null"));
    }
    // SAFETY: not null, and the caller promises the rest.
    Ok(unsafe { sizes.read() }.sizes())
}

/// Computes how many bytes of memory an end of these sizes needs.
///
/// # Safety
/// `sizes` can be read, `bytes` can be written. Null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_memory_bytes(
    sizes: *const OnbeatSizes,
    bytes: *mut usize,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        if bytes.is_null() {
            return Err(Failure::null(
                "the pointer that receives the number of bytes is null",
            ));
        }
        write_unless_null(
            bytes,
            sizes_at(sizes)?.memory_bytes().map_err(setup_failure)?,
        );
        Ok(OnbeatCode::Ok)
    })
}

/// Returns the application's own memory, or `Memory::Allot` for null.
///
/// # Safety
/// The pointer is null, or nobody else uses these bytes until the process ends.
unsafe fn memory_at(start: *mut c_void, bytes: usize) -> Outcome<Memory> {
    if start.is_null() && bytes == 0 {
        return Ok(Memory::Allot);
    }
    // SAFETY: the buffer is only checked, not used.
    unsafe { Buffer::new(start, bytes, bytes.max(1))? };
    // SAFETY: not null, not too long, and the caller promises the rest.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) };
    Ok(Memory::Mapped(bytes))
}

fn setup_failure(error: SetupError) -> Failure {
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

/// Connects to the peer, checks it (key, version, sizes), and returns the two halves of the link.
/// Both ends call this function. The call waits for the other end until the deadline.
///
/// `memory` may be null, and must be null for a link in shared memory. Over TCP, it may also be the
/// address of at least onbeat_memory_bytes() bytes. Only the link uses them until the process ends.
///
/// # Safety
/// `end` is open, `sizes` can be read, `outgoing` and `incoming` can be written. Null is refused.
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
                return Err(Failure::null(
                    "the pointer that receives the handle is null",
                ));
            }
            let sizes = sizes_at(sizes)?;
            let memory = memory_at(memory, memory_bytes)?;
            let deadline = deadline(deadline_ns);
            let halves = using(end, |transport| {
                transport
                    .backend()?
                    .initialize(sizes, memory, deadline)
                    .map_err(setup_failure)
            })?;
            second = Some(OnbeatIncoming::of(halves.1, sizes));
            Ok(OnbeatOutgoing::of(halves.0))
        })?;
        give(incoming, || second.ok_or(OnbeatCode::Panic.into()))
    })
}

/// Closes an end. The halves of its link stay. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_end_close(end: *mut OnbeatEnd) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(end) })
}
