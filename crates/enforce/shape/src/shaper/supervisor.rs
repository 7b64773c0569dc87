//! Keeps a shaper running beside a process of the application, if the plan needs one.

use super::lineage::{LineageFeed, Throttlers};
use super::{Polled, Shaper, ShaperError};
use crate::launch::moves;
use onbeat_plan::Plan;
use onbeat_trace::{EndpointKind, Event, EventKind};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The processes outside of the plan that publish messages in slots.
#[derive(Debug, Default)]
pub(crate) struct SenderProcesses {
    pub(crate) shaper: Option<u32>,
    /// The processes that hold back throttled inputs themselves, each with the time at which it was
    /// last seen (CLOCK_MONOTONIC).
    pub(crate) holders: Vec<(u32, u64)>,
}

const FORGET_ENDED_ABOVE: usize = 64;

/// Starts the shaper when a process needs it, and again when the shaper has ended.
///
/// A shaper ends with the process beside which it runs. If other processes of the application still
/// run, or that process is restarted, a new shaper is started.
pub(crate) struct Supervisor<'a> {
    plan: &'a Plan,
    program: &'a Path,
    shaper: Option<Shaper>,
    /// The processes that publish messages for the shaper, each with the time at which it was last
    /// seen (CLOCK_MONOTONIC).
    publishers: BTreeMap<u32, u64>,
    lineage_feed: LineageFeed<'a>,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(plan: &'a Plan, program: &'a Path) -> Supervisor<'a> {
        Supervisor {
            plan,
            program,
            shaper: None,
            publishers: BTreeMap::new(),
            lineage_feed: LineageFeed::new(plan, &plan.origin),
        }
    }

    pub(crate) fn hold_inside(&mut self, shaper: Shaper) {
        self.shaper = Some(shaper);
    }

    pub(crate) fn lineage_feed_mut(&mut self) -> &mut LineageFeed<'a> {
        &mut self.lineage_feed
    }

    pub(crate) fn push(&mut self, events: &[Event]) {
        let throttlers = match &self.shaper {
            None => Throttlers::None,
            Some(shaper) => shaper
                .pid()
                .map_or(Throttlers::Application, Throttlers::Shaper),
        };
        self.lineage_feed.push(events, throttlers);
        self.add_publishers_of_inputs(events);
    }

    pub(crate) fn shaper(&self) -> Option<&Shaper> {
        self.shaper.as_ref()
    }

    pub(crate) fn shaper_mut(&mut self) -> Option<&mut Shaper> {
        self.shaper.as_mut()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.shaper.as_ref().and_then(Shaper::pid)
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.shaper.as_ref().is_some_and(Shaper::is_inside)
    }

    pub(crate) fn senders(&self) -> SenderProcesses {
        let holders = match self.is_inside() && !self.plan.inputs.is_empty() {
            true => self
                .publishers
                .iter()
                .map(|(&pid, &at)| (pid, at))
                .collect(),
            false => Vec::new(),
        };
        SenderProcesses {
            shaper: self.pid(),
            holders,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        match &self.shaper {
            Some(shaper) => shaper.is_ready(),
            None => moves(self.plan).is_empty(),
        }
    }

    pub(crate) fn add_publisher(&mut self, pid: u32, seen_ns: u64) {
        let is_new = self.publishers.insert(pid, seen_ns).is_none();
        if is_new && self.publishers.len() > FORGET_ENDED_ABOVE {
            self.publishers.retain(|&pid, _| onbeat_proc::is_alive(pid));
        }
    }

    /// Finds in `events` the processes that publish throttled inputs. Runs of callbacks cannot show
    /// these processes: the callback that takes such an input runs only after the throttler has
    /// passed the input on.
    fn add_publishers_of_inputs(&mut self, events: &[Event]) {
        let is_input = |topic: &str| self.plan.inputs.iter().any(|i| i.held_topic == topic);
        let publishes = |event: &&Event| match &event.kind {
            EventKind::PublisherInit { topic, .. } => is_input(topic),
            EventKind::EndpointFound {
                endpoint: EndpointKind::Publisher,
                name,
                ..
            } => is_input(name),
            _ => false,
        };
        let found = events.iter().filter(publishes);
        self.publishers.extend(found.map(|e| (e.pid, e.time_ns)));
    }

    /// Starts a shaper if none runs and a process needs one. Returns the id of the process beside
    /// which the shaper was started.
    pub(crate) fn ensure_shaper(&mut self) -> Result<Option<u32>, ShaperError> {
        if self.shaper.is_some() {
            return Ok(None);
        }
        self.publishers.retain(|&pid, _| onbeat_proc::is_alive(pid));
        let Some((&pid, &seen_ns)) = self.publishers.first_key_value() else {
            return Ok(None);
        };
        self.shaper = Some(Shaper::start(
            self.plan,
            self.program,
            (pid, seen_ns),
            self.lineage_feed.table().map(|table| table.as_raw_fd()),
        )?);
        Ok(Some(pid))
    }

    pub(crate) fn poll(&mut self) -> Result<Polled, ShaperError> {
        let polled = match &mut self.shaper {
            Some(shaper) => {
                shaper.give_lineage(self.lineage_feed.table());
                shaper.poll()?
            }
            None => Polled::default(),
        };
        if polled.has_ended {
            self.shaper = None;
        }
        Ok(polled)
    }

    pub(crate) fn end(self) {
        if let Some(shaper) = self.shaper {
            shaper.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_of_throttled_inputs_need_a_shaper() {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let plan = onbeat_plan::file::read(text).expect("a plan");
        let held = &plan.inputs[0].held_topic;
        let events = format!(
            "
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic={held}
1ms cpu0 11/11 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic={}
1ms cpu0 12/12 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic={held}
",
            plan.inputs[0].topic
        );
        let events = onbeat_trace::text::parse(&events).expect("events");
        let mut supervisor = Supervisor::new(&plan, Path::new("/nowhere"));
        supervisor.add_publishers_of_inputs(&events);
        assert_eq!(supervisor.publishers, BTreeMap::from([(10, 1_000_000)]));
        assert!(!supervisor.is_ready());
    }

    #[test]
    fn no_shaper_is_started_beside_a_process_that_has_ended() {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let plan = onbeat_plan::file::read(text).expect("a plan");
        let mut supervisor = Supervisor::new(&plan, Path::new("/nowhere"));
        supervisor.add_publisher(u32::MAX - 1, u64::MAX);
        assert!(matches!(supervisor.ensure_shaper(), Ok(None)));
        assert!(supervisor.publishers.is_empty());
        // This process runs but is not a ROS 2 node.
        supervisor.add_publisher(std::process::id(), u64::MAX);
        assert!(supervisor.ensure_shaper().is_err());
        assert!(supervisor.shaper().is_none());
    }
}
