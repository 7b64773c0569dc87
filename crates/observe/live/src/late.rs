//! The latest late execution of a chain, and what took it longer than usual.

use onbeat_document::schema::Component;
use onbeat_synth::Synth;
use onbeat_trace::CallKind;
use onbeat_why::every::{CulpritId, Cut};
use onbeat_why::{Culprit, Kind, Reason, Stretch};
use rustc_hash::FxHashMap;

/// The maximum number of causes per path for which onbeat stores the usual times.
const CAUSES_MAX: usize = 256;

/// The maximum number of causes that are stored for a late execution: those with the largest
/// excess.
const SHOWN: usize = 3;

/// The number of executions of a path from which on their usual latency is known. Before that, an
/// execution without a deadline never counts as late.
const EXECUTIONS: u64 = 20;

/// The mean time in ns between two executions of a path that are cut into stretches to learn the
/// usual times of its causes. For a path with long latencies, the mean time is [`USUAL_TIMES`]
/// latencies if this is longer. Cutting is the most expensive work per execution, and its cost
/// grows with the latency.
const USUAL_NS: u64 = 1_000_000_000;
const USUAL_TIMES: u64 = 8;

/// The shortest time in ns between two late executions of one path for which onbeat finds the
/// causes. The time is also at least the latency of the first of the two executions.
const LATE_NS: u64 = 100_000_000;

/// An execution that is cut into stretches, because it is late, or because its stretches count for
/// the usual times of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chosen {
    end_ns: u64,
    latency_ns: u64,
    /// If true, the stretches of the execution are added to the usual times.
    is_usual: bool,
}

/// The cause of a stretch: the callback's number, the kind of stretch, the culprit and the reason.
type Cause = (u32, Kind, Option<(u8, u32)>, Option<Reason>);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Late {
    pub(crate) end_ns: u64,
    pub(crate) latency_ns: u64,
    /// The causes that took longer than usual. The two times are the cause's time in this execution
    /// and its usual time, in ns. The largest excess comes first.
    causes: Vec<(Cause, u64, u64)>,
}

/// The usual times of the causes on one path, and the latest late execution of the path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Causes {
    /// The number of executions whose stretches are added up in `sums`.
    executions: u64,
    /// The number of executions that were chosen for the usual times.
    chosen: u64,
    /// Two times in ns of CLOCK_MONOTONIC. From the first time on, another execution is chosen for
    /// the usual times. From the second time on, another late execution is chosen.
    next_ns: [u64; 2],
    sums: FxHashMap<Cause, u64>,
    /// The latency above which an execution of the path is late, in ns. `None` if it is not known
    /// yet.
    pub(crate) limit_ns: Option<u64>,
    pub(crate) late: Option<Late>,
}

/// A cause that took longer in a late execution than usual.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CauseRow {
    /// The id of the callback to whose part of the chain's latency the cause belongs.
    pub callback: String,
    /// The cause as a text for users, as in `onbeat why`.
    pub what: String,
    /// The time that the cause took in the late execution.
    pub ns: u64,
    /// The mean time that the cause took in earlier executions.
    pub usual_ns: u64,
}

/// The number that marks a culprit as a callback in [`Cause`]. All other numbers mark components.
const CALLBACK: u8 = 0;

/// The number that marks a culprit as a kind of call.
const CALL: u8 = 4;

/// The number that marks a culprit as the port of a full socket.
const SOCKET: u8 = 5;

fn number(culprit: CulpritId) -> (u8, u32) {
    match culprit {
        CulpritId::Callback(n) => (CALLBACK, n),
        CulpritId::Thread(n) => (1, n),
        CulpritId::MutexOf(n) => (2, n),
        CulpritId::WokenBy(n) => (3, n),
        CulpritId::Call(call) => (CALL, call as u32),
        CulpritId::Socket(port) => (SOCKET, port.into()),
    }
}

