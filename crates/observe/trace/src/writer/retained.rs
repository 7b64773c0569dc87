//! Chooses the events that a flight recorder keeps when it deletes segments.
use crate::event::{Event, EventKind};
use crate::table;
use std::collections::{HashSet, VecDeque};

/// When the list of a segment reaches this number of noted events, the events that a reader does
/// not need are removed from the list for the first time. Noted events are those that describe the
/// system.
const NOTED_MIN: usize = 1024;

/// The initialisation events that a flight recorder must not lose when it deletes segments.
#[derive(Default)]
pub(super) struct Retained {
    /// For each segment: its number, and its noted events, which describe the system.
    live: VecDeque<(u32, Vec<Event>)>,
    past: Vec<Event>,
    /// When the current segment has this number of noted events, the events that a reader does not
    /// need are removed from its list.
    next_removal: usize,
}

impl Retained {
    pub(super) fn segments(&self) -> usize {
        self.live.len()
    }

    /// Returns the events of the deleted segments that a reader still needs, in order of time.
    pub(super) fn past(&self) -> &[Event] {
        &self.past
    }

    pub(super) fn begin(&mut self, segment: u32) {
        if let Some((_, noted)) = self.live.back_mut() {
            remove_needless(noted);
            noted.shrink_to_fit();
        }
        self.live.push_back((segment, Vec::new()));
        self.next_removal = NOTED_MIN;
    }

    /// Notes the events of the current segment that describe the system.
    ///
    /// A program that makes a timer for each wait describes hundreds of timers in a second, and a
    /// segment can last for hours. So only the events that a reader needs stay in memory.
    pub(super) fn note(&mut self, segment: u32, events: &[Event]) {
        let Some((number, noted)) = self.live.back_mut() else {
            return;
        };
        debug_assert_eq!(*number, segment);
        noted.extend(events.iter().filter(|e| table::is_state(&e.kind)).cloned());
        if noted.len() >= self.next_removal {
            remove_needless(noted);
            self.next_removal = NOTED_MIN.max(2 * noted.len());
        }
    }

    /// Moves the noted events of the oldest segment to the list of the deleted segments. Drops the
    /// events of everything that has ended, and the events of the ends. Returns the segment's
    /// number.
    pub(super) fn take_over_oldest(&mut self) -> Option<u32> {
        let (number, events) = self.live.pop_front()?;
        self.past.extend(events);
        remove_needless(&mut self.past);
        let is_end = |e: &Event| matches!(e.kind, EventKind::Exit | EventKind::HandleFini { .. });
        self.past.retain(|event| !is_end(event));
        self.past.sort_by_key(|event| event.time_ns);
        self.past.shrink_to_fit();
        Some(number)
    }

    /// Adds a segment again whose file could not be deleted. Its events have already been moved to
    /// the list of the deleted segments.
    pub(super) fn put_back(&mut self, segment: u32) {
        self.live.push_front((segment, Vec::new()));
    }
}

/// Removes the events that later events of the list make needless: those of ended processes,
/// threads and handles, and all but the latest about each object. A program that makes a timer for
/// each wait describes millions of timers at few addresses.
///
/// The event that ends an object stays if the object may have been described before the list
/// begins.
fn remove_needless(events: &mut Vec<Event>) {
    let mut later = Later::default();
    events.reverse();
    events.retain(|event| later.needs(event));
    events.reverse();
    // A thread that the list shows from its birth to its end has left nothing elsewhere.
    events.retain(|event| {
        let is_born = || later.born.contains(&(event.pid, event.tid));
        event.kind != EventKind::Exit || !is_born()
    });
}

/// The facts about later events that make earlier ones needless. They are collected while the
/// events are processed from last to first.
#[derive(Default)]
struct Later {
    /// The processes that end.
    pids: HashSet<u32>,
    /// The threads that end, with their processes.
    tids: HashSet<(u32, u32)>,
    /// The ended threads that were created in one of the later events. No earlier event can concern
    /// them.
    born: HashSet<(u32, u32)>,
    /// The handles that end, with their processes.
    handles: HashSet<(u32, u64)>,
    subjects: HashSet<(u32, u8, (u64, u64))>,
    has_clock_offset: bool,
}

