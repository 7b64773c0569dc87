//! Chooses the events that a flight recorder keeps when it deletes segments.
use crate::event::{Event, EventKind};
use crate::table;
use std::collections::{HashSet, VecDeque};

/// The initialisation events that a flight recorder must not lose when it deletes segments.
#[derive(Default)]
pub(super) struct Retained {
    pub(super) live: VecDeque<(u32, Vec<Event>)>,
    pub(super) past: Vec<Event>,
}

impl Retained {
    pub(super) fn note(&mut self, segment: u32, events: &[Event]) {
        let Some((number, retained)) = self.live.back_mut() else {
            return;
        };
        debug_assert_eq!(*number, segment);
        retained.extend(events.iter().filter(|e| table::is_state(&e.kind)).cloned());
    }

    /// Takes over the initialisation events of a deleted segment. Drops those of ended threads and
    /// processes and of destroyed objects.
    pub(super) fn take_over(&mut self, events: Vec<Event>) {
        for event in events {
            match event.kind {
                EventKind::Exit if event.pid == event.tid => {
                    self.past.retain(|e| e.pid != event.pid);
                }
                EventKind::Exit => self
                    .past
                    .retain(|e| e.tid != event.tid || !describes_thread(e)),
                EventKind::HandleFini { handle } => {
                    let its = |e: &Event| {
                        e.pid == event.pid && subject(e).0 == handle && ends_with_handle(e)
                    };
                    self.past.retain(|e| !its(e));
                }
                EventKind::ClockOffset { .. } => {
                    self.past
                        .retain(|e| !matches!(e.kind, EventKind::ClockOffset { .. }));
                    self.past.push(event);
                }
                _ => self.past.push(event),
            }
        }
        self.past = latest_per_subject(std::mem::take(&mut self.past));
    }
}

/// Returns only the latest event about each object. Otherwise, the events of a program that creates
/// a timer for each wait would fill the memory.
fn latest_per_subject(events: Vec<Event>) -> Vec<Event> {
    let mut seen = HashSet::new();
    let mut kept: Vec<Event> = events
        .into_iter()
        .rev()
        .filter(|event| seen.insert((event.pid, table::code(&event.kind), subject(event))))
        .collect();
    kept.reverse();
    kept
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
