//! Keeps a value for the last ten seconds, for the last minute and since the start. Memory does not
//! grow with time.
//!
//! A window consists of slots of equal length, which begin at multiples of that length. The latest
//! slot is still being filled. So the window of 10 s covers 9 to 10 s, and that of a minute 50 to
//! 60 s.

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// A span of time that ends with the latest event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    /// The last 9 to 10 s: the current second and the nine before it.
    TenSeconds,
    /// The last 50 to 60 s: the current ten seconds and the fifty before them.
    Minute,
    /// The time since the first event.
    Start,
}

impl Span {
    /// All spans, shortest first.
    pub const ALL: [Span; 3] = [Span::TenSeconds, Span::Minute, Span::Start];

    /// Returns the time at which the span starts, in ns of CLOCK_MONOTONIC. `start_ns` is the time
    /// of the first event.
    pub fn since_ns(self, start_ns: u64, now_ns: u64) -> u64 {
        let (step, length) = match self {
            Span::TenSeconds => (SECOND_NS, 10),
            Span::Minute => (10 * SECOND_NS, 6),
            Span::Start => return start_ns,
        };
        let first = (now_ns / step + 1).saturating_sub(length);
        start_ns.max(first * step)
    }
}

/// The values of the latest slots of time. All slots have the same length.
#[derive(Debug, Clone)]
pub(crate) struct Ring<T> {
    step_ns: u64,
    length: u64,
    /// The values, each with the number of its slot. Slot 0 begins at time 0. The list is empty
    /// until the first value.
    slots: Vec<(u64, T)>,
    /// The index in `slots` of the slot that was used last.
    last: usize,
}

impl<T: Default> Ring<T> {
    pub(crate) fn new(step_ns: u64, length: u64) -> Self {
        Ring {
            step_ns,
            length,
            slots: Vec::new(),
            last: 0,
        }
    }

    /// Returns the value of the slot that contains `time_ns`. Returns `None` if a later slot has
    /// replaced it.
    pub(crate) fn at(&mut self, time_ns: u64) -> Option<&mut T> {
        let number = time_ns / self.step_ns;
        if self.slots.get(self.last).is_none_or(|s| s.0 != number) {
            self.last = self.find(number)?;
        }
        self.slots.get_mut(self.last).map(|slot| &mut slot.1)
    }

    /// Returns the index of the slot with this number. Empties or creates the slot if necessary.
    fn find(&mut self, number: u64) -> Option<usize> {
        let place = number % self.length;
        let at = self.slots.iter().position(|s| s.0 % self.length == place);
        match at {
            Some(at) if self.slots[at].0 > number => return None,
            Some(at) if self.slots[at].0 == number => return Some(at),
            Some(at) => self.slots[at] = (number, T::default()),
            None => self.slots.push((number, T::default())),
        }
        Some(at.unwrap_or(self.slots.len() - 1))
    }

    fn within(&self, now_ns: u64) -> impl Iterator<Item = &T> {
        let now = now_ns / self.step_ns;
        let is_in = move |number: u64| number <= now && number + self.length > now;
        self.slots.iter().filter(move |s| is_in(s.0)).map(|s| &s.1)
    }

    /// Returns the values of the slots up to `now_ns`, oldest first. `None` stands for a slot
    /// without a value.
    pub(crate) fn series(&self, now_ns: u64) -> Vec<Option<&T>> {
        let now = now_ns / self.step_ns;
        let numbers = (0..self.length).rev().map(|back| now.checked_sub(back));
        let slot = |number: u64| self.slots.iter().find(|s| s.0 == number);
        numbers.map(|number| slot(number?).map(|s| &s.1)).collect()
    }
}

/// The values of one figure over each [`Span`] of time.
#[derive(Debug, Clone)]
pub struct Windows<T> {
    total: T,
    seconds: Ring<T>,
    tens: Ring<T>,
    first_ns: Option<u64>,
}

impl<T: Default> Default for Windows<T> {
    fn default() -> Self {
        Windows {
            total: T::default(),
            seconds: Ring::new(SECOND_NS, 10),
            tens: Ring::new(10 * SECOND_NS, 6),
            first_ns: None,
        }
    }
}

impl<T: Default> Windows<T> {
    /// Changes the value of each span that contains `time_ns`.
    pub fn at(&mut self, time_ns: u64, mut change: impl FnMut(&mut T)) {
        change(&mut self.total);
        self.seconds.at(time_ns).map(&mut change);
        self.tens.at(time_ns).map(&mut change);
        let first = self.first_ns.get_or_insert(time_ns);
        *first = time_ns.min(*first);
    }

