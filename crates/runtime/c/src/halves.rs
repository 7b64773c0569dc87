//! The two halves of a link: what is sent to the peer, and what comes from it.

use crate::arguments::{bytes, deadline, put, Buffer, OnbeatFill};
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::handle::{opaque, take_back, using, Handle};
use onbeat_link::interface::{End, Incoming, Outgoing, SendError, Sizes};
use std::ffi::c_void;
use std::fmt;

/// [`Outgoing`], with a name for debugging.
pub(crate) struct Out(Box<dyn Outgoing>);

/// [`Incoming`], and what its buffers must hold.
pub(crate) struct In {
    half: Box<dyn Incoming>,
    sizes: Sizes,
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Out")
    }
}

impl fmt::Debug for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "In of {}", self.sizes)
    }
}

/// The half of a link that sends. Closing it tells the peer that nothing more comes.
#[derive(Debug)]
pub struct OnbeatOutgoing(Handle<Out>);

opaque!(OnbeatOutgoing, Out);

/// The half of a link that receives. Closing it makes the peer's sends fail.
#[derive(Debug)]
pub struct OnbeatIncoming(Handle<In>);

opaque!(OnbeatIncoming, In);

impl OnbeatOutgoing {
    pub(crate) fn of(half: Box<dyn Outgoing>) -> OnbeatOutgoing {
        OnbeatOutgoing(Handle::from(Out(half)))
    }
}

impl OnbeatIncoming {
    pub(crate) fn of(half: Box<dyn Incoming>, sizes: Sizes) -> OnbeatIncoming {
        OnbeatIncoming(Handle::from(In { half, sizes }))
    }
}

/// Reads a message or value where it stays. Must return, must not throw, and must not use the
/// handle. `number` is 0 for a value.
pub type OnbeatTake = Option<
    unsafe extern "C" fn(context: *mut c_void, number: u64, bytes: *const u8, length: usize),
>;

fn ended(end: End) -> Failure {
    match &end {
        End::Closed => OnbeatCode::Closed.into(),
        End::Gone { .. } => Failure::new(OnbeatCode::Gone, end),
        End::Protocol { .. } => Failure::new(OnbeatCode::Protocol, end),
        // What an end with promises finds broken.
        _ => Failure::new(OnbeatCode::Breach, end),
    }
}

fn not_sent(error: SendError) -> Failure {
    match error {
        SendError::TooLarge { .. } => Failure::new(OnbeatCode::TooLarge, error),
        SendError::NoCredit { .. } => OnbeatCode::NoCredit.into(),
        SendError::Ended(end) => ended(end),
        broken => Failure::new(OnbeatCode::Breach, broken),
    }
}

/// Sends a copy of these bytes; waits for a credit until the deadline. `number` (or null) is the
/// message's, from 0.
///
/// # Safety
/// `outgoing` is open, `data` has `length` bytes, `number` is null or can be written; other nulls
/// are refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_send(
    outgoing: *mut OnbeatOutgoing,
    data: *const c_void,
    length: usize,
    deadline_ns: u64,
    number: *mut u64,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let data = bytes(data, length)?;
        let mut copy = |slot: &mut [u8]| slot.copy_from_slice(data);
        send(outgoing, length, deadline_ns, &mut copy, number)
    })
}

/// As onbeat_send(), without a copy: `fill` writes the message where it leaves.
///
/// # Safety
/// As for onbeat_send(); `fill` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn onbeat_send_filled(
    outgoing: *mut OnbeatOutgoing,
    length: usize,
    deadline_ns: u64,
    fill: OnbeatFill,
    context: *mut c_void,
    number: *mut u64,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let fill = fill.ok_or(Failure::null("the callback is null"))?;
        let mut write = |slot: &mut [u8]| fill(context, slot.as_mut_ptr(), slot.len());
        send(outgoing, length, deadline_ns, &mut write, number)
    })
}

