//! Writes a trace of any length with 100 nodes in ten layers, to measure what synthesis needs for a
//! large graph.

use crate::frame::{LabError, Result};
use onbeat_trace::manifest::{Machine, Observed, Span};
use onbeat_trace::{Event, EventKind, Manifest, Writer, WriterOptions};
use std::path::Path;

const LAYERS: u64 = 10;
const CHAINS: u64 = 10;
const PERIOD_NS: u64 = 100_000_000;
const START_NS: u64 = 1_000_000_000_000;

/// The handle of a process's node. The following constants are the first handles of other kinds of
/// objects.
const NODE: u64 = 0x1000;
const PUBLISHER: u64 = 0x2000;
const TIMER: u64 = 0x3000;
const SUBSCRIPTION: u64 = 0x4000;
const OBJECT: u64 = 0x5000;
const CALLBACK: u64 = 0x6000;
/// The number to add to the handle of an rcl object to get the handle of its rmw object.
const RMW: u64 = 0x10000;

#[derive(Debug, Clone, Copy)]
struct Place {
    layer: u64,
    chain: u64,
}

impl Place {
    fn all() -> impl Iterator<Item = Place> {
        (0..LAYERS).flat_map(|layer| (0..CHAINS).map(move |chain| Place { layer, chain }))
    }

    fn pid(self) -> u32 {
        1000 + (CHAINS * self.layer + self.chain) as u32
    }

    fn name(self) -> String {
        format!("n{}_{}", self.layer, self.chain)
    }

    /// Returns the nodes whose outputs this node takes.
    ///
    /// Nodes of the first layer have no inputs. A node of another layer takes the output of the
    /// node before it in its chain. In every third layer, a node also takes the output of the
    /// neighbour of that node, and publishes when both outputs have arrived.
    fn inputs(self) -> Vec<Place> {
        let layer = self.layer.wrapping_sub(1);
        let before = |chain| Place { layer, chain };
        match (self.layer, self.layer % 3) {
            (0, _) => vec![],
            (_, 0) => vec![before((self.chain + 1) % CHAINS), before(self.chain)],
            _ => vec![before(self.chain)],
        }
    }

    /// Returns the time at which the node publishes in a round, in ns of CLOCK_MONOTONIC. The time
    /// varies by up to 40 us from round to round, so that distributions get several buckets.
    /// Callbacks take 50 us.
    fn published_ns(self, round: u64) -> u64 {
        let wander = (round * 7 + self.chain * 13 + self.layer * 29) % 41 * 1000;
        let at = 5_000_000 * self.layer + 300_000 * self.chain;
        START_NS + (round + 1) * PERIOD_NS + at + wander
    }
}

struct Layers {
    writer: Writer,
    left: u64,
    failed: Result<(), String>,
}