impl Causes {
    /// Decides whether an execution is cut into stretches. onbeat cuts the first executions of a
    /// path, later about one per second, and late executions. Returns `None` for an execution that
    /// is not cut.
    pub(crate) fn choose(&mut self, end_ns: u64, latency_ns: u64) -> Option<Chosen> {
        let [usual_from, late_from] = self.next_ns;
        let is_usual = self.chosen < EXECUTIONS || end_ns >= usual_from;
        let is_late = self.is_late(latency_ns) && end_ns >= late_from;
        if is_usual {
            self.chosen += 1;
            // The time to the next one varies, so that it is not in step with a periodic system.
            let varying = end_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
            let mean = latency_ns.saturating_mul(USUAL_TIMES).max(USUAL_NS);
            let wait = mean / 2 + mean / 256 * varying;
            self.next_ns[0] = end_ns.saturating_add(wait);
        }
        if is_late {
            self.next_ns[1] = end_ns.saturating_add(latency_ns.max(LATE_NS));
        }
        let chosen = Chosen {
            end_ns,
            latency_ns,
            is_usual,
        };
        (is_usual || is_late).then_some(chosen)
    }

    fn is_late(&self, latency_ns: u64) -> bool {
        self.limit_ns.is_some_and(|limit| latency_ns > limit)
    }

    /// Adds the stretches of a chosen execution to the usual times. Stores the execution as the
    /// latest late one if it is late.
    pub(crate) fn add(&mut self, chosen: Chosen, cuts: &[Cut]) {
        let Chosen {
            end_ns, latency_ns, ..
        } = chosen;
        let mut times: FxHashMap<Cause, u64> = FxHashMap::default();
        for cut in cuts {
            let cause = (cut.place, cut.kind, cut.by.map(number), cut.reason);
            *times.entry(cause).or_default() += cut.end_ns - cut.begin_ns;
        }
        if self.is_late(latency_ns) {
            let usual = |cause: &Cause| {
                let sum = self.sums.get(cause).copied().unwrap_or(0);
                sum / self.executions.max(1)
            };
            let mut causes: Vec<(Cause, u64, u64)> = times
                .iter()
                .map(|(cause, ns)| (*cause, *ns, usual(cause)))
                .filter(|(_, ns, usual)| ns > usual)
                .collect();
            causes.sort_by_key(|(cause, ns, usual)| (std::cmp::Reverse(ns - usual), *cause));
            causes.truncate(SHOWN);
            self.late = Some(Late {
                end_ns,
                latency_ns,
                causes,
            });
        }
        if !chosen.is_usual {
            return;
        }
        self.executions += 1;
        for (cause, ns) in times {
            if self.sums.len() < CAUSES_MAX || self.sums.contains_key(&cause) {
                *self.sums.entry(cause).or_default() += ns;
            }
        }
    }

    /// Forgets the causes whose callback or component no longer exists.
    pub(crate) fn forget(
        &mut self,
        is_gone_callback: impl Fn(u32) -> bool,
        is_gone_component: impl Fn(u32) -> bool,
    ) {
        let is_gone = |&(place, _, by, _): &Cause| {
            let by_gone = by.is_some_and(|(kind, number)| match kind {
                CALLBACK => is_gone_callback(number),
                _ => is_gone_component(number),
            });
            is_gone_callback(place) || by_gone
        };
        self.sums.retain(|cause, _| !is_gone(cause));
        if let Some(late) = &mut self.late {
            late.causes.retain(|cause| !is_gone(&cause.0));
        }
    }

    /// Returns true if enough executions were seen to know how long their stretches usually take.
    pub(crate) fn knows_usual(&self) -> bool {
        self.executions >= EXECUTIONS
    }
}

