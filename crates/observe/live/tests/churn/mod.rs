//! Streams of events in which processes come and go, made from a recorded trace.

use onbeat_trace::{table, Event, EventKind, Name};
use std::collections::BTreeSet;

pub const SECOND_NS: u64 = 1_000_000_000;

const IDS: u32 = 100_000;

/// A recorded system. It can be played several times with other ids and names.
pub struct Recorded {
    events: Vec<Event>,
    first_ns: u64,
    tids: BTreeSet<u32>,
    pids: BTreeSet<u32>,
}

impl Recorded {
    pub fn new(events: Vec<Event>) -> Recorded {
        let first_ns = events.first().expect("events").time_ns;
        let ran =
            |e: &&Event| !matches!(e.kind, EventKind::Bystander { .. } | EventKind::Lost { .. });
        let seen = |of: fn(&Event) -> u32| {
            events
                .iter()
                .filter(ran)
                .map(of)
                .filter(|id| *id > 0)
                .collect()
        };
        Recorded {
            first_ns,
            tids: seen(|e| e.tid),
            pids: seen(|e| e.pid),
            events,
        }
    }

    pub fn length_ns(&self) -> u64 {
        self.events.last().expect("events").time_ns - self.first_ns
    }

    /// Returns the events of a copy of the system, from `start_ns` on. Each `generation` has its
    /// own names of nodes and topics, and its own process ids, which repeat after 20,000
    /// generations. All processes exit at the end.
    pub fn copy(&self, generation: u32, start_ns: u64) -> impl Iterator<Item = Event> + '_ {
        let ids = 1_000_000 + generation % 20_000 * IDS;
        let events = self.events.iter().filter(|e| e.kind != EventKind::Exit);
        let events = events.map(move |event| self.renamed(event, ids, generation, start_ns));
        let end_ns = start_ns + self.length_ns() + 1;
        let exit = move |id: &u32, pid: u32| Event {
            time_ns: end_ns,
            cpu: 0,
            pid: ids + pid,
            tid: ids + id,
            kind: EventKind::Exit,
        };
        let pids = &self.pids;
        let threads = self.tids.iter().filter(|tid| !pids.contains(tid));
        let of_pid = move |tid: &u32| {
            self.events
                .iter()
                .find(|e| e.tid == *tid)
                .map_or(0, |e| e.pid)
        };
        let threads = threads.map(move |tid| exit(tid, of_pid(tid)));
        events
            .chain(threads)
            .chain(pids.iter().map(move |pid| exit(pid, *pid)))
    }

    /// Returns the events of the system in its own processes, from `start_ns` on. No process exits.
    /// The events that create nodes and endpoints are included only if `is_first` is set.
    pub fn lasting(&self, start_ns: u64, is_first: bool) -> impl Iterator<Item = Event> + '_ {
        let lasts =
            move |e: &&Event| e.kind != EventKind::Exit && (is_first || !table::is_state(&e.kind));
        let events = self.events.iter().filter(lasts);
        events.map(move |event| self.shifted(event, start_ns))
    }

    fn shifted(&self, event: &Event, start_ns: u64) -> Event {
        let mut event = event.clone();
        let by = start_ns as i64 - self.first_ns as i64;
        event.time_ns = event.time_ns.saturating_add_signed(by);
        match &mut event.kind {
            EventKind::Publish { source_ns, .. } => *source_ns = source_ns.map(|ns| ns + by),
            EventKind::Take { source_ns, .. } => *source_ns += by,
            EventKind::RequestTake { .. } | EventKind::ResponseTake { .. } => {}
            _ => {}
        }
        event
    }

    fn renamed(&self, event: &Event, ids: u32, generation: u32, start_ns: u64) -> Event {
        let mut event = self.shifted(event, start_ns);
        let other = |tid: &mut u32| {
            if self.tids.contains(tid) {
                *tid += ids;
            }
        };
        for id in [&mut event.pid, &mut event.tid] {
            *id = if *id == 0 { 0 } else { *id + ids };
        }
        let name = |name: &mut Name| {
            if !["/rosout", "/parameter_events", "/clock", "/tf"].contains(&&**name) {
                *name = format!("{name}__copy{generation}").into();
            }
        };
        match &mut event.kind {
            EventKind::NodeInit { name: node, .. } => name(node),
            EventKind::NodeFound { name: node, .. } => name(node),
            EventKind::PublisherInit { topic, .. } => name(topic),
            EventKind::SubscriptionInit { topic, .. } => name(topic),
            EventKind::ServiceInit { name: of, .. } => name(of),
            EventKind::ClientInit { name: of, .. } => name(of),
            EventKind::EndpointFound { name: of, .. } => name(of),
            EventKind::SwitchIn { prev_tid, .. } => other(prev_tid),
            EventKind::Occupied { prev_tid, .. } => other(prev_tid),
            EventKind::SwitchOut { next_tid, .. } => other(next_tid),
            EventKind::Wake { waker_tid } => other(waker_tid),
            EventKind::Fork {
                parent_pid,
                parent_tid,
                ..
            } => {
                other(parent_pid);
                other(parent_tid);
            }
            EventKind::ClientGid { gid, .. }
            | EventKind::RequestTake { gid, .. }
            | EventKind::ResponseSend { gid, .. } => {
                gid[..4].copy_from_slice(&generation.to_le_bytes());
            }
            _ => {}
        }
        event
    }
}

/// Returns an event that has no effect except that time passes.
pub fn nothing(time_ns: u64) -> Event {
    Event {
        time_ns,
        cpu: 0,
        pid: 0,
        tid: 0,
        kind: EventKind::Lost {
            probe: "".into(),
            count: 0,
        },
    }
}
