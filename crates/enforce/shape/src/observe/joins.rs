//! Finds how BPF programs can recognise joins in a chain (synchronisers, callbacks that store
//! inputs). Pure.
//!
//! onbeat recognises a join by two things: the start of the callback that takes the chain's input,
//! and the publisher of the join's output. The callback whose input comes last publishes the
//! output. If that input is not the chain's, the output belongs to the cycle of the stored chain's
//! input.

use super::{is_synchroniser, Roots};
use onbeat_plan::Plan;
use onbeat_record::Join;
use onbeat_trace::{EndpointKind, Event, EventKind};
use std::collections::BTreeSet;

const MAX_PUBLISHERS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JoinChange {
    pub(crate) pid: u32,
    pub(crate) was: Option<Join>,
    pub(crate) now: Option<Join>,
}

#[derive(Debug)]
pub(crate) struct Joins(Vec<ChainJoin>);

#[derive(Debug)]
struct ChainJoin {
    callback: String,
    /// The topics on which the synchroniser's output is published: the held topics from which
    /// shapers take it, and then its final topic.
    topics: Vec<String>,
    begins: Roots,
    input: Option<(u32, onbeat_record::Root)>,
    publishers: BTreeSet<(u32, u64)>,
    reported: Option<(u32, Join)>,
}

impl Joins {
    pub(crate) fn new(plan: &Plan) -> Joins {
        let mut joins: Vec<ChainJoin> = Vec::new();
        for chain in &plan.chains {
            for pair in chain.callbacks.windows(2) {
                let Some(topic) = topic(&pair[1]) else {
                    continue;
                };
                let held = plan.outputs.iter().filter(|o| o.topic == topic);
                let held = held.filter_map(|o| o.held_topic.clone());
                let topics: Vec<String> = held.chain([topic.to_owned()]).collect();
                if !joins.iter().any(|j| j.callback == pair[0]) {
                    joins.push(ChainJoin {
                        callback: pair[0].clone(),
                        topics,
                        begins: Roots::new(&pair[0]),
                        input: None,
                        publishers: BTreeSet::new(),
                        reported: None,
                    });
                }
            }
        }
        Joins(joins)
    }

    pub(crate) fn push(&mut self, events: &[Event]) -> Vec<JoinChange> {
        let mut ended = Vec::new();
        for join in &mut self.0 {
            if join.begins.push(events).is_some() {
                join.input = None;
            }
            for event in events {
                ended.extend(join.see(event));
            }
        }
        ended
    }

    /// Records a run of a callback whose messages a synchroniser joins. Returns the change of the
    /// join if the run shows the first input of this join, or another input than before.
    pub(crate) fn ran(
        &mut self,
        callback: &str,
        (pid, tid): (u32, u32),
        start_ns: u64,
    ) -> Option<JoinChange> {
        let join = self.0.iter_mut().find(|j| j.callback == callback)?;
        if let Some(change) = join.begins.ran(pid, tid, start_ns) {
            join.input = change.now.map(|root| (pid, root));
        }
        join.change(pid)
    }
}

impl ChainJoin {
    fn see(&mut self, event: &Event) -> Option<JoinChange> {
        let (rmw, topic) = match &event.kind {
            EventKind::PublisherInit { rmw, topic, .. } => (*rmw, topic),
            EventKind::EndpointFound {
                endpoint: EndpointKind::Publisher,
                rmw,
                name,
                ..
            } => (*rmw, name),
            EventKind::Exit if event.pid == event.tid => {
                self.publishers.retain(|of| of.0 != event.pid);
                let (pid, was) = self.reported.take_if(|reported| reported.0 == event.pid)?;
                return Some(JoinChange {
                    pid,
                    was: Some(was),
                    now: None,
                });
            }
            _ => return None,
        };
        if self.topics.iter().any(|of| **of == **topic) {
            if self.publishers.len() < MAX_PUBLISHERS {
                self.publishers.insert((event.pid, rmw));
            }
        } else {
            // The handle belongs to another publisher now.
            self.publishers.remove(&(event.pid, rmw));
        }
        None
    }

