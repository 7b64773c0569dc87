//! The view of a channel for a relay, which carries the channel's items between hosts: it shows how
//! far the consumers are, and can mark the channel as broken.

use super::state::{ChannelState, SEVERED};
use super::stats;
use crate::memory::atomics::Ordering;
use std::sync::Arc;

/// The progress of a channel's consumers, for a thread other than the producer's.
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

    /// Returns the number of consumers that are attached, observers not included. Real-time safe.
    pub fn consumers(&self) -> usize {
        stats::attached(&self.state)
    }

    /// Returns the first item number that a consumer may not have consumed yet. All consumers have
    /// consumed all items with smaller numbers; observers do not count. While an item is being
    /// delivered, the result may be too low for a moment. Real-time safe.
    pub fn consumed(&self) -> u64 {
        let sent = self.state.sent().load(Ordering::Acquire);
        sent.saturating_sub(stats::most_in_flight(&self.state))
    }

    /// Sleeps until `ready` returns true or until `deadline_ns` (CLOCK_MONOTONIC). Returns the last
    /// result of `ready`.
    ///
    /// Calls `ready` again when a consumer attaches, leaves or consumes an item, and after
    /// [`Progress::wake`]. A delivery alone does not wake this call. No producer may attach during
    /// the call, because attaching discards the count of sleepers.
    pub fn wait(&self, deadline_ns: Option<u64>, ready: impl FnMut() -> bool) -> bool {
        self.state.producer_signal().wait(deadline_ns, ready)
    }

    /// Wakes the thread that waits. Real-time safe: makes a system call only if a thread sleeps.
    pub fn wake(&self) {
        self.state.producer_signal().notify();
    }

    /// Marks the channel as broken: the producer's items no longer arrive. Sending fails from now
    /// on, for ever. Consumers on this host get an error after the last item. A relay that is the
    /// producer itself calls [`Producer::sever`](crate::Producer::sever) instead.
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
    fn the_progress_of_a_channel_is_that_of_its_slowest_consumer() {
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
        assert_eq!(progress.consumed(), 0, "one item is still in use");
        drop(item);
        assert_eq!(progress.consumed(), 1);
        drop(a);
        drop(producer.loan(1));
        assert_eq!((progress.consumers(), progress.consumed()), (1, 2));
        assert_eq!(observer.waiting(), 2);
    }

    #[test]
    fn a_thread_that_waits_for_progress_wakes_when_an_item_is_consumed() {
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
    fn a_severed_channel_gives_an_error_on_both_sides_instead_of_a_regular_end() {
        let channel = channel();
        let (consumer, mut producer) = (channel.consumer().unwrap(), channel.producer().unwrap());
        producer.send(&[1]).unwrap();
        producer.send(&[2]).unwrap();
        // Severing wakes the producer that waits for credit.
        let refused = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| producer.loan(1).unwrap().send());
            channel.progress().sever();
            waiting.join().unwrap()
        });
        assert_eq!(refused, Err(SendError::Severed));
        drop(producer);
        assert!(channel.is_severed() && consumer.is_severed() && !consumer.is_over());
        // Items that arrived before are still received.
        for number in 1..3 {
            assert_eq!(*consumer.receive_until(None).unwrap().unwrap(), [number]);
        }
        let error = consumer.receive_until(None).unwrap_err();
        assert_eq!(error, ReceiveError::Severed);
        // The channel stays severed for the next producer too.
        let mut next = channel.producer().unwrap();
        let refused = next.loan(1).unwrap().try_send().unwrap_err().reason;
        assert_eq!(refused, SendError::Severed);
    }

    #[test]
    fn a_producer_that_severs_the_channel_wakes_its_consumers() {
        let channel = channel();
        let (consumer, producer) = (channel.consumer().unwrap(), channel.producer().unwrap());
        let waiting = std::thread::spawn(move || consumer.receive_until(None).map(drop));
        producer.sever();
        assert_eq!(waiting.join().unwrap(), Err(ReceiveError::Severed));
    }

    #[test]
    fn a_producer_can_go_on_sending_after_it_announced_its_end() {
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
    fn skipped_item_numbers_appear_as_a_gap_to_consumers() {
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
