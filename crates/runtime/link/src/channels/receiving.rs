//! The threads of a relay on the host that receives. One puts items into the channel, and the other
//! reports what consumers have consumed.

use super::control::Control;
use super::message::{Message, PassedItem};
use super::sending::send;
use super::terms::credits;
use crate::interface::{End, Incoming, Outgoing};
use onbeat_flow::{Channel, Producer};
use std::sync::atomic::Ordering;

/// Writes received items into the channel until the relay stops or the link ends. Allocates nothing
/// while it runs.
pub(super) fn receive_items(
    producer: Producer,
    mut incoming: Box<dyn Incoming>,
    control: &Control,
) {
    let mut writer = ItemWriter {
        control,
        producer,
        has_left: false,
        next: 0,
    };
    while !control.is_over() && !control.is_stopping() {
        let mut wrong = None;
        let came = incoming.receive(Some(control.next_check_ns()), &mut |_, bytes| {
            wrong = writer.handle(bytes).err();
        });
        let wrong = wrong.map(|what| End::Protocol { what });
        if let Some(end) = came.err().or(wrong) {
            control.end(Some(&end));
        }
    }
    if control.is_broken() && !writer.has_left {
        writer.producer.sever();
    }
    control.end(None);
}

struct ItemWriter<'a> {
    control: &'a Control,
    producer: Producer,
    has_left: bool,
    next: u64,
}

impl ItemWriter<'_> {
    fn handle(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        match Message::parse(bytes) {
            Some(Message::Item(item)) => self.put(&item),
            Some(Message::ProducerLeft) => {
                self.has_left = true;
                self.producer.end();
                Ok(())
            }
            _ => Err("the sending host sent a message that is neither an item nor the end of its producer"),
        }
    }

    fn put(&mut self, item: &PassedItem<'_>) -> Result<(), &'static str> {
        let PassedItem {
            number,
            lost,
            payload,
        } = *item;
        if number < self.next || number == u64::MAX || lost < self.control.lost() {
            return Err("items out of order");
        }
        self.control.set_lost(lost);
        self.next = number + 1;
        let producer = &mut self.producer;
        if std::mem::take(&mut self.has_left) {
            producer.go_on();
        }
        producer.skip_to(number);
        let loan = producer.loan(payload.len());
        let mut loan = loan.map_err(|_| "too many items, or items that are larger than agreed")?;
        loan.copy_from_slice(payload);
        // The credits never let the other host wait here. But consumers that left before the first
        // item came can delay it.
        while let Err(refused) = loan.send_until(self.control.next_check_ns()) {
            if self.control.is_stopping() || self.control.is_over() {
                break;
            }
            loan = refused.loan;
        }
        // Consumption during the delivery could not be reported until now.
        self.control.progress.wake();
        Ok(())
    }
}

pub(super) fn send_reports(channel: &Channel, mut out: Box<dyn Outgoing>, control: &Control) {
    let (progress, options) = (&control.progress, channel.options());
    let is_done = || control.is_stopping() || control.is_over();
    progress.wait(None, || {
        is_done() || progress.consumers() >= options.expected
    });
    let mut end = if is_done() {
        Err(None)
    } else {
        control.consumers_ready.store(true, Ordering::Release);
        send(&mut *out, &Message::Ready, control)
    };
    let (counts, mut reported) = (credits(options.policy).is_some(), 0);
    while end.is_ok() {
        progress.wait(None, || {
            is_done() || (counts && progress.consumed() > reported)
        });
        if is_done() {
            break;
        }
        reported = progress.consumed();
        end = send(&mut *out, &Message::Consumed(reported), control);
    }
    // The other thread reports why the link ended, since it may still have items to put.
}
