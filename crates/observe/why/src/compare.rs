//! Compares late executions with the others: what takes longer in them, by how much, and how
//! regularly.

use crate::cut::{By, Cause, Meanwhile, Piece};
use crate::fisher::{chance, CHANCE};
use crate::kind::{call_text, Kind, Reason};
use crate::stretch::{title, Culprit, During, Names};
use crate::together::{Sample, Together};
use onbeat_document::dist::Dist;
use onbeat_document::text::duration;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// The maximum number of causes with sums of their own. Stretches of further causes are summed up
/// without their culprit.
const CAUSES_MAX: usize = 4096;

const LISTED_SHARE_MIN: f64 = 0.01;

/// The share of the difference in latency that [`Comparison::sentence`] explains. The sentence
/// names causes until they together reach this share.
const SHARE_SAID: f64 = 0.8;

const CAUSES_IN_SENTENCE_MAX: usize = 3;

/// The comparison of late executions with other executions: what takes longer in the late ones.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub late: u64,
    pub others: u64,
    pub late_mean_ns: f64,
    pub others_mean_ns: f64,
    /// The causes that take longer in late executions, the largest first.
    pub findings: Vec<Finding>,
    /// The pairs of causes that make executions late only together, the surest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Together>,
}

/// A cause on which late executions spend more time than others.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// The id of the callback or synchroniser to whose part of the latency the stretches belong.
    pub place: String,
    /// The callback, thread or mutex owner that caused the stretches. `None` if stretches of this
    /// kind have no culprit, or if the culprit is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Culprit>,
    /// The reason why the kind of stretch is unknown. `None` for all other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The mean time that a late execution spends on the cause, minus the mean time that another
    /// execution spends on it, in ns. Over all causes, these values add up to the difference of the
    /// mean latencies.
    pub explained_ns: f64,
    /// The minimum time in ns that an execution must spend on the cause so that the cause counts as
    /// present in it. This time is the middle between the means of late and of other executions.
    pub present_ns: f64,
    /// The number of late executions in which the cause is present.
    pub late_with: u64,
    /// The number of other executions in which the cause is present.
    pub others_with: u64,
    /// The probability that chance alone makes the cause as frequent among late executions as
    /// measured, or more frequent. It is the result of a one-sided Fisher's exact test, times the
    /// number of causes.
    pub chance: f64,
    /// The states of the culprit that take longer in late executions, each with the difference of
    /// the mean times in ns. The largest difference comes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub during: Vec<(During, f64)>,
}

/// Returns the latency above which an execution is late if the user gives no limit. From 1000
/// executions on, this is the 99th percentile. Of 200 to 999 executions, the ten longest are late.
/// Of fewer, the longest 5 % are late.
pub fn late_limit(latency: &Dist) -> u64 {
    let n = latency.count() as f64;
    let share = (10.0 / n.max(1.0)).clamp(0.01, 0.05);
    let wanted = (share * n).max(1.0) as u64;
    let buckets: Vec<(u64, u64, u64)> = latency.buckets().collect();
    let mut late = 0;
    for &(low, _, count) in buckets.iter().rev() {
        late += count;
        if late >= wanted {
            return low.saturating_sub(1);
        }
    }
    0
}

