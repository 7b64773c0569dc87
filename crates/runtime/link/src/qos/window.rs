//! Acknowledgement: the sender repeats unconfirmed messages a bounded number of times, and the
//! receiver takes every message once.
//!
//! Messages are numbered from 0. The receiver reports how many its application has *consumed* (a
//! credit comes back with each), and which later ones have *arrived*. The sender reports the
//! *oldest* message that can still come, and the receiver skips older ones that were given up. All
//! counts only grow, so a report may be lost, doubled or late.
//!
//! Pure: no clock, no thread. No allocation after `new`. Loops are bounded by the credits, 64 at
//! most.

use crate::resume::Violation;

/// The largest number of messages that are sent and not acknowledged: a status has a bit for each.
pub const MOST_CREDITS: usize = 64;

/// The rule for sending a message again, at most `times` times.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// The time that an acknowledgement may take, ns. `None` means no limit.
    pub timeout_ns: Option<u64>,
    pub times: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Done,
    Writing,
    /// The message was sent. At `due_ns` it is sent again, or given up if `more` is 0. `more` is
    /// the number of times that the message may still be sent again.
    Sent {
        more: u32,
        due_ns: u64,
    },
}

/// An action that is due for a message. Each variant contains the message's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The sender must send the message again.
    Again(u64),
    /// The message was given up: the peer acknowledged none of its copies.
    GivenUp(u64),
}

/// The sender's record of messages that are neither acknowledged nor given up.
#[derive(Debug)]
pub struct Outbox {
    retry: Retry,
    next: u64,
    consumed: u64,
    open: Vec<Open>,
}

impl Outbox {
    /// Makes a record in which no message was sent yet. `credits` is at most [`MOST_CREDITS`].
    pub fn new(credits: usize, retry: Retry) -> Outbox {
        Outbox {
            retry,
            next: 0,
            consumed: 0,
            open: vec![Open::Done; credits],
        }
    }

    fn at(&mut self, number: u64) -> &mut Open {
        let place = number % self.open.len() as u64;
        &mut self.open[place as usize]
    }

    fn numbers(&self) -> std::ops::Range<u64> {
        self.consumed..self.next
    }

    fn is_open(&self, number: u64) -> bool {
        self.open[(number % self.open.len() as u64) as usize] != Open::Done
    }

    /// Begins the next message and returns its number. Returns `None` without a credit.
    pub fn begin(&mut self) -> Option<u64> {
        let number = self.next;
        if number - self.consumed >= self.open.len() as u64 {
            return None;
        }
        self.next += 1;
        *self.at(number) = Open::Writing;
        Some(number)
    }

    /// Takes the last [`Outbox::begin`] back, because the message did not leave. Its number is used
    /// again.
    pub fn undo(&mut self, number: u64) {
        self.next = number;
        *self.at(number) = Open::Done;
    }

    /// Records that the message of the last [`Outbox::begin`] has left at `now_ns`.
    pub fn sent(&mut self, number: u64, now_ns: u64) {
        let (more, timeout) = (self.retry.times, self.retry.timeout_ns);
        let due_ns = timeout.map_or(u64::MAX, |t| now_ns.saturating_add(t));
        if number >= self.consumed && *self.at(number) == Open::Writing {
            *self.at(number) = Open::Sent { more, due_ns };
        }
    }

    /// Returns the number of the next message. It equals the number of messages begun.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of the oldest message that is neither acknowledged nor given up. If there
    /// is none, returns the number of the next message.
    pub fn oldest(&self) -> u64 {
        self.numbers()
            .find(|n| self.is_open(*n))
            .unwrap_or(self.next)
    }

    /// Reports whether all messages are acknowledged or given up.
    pub fn is_done(&self) -> bool {
        self.oldest() == self.next
    }

    /// Applies a status of the receiver: the number of consumed messages, and a bit for each later
    /// one that has arrived. An outdated status changes nothing.
    ///
    /// # Errors
    /// The receiver claims messages that were never sent.
    pub fn on_status(&mut self, consumed: u64, arrived: u64) -> Result<(), Violation> {
        let highest = u64::from(64 - arrived.leading_zeros());
        let end = consumed.checked_add(highest);
        if end.is_none_or(|end| end > self.next) {
            return Err(Violation::Progress);
        }
        for number in self.numbers() {
            let bit = number.checked_sub(consumed);
            let is_there = bit.is_none_or(|bit| bit < 64 && arrived >> bit & 1 != 0);
            if is_there {
                *self.at(number) = Open::Done;
            }
        }
        self.consumed = self.consumed.max(consumed);
        Ok(())
    }

