//! Reads a trace on a thread of its own, while the caller's thread works on events read before.

use super::Reader;
use crate::event::Event;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};

/// The number of events in a part. Much larger parts do not stay in a core's cache.
const PART_EVENTS: usize = 1 << 11;

const WAITING_PARTS_MAX: usize = 8;

/// The work of the reading thread with each event.
pub trait Prepare: Send {
    /// The result of the work with a part of the events.
    type Made: Send;
    /// The error of a failed [`Prepare::part`].
    type Error: Send;
    /// Works with the next event.
    fn event(&mut self, event: &Event);
    /// Returns the result for the events since the last call. `last` says that the trace has ended.
    ///
    /// # Errors
    ///
    /// An error ends the reading.
    fn part(&mut self, last: bool) -> Result<Self::Made, Self::Error>;
}

/// Calls `visit` with all events of the trace in parts of 2,048 events, in order. Each part
/// comes with what `prepare` has made of it. The lists that `spare` returns are used again.
///
/// # Errors
///
/// Stops at the first error of `prepare` or `visit` and returns it.
pub fn read<P: Prepare>(
    reader: &mut Reader,
    prepare: &mut P,
    spare: Receiver<Vec<Event>>,
    mut visit: impl FnMut(Vec<Event>, P::Made) -> Result<(), P::Error>,
) -> Result<(), P::Error> {
    std::thread::scope(|scope| {
        let (parts, received) = sync_channel(WAITING_PARTS_MAX);
        let reading = scope.spawn(move || send(reader, prepare, &spare, &parts));
        let visited = received
            .into_iter()
            .try_for_each(|(events, made)| visit(events, made));
        let read = reading.join();
        let read = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        visited.and(read)
    })
}

/// Sends all events in parts. Stops early if the receiver was dropped.
fn send<P: Prepare>(
    reader: &mut Reader,
    prepare: &mut P,
    spare: &Receiver<Vec<Event>>,
    parts: &SyncSender<(Vec<Event>, P::Made)>,
) -> Result<(), P::Error> {
    let (mut events, mut count) = (Vec::with_capacity(PART_EVENTS), 0);
    for event in reader.events() {
        prepare.event(&event);
        // Old events are dropped where new ones are written, so that memory is touched once.
        match events.get_mut(count) {
            Some(old) => *old = event,
            None => events.push(event),
        }
        count += 1;
        if count == PART_EVENTS {
            let made = prepare.part(false)?;
            events.truncate(count);
            let next = spare.try_recv();
            let next = next.unwrap_or_else(|_| Vec::with_capacity(PART_EVENTS));
            let full = std::mem::replace(&mut events, next);
            if parts.send((full, made)).is_err() {
                return Ok(());
            }
            count = 0;
        }
    }
    events.truncate(count);
    let made = prepare.part(true)?;
    let _ = parts.send((events, made));
    Ok(())
}