/// # Safety
/// As for [`onbeat_send`].
unsafe fn send(
    outgoing: *mut OnbeatOutgoing,
    length: usize,
    deadline_ns: u64,
    fill: &mut dyn FnMut(&mut [u8]),
    number: *mut u64,
) -> Outcome<OnbeatCode> {
    let send = |out: &mut Out| {
        out.0
            .send(length, deadline(deadline_ns), fill)
            .map_err(not_sent)
    };
    // SAFETY: the caller promises it.
    unsafe { put(number, using(outgoing, send)?) };
    Ok(OnbeatCode::Ok)
}

/// Sets the value that the peer's onbeat_read() fetches from now on. Waits for nobody.
///
/// # Safety
/// As for onbeat_send().
#[no_mangle]
pub unsafe extern "C" fn onbeat_publish(
    outgoing: *mut OnbeatOutgoing,
    data: *const c_void,
    length: usize,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let data = bytes(data, length)?;
        let mut copy = |slot: &mut [u8]| slot.copy_from_slice(data);
        using(outgoing, |out| {
            out.0.publish(length, &mut copy).map_err(not_sent)
        })?;
        Ok(OnbeatCode::Ok)
    })
}

/// Closes this half. Over TCP closing the second half waits until the peer has everything that was
/// sent, and 10 s without any progress at most. Null is fine.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_outgoing_close(outgoing: *mut OnbeatOutgoing) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(outgoing) })
}

fn came(came: Result<bool, End>) -> Outcome<OnbeatCode> {
    let code = |came| {
        if came {
            OnbeatCode::Ok
        } else {
            OnbeatCode::Nothing
        }
    };
    came.map(code).map_err(ended)
}

/// Receives the next message into a buffer, which must have room for the largest. The message counts
/// as consumed. ONBEAT_CODE_NOTHING if none came until the deadline.
///
/// # Safety
/// `incoming` is open, `buffer` has `capacity` bytes, `length` and `number` are null or can be
/// written; other nulls are refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_receive(
    incoming: *mut OnbeatIncoming,
    deadline_ns: u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    number: *mut u64,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(incoming, |from| {
            let buffer = Buffer::new(buffer, capacity, from.sizes.message_bytes)?;
            let mut take = |message: u64, content: &[u8]| {
                buffer.copy(content);
                put(length, content.len());
                put(number, message);
            };
            came(from.half.receive(deadline(deadline_ns), &mut take))
        })
    })
}

/// As onbeat_receive(), without a copy: `take` reads the message where it came. It counts as
/// consumed when `take` returns.
///
/// # Safety
/// `incoming` is open, and `take` may be called with `context`; null is refused, for `context` not.
#[no_mangle]
pub unsafe extern "C" fn onbeat_receive_taken(
    incoming: *mut OnbeatIncoming,
    deadline_ns: u64,
    take: OnbeatTake,
    context: *mut c_void,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let take = take.ok_or(Failure::null("the callback is null"))?;
        using(incoming, |from| {
            let mut give = |number: u64, content: &[u8]| {
                take(context, number, content.as_ptr(), content.len());
            };
            came(from.half.receive(deadline(deadline_ns), &mut give))
        })
    })
}

/// Copies the newest value that the peer has published, complete, also if it was read before. The
/// buffer must have room for the largest. ONBEAT_CODE_NOTHING if there is none until the deadline.
///
/// # Safety
/// As for onbeat_receive().
#[no_mangle]
pub unsafe extern "C" fn onbeat_read(
    incoming: *mut OnbeatIncoming,
    deadline_ns: u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(incoming, |from| {
            let buffer = Buffer::new(buffer, capacity, from.sizes.value_bytes)?;
            let mut take = |content: &[u8]| {
                buffer.copy(content);
                put(length, content.len());
            };
            came(from.half.read(deadline(deadline_ns), &mut take))
        })
    })
}

/// Closes this half. Null is fine.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_incoming_close(incoming: *mut OnbeatIncoming) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(incoming) })
}