impl Later {
    /// Reports whether a reader needs an event, although later events may have made it needless.
    /// The caller passes the events from last to first, so all later events have been passed
    /// before.
    fn needs(&mut self, event: &Event) -> bool {
        let (pid, thread) = (event.pid, (event.pid, event.tid));
        let is_main = event.pid == event.tid;
        let process_ends = self.pids.contains(&pid);
        match event.kind {
            EventKind::Exit => {
                self.born.remove(&thread);
                let is_first = match is_main {
                    true => self.pids.insert(pid),
                    false => self.tids.insert(thread),
                };
                return is_first && (is_main || !process_ends);
            }
            _ if process_ends => return false,
            EventKind::Fork { .. } if self.tids.contains(&thread) => {
                self.born.insert(thread);
                return false;
            }
            EventKind::HandleFini { handle } => return self.handles.insert((pid, handle)),
            EventKind::ClockOffset { .. } => {
                return !std::mem::replace(&mut self.has_clock_offset, true);
            }
            _ => {}
        }
        let subject = subject(event);
        let thread_has_ended = describes_thread(event) && self.tids.contains(&thread);
        let handle_has_ended = ends_with_handle(event) && self.handles.contains(&(pid, subject.0));
        if thread_has_ended || handle_has_ended {
            return false;
        }
        let code = table::code(&event.kind);
        self.subjects.insert((pid, code, subject))
    }
}

fn subject(event: &Event) -> (u64, u64) {
    use EventKind::*;
    match event.kind {
        NodeInit { node: a, .. }
        | PublisherInit { publisher: a, .. }
        | SubscriptionInit {
            subscription: a, ..
        }
        | ServiceInit { service: a, .. }
        | ClientInit { client: a, .. }
        | PublisherGid { rmw: a, .. }
        | SubscriptionGid { rmw: a, .. }
        | ClientGid { rmw: a, .. }
        | ClockInit { clock: a }
        | ClockKind { clock: a, .. }
        | ClockOverride { clock: a, .. }
        | TimerInit { timer: a, .. }
        | TimerClock { timer: a, .. }
        | TimerNode { timer: a, .. }
        | TimerCallback { timer: a, .. }
        | TimerFound { timer: a }
        | TimerReset { timer: a }
        | TimerCancel { timer: a }
        | TimerPeriod { timer: a, .. }
        | SubscriptionCallback { object: a, .. }
        | ServiceCallback { service: a, .. }
        | CallbackSymbol { callback: a, .. }
        | RingBufferInit { buffer: a, .. }
        | LinkInit { end: a, .. }
        | RingBufferIntraBuffer { buffer: a, .. }
        | LifecycleInit { machine: a, .. }
        | LifecycleTransition { machine: a, .. } => (a, 0),
        SubscriptionObject {
            subscription: a,
            object: b,
        }
        | IntraBufferSubscription { ipb: a, object: b } => (a, b),
        EndpointFound { rcl: a, rmw: b, .. } => (a, b),
        EndpointNode { rcl: a, .. } | EndpointQos { rcl: a, .. } => (a, 0),
        Thread { .. } | Fork { .. } | Exec { .. } => (event.tid.into(), 0),
        Process { .. } | ClockOffset { .. } => (0, 0),
        // An event without a handle of its own always describes a new object.
        _ => (event.tid.into(), event.time_ns),
    }
}

fn ends_with_handle(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::NodeInit { .. }
            | EventKind::PublisherInit { .. }
            | EventKind::SubscriptionInit { .. }
            | EventKind::SubscriptionObject { .. }
            | EventKind::ServiceInit { .. }
            | EventKind::ServiceCallback { .. }
            | EventKind::ClientInit { .. }
            | EventKind::EndpointFound { .. }
            | EventKind::EndpointNode { .. }
            | EventKind::EndpointQos { .. }
            | EventKind::TimerInit { .. }
            | EventKind::TimerClock { .. }
            | EventKind::TimerNode { .. }
            | EventKind::TimerCallback { .. }
            | EventKind::TimerFound { .. }
            | EventKind::TimerReset { .. }
            | EventKind::TimerCancel { .. }
            | EventKind::TimerPeriod { .. }
            | EventKind::LinkInit { .. }
    )
}

