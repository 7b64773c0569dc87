//! Writes the sentences about what an imported trace lacks.

use crate::convert::LeftOut;
use crate::session::Pass;
use crate::survey::Survey;
use onbeat_trace::manifest::program;
use std::path::Path;

const NAMED_PROCESSES_MAX: usize = 20;

fn times(n: u64, one: &str, many: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    }
}

/// Returns the sentences about what the trace lacks, in a fixed order. A model of the trace lists
/// the same sentences in its coverage.
pub(crate) fn sentences(from: &Path, survey: &Survey, left: LeftOut, pass: &Pass) -> Vec<String> {
    let mut notes = vec![
        "The trace is imported from LTTng. Its events do not show when timers are due, when objects end, which QoS \
         was requested, and what message_filters or actions do. The response times of timers are unknown."
            .to_string(),
    ];
    notes.extend(scheduler(survey, left));
    if survey.has_services && !survey.has_requests {
        notes.push(
            "The trace has no events of requests and responses, as tracetools before Kilted makes none. Edges \
             between clients and services are missing, and so are callbacks of clients."
                .into(),
        );
    }
    notes.extend(silent(survey));
    if survey.nameless > 0 {
        let n = times(survey.nameless, "event", "events");
        notes.push(format!("onbeat left out {n} without a process or thread."));
    }
    if left.malformed > 0 {
        let n = times(left.malformed, "event", "events");
        notes.push(format!(
            "onbeat left out {n} without a field that onbeat needs."
        ));
    }
    notes.extend(gaps(from, pass));
    notes
}

fn scheduler(survey: &Survey, left: LeftOut) -> Vec<String> {
    let scheduler = &survey.scheduler;
    if scheduler.switches.is_none() {
        return vec![
            "The trace has no context switches (sched_switch), so execution times, preemption and the causes of \
             delays are unknown. Record the kernel's events too."
                .into(),
        ];
    }
    let mut notes = vec![
        "LTTng's context switches show the priority of a thread, but not its policy and its CPUs. They do not show \
         time that a host took away."
            .to_string(),
    ];
    if !scheduler.has_waking && !scheduler.has_wakeup {
        notes.push(
            "The trace has no wake-ups (sched_waking). The time in which a thread waits for a CPU after it slept \
             counts as blocked."
                .into(),
        );
    }
    let missing = survey.unscheduled() as u64;
    if missing > 0 {
        notes.push(format!(
            "{} of ROS 2 never appear among the kernel's context switches, so executions on them have no execution \
             time. In a container, the kernel has other ids for these threads.",
            times(missing, "thread", "threads")
        ));
    }
    if left.unscheduled > 0 {
        notes.push(format!(
            "{} of ROS 2 after the last context switch were left out.",
            times(left.unscheduled, "event", "events")
        ));
    }
    notes
}

/// Returns sentences about processes that exchange items and have no events of callbacks, as with
/// rclpy.
fn silent(survey: &Survey) -> Vec<String> {
    let mut silent: Vec<_> = survey
        .processes
        .iter()
        .filter(|(_, process)| !process.is_of_rclcpp && process.items > 0)
        .collect();
    let more = silent.split_off(silent.len().min(NAMED_PROCESSES_MAX));
    let mut notes: Vec<String> = silent
        .into_iter()
        .map(|(pid, process)| {
            format!(
                "{} (process {pid}) has no events of callbacks, as is usual with rclpy. Its callbacks, and {} of \
                 messages, requests and responses, are not in the model.",
                program(&process.name),
                times(process.items, "event", "events")
            )
        })
        .collect();
    if !more.is_empty() {
        let n = times(more.len() as u64, "more process", "more processes");
        notes.push(format!("{n} have no events of callbacks."));
    }
    notes
}

fn gaps(from: &Path, pass: &Pass) -> Vec<String> {
    let mut notes = Vec::new();
    for (path, gaps) in &pass.gaps {
        let name = path.strip_prefix(from).unwrap_or(path).display();
        if gaps.discarded > 0 {
            let n = times(gaps.discarded, "event", "events");
            notes.push(format!(
                "LTTng lost {n} of {name}, because its buffers were full."
            ));
        }
        if gaps.missing_packets > 0 {
            let n = times(gaps.missing_packets, "packet", "packets");
            notes.push(format!("The trace lacks {n} of the file {name}."));
        }
        if gaps.damaged_packets > 0 {
            let n = times(gaps.damaged_packets, "packet", "packets");
            notes.push(format!(
                "{n} of {name} cannot be read to the end. The rest of these packets is missing."
            ));
        }
        if gaps.cut {
            notes.push(format!("{name} ends within a packet."));
        }
    }
    notes
}
