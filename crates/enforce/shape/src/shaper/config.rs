//! Converts a plan into a shaper's configuration and slot table. Pure.

use crate::slots::slots;
use onbeat_plan::schema::{Hold, Plan};
use onbeat_ros::config::{Config, Kind, Output, Place};
use onbeat_ros::page::OutputTable;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// The time without a heartbeat after which the shaper treats its owner as dead, even if the
/// owner's pipe is still open.
const SILENCE_NS: u64 = 5_000_000_000;

// Ensures that the outputs of every plan fit into a shaper.
const _: () = assert!(onbeat_plan::schema::MAX_HELD <= onbeat_ros::page::MAX_OUTPUTS);

pub(super) struct Ros {
    pub(super) rcl: PathBuf,
    pub(super) folders: Vec<PathBuf>,
}

/// Returns the outputs that a shaper republishes, each with its index in the plan. Each topic
/// occurs once, even if it has several publishers.
pub(super) fn held(plan: &Plan) -> impl Iterator<Item = (usize, &onbeat_plan::schema::Output)> {
    let mut seen = BTreeSet::new();
    let republished = |o: &(usize, &onbeat_plan::schema::Output)| o.1.hold == Hold::Republish;
    let all = plan.outputs.iter().enumerate().filter(republished);
    all.filter(move |(_, o)| seen.insert(&o.held_topic))
}

pub(super) fn throttled(plan: &Plan) -> impl Iterator<Item = &onbeat_plan::schema::Throttle> {
    let mut seen = BTreeSet::new();
    plan.inputs
        .iter()
        .filter(move |i| seen.insert(&i.held_topic))
}

fn server<'a>(plan: &'a Plan, name: &str) -> Option<&'a onbeat_plan::schema::Server> {
    plan.servers.iter().find(|s| s.name == name)
}

/// Returns the shaper's configuration. Also returns, for each output of the shaper, the index of
/// the plan's output (`None` for a throttled input). `application` is the pidfd (pidfd_open(2)) of
/// the process beside which the shaper runs.
pub(super) fn configuration(
    plan: &Plan,
    application: BorrowedFd<'_>,
    ros: Ros,
    (page, reports): (&OwnedFd, &OwnedFd),
    lineage: Option<RawFd>,
) -> (Config, Vec<Option<usize>>) {
    let (mut outputs, mut numbers) = (Vec::new(), Vec::new());
    for (i, o) in held(plan) {
        let held_topic = o.held_topic.as_deref().unwrap_or_default();
        let place = place(plan, &o.server);
        outputs.push(output(held_topic, &o.topic, Kind::Shape, place));
        numbers.push(Some(i));
    }
    for (n, i) in throttled(plan).enumerate() {
        let inputs_before = u8::try_from(n).unwrap_or(u8::MAX);
        let priority = sending_priority(plan.middleware.priority, inputs_before);
        let place = place(plan, &i.server).map(|p| Place {
            priority: p.priority.map(|_| priority),
            ..p
        });
        outputs.push(Output {
            // Latency counts from the first input. The other inputs are late in any case, because
            // they would spin until the first one preempts them.
            spins: n == 0,
            ..output(&i.held_topic, &i.topic, Kind::Throttle, place)
        });
        numbers.push(None);
    }
    let config = Config {
        rcl: ros.rcl,
        folders: ros.folders,
        outputs,
        middleware: Some(Place {
            cpus: vec![usize::from(plan.middleware.cpu)],
            priority: Some(plan.middleware.priority),
        }),
        overshoot: plan.overshoot,
        page_fd: Some(page.as_raw_fd()),
        table: None,
        report_fd: Some(reports.as_raw_fd()),
        lineage_fd: lineage,
        application_fd: Some(application.as_raw_fd()),
        silence_ns: Some(SILENCE_NS),
    };
    (config, numbers)
}

/// The SCHED_FIFO priority of the threads that send held outputs. It is below the dispatcher's and
/// above the middleware's.
pub(super) const SENDING: u8 = 97;
const _: () = assert!(SENDING > onbeat_plan::schema::MAX_PRIORITY + 1);