impl Late {
    /// Returns the causes as rows for users. `ids` are the ids of callbacks by number.
    pub(crate) fn rows(&self, synth: &Synth, ids: &[Option<String>]) -> Vec<CauseRow> {
        let components = synth.components();
        let id = |number: u32| ids.get(number as usize).cloned().flatten();
        let rows = self.causes.iter().map(|&(cause, ns, usual_ns)| {
            let (place, kind, by, reason) = cause;
            let callback = id(place).unwrap_or_default();
            let stretch = Stretch {
                begin_ns: 0,
                ns,
                place: callback.clone(),
                kind,
                by: by.and_then(|by| culprit(by, &components, id)),
                during: None,
                reason,
                cpu: None,
            };
            CauseRow {
                callback,
                what: stretch.text(),
                ns,
                usual_ns,
            }
        });
        rows.collect()
    }
}

fn culprit(
    (kind, number): (u8, u32),
    components: &[Component],
    id: impl Fn(u32) -> Option<String>,
) -> Option<Culprit> {
    let component = || components.get(number as usize).cloned();
    match kind {
        CALLBACK => id(number).map(Culprit::Callback),
        1 => component().map(Culprit::Thread),
        2 => component().map(Culprit::MutexOf),
        CALL => CallKind::ALL
            .get(number as usize)
            .copied()
            .map(Culprit::Call),
        SOCKET => u16::try_from(number).ok().map(Culprit::Socket),
        _ => component().map(Culprit::WokenBy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(kind: Kind, by: Option<u32>, ns: u64) -> Cut {
        Cut {
            begin_ns: 100,
            end_ns: 100 + ns,
            place: 1,
            kind,
            by: by.map(CulpritId::Thread),
            during: None,
            reason: None,
        }
    }

    #[test]
    fn the_cause_whose_time_exceeds_its_usual_time_most_comes_first() {
        let mut causes = Causes {
            limit_ns: Some(30),
            ..Causes::default()
        };
        for i in 0..EXECUTIONS {
            assert!(!causes.knows_usual());
            let chosen = causes.choose(i, 20).expect("one of the first");
            causes.add(chosen, &[cut(Kind::Runs, None, 20)]);
        }
        assert!(causes.knows_usual() && causes.late.is_none());
        let cuts = [
            cut(Kind::Runs, None, 22),
            cut(Kind::Preempted, Some(7), 5),
            cut(Kind::Preempted, Some(7), 4),
        ];
        assert_eq!(causes.choose(98, 20), None, "it is not late");
        let chosen = causes.choose(99, 31).expect("late");
        assert!(!chosen.is_usual);
        causes.add(chosen, &cuts);
        let late = causes.late.clone().unwrap();
        assert_eq!((late.end_ns, late.latency_ns), (99, 31));
        let seen: Vec<_> = late.causes.iter().map(|c| (c.0 .1, c.1, c.2)).collect();
        assert_eq!(seen, [(Kind::Preempted, 9, 0), (Kind::Runs, 22, 20)]);
        assert_eq!(
            causes.executions, EXECUTIONS,
            "late ones do not count as usual"
        );
    }

    #[test]
    fn a_few_executions_of_a_fast_chain_are_sampled_at_irregular_times() {
        let mut causes = Causes::default();
        let chosen = |causes: &mut Causes, tick: u64| {
            let latency_ns = if causes.limit_ns.is_some() { 20 } else { 5 };
            let chosen = causes.choose(tick * 1_000_000, latency_ns);
            chosen.map(|chosen| (tick, chosen.is_usual))
        };
        let usual: Vec<u64> = (0..100_000)
            .filter_map(|tick| chosen(&mut causes, tick))
            .map(|chosen| chosen.0)
            .collect();
        assert!((100..150).contains(&usual.len()), "{}", usual.len());
        for digit in 0..10 {
            let later = usual.iter().filter(|tick| **tick >= 1000);
            let of_digit = later.filter(|tick| **tick / 100 % 10 == digit).count();
            assert!((1..30).contains(&of_digit), "{digit}: {of_digit}");
        }
        // Every execution is late from now on.
        causes.limit_ns = Some(10);
        let late = (100_000..110_000).filter_map(|tick| chosen(&mut causes, tick));
        let late: Vec<bool> = late.map(|chosen| chosen.1).collect();
        assert!((100..130).contains(&late.len()), "{}", late.len());
    }
}
