//! What a relay needs to know, which carries a channel's items between hosts: how far consumers are,
//! and an end that is none.

use super::state::{ChannelState, SEVERED};
use super::stats;
use crate::memory::atomics::Ordering;
use std::sync::Arc;

/// How far a channel's consumers are, for a thread that is not the producer's.
#[derive(Clone)]
pub struct Progress {
    state: Arc<ChannelState>,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Progress: {} items consumed", self.consumed())
    }
}

impl Progress {
    pub(crate) fn new(state: Arc<ChannelState>) -> Progress {
        Progress { state }
    }

    /// Number of consumers that are attached, observers not included. Real-time safe.
    pub fn consumers(&self) -> usize {
        stats::attached(&self.state)
    }

    /// All items with a smaller number are consumed by all consumers (observers not included); there
    /// may be more of them for a moment while one is delivered. Real-time safe.
    pub fn consumed(&self) -> u64 {
        let sent = self.state.sent().load(Ordering::Acquire);
        sent.saturating_sub(stats::most_in_flight(&self.state))
    }

    /// Sleeps until `ready` returns true, which is asked again when a consumer attaches, leaves or
    /// consumes an item, and after [`Progress::wake`]; or until `deadline_ns` (CLOCK_MONOTONIC).
    /// Returns the last answer. A delivery alone wakes nobody here. No producer may attach
    /// meanwhile: it forgets who sleeps here.
    pub fn wait(&self, deadline_ns: Option<u64>, ready: impl FnMut() -> bool) -> bool {
        self.state.producer_signal().wait(deadline_ns, ready)
    }

    /// Wakes the thread that waits. Real-time safe: a system call only if one does.
    pub fn wake(&self) {
        self.state.producer_signal().notify();
    }

    /// Tells the producer that its items do not arrive any more: sending fails from now on, for
    /// ever. Consumers beside it learn so with its end. A relay's own producer severs with
    /// [`Producer::sever`](crate::Producer::sever).
    pub fn sever(&self) {
        self.state.closed().store(SEVERED, Ordering::Release);
        self.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Channel, Options, Policy, ReceiveError, SendError};

    fn channel() -> Channel {
        Channel::new(Options::new(Policy::Credit { credits: 2 }, 8)).unwrap()
    }

    #[test]
    fn the_slowest_consumer_counts() {
        let channel = channel();
        let (a, b) = (channel.consumer().unwrap(), channel.consumer().unwrap());
        let observer = channel.observer().unwrap();
        let mut producer = channel.producer().unwrap();
        let progress = channel.progress();
        assert_eq!((progress.consumers(), progress.consumed()), (2, 0));
        (0..2).for_each(|n| producer.send(&[n]).unwrap());
        let item = a.receive().unwrap();
        drop(b.receive());
        drop(b.receive());
        assert_eq!(progress.consumed(), 0, "one is in use");
        drop(item);
        assert_eq!(progress.consumed(), 1);
        drop(a);
        drop(producer.loan(1));
        assert_eq!((progress.consumers(), progress.consumed()), (1, 2));
        assert_eq!(observer.waiting(), 2);
    }

    #[test]
    fn who_waits_for_progress_wakes_when_an_item_is_consumed() {
        let channel = channel();
        let (consumer, progress) = (channel.consumer().unwrap(), channel.progress());
        channel.producer().unwrap().send(&[1]).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| progress.wait(None, || progress.consumed() == 1));
            drop(consumer.receive());
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn a_severed_channel_is_an_error_on_both_sides_and_not_an_end() {
        let channel = channel();
        let (consumer, mut producer) = (channel.consumer().unwrap(), channel.producer().unwrap());
        producer.send(&[1]).unwrap();
        producer.send(&[2]).unwrap();
        // The one that waits for credit wakes.
        let refused = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| producer.loan(1).unwrap().send());
            channel.progress().sever();
            waiting.join().unwrap()
        });
        assert_eq!(refused, Err(SendError::Severed));
        drop(producer);
        assert!(channel.is_severed() && consumer.is_severed() && !consumer.is_over());
        // What had come is still received.
        for number in 1..3 {
            assert_eq!(*consumer.receive_until(None).unwrap().unwrap(), [number]);
        }
        let error = consumer.receive_until(None).unwrap_err();
        assert_eq!(error, ReceiveError::Severed);
        // For ever.
        let mut next = channel.producer().unwrap();
        let refused = next.loan(1).unwrap().try_send().unwrap_err().reason;
        assert_eq!(refused, SendError::Severed);
    }

    #[test]
    fn a_producer_that_severs_wakes_its_consumers() {
        let channel = channel();
        let (consumer, producer) = (channel.consumer().unwrap(), channel.producer().unwrap());
        let waiting = std::thread::spawn(move || consumer.receive_until(None).map(drop));
        producer.sever();
        assert_eq!(waiting.join().unwrap(), Err(ReceiveError::Severed));
    }

    #[test]
    fn a_producer_that_has_ended_can_go_on() {
        let channel = channel();
        let (consumer, mut producer) = (channel.consumer().unwrap(), channel.producer().unwrap());
        let waiting = std::thread::spawn(move || {
            let item = consumer.receive_until(None).unwrap();
            let ended = item.is_none();
            drop(item);
            (ended, consumer)
        });
        producer.end();
        let (ended, consumer) = waiting.join().unwrap();
        assert!(ended && consumer.is_over());
        producer.go_on();
        producer.send(&[3]).unwrap();
        assert!(!consumer.is_over());
        assert_eq!(*consumer.receive_until(None).unwrap().unwrap(), [3]);
    }

    #[test]
    fn numbers_that_were_lost_before_are_a_gap() {
        let channel = channel();
        let (consumer, mut producer) = (channel.consumer().unwrap(), channel.producer().unwrap());
        producer.send(&[0]).unwrap();
        producer.skip_to(5);
        producer.skip_to(3);
        producer.send(&[5]).unwrap();
        assert_eq!(consumer.receive().unwrap().sequence(), 0);
        assert_eq!(consumer.receive().unwrap().sequence(), 5);
        assert_eq!(channel.progress().consumed(), 6);
    }
}