impl Layers {
    fn push(&mut self, time_ns: u64, pid: u32, kind: EventKind) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let event = Event {
            time_ns,
            cpu: (pid % 4) as u16,
            pid,
            tid: pid,
            kind,
        };
        let pushed = self.writer.push(&event).map_err(|e| e.to_string());
        self.failed = std::mem::replace(&mut self.failed, Ok(())).and(pushed);
    }

    fn begin(&mut self, place: Place) {
        let pid = place.pid();
        let name = |name: String| name.into_boxed_str();
        let mut push = |kind| self.push(START_NS, pid, kind);
        push(EventKind::NodeInit {
            node: NODE,
            rmw: NODE + RMW,
            name: name(place.name()),
            namespace: name("/".into()),
        });
        push(EventKind::PublisherInit {
            publisher: PUBLISHER,
            node: NODE,
            rmw: PUBLISHER + RMW,
            topic: name(format!("/{}", place.name())),
            depth: 10,
        });
        if place.layer == 0 {
            push(EventKind::TimerInit {
                timer: TIMER,
                period_ns: PERIOD_NS as i64,
            });
            push(EventKind::TimerCallback {
                timer: TIMER,
                callback: CALLBACK,
            });
            push(EventKind::TimerNode {
                timer: TIMER,
                node: NODE,
            });
        }
        for (i, from) in (0..).zip(place.inputs()) {
            push(EventKind::SubscriptionInit {
                subscription: SUBSCRIPTION + i,
                node: NODE,
                rmw: SUBSCRIPTION + RMW + i,
                topic: name(format!("/{}", from.name())),
                depth: 10,
            });
            push(EventKind::SubscriptionObject {
                subscription: SUBSCRIPTION + i,
                object: OBJECT + i,
            });
            push(EventKind::SubscriptionCallback {
                object: OBJECT + i,
                callback: CALLBACK + i,
            });
        }
    }

    fn run(&mut self, place: Place, round: u64) {
        let (pid, published) = (place.pid(), place.published_ns(round));
        let inputs = place.inputs();
        let callbacks = inputs.len().max(1) as u64;
        for i in 0..callbacks {
            let at = published - 100_000 * (callbacks - 1 - i);
            let first = match inputs.get(i as usize) {
                None => EventKind::TimerCall { timer: TIMER },
                Some(from) => EventKind::Take {
                    rmw: SUBSCRIPTION + RMW + i,
                    message: 1,
                    source_ns: from.published_ns(round) as i64,
                    taken: true,
                },
            };
            self.push(at - 50_000, pid, first);
            let callback = CALLBACK + i;
            let start = EventKind::CallbackStart {
                callback,
                intra_process: false,
            };
            self.push(at - 49_000, pid, start);
            if i + 1 == callbacks {
                let publish = EventKind::Publish {
                    rmw: PUBLISHER + RMW,
                    message: 1,
                    source_ns: Some(published as i64),
                };
                self.push(at, pid, publish);
            }
            self.push(at + 1000, pid, EventKind::CallbackEnd { callback });
        }
    }
}

pub fn write_layers(events: u64, dir: &Path) -> Result<()> {
    let failed = |why: String| LabError::unexpected(format!("the trace {}", dir.display()), why);
    let writer =
        Writer::create(dir, WriterOptions::default()).map_err(|e| failed(e.to_string()))?;
    let mut layers = Layers {
        writer,
        left: events,
        failed: Ok(()),
    };
    Place::all().for_each(|place| layers.begin(place));
    let mut round = 0;
    while layers.left > 0 && layers.failed.is_ok() {
        Place::all().for_each(|place| layers.run(place, round));
        round += 1;
    }
    layers.failed.map_err(failed)?;
    let manifest = Manifest {
        mode: "generated".into(),
        span: Span {
            start_realtime_ns: START_NS,
            start_monotonic_ns: START_NS,
            duration_ns: (round + 1) * PERIOD_NS,
        },
        machine: Machine {
            hostname: "generated".into(),
            recorder_version: env!("CARGO_PKG_VERSION").into(),
            ..Machine::default()
        },
        observed: Observed {
            distributions: vec!["kilted".into()],
            ..Observed::default()
        },
        ..Manifest::default()
    };
    let written = layers.writer.finish(manifest);
    written.map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::Reader;

    #[test]
    fn a_trace_has_the_requested_number_of_ordered_events_of_100_nodes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        write_layers(20_000, &path).unwrap();
        let events: Vec<Event> = Reader::open(&path).unwrap().events().collect();
        assert_eq!(events.len(), 20_000);
        assert!(events.is_sorted_by_key(|e| e.time_ns));
        let nodes = events.iter();
        let nodes = nodes.filter(|e| matches!(e.kind, EventKind::NodeInit { .. }));
        assert_eq!(nodes.count(), 100);
        // Each item that is taken was published before.
        let published: std::collections::HashSet<i64> = events
            .iter()
            .filter_map(|e| match e.kind {
                EventKind::Publish { source_ns, .. } => source_ns,
                _ => None,
            })
            .collect();
        let taken = events.iter().filter_map(|e| match e.kind {
            EventKind::Take { source_ns, .. } => Some(source_ns),
            _ => None,
        });
        assert!(taken.clone().count() > 1000);
        for source in taken {
            assert!(published.contains(&source), "{source}");
        }
    }
}
