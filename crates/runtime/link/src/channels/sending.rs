//! The threads of a relay on the host that sends. One passes items on, and the other receives
//! reports of consumed items.

use super::control::Control;
use super::message::{Message, PassedItem};
use super::terms::credits;
use crate::interface::{End, Incoming, Outgoing, SendError};
use onbeat_flow::{Channel, Consumer, Item};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Sends the channel's items until the relay stops or the link ends. Allocates nothing while it
/// runs.
pub(super) fn send_items(channel: &Channel, mut out: Box<dyn Outgoing>, control: &Control) {
    let may_begin = || control.consumers_ready.load(Ordering::Acquire) || is_done(control);
    control.waker.wait(None, may_begin);
    if !control.consumers_ready.load(Ordering::Acquire) {
        // Nothing was sent yet.
        control.leave();
        control.end(None);
        return stand_in(channel, control);
    }
    // From here on items may be sent. Items that are waiting are still sent if the relay must stop.
    let mut consumer = channel.consumer_on(&control.waker);
    if let Ok(consumer) = &mut consumer {
        consumer.set_unseen();
    }
    let end = match &consumer {
        Ok(consumer) => pass_items(channel, consumer, &mut *out, control),
        Err(_) => Some(End::Protocol {
            what: "other consumers left no room in the channel for the consumer that sends its items to the other host",
        }),
    };
    finish(control, end.as_ref());
}

/// Ends the relay, and removes its receiving host from the hosts that receive the channel. If the
/// link broke, call this function before the credits of unconsumed items are returned.
fn finish(control: &Control, end: Option<&End>) {
    control.end(end);
    control.leave();
}

/// Attaches a consumer in place of a host that left before items came. Without this consumer the
/// producer would wait for ever, because it starts only when each host has a consumer.
fn stand_in(channel: &Channel, control: &Control) {
    if !control.hosts.is_any_left() {
        return;
    }
    if let Ok(consumer) = channel.consumer_on(&control.waker) {
        let waker = &control.waker;
        waker.wait(None, || control.is_stopping() || consumer.waiting() > 0);
    }
}

fn is_done(control: &Control) -> bool {
    control.is_stopping() || control.is_over()
}

fn pass_items(
    channel: &Channel,
    consumer: &Consumer,
    out: &mut dyn Outgoing,
    control: &Control,
) -> Option<End> {
    let credits = credits(channel.options().policy);
    // Items that the other host has not consumed.
    let mut kept: VecDeque<Item<'_>> = VecDeque::with_capacity(credits.unwrap_or(0));
    let mut said_left = false;
    let end = loop {
        let first = kept.front().map(Item::sequence);
        let is_consumed = || first.is_some_and(|f| f < control.consumed.load(Ordering::Acquire));
        let may_send = kept.len() < credits.unwrap_or(usize::MAX);
        let has_item = || may_send && consumer.waiting() > 0;
        let has_left = || !said_left && consumer.is_over();
        control.waker.wait(None, || {
            is_done(control) || is_consumed() || has_item() || has_left()
        });
        if control.is_over() {
            break None;
        }
        if is_consumed() {
            kept.pop_front();
        } else if let Some(item) = may_send.then(|| consumer.receive()).flatten() {
            said_left = false;
            // Items that newer ones replaced before this one are lost too.
            control.set_lost(consumer.stats().dropped);
            let message = Message::Item(PassedItem {
                number: item.sequence(),
                lost: control.lost(),
                payload: &item,
            });
            if let Err(end) = send(out, &message, control) {
                break end;
            }
            if credits.is_some() {
                kept.push_back(item);
            }
        } else if has_left() {
            said_left = true;
            if let Err(end) = send(out, &Message::ProducerLeft, control) {
                break end;
            }
        } else if control.is_stopping() {
            break None;
        }
    };
    finish(control, end.as_ref());
    end
}

pub(super) fn send(
    out: &mut dyn Outgoing,
    message: &Message<'_>,
    control: &Control,
) -> Result<(), Option<End>> {
    loop {
        let again = Some(control.next_check_ns());
        match out.send(message.bytes(), again, &mut |slot| message.write(slot)) {
            Ok(_) => return Ok(()),
            Err(SendError::Ended(end)) => return Err(Some(end)),
            Err(SendError::NoCredit { .. }) if control.is_over() || control.is_drain_over() => {
                return Err(None)
            }
            Err(SendError::NoCredit { .. }) => {}
            // Relays make no promises (`qos`), and items fit.
            Err(SendError::TooLarge { .. } | SendError::Breach(_)) => {
                return Err(Some(End::Protocol {
                    what: "the link refuses an item of the channel",
                }))
            }
        }
    }
}

pub(super) fn receive_reports(mut incoming: Box<dyn Incoming>, control: &Control) {
    let mut is_nonsense = false;
    while !control.is_over() && !is_nonsense {
        let came = incoming.receive(Some(control.next_check_ns()), &mut |_, bytes| {
            match Message::parse(bytes) {
                Some(Message::Ready) => control.consumers_ready.store(true, Ordering::Release),
                Some(Message::Consumed(number)) => {
                    control.consumed.fetch_max(number, Ordering::AcqRel);
                }
                _ => is_nonsense = true,
            }
            control.waker.wake();
        });
        if let Err(end) = came {
            control.end(Some(&end));
        }
    }
    if is_nonsense {
        control.end(Some(&End::Protocol {
            what: "the receiving host sent a message that is neither a count of consumed items nor the news that its consumers are ready",
        }));
    }
}