#[derive(Debug, Clone, Default)]
struct Times {
    late: Dist,
    others: Dist,
    /// For each state of the culprit: the time in this state, summed up over late executions and
    /// over other executions.
    during: FxHashMap<Meanwhile, (u128, u128)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Sums {
    pub(crate) limit_ns: u64,
    pub(crate) longest_ns: u64,
    late: (u64, u128),
    others: (u64, u128),
    causes: FxHashMap<Cause, Times>,
    sample: Sample,
    /// The causes of the execution that is being added. The list stays allocated for the next
    /// execution.
    room: Vec<(Cause, u64)>,
}

impl Sums {
    pub(crate) fn new(limit_ns: u64) -> Sums {
        Sums {
            limit_ns,
            longest_ns: 0,
            late: (0, 0),
            others: (0, 0),
            causes: FxHashMap::default(),
            sample: Sample::default(),
            room: Vec::new(),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.late.0 + self.others.0
    }

    pub(crate) fn add(&mut self, latency: u64, pieces: &[Piece]) {
        let late = latency > self.limit_ns;
        let group = if late {
            &mut self.late
        } else {
            &mut self.others
        };
        group.0 += 1;
        group.1 += u128::from(latency);
        self.longest_ns = self.longest_ns.max(latency);
        let mut times = std::mem::take(&mut self.room);
        for piece in pieces {
            let mut cause = Cause {
                kind: piece.kind,
                place: piece.place,
                by: piece.by,
            };
            if self.causes.len() >= CAUSES_MAX && !self.causes.contains_key(&cause) {
                cause.by = By::Nobody;
            }
            let ns = piece.end - piece.begin;
            match times.iter_mut().find(|t| t.0 == cause) {
                Some(time) => time.1 += ns,
                None => times.push((cause, ns)),
            }
            if let Some(meanwhile) = piece.meanwhile {
                let of = self.causes.entry(cause).or_default();
                let sums = of.during.entry(meanwhile).or_insert((0, 0));
                let sum = if late { &mut sums.0 } else { &mut sums.1 };
                *sum += u128::from(ns);
            }
        }
        self.sample.add(late, &times);
        for (cause, ns) in times.drain(..) {
            let of = self.causes.entry(cause).or_default();
            let dist = if late { &mut of.late } else { &mut of.others };
            dist.record(ns);
        }
        self.room = times;
    }

    /// Returns the share of all latencies whose cause is unknown, from 0 to 1.
    pub(crate) fn unknown_share(&self) -> f64 {
        let all = self.late.1 + self.others.1;
        let unknown = self.causes.iter().filter(|c| c.0.kind == Kind::Unknown);
        let unknown: u128 = unknown.map(|c| c.1.late.sum() + c.1.others.sum()).sum();
        unknown as f64 / all.max(1) as f64
    }

    pub(crate) fn compare(&self, names: &Names) -> Option<Comparison> {
        let mean = |sum: u128, n: u64| sum as f64 / n as f64;
        let ((late, late_sum), (others, others_sum)) = (self.late, self.others);
        if late == 0 || others == 0 {
            return None;
        }
        let (late_mean, others_mean) = (mean(late_sum, late), mean(others_sum, others));
        let whole = late_mean - others_mean;
        let finding = |(cause, times): (&Cause, &Times)| {
            let late_ns = mean(times.late.sum(), late);
            let others_ns = mean(times.others.sum(), others);
            let explained_ns = late_ns - others_ns;
            if explained_ns < LISTED_SHARE_MIN * whole {
                return None;
            }
            let present_ns = (late_ns + others_ns) / 2.0;
            let late_with = count_from(&times.late, present_ns);
            let others_with = count_from(&times.others, present_ns);
            let mut during: Vec<(During, f64)> = times
                .during
                .iter()
                .map(|(&m, sums)| (names.during(m), mean(sums.0, late) - mean(sums.1, others)))
                .filter(|d| d.1 > 0.0)
                .collect();
            during.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let finding = Finding {
                kind: cause.kind,
                place: names.id(cause.place),
                by: names.culprit(cause.by),
                reason: match cause.by {
                    By::Reason(reason) => Some(reason),
                    _ => None,
                },
                explained_ns,
                present_ns,
                late_with,
                others_with,
                chance: chance((late_with, late), (others_with, others)),
                during,
            };
            Some((*cause, finding))
        };
        let mut found: Vec<(Cause, Finding)> = self.causes.iter().filter_map(finding).collect();
        found.sort_by(|(_, a), (_, b)| {
            let key = |f: &Finding| (f.kind, f.place.clone(), f.by.clone());
            let larger = b.explained_ns.total_cmp(&a.explained_ns);
            larger.then_with(|| key(a).cmp(&key(b)))
        });
        let causes: Vec<(Cause, f64)> = found.iter().map(|(c, f)| (*c, f.present_ns)).collect();
        let mut findings: Vec<Finding> = found.into_iter().map(|(_, f)| f).collect();
        let tests = findings.len() as f64;
        for finding in &mut findings {
            finding.chance = (finding.chance * tests).min(1.0);
        }
        Some(Comparison {
            late,
            others,
            late_mean_ns: late_mean,
            others_mean_ns: others_mean,
            findings,
            together: self.sample.together(&causes),
        })
    }
}

/// Counts the values that are at least `limit_ns`. All values in a bucket of the distribution count
/// as equal to the bucket's middle.
fn count_from(dist: &Dist, limit_ns: f64) -> u64 {
    let middle = |&(low, width, _): &(u64, u64, u64)| low as f64 + (width - 1) as f64 / 2.0;
    let above = dist.buckets().filter(|b| middle(b) >= limit_ns);
    above.map(|b| b.2).sum()
}

impl Comparison {
    /// Returns the mean latency of late executions minus the mean latency of the others, ns.
    pub fn excess_ns(&self) -> f64 {
        self.late_mean_ns - self.others_mean_ns
    }

