//! Producers and consumers of channels.

use crate::arguments::{bytes, deadline, put, Buffer, OnbeatFill};
use crate::channel::OnbeatChannel;
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::handle::{give, opaque, take_back, using, Handle};
use onbeat_flow::{
    AttachError, Consumer, Item, Loan, LoanError, Producer, ReceiveError, Refused, SendError,
};
use std::ffi::c_void;

/// The sending side of a channel.
#[derive(Debug)]
pub struct OnbeatProducer(Handle<Producer>);

opaque!(OnbeatProducer, Producer);

/// A consumer, and what its buffers must hold.
#[derive(Debug)]
pub(crate) struct Receiving {
    consumer: Consumer,
    payload_bytes: usize,
}

/// A receiving side of a channel.
#[derive(Debug)]
pub struct OnbeatConsumer(Handle<Receiving>);

opaque!(OnbeatConsumer, Receiving);

/// What is known of an item beside its bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OnbeatItem {
    /// Number of the item since the channel was created, from 0: a gap is a loss.
    pub sequence: u64,
    /// When it was sent, in ns of CLOCK_MONOTONIC.
    pub sent_ns: u64,
    /// Its length in bytes.
    pub bytes: usize,
}

impl OnbeatItem {
    pub(crate) fn of(item: &Item<'_>) -> OnbeatItem {
        OnbeatItem {
            sequence: item.sequence(),
            sent_ns: item.sent_ns(),
            bytes: item.len(),
        }
    }
}

/// Reads an item where it stays. Must return, must not throw, and must not use the handle.
pub type OnbeatTakeItem =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: *const u8, item: *const OnbeatItem)>;

pub(crate) fn not_attached(error: AttachError) -> Failure {
    Failure::new(OnbeatCode::InUse, error)
}

fn not_loaned(error: LoanError) -> Failure {
    match error {
        LoanError::TooLarge { .. } => Failure::new(OnbeatCode::TooLarge, error),
        LoanError::Exhausted { .. } => OnbeatCode::Exhausted.into(),
    }
}

fn not_sent(reason: SendError) -> Failure {
    match reason {
        SendError::NotStarted { .. } => OnbeatCode::NotStarted,
        SendError::NoCredit { .. } => OnbeatCode::NoCredit,
        SendError::ConsumerDied | SendError::Severed => OnbeatCode::Gone,
    }
    .into()
}

/// The channel's producer: there is one at a time.
///
/// # Safety
/// `channel` is open, `producer` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_producer_open(
    channel: *mut OnbeatChannel,
    producer: *mut *mut OnbeatProducer,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(producer, || {
            let made = using(channel, |c| c.producer().map_err(not_attached))?;
            Ok(OnbeatProducer(Handle::from(made)))
        })
    })
}

fn send(
    producer: &mut Producer,
    length: usize,
    deadline_ns: u64,
    fill: impl FnOnce(&mut [u8]),
) -> Outcome<OnbeatCode> {
    let mut loan = producer.loan(length).map_err(not_loaned)?;
    fill(&mut loan);
    let sent = match deadline(deadline_ns) {
        None => loan.send(),
        // No look at the clock for those who do not wait.
        Some(0) => loan
            .try_send()
            .map_err(|refused: Refused<'_>| refused.reason),
        Some(deadline) => Loan::send_until(loan, deadline).map_err(|refused| refused.reason),
    };
    sent.map_err(not_sent)?;
    Ok(OnbeatCode::Ok)
}

/// Sends a copy of these bytes; waits until the deadline if the policy says so.
///
/// # Safety
/// `producer` is open, `data` has `length` bytes; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_producer_send(
    producer: *mut OnbeatProducer,
    data: *const c_void,
    length: usize,
    deadline_ns: u64,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let data = bytes(data, length)?;
        let copy = |slot: &mut [u8]| slot.copy_from_slice(data);
        using(producer, |p| send(p, length, deadline_ns, copy))
    })
}

/// As onbeat_producer_send(), without a copy: `fill` writes the payload where it is read.
///
/// # Safety
/// `producer` is open, and `fill` may be called with `context`; null is refused, for `context` not.
#[no_mangle]
pub unsafe extern "C" fn onbeat_producer_fill(
    producer: *mut OnbeatProducer,
    length: usize,
    deadline_ns: u64,
    fill: OnbeatFill,
    context: *mut c_void,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let fill = fill.ok_or(Failure::null("the callback is null"))?;
        using(producer, |p| {
            send(p, length, deadline_ns, |slot| {
                fill(context, slot.as_mut_ptr(), slot.len());
            })
        })
    })
}