    /// Returns one action that is due at `now_ns`, or `None`. Call it again until it returns
    /// `None`.
    pub fn due(&mut self, now_ns: u64) -> Option<Due> {
        let again_ns = now_ns.saturating_add(self.retry.timeout_ns.unwrap_or(u64::MAX));
        for number in self.numbers() {
            let Open::Sent { more, due_ns } = *self.at(number) else {
                continue;
            };
            if now_ns < due_ns {
                continue;
            }
            let Some(more) = more.checked_sub(1) else {
                *self.at(number) = Open::Done;
                return Some(Due::GivenUp(number));
            };
            let due_ns = again_ns;
            *self.at(number) = Open::Sent { more, due_ns };
            return Some(Due::Again(number));
        }
        None
    }
}

/// The result of [`Inbox::judge`] for a message that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// The message is new, and the receiver has room for it.
    New,
    /// The message arrived before, or was given up.
    Again,
}

/// The receiver's record of messages that arrived.
#[derive(Debug)]
pub struct Inbox {
    credits: u64,
    consumed: u64,
    /// The messages that have arrived and are not consumed, one per bit. Bit 0 stands for the
    /// message with the number `consumed`.
    arrived: u64,
    oldest: u64,
}

impl Inbox {
    /// Makes a record in which no message has arrived yet. `credits` is at most [`MOST_CREDITS`].
    pub fn new(credits: usize) -> Inbox {
        Inbox {
            credits: credits as u64,
            consumed: 0,
            arrived: 0,
            oldest: 0,
        }
    }

    /// Reports whether the message of this number is new.
    ///
    /// # Errors
    /// Fails if the peer had no credit for the message.
    pub fn judge(&self, number: u64) -> Result<Came, Violation> {
        match number.checked_sub(self.consumed) {
            None => Ok(Came::Again),
            Some(bit) if bit >= self.credits => Err(Violation::Credits),
            Some(bit) if self.arrived >> bit & 1 != 0 => Ok(Came::Again),
            Some(_) => Ok(Came::New),
        }
    }

    /// Records that the message of this number has arrived. Ignores it if it arrived before, or if
    /// the sender had no credit for it.
    pub fn came(&mut self, number: u64) {
        if self.judge(number) == Ok(Came::New) {
            self.arrived |= 1 << (number - self.consumed);
        }
    }

    /// Applies the sender's report of the oldest message that can still arrive.
    pub fn on_oldest(&mut self, oldest: u64) {
        self.oldest = self.oldest.max(oldest);
    }

    /// Skips messages that the sender has given up. Returns how many were skipped, and the number
    /// of the message that the application consumes next, if it has arrived.
    pub fn to_consume(&mut self) -> (u64, Option<u64>) {
        let mut lost = 0;
        while self.arrived & 1 == 0 && self.consumed < self.oldest && lost < self.credits {
            self.advance();
            lost += 1;
        }
        (lost, (self.arrived & 1 != 0).then_some(self.consumed))
    }

    /// Records that the application has consumed the message that [`Inbox::to_consume`] returned.
    pub fn consume(&mut self) {
        debug_assert!(self.arrived & 1 != 0);
        self.advance();
    }

    fn advance(&mut self) {
        self.consumed += 1;
        self.arrived >>= 1;
    }