/// Returns the SCHED_FIFO priority of a thread that sends an output or a throttled input.
/// `middleware` is the middleware's priority. `inputs_before` is the number of inputs that leave
/// before this input, or 0 for an output. Each input has a lower priority than the inputs that
/// leave before it, so that each input has its own time in the cycle.
pub(crate) fn sending_priority(middleware: u8, inputs_before: u8) -> u8 {
    let highest = SENDING.max(middleware);
    let lowest = middleware.saturating_add(1).min(highest);
    highest.saturating_sub(inputs_before).max(lowest)
}

/// Returns the CPU and the priority of the shaper's thread for an output of the server `name`. The
/// CPU is that of the middleware. The shaper's wait for a slot and the chain then take no CPU time
/// from each other.
fn place(plan: &Plan, name: &str) -> Option<Place> {
    let middleware = &plan.middleware;
    server(plan, name).map(|s| Place {
        cpus: vec![usize::from(middleware.cpu)],
        priority: (s.priority > 0).then(|| sending_priority(middleware.priority, 0)),
    })
}

fn output(held_topic: &str, topic: &str, kind: Kind, place: Option<Place>) -> Output {
    Output {
        held_topic: held_topic.into(),
        topic: topic.into(),
        kind,
        place,
        capacity: 32,
        item_bytes: 64 << 10,
        depth: 100,
        spins: true,
    }
}

pub(super) fn tables(plan: &Plan) -> Vec<OutputTable> {
    let slots = |name: &str| server(plan, name).map(slots).unwrap_or_default();
    // If a topic has several publishers, the fastest one determines the earliest output.
    let earliest = |topic: &Option<String>| {
        let alike = plan.outputs.iter().filter(move |o| o.held_topic == *topic);
        alike.map(|o| o.earliest_ms.0).min().unwrap_or(0)
    };
    let outputs = held(plan).map(|(_, o)| {
        let earliest_ns = earliest(&o.held_topic);
        let mut slots = slots(&o.server);
        // Before this time the cycle's execution has no output yet, so these slots belong to the
        // next cycle.
        for slot in slots.iter_mut().filter(|s| s.start_ns < earliest_ns) {
            slot.start_ns += plan.cycle_ms.0;
            slot.end_ns += plan.cycle_ms.0;
        }
        OutputTable { earliest_ns, slots }
    });
    let inputs = throttled(plan).map(|i| OutputTable {
        earliest_ns: 0,
        slots: slots(&i.server),
    });
    outputs.chain(inputs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shaper::pipe;
    use onbeat_ros::page::PageWriter;
    use std::os::fd::AsFd;

    #[test]
    fn the_shaper_gives_the_first_throttled_input_the_highest_priority() {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        let mut second = plan.inputs[0].clone();
        second.topic = "/scans".into();
        second.held_topic = "/scans/onbeat_held".into();
        plan.inputs.push(second);
        let page = PageWriter::new().expect("a page");
        let (_, write) = pipe().expect("a pipe");
        let ros = Ros {
            rcl: PathBuf::new(),
            folders: Vec::new(),
        };
        let (config, numbers) =
            configuration(&plan, page.fd().as_fd(), ros, (page.fd(), &write), None);
        let priorities: Vec<_> = config
            .outputs
            .iter()
            .map(|o| {
                let priority = o.place.as_ref().and_then(|p| p.priority);
                (o.topic.as_str(), priority)
            })
            .collect();
        assert_eq!(
            priorities,
            [
                ("/t5", Some(97)),
                ("/points", Some(97)),
                ("/scans", Some(96))
            ]
        );
        let spins: Vec<bool> = config.outputs.iter().map(|o| o.spins).collect();
        assert_eq!(spins, [true, true, false]);
        let cpu = usize::from(plan.middleware.cpu);
        assert!(plan.servers.iter().all(|s| usize::from(s.cpu) != cpu));
        let places = config.outputs.iter().filter_map(|o| o.place.as_ref());
        assert!(
            places.into_iter().all(|p| p.cpus == [cpu]),
            "off the chain's CPU"
        );
        assert_eq!(numbers, [Some(0), None, None]);
    }
}