/// Announces the end of the items, and closes. Null is fine.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_producer_close(producer: *mut OnbeatProducer) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(producer) })
}

/// A consumer of the channel.
///
/// # Safety
/// `channel` is open, `consumer` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_open(
    channel: *mut OnbeatChannel,
    consumer: *mut *mut OnbeatConsumer,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(consumer, || {
            let made = using(channel, |c| {
                Ok(Receiving {
                    consumer: c.consumer().map_err(not_attached)?,
                    payload_bytes: c.options().payload_bytes,
                })
            })?;
            Ok(OnbeatConsumer(Handle::from(made)))
        })
    })
}

/// Bytes of the largest item that can come, and so of a buffer for it; 0 for null.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_payload_bytes(consumer: *mut OnbeatConsumer) -> usize {
    let mut most = 0;
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        most = using(consumer, |r| Ok(r.payload_bytes))?;
        Ok(OnbeatCode::Ok)
    });
    most
}

fn not_received(error: ReceiveError) -> Failure {
    match error {
        ReceiveError::ProducerDied | ReceiveError::Severed => OnbeatCode::Gone.into(),
        other => Failure::new(OnbeatCode::InUse, other),
    }
}

impl Receiving {
    fn receive(&self, deadline_ns: u64, take: impl FnOnce(&Item<'_>)) -> Outcome<OnbeatCode> {
        let item = match deadline(deadline_ns) {
            Some(0) => self.consumer.try_receive(),
            other => self.consumer.receive_until(other),
        };
        match item.map_err(not_received)? {
            Some(item) => {
                take(&item);
                Ok(OnbeatCode::Ok)
            }
            None if self.consumer.is_over() => Err(OnbeatCode::Closed.into()),
            None if deadline(deadline_ns).is_none() => Err(OnbeatCode::Gone.into()),
            None => Ok(OnbeatCode::Nothing),
        }
    }
}

/// Receives the next item into a buffer, which must have room for the largest. The item counts as
/// consumed. ONBEAT_CODE_NOTHING if none came until the deadline, ONBEAT_CODE_CLOSED after the last.
///
/// # Safety
/// `consumer` is open, `buffer` has `capacity` bytes, `item` is null or can be written; other nulls
/// are refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_receive(
    consumer: *mut OnbeatConsumer,
    deadline_ns: u64,
    buffer: *mut c_void,
    capacity: usize,
    item: *mut OnbeatItem,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(consumer, |r| {
            let buffer = Buffer::new(buffer, capacity, r.payload_bytes)?;
            r.receive(deadline_ns, |received| {
                buffer.copy(received);
                put(item, OnbeatItem::of(received));
            })
        })
    })
}

/// As onbeat_consumer_receive(), without a copy: `take` reads the item where it was written. It
/// counts as consumed when `take` returns.
///
/// # Safety
/// `consumer` is open, and `take` may be called with `context`; null is refused, for `context` not.
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_take(
    consumer: *mut OnbeatConsumer,
    deadline_ns: u64,
    take: OnbeatTakeItem,
    context: *mut c_void,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let take = take.ok_or(Failure::null("the callback is null"))?;
        using(consumer, |r| {
            r.receive(deadline_ns, |received| {
                take(context, received.as_ptr(), &OnbeatItem::of(received));
            })
        })
    })
}

/// Copies the newest complete item, even if it was there before; skips older ones.
/// ONBEAT_CODE_NOTHING before the first.
///
/// # Safety
/// As for onbeat_consumer_receive().
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_newest(
    consumer: *mut OnbeatConsumer,
    buffer: *mut c_void,
    capacity: usize,
    item: *mut OnbeatItem,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(consumer, |r| {
            let buffer = Buffer::new(buffer, capacity, r.payload_bytes)?;
            let Some(newest) = r.consumer.newest() else {
                return Ok(OnbeatCode::Nothing);
            };
            buffer.copy(&newest);
            put(item, OnbeatItem::of(&newest));
            Ok(OnbeatCode::Ok)
        })
    })
}

/// Items that were dropped for newer ones before the consumer received them; 0 for null.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_dropped(consumer: *mut OnbeatConsumer) -> u64 {
    let mut dropped = 0;
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        dropped = using(consumer, |r| Ok(r.consumer.stats().dropped))?;
        Ok(OnbeatCode::Ok)
    });
    dropped
}

/// Leaves the channel. Null is fine.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_close(consumer: *mut OnbeatConsumer) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(consumer) })
}