    /// Returns a sentence with figures that says what late executions have in common. Names come
    /// from the recorded system: escape the sentence before showing it.
    pub fn sentence(&self) -> String {
        let (late, others) = (self.late, self.others);
        let mut said = Vec::new();
        let mut explained = 0.0;
        for finding in self.findings.iter().take(CAUSES_IN_SENTENCE_MAX) {
            if explained >= SHARE_SAID * self.excess_ns() {
                break;
            }
            explained += finding.explained_ns;
            said.push(format!(
                "{time} are {cause} (longer than usual in {late_with} of {late} late executions and in {others_with} of {others} others{doubt})",
                time = duration(finding.explained_ns),
                cause = finding.text(),
                late_with = finding.late_with,
                others_with = finding.others_with,
                doubt = if finding.chance > CHANCE {
                    "; this may be chance"
                } else {
                    ""
                }
            ));
        }
        let excess = duration(self.excess_ns());
        let difference = match late {
            1 => format!("The latency of the late execution is {excess} longer than the mean latency of the other {others}."),
            n => format!("The mean latency of the {n} late executions is {excess} longer than that of the other {others}."),
        };
        let text = match said.split_last() {
            None => {
                format!("{difference} No single cause explains 1 % or more of this difference.")
            }
            Some((only, [])) => format!("{difference} Of this difference, {only}."),
            Some((last, before)) => {
                let before = before.join(", ");
                format!("{difference} Of this difference, {before}, and {last}.")
            }
        };
        match self.pair_in_words() {
            Some(pair) => format!("{text} {pair}"),
            None => text,
        }
    }

