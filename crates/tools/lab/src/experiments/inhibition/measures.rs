//! Computes the paper's measures M1 to M4 of a run and the pattern that the run shows.

use std::time::Duration;

/// One iteration of the loop that sends pings. Times are in ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    pub woke_ns: i64,
    pub sent_ns: i64,
    pub received_ns: Option<i64>,
}

impl Loop {
    pub fn read(line: &str) -> Option<Loop> {
        let numbers: Result<Vec<i64>, _> = line.split(',').map(str::parse).collect();
        match numbers.ok()?[..] {
            [_, woke_ns, sent_ns, received_ns] => Some(Loop {
                woke_ns,
                sent_ns,
                received_ns: (received_ns > 0).then_some(received_ns),
            }),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measures {
    /// The paper's measure M1: the time from the start of the ping program to its end, in s.
    pub whole_s: f64,
    pub start_s: f64,
    /// The paper's measure M2: the times from each wake-up of the ping program to the end of the
    /// call that sends the ping, in us.
    pub send_us: Vec<f64>,
    /// The paper's measure M3: the times from the beginning of the call that sends a ping to the
    /// answer, in us. Infinite if no answer came.
    pub answer_us: Vec<f64>,
    /// The paper's measure M4: the times between successive wake-ups of the ping program, in us.
    pub gap_us: Vec<f64>,
}

/// The effect of the inhibitor on a run of the benchmark. If several effects fit, the one that
/// stands first in this enum counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// The paper's pattern (1): a call that sends a ping blocks.
    SendBlocks,
    /// The paper's pattern (2): a wake-up of the ping program comes late, although no call before
    /// it took long.
    WakesLate,
    StartLate,
    AnswersLate,
    /// The inhibitor has no effect: the paper's pattern (3).
    None,
}

impl Pattern {
    pub fn name(self) -> &'static str {
        match self {
            Pattern::None => "no effect (3)",
            Pattern::SendBlocks => "ping blocks (1)",
            Pattern::WakesLate => "wake-up late (2)",
            Pattern::StartLate => "start late",
            Pattern::AnswersLate => "answers late",
        }
    }
}

pub const PATTERNS: [Pattern; 5] = [
    Pattern::None,
    Pattern::SendBlocks,
    Pattern::WakesLate,
    Pattern::StartLate,
    Pattern::AnswersLate,
];

pub const LIMIT: Duration = Duration::from_millis(100);
/// A benchmark that needs longer than this time from its start until it is ready counts as late.
/// Without an inhibitor, a benchmark needs a tenth of this time.
pub const START_LIMIT: Duration = Duration::from_millis(500);

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

impl Measures {
    pub fn of(whole_s: f64, start_s: f64, loops: &[Loop]) -> Measures {
        let us = |ns: i64| ns as f64 / 1000.0;
        let answer = |l: &Loop| l.received_ns.map_or(f64::INFINITY, |at| us(at - l.woke_ns));
        Measures {
            whole_s,
            start_s,
            send_us: loops.iter().map(|l| us(l.sent_ns - l.woke_ns)).collect(),
            answer_us: loops.iter().map(answer).collect(),
            gap_us: loops
                .windows(2)
                .map(|w| us(w[1].woke_ns - w[0].woke_ns))
                .collect(),
        }
    }

    pub fn send_max(&self) -> f64 {
        largest(&self.send_us)
    }

    pub fn answers(&self) -> impl Iterator<Item = f64> + '_ {
        self.answer_us.iter().copied().filter(|v| v.is_finite())
    }

    pub fn answer_max(&self) -> f64 {
        self.answers().fold(0.0, f64::max)
    }

    pub fn gap_max(&self) -> f64 {
        largest(&self.gap_us)
    }
    pub fn unanswered(&self) -> usize {
        self.answer_us.iter().filter(|v| v.is_infinite()).count()
    }

    pub fn late_share(&self) -> f64 {
        let late = self.answer_us.iter().filter(|v| **v > limit_us()).count();
        late as f64 / self.answer_us.len().max(1) as f64
    }

    pub fn pattern(&self) -> Pattern {
        if self.send_max() > limit_us() {
            Pattern::SendBlocks
        } else if self.gap_max() > limit_us() {
            Pattern::WakesLate
        } else if self.start_s > START_LIMIT.as_secs_f64() {
            Pattern::StartLate
        } else if self.late_share() > 0.0 {
            Pattern::AnswersLate
        } else {
            Pattern::None
        }
    }
}

fn limit_us() -> f64 {
    LIMIT.as_micros() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn even(count: i64) -> Vec<Loop> {
        let at = |i: i64| Loop {
            woke_ns: i * 10 * MS,
            sent_ns: i * 10 * MS + MS / 10,
            received_ns: Some(i * 10 * MS + 3 * MS / 10),
        };
        (1..=count).map(at).collect()
    }

    fn of(loops: &[Loop]) -> Measures {
        Measures::of(1.0, 0.1, loops)
    }

    #[test]
    fn inhibition_measures_m2_to_m4_are_computed_as_in_the_paper() {
        let measures = of(&even(3));
        assert_eq!(measures.send_us, [100.0; 3]);
        assert_eq!(measures.answer_us, [300.0; 3]);
        assert_eq!(measures.gap_us, [10_000.0; 2]);
        assert_eq!(measures.pattern(), Pattern::None);
    }

    #[test]
    fn a_late_wake_up_after_a_blocked_send_counts_as_the_pattern_send_blocks() {
        let mut loops = even(4);
        loops[1].sent_ns += 900 * MS;
        for l in &mut loops[2..] {
            l.woke_ns += 900 * MS;
            l.sent_ns += 900 * MS;
            l.received_ns = l.received_ns.map(|at| at + 900 * MS);
        }
        let measures = of(&loops);
        assert_eq!(measures.send_max(), 900_100.0);
        assert_eq!(measures.pattern(), Pattern::SendBlocks);
    }

    #[test]
    fn a_late_wake_up_without_a_blocked_send_counts_as_the_pattern_wakes_late() {
        let mut loops = even(3);
        let late = loops[2];
        loops[2] = Loop {
            woke_ns: late.woke_ns + 1000 * MS,
            sent_ns: late.sent_ns + 1000 * MS,
            received_ns: late.received_ns.map(|at| at + 1000 * MS),
        };
        assert_eq!(of(&loops).pattern(), Pattern::WakesLate);
        assert_eq!(of(&loops).gap_max(), 1_010_000.0);
    }

    #[test]
    fn late_answers_and_late_starts_count_as_patterns_of_their_own() {
        let mut loops = even(4);
        loops[1].received_ns = None;
        loops[2].received_ns = loops[2].received_ns.map(|at| at + 200 * MS);
        let measures = of(&loops);
        assert_eq!(measures.pattern(), Pattern::AnswersLate);
        assert_eq!((measures.unanswered(), measures.late_share()), (1, 0.5));
        assert_eq!(measures.answer_max(), 200_300.0);
        let late = Measures::of(3.0, 0.9, &even(4));
        assert_eq!(late.pattern(), Pattern::StartLate);
    }

    #[test]
    fn lines_of_inhibition_samples_are_parsed() {
        let read = Loop::read("1,2,3,4").unwrap();
        assert_eq!(
            (read.woke_ns, read.sent_ns, read.received_ns),
            (2, 3, Some(4))
        );
        assert_eq!(Loop::read("1,2,3,0").unwrap().received_ns, None);
        for wrong in ["", "1,2,3", "1,2,3,4,5", "a,b,c,d"] {
            assert_eq!(Loop::read(wrong), None, "{wrong:?}");
        }
    }
}
