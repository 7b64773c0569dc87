//! Converts findings and incidents to statuses of `diagnostic_msgs`: one for each requirement and
//! subject, and one for the monitor. Pure.
//!
//! | level | when |
//! |---|---|
//! | ERROR | the requirement is violated |
//! | WARN | it was violated, and its incident goes on |
//! | STALE | the window does not show whether the requirement holds, or nothing was judged for a while |
//! | OK | the requirement holds |

use crate::incident::Incident;
use onbeat_check::{Finding, Verdict};
use onbeat_document::text::duration;
use onbeat_ros::diagnostics::{DiagnosticStatus, Level};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub struct Evidence {
    pub directory: String,
    /// The first cause of the incident, as a sentence. Names in it come from the observed system.
    pub cause: Option<String>,
}

const MONITOR: &str = "onbeat: monitor";

/// Returns the diagnostic statuses to publish. The status of the monitor itself comes first.
pub fn all(
    findings: &[Finding],
    open: &BTreeMap<u64, &Incident>,
    evidence: &BTreeMap<u64, Evidence>,
    (machine, summary): (&str, &str),
) -> Vec<DiagnosticStatus> {
    // The incidents that go on, by the requirement and the subject that violated it. The latest counts.
    let mut causes: BTreeMap<(&str, &str, &str), &Incident> = BTreeMap::new();
    for incident in open.values() {
        for v in &incident.violations {
            causes.insert((&v.requirement, &v.id, &v.subject), incident);
        }
    }
    let mut statuses = vec![DiagnosticStatus::default()];
    for finding in findings {
        let key = (
            finding.requirement.as_str(),
            finding.id.as_str(),
            finding.subject.as_str(),
        );
        let incident = causes.get(&key).copied();
        let evidence = incident.and_then(|i| evidence.get(&i.number));
        statuses.push(one(finding, incident, evidence, machine));
    }
    let known = statuses.iter().skip(1).map(|s| s.level);
    let worst = known.filter(|level| *level != Level::Stale).max();
    statuses[0] = DiagnosticStatus {
        level: worst.unwrap_or_default(),
        name: MONITOR.into(),
        message: summary.into(),
        hardware_id: machine.into(),
        values: Vec::new(),
    };
    statuses
}

fn one(
    finding: &Finding,
    incident: Option<&Incident>,
    evidence: Option<&Evidence>,
    machine: &str,
) -> DiagnosticStatus {
    let figure = format!("{}, and the limit is {}", finding.measured, finding.limit);
    let (level, message) = match (finding.verdict, incident) {
        (Verdict::Violated, _) => {
            let cause = evidence.and_then(|e| e.cause.as_deref());
            let why = cause.unwrap_or(finding.why.as_str());
            let rest = match why {
                "" => String::new(),
                why => format!(": {why}"),
            };
            (Level::Error, format!("{figure}{rest}"))
        }
        (_, Some(incident)) => {
            let text = format!(
                "the requirement was violated, and incident {} goes on",
                incident.number
            );
            (Level::Warn, text)
        }
        (Verdict::Passed, None) => (Level::Ok, figure),
        (Verdict::NotKnown, None) => match finding.why.as_str() {
            "" => (Level::Stale, "not known yet".into()),
            why => (Level::Stale, format!("not known yet: {why}")),
        },
    };
    DiagnosticStatus {
        level,
        name: format!("onbeat: {} of {}", finding.requirement, finding.subject),
        message,
        hardware_id: machine.into(),
        values: values(finding, incident, evidence),
    }
}