    /// Returns the values whose sum is the value of the span. Each of them covers a part of the
    /// span.
    pub fn parts(&self, span: Span, now_ns: u64) -> Vec<&T> {
        match span {
            Span::TenSeconds => self.seconds.within(now_ns).collect(),
            Span::Minute => self.tens.within(now_ns).collect(),
            Span::Start => vec![&self.total],
        }
    }

    /// Returns the value since the first event.
    pub fn total(&self) -> &T {
        &self.total
    }

    /// Returns the earliest time for which a value was counted, in ns of CLOCK_MONOTONIC.
    pub fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }
}

impl Windows<u64> {
    /// Adds the length of the time from `from_ns` to `to_ns` to the value of each span. A span gets
    /// only the part that lies in it.
    pub(crate) fn add_span(&mut self, from_ns: u64, to_ns: u64) {
        self.total = self.total.saturating_add(to_ns.saturating_sub(from_ns));
        for ring in [&mut self.seconds, &mut self.tens] {
            let (step, last) = (ring.step_ns, to_ns / ring.step_ns);
            let oldest = (last + 1).saturating_sub(ring.length);
            for number in oldest.max(from_ns / step)..=last {
                let begin = from_ns.max(number * step);
                let end = to_ns.min((number + 1).saturating_mul(step));
                if let Some(sum) = ring.at(number * step) {
                    *sum += end.saturating_sub(begin);
                }
            }
        }
        let first = self.first_ns.get_or_insert(to_ns);
        *first = to_ns.min(*first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(windows: &Windows<u64>, span: Span, now_s: u64) -> u64 {
        let parts = windows.parts(span, now_s * SECOND_NS);
        parts.into_iter().sum()
    }

    #[test]
    fn each_span_of_time_adds_up_the_values_of_its_seconds() {
        let mut windows = Windows::default();
        for second in 0..200u64 {
            windows.at(second * SECOND_NS + 5, |sum| *sum += second);
            let last = |n: u64| (second.saturating_sub(n - 1)..=second).sum::<u64>();
            assert_eq!(sum(&windows, Span::TenSeconds, second), last(10));
            let tens = second / 10 * 10;
            let minute: u64 = (tens.saturating_sub(50)..=second).sum();
            assert_eq!(sum(&windows, Span::Minute, second), minute);
            assert_eq!(sum(&windows, Span::Start, second), last(1000));
        }
        assert_eq!(
            (windows.seconds.slots.len(), windows.tens.slots.len()),
            (10, 6)
        );
        // Time goes on without values.
        assert_eq!(sum(&windows, Span::TenSeconds, 205), 196 + 197 + 198 + 199);
        assert_eq!(sum(&windows, Span::TenSeconds, 220), 0);
        assert_eq!(sum(&windows, Span::Minute, 300), 0);
    }

    #[test]
    fn a_value_that_arrives_late_counts_in_spans_that_still_have_its_second() {
        let mut windows = Windows::default();
        windows.at(100 * SECOND_NS, |sum| *sum += 1);
        windows.at(95 * SECOND_NS, |sum| *sum += 10);
        windows.at(80 * SECOND_NS, |sum| *sum += 100);
        windows.at(3 * SECOND_NS, |sum| *sum += 1000);
        let sums = Span::ALL.map(|span| sum(&windows, span, 100));
        assert_eq!(sums, [11, 111, 1111]);
        assert_eq!(windows.first_ns(), Some(3 * SECOND_NS));
    }

    #[test]
    fn each_span_of_time_counts_only_its_own_part_of_a_longer_interval() {
        let mut windows = Windows::default();
        // Five hours pass without an event.
        windows.add_span(SECOND_NS / 2, 18_000 * SECOND_NS + SECOND_NS / 4);
        let sums = Span::ALL.map(|span| sum(&windows, span, 18_000));
        let quarter = SECOND_NS / 4;
        assert_eq!(
            sums[..2],
            [9 * SECOND_NS + quarter, 50 * SECOND_NS + quarter]
        );
        assert_eq!(sums[2], 17_999 * SECOND_NS + 3 * quarter);
    }

    #[test]
    fn a_span_of_time_begins_with_its_oldest_stored_interval() {
        let at = |span: Span, now| span.since_ns(7 * SECOND_NS, now) / SECOND_NS;
        assert_eq!(at(Span::TenSeconds, 100 * SECOND_NS), 91);
        assert_eq!(at(Span::Minute, 105 * SECOND_NS), 50);
        assert_eq!(at(Span::Minute, 20 * SECOND_NS), 7);
        assert_eq!(at(Span::Start, 105 * SECOND_NS), 7);
    }
}
