//! Turns findings into incidents. An incident goes on as long as one of its subjects violates a
//! requirement, so a chain that is late all the time makes one incident. Pure.

use onbeat_check::{Finding, Verdict};
use onbeat_live::LateSeen;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// The time without a violation after which a subject (a chain, callback, topic or CPU) counts as
/// recovered, in ns. Without this time, a figure close to its limit would begin a new incident
/// again and again.
const QUIET_NS: u64 = 10_000_000_000;

/// An incident stores at most this number of violations, and at most this number of late
/// executions. Late executions beyond this number are counted, but not stored. At most this number
/// of late executions wait for an incident.
const KEPT: usize = 1000;

/// The largest number of incidents that are open at the same time. If one more subject violates a
/// requirement, it joins the latest incident.
const OPEN_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Violation {
    pub requirement: String,
    /// The readable name of the chain, callback, topic or CPU. It comes from traced processes, so
    /// it is not trusted.
    pub subject: String,
    pub id: String,
    pub limit: String,
    pub measured: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Late {
    pub chain: String,
    /// The time at which the late output was published (CLOCK_MONOTONIC).
    pub end_ns: u64,
    pub latency_ns: u64,
    pub deadline_ns: u64,
}

impl Late {
    fn excess(&self) -> f64 {
        self.latency_ns as f64 / self.deadline_ns.max(1) as f64
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Incident {
    pub number: u64,
    /// The time at which the first violation was found, in ns of CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// The time of the incident's last violation, in ns of CLOCK_MONOTONIC. `None` while the
    /// incident goes on.
    pub end_ns: Option<u64>,
    /// The severity of the incident: the largest ratio of a late execution's latency to its
    /// deadline. 1 for an incident without late executions.
    pub severity: f64,
    pub violations: Vec<Violation>,
    pub late_executions: u64,
    pub worst: Option<Late>,
    /// The executions that missed their deadlines during the incident, oldest first. At most 1000
    /// are stored.
    pub executions: Vec<Late>,
    #[serde(skip)]
    last_violated_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// An incident has begun. The value is its number.
    Began(u64),
    /// Another subject has joined an incident. The values are the incident's number, and the index
    /// of the subject's violation in the incident.
    Joined(u64, usize),
    Ended(u64),
}

#[derive(Debug, Clone, Copy)]
struct Active {
    incident: u64,
    last_violated_ns: u64,
}

/// The open incidents, and the ended incidents that [`Incidents::take_ended`] has not returned yet.
#[derive(Debug)]
pub struct Incidents {
    /// The time in ns after the begin of an incident within which other chains, callbacks, topics
    /// and CPUs can join the incident.
    join_ns: u64,
    /// The longest time in ns that a late execution waits for an incident of its chain. An incident
    /// that begins within this time includes the execution.
    window_ns: u64,
    next: u64,
    open: BTreeMap<u64, Incident>,
    ended: Vec<Incident>,
    /// The subjects that violate a requirement now, or whose last violation is less than
    /// [`QUIET_NS`] ago.
    active: BTreeMap<String, Active>,
    waiting: VecDeque<Late>,
}

fn subject(finding: &Finding) -> &str {
    match finding.id.as_str() {
        "" => &finding.subject,
        id => id,
    }
}

/// Returns the deadline of each chain in ns, by chain id: the latency above which a single
/// execution counts as late.
///
/// If a requirement has several limits, the largest one counts: `{p50: 70ms, max: 80ms}` allows an
/// execution of 75 ms. If several requirements apply to a chain, the strictest one counts.
pub fn deadlines(findings: &[Finding]) -> BTreeMap<String, u64> {
    let mut rules: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for finding in findings {
        let rule = finding.requirement.split('.').next().unwrap_or_default();
        if let Some(limit) = finding.late_above_ns {
            let largest = rules.entry((&finding.id, rule)).or_default();
            *largest = limit.max(*largest);
        }
    }
    let mut deadlines: BTreeMap<String, u64> = BTreeMap::new();
    for ((id, _), limit) in rules {
        let least = deadlines.entry(id.into()).or_insert(limit);
        *least = limit.min(*least);
    }
    deadlines
}

impl Incidents {
    pub fn new(join_ns: u64, window_ns: u64) -> Incidents {
        Incidents {
            join_ns,
            window_ns,
            next: 1,
            open: BTreeMap::new(),
            ended: Vec::new(),
            active: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    pub fn open(&self) -> impl Iterator<Item = &Incident> {
        self.open.values()
    }

    pub fn get(&self, number: u64) -> Option<&Incident> {
        let ended = || self.ended.iter().find(|i| i.number == number);
        self.open.get(&number).or_else(ended)
    }

    pub fn take_ended(&mut self) -> Vec<Incident> {
        std::mem::take(&mut self.ended)
    }

    /// Updates the incidents with the findings at `now_ns` (CLOCK_MONOTONIC), and with the
    /// executions `late`, which missed their deadlines since the last call. Returns the changes of
    /// incidents.
    pub fn step(&mut self, now_ns: u64, findings: &[Finding], late: Vec<LateSeen>) -> Vec<Change> {
        let mut changes = Vec::new();
        let deadlines = deadlines(findings);
        for finding in findings {
            if finding.verdict == Verdict::Violated {
                self.violated(now_ns, finding, &mut changes);
            }
        }
        for seen in late {
            if let Some(&deadline_ns) = deadlines.get(&seen.chain) {
                self.waiting.push_back(Late {
                    chain: seen.chain,
                    end_ns: seen.end_ns,
                    latency_ns: seen.latency_ns,
                    deadline_ns,
                });
            }
        }
        self.hand_over(now_ns);
        self.close(now_ns, &mut changes);
        changes
    }

    fn violated(&mut self, now_ns: u64, finding: &Finding, changes: &mut Vec<Change>) {
        let violation = || Violation {
            requirement: finding.requirement.clone(),
            subject: finding.subject.clone(),
            id: finding.id.clone(),
            limit: finding.limit.clone(),
            measured: finding.measured.clone(),
            why: finding.why.clone(),
        };
        if let Some(active) = self.active.get_mut(subject(finding)) {
            active.last_violated_ns = now_ns;
            if let Some(incident) = self.open.get_mut(&active.incident) {
                incident.last_violated_ns = now_ns;
                let is_known = |v: &Violation| {
                    v.requirement == finding.requirement && subject_of(v) == subject(finding)
                };
                if !incident.violations.iter().any(is_known) && incident.violations.len() < KEPT {
                    incident.violations.push(violation());
                }
            }
            return;
        }
        let is_full = self.open.len() >= OPEN_MAX;
        let joins = self.open.values_mut().next_back();
        let joins = joins.filter(|i| is_full || now_ns.saturating_sub(i.begin_ns) < self.join_ns);
        let number = match joins {
            Some(incident) => {
                incident.last_violated_ns = now_ns;
                let at = incident.violations.len();
                if at < KEPT {
                    incident.violations.push(violation());
                }
                changes.push(Change::Joined(incident.number, at));
                incident.number
            }
            None => {
                let number = self.next;
                self.next += 1;
                let incident = Incident {
                    number,
                    begin_ns: now_ns,
                    end_ns: None,
                    severity: 1.0,
                    violations: vec![violation()],
                    late_executions: 0,
                    worst: None,
                    executions: Vec::new(),
                    last_violated_ns: now_ns,
                };
                self.open.insert(number, incident);
                changes.push(Change::Began(number));
                number
            }
        };
        let active = Active {
            incident: number,
            last_violated_ns: now_ns,
        };
        self.active.insert(subject(finding).into(), active);
    }

    /// Adds the waiting late executions to the incidents of their chains. An execution whose chain
    /// has no incident continues to wait for at most `window_ns` after its end.
    fn hand_over(&mut self, now_ns: u64) {
        let oldest_ns = now_ns.saturating_sub(self.window_ns);
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|late| {
            let active = self.active.get(&late.chain);
            let Some(incident) = active.and_then(|a| self.open.get_mut(&a.incident)) else {
                return late.end_ns >= oldest_ns;
            };
            incident.late_executions += 1;
            let excess = late.excess();
            if incident.worst.as_ref().is_none_or(|w| excess > w.excess()) {
                incident.worst = Some(late.clone());
            }
            incident.severity = incident.severity.max(excess);
            if incident.executions.len() < KEPT {
                incident.executions.push(late.clone());
            }
            false
        });
        // The oldest go first if a chain is often late and its requirement allows that.
        while waiting.len() > KEPT {
            waiting.pop_front();
        }
        self.waiting = waiting;
    }

    fn close(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        let is_quiet = |last: u64| now_ns.saturating_sub(last) > QUIET_NS;
        self.active.retain(|_, a| !is_quiet(a.last_violated_ns));
        let over: Vec<u64> = self
            .open
            .values()
            .filter(|i| is_quiet(i.last_violated_ns))
            .map(|i| i.number)
            .collect();
        for number in over {
            if let Some(mut incident) = self.open.remove(&number) {
                incident.end_ns = Some(incident.last_violated_ns);
                self.ended.push(incident);
                changes.push(Change::Ended(number));
            }
        }
    }
}

fn subject_of(violation: &Violation) -> &str {
    match violation.id.as_str() {
        "" => &violation.subject,
        id => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn finding(id: &str, requirement: &str, verdict: Verdict) -> Finding {
        Finding {
            requirement: requirement.into(),
            subject: format!("the {id}"),
            id: id.into(),
            limit: "at most 80 ms".into(),
            measured: "90 ms".into(),
            verdict,
            why: String::new(),
            late_above_ns: Some(80),
            late: None,
            losses_at: Vec::new(),
            lost: None,
        }
    }

    fn late(chain: &str, end_ns: u64, latency_ns: u64) -> LateSeen {
        LateSeen {
            chain: chain.into(),
            end_ns,
            latency_ns,
        }
    }

    fn incidents() -> Incidents {
        Incidents::new(5 * SECOND, 60 * SECOND)
    }

    #[test]
    fn a_chain_that_is_late_for_long_makes_one_incident_with_all_its_executions() {
        let mut all = incidents();
        let violated = [
            finding("a", "latency.max", Verdict::Violated),
            finding("a", "latency.p99", Verdict::NotKnown),
        ];
        let mut changes = Vec::new();
        for s in 100..400 {
            // Close to its limit, a figure is violated only now and then.
            let now = s * SECOND;
            let found: &[Finding] = match s % 7 {
                0 | 1 => &violated,
                _ => &[],
            };
            changes.extend(all.step(now, found, vec![]));
            let seen = vec![late("a", now, 90 + s % 100)];
            changes.extend(all.step(now, &violated[..found.len()], seen));
        }
        assert_eq!(changes, [Change::Began(1)]);
        for s in 400..420 {
            changes.extend(all.step(s * SECOND, &[], vec![]));
        }
        assert_eq!(changes, [Change::Began(1), Change::Ended(1)]);
        let ended = all.take_ended().remove(0);
        assert_eq!(ended.end_ns, Some(399 * SECOND));
        assert_eq!(ended.violations.len(), 1, "{:?}", ended.violations);
        assert_eq!(ended.worst.map(|w| w.latency_ns), Some(189));
        assert_eq!(ended.late_executions, ended.executions.len() as u64);
    }

    #[test]
    fn a_limit_of_the_median_does_not_make_single_executions_late() {
        let limited = |requirement: &str, limit| Finding {
            late_above_ns: Some(limit),
            ..finding("a", requirement, Verdict::Passed)
        };
        let findings = [
            limited("chains[0].latency.p50", 70),
            limited("chains[0].latency.max", 90),
            limited("chains[1].latency.max", 80),
        ];
        assert_eq!(deadlines(&findings)["a"], 80);
        assert_eq!(deadlines(&findings[..2])["a"], 90);
    }

    #[test]
    fn violations_join_an_incident_that_has_just_begun_and_no_older_one() {
        let mut all = incidents();
        let found = |id: &str| finding(id, "latency.max", Verdict::Violated);
        let (a, b, c) = (found("a"), found("b"), found("c"));
        let mut changes = all.step(0, std::slice::from_ref(&a), vec![]);
        changes.extend(all.step(4 * SECOND, &[a.clone(), b.clone(), found("d")], vec![]));
        changes.extend(all.step(6 * SECOND, &[a.clone(), b, c.clone()], vec![]));
        let joined = [Change::Joined(1, 1), Change::Joined(1, 2)];
        assert_eq!(changes[0], Change::Began(1));
        assert_eq!(changes[1..3], joined, "each with its own violation");
        assert_eq!(changes[3..], [Change::Began(2)]);
        let first = all.get(1).map(|i| &i.violations).unwrap();
        let ids: Vec<&str> = first.iter().map(|v| v.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "d"]);
        let seen = vec![late("b", 6 * SECOND, 100), late("c", 6 * SECOND, 160)];
        assert_eq!(all.step(7 * SECOND, &[a, c, found("b")], seen), []);
        let of = |number| all.get(number).map(|i| (i.late_executions, i.severity));
        assert_eq!(of(1), Some((1, 1.25)));
        assert_eq!(of(2), Some((1, 2.0)));
    }

    #[test]
    fn executions_before_the_violation_belong_to_its_incident_and_memory_is_bounded() {
        let mut all = incidents();
        let passed = finding("a", "latency.p99", Verdict::Passed);
        let violated = finding("a", "latency.p99", Verdict::Violated);
        let early = vec![late("a", SECOND, 90), late("a", 80 * SECOND, 99)];
        assert_eq!(
            all.step(100 * SECOND, std::slice::from_ref(&passed), early),
            []
        );
        let changes = all.step(101 * SECOND, std::slice::from_ref(&violated), vec![]);
        assert_eq!(changes, [Change::Began(1)]);
        let executions = &all.get(1).unwrap().executions;
        let ends: Vec<u64> = executions.iter().map(|e| e.end_ns).collect();
        assert_eq!(ends, [80 * SECOND], "the first one is out of the window");
        for i in 0..10_000 {
            all.step(
                102 * SECOND,
                std::slice::from_ref(&violated),
                vec![late("a", i, 90)],
            );
            let other = finding(&format!("n{i}"), "latency.max", Verdict::Violated);
            all.step(
                (102 + 20 * i) * SECOND,
                &[other, passed.clone()],
                vec![late("b", i, 90)],
            );
            all.take_ended();
        }
        assert!(all.waiting.len() <= KEPT && all.open.len() <= OPEN_MAX);
        assert!(all.active.len() <= 2, "{:?}", all.active);
    }
}