    /// Returns the status for the sender: the number of consumed messages, and one bit for each
    /// message from that number on, set if it has arrived.
    pub fn progress(&self) -> (u64, u64) {
        (self.consumed, self.arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const RETRY: Retry = Retry {
        timeout_ns: Some(10),
        times: 2,
    };

    #[test]
    fn a_message_is_sent_again_up_to_the_limit_and_then_given_up() {
        let mut out = Outbox::new(2, RETRY);
        assert_eq!(
            (out.begin(), out.begin(), out.begin()),
            (Some(0), Some(1), None)
        );
        out.sent(0, 100);
        out.sent(1, 105);
        assert_eq!(
            (out.due(109), out.due(110), out.due(110)),
            (None, Some(Due::Again(0)), None)
        );
        assert_eq!(
            (out.due(115), out.due(120)),
            (Some(Due::Again(1)), Some(Due::Again(0)))
        );
        out.on_status(0, 0b10).unwrap();
        assert_eq!((out.due(129), out.oldest()), (None, 0));
        assert_eq!((out.due(130), out.oldest()), (Some(Due::GivenUp(0)), 2));
        assert!(out.is_done() && out.due(u64::MAX).is_none());
        assert_eq!(out.begin(), None, "a credit comes back on consumption");

        let mut inbox = Inbox::new(2);
        inbox.came(1);
        assert_eq!(inbox.to_consume(), (0, None));
        inbox.on_oldest(2);
        assert_eq!(inbox.to_consume(), (1, Some(1)));
        inbox.consume();
        let (consumed, arrived) = inbox.progress();
        out.on_status(consumed, arrived).unwrap();
        assert_eq!(out.begin(), Some(2));
    }

    #[test]
    fn impossible_counts_of_a_receiver_are_refused() {
        let mut out = Outbox::new(64, RETRY);
        out.begin();
        for (consumed, arrived) in [(2, 0), (0, 0b10), (1, 1), (u64::MAX, 1), (0, 1 << 63)] {
            assert_eq!(out.on_status(consumed, arrived), Err(Violation::Progress));
        }
        let inbox = Inbox::new(3);
        assert_eq!(inbox.judge(3), Err(Violation::Credits));
        assert_eq!(inbox.judge(u64::MAX), Err(Violation::Credits));
    }

    #[derive(Debug, Clone, Copy)]
    enum Frame {
        Message { number: u64, oldest: u64 },
        Status { consumed: u64, arrived: u64 },
    }

    proptest! {
        #[test]
        fn no_message_is_doubled_and_only_given_up_ones_are_lost(
            credits in 1usize..6,
            times in 0u32..4,
            steps in proptest::collection::vec((0u8..10, any::<prop::sample::Index>()), 0..400),
        ) {
            let mut out = Outbox::new(credits, Retry { timeout_ns: Some(5), times });
            let mut inbox = Inbox::new(credits);
            let mut wires: [VecDeque<Frame>; 2] = Default::default();
            let (mut now, mut given_up, mut taken, mut lost) = (0, vec![], vec![], 0);
            // Then a network without faults, until nothing is open.
            let calm = (0..2000).map(|n| ([0, 1, 2, 3, 4, 5][n % 6], None));
            let steps: Vec<_> = steps.into_iter().map(|(s, i)| (s, Some(i))).collect();
            let noisy = steps.len();
            for (at, (step, index)) in steps.into_iter().chain(calm).enumerate() {
                now += 1;
                let pick = |wire: &VecDeque<Frame>| index.map_or(0, |i| i.index(wire.len()));
                let status = |inbox: &Inbox| {
                    let (consumed, arrived) = inbox.progress();
                    Frame::Status { consumed, arrived }
                };
                match step {
                    0 if at < noisy => {
                        if let Some(number) = out.begin() {
                            out.sent(number, now);
                            wires[0].push_back(Frame::Message { number, oldest: out.oldest() });
                        }
                    }
                    1 => match out.due(now) {
                        Some(Due::Again(number)) => {
                            wires[0].push_back(Frame::Message { number, oldest: out.oldest() })
                        }
                        Some(Due::GivenUp(number)) => given_up.push(number),
                        None => {}
                    },
                    2 | 3 if !wires[usize::from(step - 2)].is_empty() => {
                        let wire = usize::from(step - 2);
                        let at = pick(&wires[wire]);
                        match wires[wire].remove(at).unwrap() {
                            Frame::Message { number, oldest } => {
                                inbox.on_oldest(oldest);
                                prop_assert!(inbox.judge(number).is_ok());
                                inbox.came(number);
                                wires[1].push_back(status(&inbox));
                            }
                            Frame::Status { consumed, arrived } => {
                                prop_assert!(out.on_status(consumed, arrived).is_ok());
                            }
                        }
                    }
                    4 => {
                        let (skipped, number) = inbox.to_consume();
                        lost += skipped;
                        if let Some(number) = number {
                            taken.push(number);
                            inbox.consume();
                        }
                        wires[1].push_back(status(&inbox));
                    }
                    // The sender reports its oldest message now and then.
                    5 => inbox.on_oldest(out.oldest()),
                    6 | 7 if !wires[usize::from(step - 6)].is_empty() => {
                        let wire = usize::from(step - 6);
                        let at = pick(&wires[wire]);
                        wires[wire].remove(at);
                    }
                    8 | 9 if !wires[usize::from(step - 8)].is_empty() => {
                        let wire = usize::from(step - 8);
                        let frame = wires[wire][pick(&wires[wire])];
                        wires[wire].push_back(frame);
                    }
                    _ => {}
                }
            }
            prop_assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
            prop_assert!(out.is_done());
            prop_assert_eq!(taken.len() as u64 + lost, out.next());
            prop_assert_eq!(inbox.progress(), (out.next(), 0));
            for number in (0..out.next()).filter(|n| !taken.contains(n)) {
                prop_assert!(given_up.contains(&number), "{number} is gone");
            }
        }
    }
}