fn describes_thread(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::Thread { .. } | EventKind::Fork { .. } | EventKind::Exec { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the events that a reader needs, computed from first to last. This is the reference
    /// for `remove_needless`.
    fn needed(events: &[Event]) -> Vec<Event> {
        let mut needed: Vec<Event> = Vec::new();
        for event in events {
            let is_same = |e: &Event| {
                e.pid == event.pid
                    && table::code(&e.kind) == table::code(&event.kind)
                    && subject(e) == subject(event)
            };
            match event.kind {
                EventKind::Exit if event.pid == event.tid => {
                    needed.retain(|e| e.pid != event.pid);
                }
                EventKind::Exit => needed
                    .retain(|e| (e.pid, e.tid) != (event.pid, event.tid) || !describes_thread(e)),
                EventKind::HandleFini { handle } => needed.retain(|e| {
                    e.pid != event.pid || subject(e).0 != handle || !ends_with_handle(e)
                }),
                EventKind::ClockOffset { .. } => {
                    needed.retain(|e| !matches!(e.kind, EventKind::ClockOffset { .. }));
                }
                _ => needed.retain(|e| !is_same(e)),
            }
            let is_end = matches!(event.kind, EventKind::Exit | EventKind::HandleFini { .. });
            if !is_end {
                needed.push(event.clone());
            }
        }
        needed
    }

    fn event(which: u8, [pid, tid, a, b]: [u8; 4]) -> Event {
        let [a, b] = [a, b].map(u64::from);
        let kind = match which {
            0 => EventKind::Exit,
            1 => EventKind::HandleFini { handle: a },
            2 => EventKind::TimerInit {
                timer: a,
                period_ns: b as i64,
            },
            3 => EventKind::TimerNode { timer: a, node: b },
            4 => EventKind::SubscriptionObject {
                subscription: a,
                object: b,
            },
            5 => EventKind::SubscriptionCallback {
                object: a,
                callback: b,
            },
            6 => EventKind::Exec { comm: "x".into() },
            8 => EventKind::Fork {
                parent_pid: 0,
                parent_tid: 0,
                comm: "x".into(),
            },
            7 => EventKind::ClockOffset {
                realtime_minus_monotonic_ns: b as i64,
            },
            _ => EventKind::TimerCall { timer: a },
        };
        let is_of_recorder = matches!(kind, EventKind::ClockOffset { .. });
        let [pid, tid] = [pid, tid].map(|id| if is_of_recorder { 9 } else { id.into() });
        Event {
            time_ns: 0,
            cpu: 0,
            pid,
            tid,
            kind,
        }
    }

    proptest! {
        #[test]
        fn the_retained_events_are_exactly_those_that_later_events_need(
            drawn in prop::collection::vec((0u8..10, prop::array::uniform4(0u8..3)), 0..300),
            cuts in prop::collection::vec(1usize..40, 1..10),
            removals in 1usize..20,
        ) {
            let mut events: Vec<Event> = Vec::new();
            for (which, of) in drawn {
                // A thread begins after the earlier one with its id has ended.
                let begins = which == 8 && of[0] != of[1];
                events.extend(begins.then(|| event(0, of)));
                events.push(event(which, of));
            }
            for (time_ns, event) in (0..).zip(&mut events) {
                event.time_ns = time_ns;
            }
            let mut retained = Retained::default();
            let (mut rest, mut segment) = (&events[..], 0);
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                retained.begin(segment);
                retained.next_removal = removals;
                let (part, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                part.chunks(3).for_each(|some| {
                    retained.note(segment, some);
                    retained.next_removal = removals;
                });
                (rest, segment) = (later, segment + 1);
            }
            while retained.take_over_oldest().is_some() {}
            let state: Vec<Event> =
                events.into_iter().filter(|e| table::is_state(&e.kind)).collect();
            prop_assert_eq!(retained.past(), needed(&state));
        }
    }

    #[test]
    fn a_segment_with_many_short_lived_timers_keeps_few_events() {
        let mut retained = Retained::default();
        retained.begin(0);
        for i in 0..100_000u32 {
            let [a, b] = [(i % 7) as u8, (i % 3) as u8];
            let wait = [2, 3, 1].map(|which| event(which, [1, 1, a, b]));
            retained.note(0, &wait);
        }
        assert!(retained.live[0].1.capacity() < 4 * NOTED_MIN);
    }
}