    fn pair_in_words(&self) -> Option<String> {
        let pair = self.together.first()?;
        let [a, b] = pair.findings.map(|n| self.findings.get(n));
        Some(pair.sentence(&a?.text(), &b?.text()))
    }
}

impl Finding {
    /// Returns the cause in words, such as `waits in the executor of /fusion behind
    /// /fusion:timer(100ms)`.
    pub fn text(&self) -> String {
        let place = &self.place;
        let by = self.by.as_ref().map(Culprit::text);
        let with_culprit = |with: &str| {
            by.as_ref()
                .map_or(String::new(), |by| format!("{with}{by}"))
        };
        let text = match self.kind {
            Kind::Runs => match &by {
                Some(inner) => format!("execution of {inner} within {place}"),
                None => format!("execution of {place}"),
            },
            Kind::Library => format!("work of the client library before {place}"),
            Kind::Preempted => format!("preemptions of {place}{}", with_culprit(" by ")),
            Kind::Queued => format!(
                "time in which {place} waited for a CPU{}",
                with_culprit(" behind ")
            ),
            Kind::Throttled => {
                format!("time in which {place} was throttled, because its CPU time was used up")
            }
            Kind::Sleeps => match &self.by {
                Some(Culprit::Call(call)) => {
                    format!("time in which {place} slept in {}", call_text(*call))
                }
                Some(Culprit::Callback(id)) => {
                    format!("time in which {place} slept, waiting for the response of {id}")
                }
                Some(Culprit::MutexOf(owner)) => {
                    format!(
                        "time in which {place} slept, waiting for a mutex held by {}",
                        title(owner)
                    )
                }
                _ => format!("time in which {place} slept{}", with_culprit(", ")),
            },
            Kind::Executor => {
                let node = place.split(':').next().unwrap_or(place);
                match &by {
                    Some(by) => format!("waits in the executor of {node} behind {by}"),
                    None => format!(
                        "time in which the executor of {node} slept although {place} was due"
                    ),
                }
            }
            Kind::Transport => match &self.by {
                Some(Culprit::Callback(outer)) => {
                    format!("time in which {place}, which runs within {outer}, waited for {outer}")
                }
                _ => format!("transport to {place}{}", with_culprit(", ")),
            },
            Kind::Inputs => format!("time in which {place} waited{}", with_culprit(" for ")),
            Kind::Timer => format!("time that stored data wait until {place} uses them"),
            Kind::Held => format!("time in which a shaper held items to {place} back"),
            Kind::Stolen => format!("time in which the host had the CPU of {place}"),
            Kind::Unknown => match self.reason {
                Some(reason) => format!("unknown at {place} ({})", reason.text()),
                None => format!("unknown at {place}"),
            },
        };
        match self.during.first() {
            Some((during, ns)) if *ns >= self.explained_ns / 4.0 && during.is_telling() => {
                format!("{text}, which for {} {}", duration(*ns), during.text())
            }
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dist(values: impl IntoIterator<Item = u64>) -> Dist {
        let mut dist = Dist::new();
        values.into_iter().for_each(|v| dist.record(v));
        dist
    }

    #[test]
    fn the_slowest_1_percent_is_late_or_a_larger_share_if_the_sample_is_small() {
        let late = |n: u64| {
            let values = || (1..=n).map(|i| i * 1_000_000);
            let limit = late_limit(&dist(values()));
            values().filter(|&v| v > limit).count()
        };
        // A bucket of the distribution can hold several values.
        assert!((100..=140).contains(&late(10_000)), "{}", late(10_000));
        assert!((10..=14).contains(&late(600)), "{}", late(600));
        assert_eq!(late(100), 5);
        assert_eq!(late(20), 1);
        assert_eq!(late(1), 1);
        assert_eq!(late_limit(&Dist::new()), 0);
        // Executions of equal length are late together.
        assert_eq!(late_limit(&dist([5; 100])), 4);
    }

    #[test]
    fn the_differences_of_all_causes_add_up_to_the_difference_of_latencies() {
        let mut sums = Sums::new(1_000);
        let piece = |begin, end, kind, by| Piece {
            begin,
            end,
            place: 0,
            kind,
            by,
            meanwhile: None,
            cpu: None,
        };
        for i in 0..10 {
            let wait = if i < 2 { 5_000 + i } else { 100 };
            let end = 500 + wait;
            let pieces = [
                piece(0, 200, Kind::Runs, By::Nobody),
                piece(200, 200 + wait, Kind::Executor, By::Callback(1)),
                piece(200 + wait, end, Kind::Runs, By::Nobody),
            ];
            sums.add(end, &pieces);
        }
        let names = Names {
            ids: vec![Some("/a:timer(1ms)".into()), Some("/a:timer(2ms)".into())],
            components: Vec::new(),
        };
        let comparison = sums.compare(&names).unwrap();
        assert_eq!((comparison.late, comparison.others), (2, 8));
        let explained: f64 = comparison.findings.iter().map(|f| f.explained_ns).sum();
        assert!((explained - comparison.excess_ns()).abs() < 1e-6);
        assert_eq!(
            comparison.sentence(),
            "The mean latency of the 2 late executions is 4.9 us longer than that of the other 8. Of \
             this difference, 4.9 us are waits in the executor of /a behind /a:timer(2ms) (longer than usual in 2 \
             of 2 late executions and in 0 of 8 others)."
        );
        // If all are late, there is nothing to compare with.
        let mut sums = Sums::new(0);
        sums.add(1, &[piece(0, 1, Kind::Runs, By::Nobody)]);
        assert_eq!(sums.compare(&names), None);
    }
}
