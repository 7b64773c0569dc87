//! The two halves of a link, for C: one sends to the peer, one receives from it.

use crate::arguments::{bytes, deadline, write_unless_null, Buffer, OnbeatFill};
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::handle::{opaque, take_back, using, Handle};
use onbeat_link::interface::{End, Incoming, Outgoing, SendError, Sizes};
use std::ffi::c_void;
use std::fmt;

pub(crate) struct Out(Box<dyn Outgoing>);

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

/// The half of a link that sends. Closing it announces to the peer that no more messages come.
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

/// A callback that reads a message or value in place. It must return and must not throw. It must
/// not use the handle with which the application called onbeat. `number` is 0 for a value.
pub type OnbeatTake = Option<
    unsafe extern "C" fn(context: *mut c_void, number: u64, bytes: *const u8, length: usize),
>;

fn end_failure(end: End) -> Failure {
    match &end {
        End::Closed => OnbeatCode::Closed.into(),
        End::Gone { .. } => Failure::new(OnbeatCode::Gone, end),
        End::Protocol { .. } => Failure::new(OnbeatCode::Protocol, end),
        // Only an end with promises returns these.
        _ => Failure::new(OnbeatCode::Breach, end),
    }
}

fn send_failure(error: SendError) -> Failure {
    match error {
        SendError::TooLarge { .. } => Failure::new(OnbeatCode::TooLarge, error),
        SendError::NoCredit { .. } => OnbeatCode::NoCredit.into(),
        SendError::Ended(end) => end_failure(end),
        broken => Failure::new(OnbeatCode::Breach, broken),
    }
}

/// Sends a copy of these bytes. Waits for a credit until the deadline. Writes the number of the
/// message, counted from 0, to `number` unless that is null.
///
/// # Safety
/// `outgoing` is open, `data` has `length` bytes, `number` is null or can be written. Other nulls
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

/// Sends a message as onbeat_send() does, but without a copy: `fill` writes the message into the
/// send buffer.
///
/// # Safety
/// The rules of onbeat_send() apply, and `fill` may be called with `context`.
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

/// Sends a message that `fill` writes, and writes its number to `number` unless that is null.
///
/// # Safety
/// The rules of [`onbeat_send`] apply.
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
            .map_err(send_failure)
    };
    // SAFETY: the caller promises it.
    unsafe { write_unless_null(number, using(outgoing, send)?) };
    Ok(OnbeatCode::Ok)
}

/// Sets the value that the peer's onbeat_read() fetches from now on. Does not wait.
///
/// # Safety
/// The rules of onbeat_send() apply.
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
            out.0.publish(length, &mut copy).map_err(send_failure)
        })?;
        Ok(OnbeatCode::Ok)
    })
}

/// Closes this half. Over TCP, closing the second half waits until the peer has received
/// everything, but at most 10 s without any progress. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_outgoing_close(outgoing: *mut OnbeatOutgoing) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(outgoing) })
}

fn received_code(received: Result<bool, End>) -> Outcome<OnbeatCode> {
    let code = |is_message| {
        if is_message {
            OnbeatCode::Ok
        } else {
            OnbeatCode::Nothing
        }
    };
    received.map(code).map_err(end_failure)
}

/// Receives the next message into a buffer, which must have room for the largest message. The
/// message counts as consumed. Returns ONBEAT_CODE_NOTHING if no message came before the deadline.
///
/// # Safety
/// `incoming` is open, `buffer` has `capacity` bytes, `length` and `number` are null or can be
/// written. Other nulls are refused.
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
                write_unless_null(length, content.len());
                write_unless_null(number, message);
            };
            received_code(from.half.receive(deadline(deadline_ns), &mut take))
        })
    })
}

/// Receives the next message as onbeat_receive() does, but without a copy: `take` reads it from the
/// receive buffer. The message counts as consumed when `take` returns.
///
/// # Safety
/// `incoming` is open, and `take` may be called with `context`. Null is refused, except for
/// `context`.
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
            received_code(from.half.receive(deadline(deadline_ns), &mut give))
        })
    })
}

/// Copies the newest complete value that the peer has published, even if it was read before. The
/// buffer must have room for the largest value. Returns ONBEAT_CODE_NOTHING if no value came before
/// the deadline.
///
/// # Safety
/// The rules of onbeat_receive() apply.
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
                write_unless_null(length, content.len());
            };
            received_code(from.half.read(deadline(deadline_ns), &mut take))
        })
    })
}

/// Closes this half. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_incoming_close(incoming: *mut OnbeatIncoming) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(incoming) })
}