    /// Returns the change of the join in process `pid`, or `None` if the join was already reported.
    /// A join consists of the synchroniser's input and the publisher of its output. If two
    /// publishers of the process publish the output, the join stays unknown.
    fn change(&mut self, pid: u32) -> Option<JoinChange> {
        let (_, input) = self.input.filter(|input| input.0 == pid)?;
        let mut publishers = self.publishers.iter().filter(|of| of.0 == pid);
        let (Some(&(_, output)), None) = (publishers.next(), publishers.next()) else {
            return None;
        };
        let now = Join { input, output };
        if self.reported == Some((pid, now)) {
            return None;
        }
        let was = self.reported.replace((pid, now));
        Some(JoinChange {
            pid,
            was: was.filter(|was| was.0 == pid).map(|was| was.1),
            now: Some(now),
        })
    }
}

fn topic(id: &str) -> Option<&str> {
    let (_, rest) = id.split_once(":sync(").filter(|_| is_synchroniser(id))?;
    Some(&rest[..rest.rfind(')')?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_record::Root;

    fn plan() -> Plan {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        plan.chains[0].callbacks = ["/a:timer(1ms)", "/j:subscription(/t)", "/j:sync(/out)"]
            .map(str::to_owned)
            .to_vec();
        plan.outputs[0].topic = "/out".into();
        plan.outputs[0].held_topic = Some("/out/held".into());
        plan
    }

    fn events(text: &str) -> Vec<Event> {
        onbeat_trace::text::parse(text).expect("events")
    }

    fn init(pid: u32, rmw: u64, topic: &str) -> Vec<Event> {
        events(&format!(
            "1ms cpu0 {pid}/{pid} publisher_init publisher=0x10 node=0x1 rmw={rmw:#x} topic={topic}\n"
        ))
    }

    fn change_after_runs(joins: &mut Joins, pid: u32, from_ms: u64) -> Option<JoinChange> {
        (from_ms..from_ms + 4).find_map(|at| {
            let text = format!(
                "{at}ms cpu0 {pid}/{pid} take rmw=0x20 message=0x1 source_ns=5 taken=yes\n"
            );
            assert_eq!(joins.push(&events(&text)), []);
            joins.ran("/j:subscription(/t)", (pid, pid), at * 1_000_000)
        })
    }

    fn join(output: u64) -> Option<Join> {
        let input = Root::Subscription(0x20);
        Some(Join { input, output })
    }

    #[test]
    fn the_join_of_a_synchroniser_is_found_by_its_input_and_its_only_publisher() {
        let mut joins = Joins::new(&plan());
        assert_eq!(
            change_after_runs(&mut joins, 1, 2),
            None,
            "no publisher is known"
        );
        joins.push(&init(2, 0x31, "/out"));
        joins.push(&init(1, 0x30, "/elsewhere"));
        assert_eq!(
            change_after_runs(&mut joins, 1, 12),
            None,
            "another process's, another topic's"
        );
        joins.push(&init(1, 0x32, "/out/held"));
        let change = |was, now| Some(JoinChange { pid: 1, was, now });
        assert_eq!(
            change_after_runs(&mut joins, 1, 22),
            change(None, join(0x32))
        );
        assert_eq!(
            change_after_runs(&mut joins, 1, 32),
            None,
            "it is reported once"
        );
        assert_eq!(joins.ran("/a:timer(1ms)", (1, 1), 36_000_000), None);
        // With a second publisher the join is unknown, until the first one's handle is used for
        // another topic.
        joins.push(&init(1, 0x33, "/out"));
        assert_eq!(change_after_runs(&mut joins, 1, 42), None);
        joins.push(&init(1, 0x32, "/elsewhere"));
        assert_eq!(
            change_after_runs(&mut joins, 1, 52),
            change(join(0x32), join(0x33))
        );
        let ended = joins.push(&events("99ms cpu0 1/1 exit\n"));
        assert_eq!(
            ended,
            change(join(0x33), None).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(
            change_after_runs(&mut joins, 2, 102),
            Some(JoinChange {
                pid: 2,
                was: None,
                now: join(0x31)
            })
        );
    }

    #[test]
    fn chains_without_synchronisers_have_no_joins() {
        let mut plan = plan();
        plan.chains[0].callbacks.pop();
        assert!(Joins::new(&plan).0.is_empty());
        assert_eq!(topic("/j:sync(/a(b))"), Some("/a(b)"));
        assert_eq!(topic("/j:subscription(/sync(x))"), None);
    }
}