fn values(
    finding: &Finding,
    incident: Option<&Incident>,
    evidence: Option<&Evidence>,
) -> Vec<(String, String)> {
    let mut values: Vec<(String, String)> = Vec::new();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            values.push((key.into(), value.into()));
        }
    };
    add("requirement", &finding.requirement);
    add("subject", &finding.subject);
    add("id", &finding.id);
    add("limit", &finding.limit);
    add("measured", &finding.measured);
    add("reason", &finding.why);
    if let Some(incident) = incident {
        add("incident", &incident.number.to_string());
        add("late executions", &incident.late_executions.to_string());
        if let Some(worst) = &incident.worst {
            add("worst execution", &duration(worst.latency_ns as f64));
        }
    }
    if let Some(evidence) = evidence {
        add("cause", evidence.cause.as_deref().unwrap_or_default());
        add("incident directory", &evidence.directory);
    }
    values
}

/// Returns the last status of the monitor. The publisher sends it if the monitor ends unexpectedly.
pub fn will(machine: &str) -> DiagnosticStatus {
    DiagnosticStatus {
        level: Level::Error,
        name: MONITOR.into(),
        message: "onbeat monitor ended unexpectedly. The requirements are not judged any more"
            .into(),
        hardware_id: machine.into(),
        values: Vec::new(),
    }
}

/// Marks a status as old (`Stale`) and sets its message to `why`. The figures of the status stay
/// the same.
pub fn set_old(status: &mut DiagnosticStatus, why: &str) {
    status.level = Level::Stale;
    status.message = why.into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::Incidents;

    fn finding(requirement: &str, verdict: Verdict, why: &str) -> Finding {
        Finding {
            requirement: requirement.into(),
            subject: "/lidar -> /brake".into(),
            id: "chain-1".into(),
            limit: "at most 80 ms".into(),
            measured: "96.5 ms".into(),
            verdict,
            why: why.into(),
            late_above_ns: Some(80),
            late: None,
            losses_at: Vec::new(),
            lost: None,
        }
    }

    #[test]
    fn each_requirement_has_a_status_with_its_figure_its_limit_and_its_incident() {
        let mut incidents = Incidents::new(5, 5);
        let mut findings = vec![
            finding("max", Verdict::Violated, ""),
            finding("p99", Verdict::Violated, ""),
            finding("p50", Verdict::Passed, ""),
            finding("loss", Verdict::NotKnown, "it needs 100 items"),
            finding("rate", Verdict::NotKnown, ""),
        ];
        incidents.step(9, &findings, vec![]);
        findings[1].verdict = Verdict::Passed;
        let open: BTreeMap<u64, &Incident> = incidents.open().map(|i| (i.number, i)).collect();
        let saved = Evidence {
            directory: "/var/lib/onbeat/incidents/i".into(),
            cause: Some("18 ms are preemptions".into()),
        };
        let evidence = BTreeMap::from([(1, saved)]);
        let all = all(&findings, &open, &evidence, ("robot", "1 is violated"));
        let shown: Vec<_> = all.iter().map(|s| (s.level, s.message.as_str())).collect();
        assert_eq!(
            shown,
            [
                (Level::Error, "1 is violated"),
                (
                    Level::Error,
                    "96.5 ms, and the limit is at most 80 ms: 18 ms are preemptions"
                ),
                (
                    Level::Warn,
                    "the requirement was violated, and incident 1 goes on"
                ),
                (Level::Ok, "96.5 ms, and the limit is at most 80 ms"),
                (Level::Stale, "not known yet: it needs 100 items"),
                (Level::Stale, "not known yet"),
            ]
        );
        assert_eq!(all[1].name, "onbeat: max of /lidar -> /brake");
        let value = |key: &str| {
            all[1]
                .values
                .iter()
                .find(|(k, _)| k == key)
                .map(|v| v.1.as_str())
        };
        assert_eq!(
            value("incident directory"),
            Some("/var/lib/onbeat/incidents/i")
        );
        assert_eq!(
            (value("incident"), value("cause")),
            (Some("1"), Some("18 ms are preemptions"))
        );
        assert!(all.iter().all(|s| s.hardware_id == "robot"));
        assert_eq!(all[3].values.len(), 5, "no incident: {:?}", all[3].values);
    }
}
