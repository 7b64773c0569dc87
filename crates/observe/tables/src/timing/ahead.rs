//! Reads the events of a trace on a separate thread. This thread also follows processes and threads,
//! and makes the rows of switches.

use super::pass::{take_stays, Take};
use super::system::{System, Thread};
use arrow_schema::ArrowError;
use onbeat_trace::{Event, Reader};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};

const PART_EVENTS: usize = 1 << 14;

const WAITING_PARTS_MAX: usize = 4;

/// Consecutive events, and the threads that end within them.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) events: Vec<Event>,
    pub(crate) threads: Vec<Thread>,
}

/// Calls `visit` with all events of the trace, part by part, and `switches` with the rows of
/// context switches. Returns the processes and names of the trace. Uses the memory of the lists
/// that `spare` returns.
///
/// # Errors
///
/// Stops at the first error of `visit` or `switches` and returns it.
pub(crate) fn read(
    reader: &mut Reader,
    spare: Receiver<Vec<Event>>,
    switches: &mut (impl Take + Send),
    mut visit: impl FnMut(Part) -> Result<(), ArrowError>,
) -> Result<System, ArrowError> {
    std::thread::scope(|scope| {
        let (parts, received) = sync_channel(WAITING_PARTS_MAX);
        let reading = scope.spawn(move || send(reader, &spare, switches, &parts));
        let visited = received.into_iter().try_for_each(&mut visit);
        let system = reading.join();
        visited.and_then(|()| system.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Sends all events in parts. Stops early if the receiver was dropped.
fn send(
    reader: &mut Reader,
    spare: &Receiver<Vec<Event>>,
    switches: &mut impl Take,
    parts: &SyncSender<Part>,
) -> Result<System, ArrowError> {
    let mut system = System::default();
    let mut events = Vec::with_capacity(PART_EVENTS);
    for event in reader.events() {
        system.push(&event);
        events.push(event);
        if events.len() == PART_EVENTS {
            take_stays(&mut system.done.stays, switches)?;
            let next = spare.try_recv();
            let mut next = next.unwrap_or_else(|_| Vec::with_capacity(PART_EVENTS));
            next.clear();
            let part = Part {
                events: std::mem::replace(&mut events, next),
                threads: std::mem::take(&mut system.done.threads),
            };
            if parts.send(part).is_err() {
                return Ok(system);
            }
        }
    }
    system.finish();
    take_stays(&mut system.done.stays, switches)?;
    let threads = std::mem::take(&mut system.done.threads);
    let _ = parts.send(Part { events, threads });
    Ok(system)
}
