//! Reads the events of a trace on a separate thread, which also follows processes and threads.

use super::system::{Done, System};
use onbeat_trace::{Event, Reader};
use std::sync::mpsc::{sync_channel, SyncSender};

const PART_EVENTS: usize = 1 << 11;

const WAITING_PARTS_MAX: usize = 4;

/// Consecutive events, and the rows of switches and threads that these events complete.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) events: Vec<Event>,
    pub(crate) done: Done,
}

/// Calls `visit` with all events of the trace, part by part. Returns the processes and names of the trace.
///
/// # Errors
///
/// Stops at the first error of `visit` and returns it.
pub(crate) fn read<E>(
    reader: &mut Reader,
    mut visit: impl FnMut(Part) -> Result<(), E>,
) -> Result<System, E> {
    std::thread::scope(|scope| {
        let (parts, received) = sync_channel(WAITING_PARTS_MAX);
        let reading = scope.spawn(move || send(reader, &parts));
        let visited = received.into_iter().try_for_each(&mut visit);
        let system = reading.join();
        visited.map(|()| system.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Sends all events in parts. Stops early if the receiver was dropped.
fn send(reader: &mut Reader, parts: &SyncSender<Part>) -> System {
    let mut system = System::default();
    let mut events = Vec::with_capacity(PART_EVENTS);
    for event in reader.events() {
        system.push(&event);
        events.push(event);
        if events.len() == PART_EVENTS {
            let part = Part {
                events: std::mem::replace(&mut events, Vec::with_capacity(PART_EVENTS)),
                done: std::mem::take(&mut system.done),
            };
            if parts.send(part).is_err() {
                return system;
            }
        }
    }
    system.finish();
    let done = std::mem::take(&mut system.done);
    let _ = parts.send(Part { events, done });
    system
}
