//! Producers and consumers of channels, for C.

use crate::arguments::{bytes, deadline, write_unless_null, Buffer, OnbeatFill};
use crate::channel::OnbeatChannel;
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::handle::{give, opaque, take_back, using, Handle};
use onbeat_flow::{
    AttachError, Consumer, Item, Loan, LoanError, Producer, ReceiveError, Refused, SendError,
};
use std::ffi::c_void;

/// A handle of the sending side of a channel.
#[derive(Debug)]
pub struct OnbeatProducer(Handle<Producer>);

opaque!(OnbeatProducer, Producer);

#[derive(Debug)]
pub(crate) struct Receiving {
    consumer: Consumer,
    payload_bytes: usize,
}

/// A handle of a receiving side of a channel.
#[derive(Debug)]
pub struct OnbeatConsumer(Handle<Receiving>);

opaque!(OnbeatConsumer, Receiving);

/// The number, sending time and length of an item, as a consumer receives them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OnbeatItem {
    /// The number of the item, from 0 since the channel was created. A gap means lost items.
    pub sequence: u64,
    /// The time at which the item was sent, in ns of CLOCK_MONOTONIC.
    pub sent_ns: u64,
    /// The length of the item in bytes.
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

/// A callback that reads an item in place. It must return and must not throw. It must not use the
/// handle with which the application called onbeat.
pub type OnbeatTakeItem =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: *const u8, item: *const OnbeatItem)>;

pub(crate) fn attach_failure(error: AttachError) -> Failure {
    Failure::new(OnbeatCode::InUse, error)
}

fn loan_failure(error: LoanError) -> Failure {
    match error {
        LoanError::TooLarge { .. } => Failure::new(OnbeatCode::TooLarge, error),
        LoanError::Exhausted { .. } => OnbeatCode::Exhausted.into(),
    }
}

fn send_failure(reason: SendError) -> Failure {
    match reason {
        SendError::NotStarted { .. } => OnbeatCode::NotStarted,
        SendError::NoCredit { .. } => OnbeatCode::NoCredit,
        SendError::ConsumerDied | SendError::Severed => OnbeatCode::Gone,
    }
    .into()
}

/// Attaches the channel's producer. A channel has at most one producer at a time.
///
/// # Safety
/// `channel` is open, `producer` can be written. Null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_producer_open(
    channel: *mut OnbeatChannel,
    producer: *mut *mut OnbeatProducer,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(producer, || {
            let made = using(channel, |c| c.producer().map_err(attach_failure))?;
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
    let mut loan = producer.loan(length).map_err(loan_failure)?;
    fill(&mut loan);
    let sent = match deadline(deadline_ns) {
        None => loan.send(),
        // A caller that does not wait needs no time, so the clock is not read.
        Some(0) => loan
            .try_send()
            .map_err(|refused: Refused<'_>| refused.reason),
        Some(deadline) => Loan::send_until(loan, deadline).map_err(|refused| refused.reason),
    };
    sent.map_err(send_failure)?;
    Ok(OnbeatCode::Ok)
}

/// Sends a copy of these bytes. Waits for expected consumers, and for slow consumers if the policy
/// requires it, until the deadline at the latest.
///
/// # Safety
/// `producer` is open, `data` has `length` bytes. Null is refused.
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

/// Sends an item as onbeat_producer_send() does, but without a copy: `fill` writes the payload in
/// place.
///
/// # Safety
/// `producer` is open, and `fill` may be called with `context`. Null is refused, except for
/// `context`.
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

/// Announces the end of the items, and closes the producer. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_producer_close(producer: *mut OnbeatProducer) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(producer) })
}

/// Attaches a consumer to the channel.
///
/// # Safety
/// `channel` is open, `consumer` can be written. Null is refused.
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
                    consumer: c.consumer().map_err(attach_failure)?,
                    payload_bytes: c.options().payload_bytes,
                })
            })?;
            Ok(OnbeatConsumer(Handle::from(made)))
        })
    })
}

/// Returns the size in bytes of the largest possible item; a buffer needs that size. Returns 0 for
/// null.
///
/// # Safety
/// The handle is null or open.
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

fn receive_failure(error: ReceiveError) -> Failure {
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
        match item.map_err(receive_failure)? {
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

/// Receives the next item into a buffer, which must have room for the largest item. The item counts
/// as consumed. Returns ONBEAT_CODE_NOTHING if no item came before the deadline, and
/// ONBEAT_CODE_CLOSED after the last item.
///
/// # Safety
/// `consumer` is open, `buffer` has `capacity` bytes, `item` is null or can be written. Other nulls
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
                write_unless_null(item, OnbeatItem::of(received));
            })
        })
    })
}

/// Receives the next item as onbeat_consumer_receive() does, but without a copy: `take` reads it in
/// place. The item counts as consumed when `take` returns.
///
/// # Safety
/// `consumer` is open, and `take` may be called with `context`. Null is refused, except for
/// `context`.
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

/// Copies the newest complete item, even if it was returned before, and skips older ones. Returns
/// ONBEAT_CODE_NOTHING before the first item.
///
/// # Safety
/// The rules of onbeat_consumer_receive() apply.
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
            write_unless_null(item, OnbeatItem::of(&newest));
            Ok(OnbeatCode::Ok)
        })
    })
}

/// Returns the number of items that newer ones replaced before the consumer received them. Returns
/// 0 for null.
///
/// # Safety
/// The handle is null or open.
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

/// Detaches the consumer and closes the handle. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_consumer_close(consumer: *mut OnbeatConsumer) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(consumer) })
}
