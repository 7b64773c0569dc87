//! Reads a trace on a thread of its own, while the caller's thread works on events read before.

use super::Reader;
use crate::event::Event;
use std::sync::mpsc::{sync_channel, Receiver};
use std::thread::Builder;

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

/// Reads the trace on another thread, and calls `visit` with its events in order, in parts of 2,048
/// events. Each call also gets the result of [`Prepare::part`] for these events. The reading thread
/// fills the lists that it receives from `spare`, so that they cost no new memory.
///
/// If the system refuses another thread, the caller's thread reads the trace.
///
/// # Errors
///
/// Stops at the first error of `prepare` or `visit` and returns it.
pub fn read<P: Prepare>(
    reader: &mut Reader,
    prepare: &mut P,
    mut spare: Receiver<Vec<Event>>,
    mut visit: impl FnMut(Vec<Event>, P::Made) -> Result<(), P::Error>,
) -> Result<(), P::Error> {
    let on_two_threads = std::thread::scope(|scope| {
        let (parts, received) = sync_channel(WAITING_PARTS_MAX);
        let (reader, prepare, spare) = (&mut *reader, &mut *prepare, &mut spare);
        let read = move || send(reader, prepare, spare, |part| parts.send(part).is_ok());
        let reading = Builder::new().spawn_scoped(scope, read).ok()?;
        let visited = received
            .into_iter()
            .try_for_each(|(events, made)| visit(events, made));
        let read = reading.join();
        let read = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some(visited.and(read))
    });
    on_two_threads.unwrap_or_else(|| on_one_thread(reader, prepare, &mut spare, visit))
}

fn on_one_thread<P: Prepare>(
    reader: &mut Reader,
    prepare: &mut P,
    spare: &mut Receiver<Vec<Event>>,
    mut visit: impl FnMut(Vec<Event>, P::Made) -> Result<(), P::Error>,
) -> Result<(), P::Error> {
    let mut visited = Ok(());
    let read = send(reader, prepare, spare, |(events, made)| {
        visited = visit(events, made);
        visited.is_ok()
    });
    visited.and(read)
}

/// Passes all events to `pass`, in parts. Stops early if `pass` returns false.
fn send<P: Prepare>(
    reader: &mut Reader,
    prepare: &mut P,
    spare: &mut Receiver<Vec<Event>>,
    mut pass: impl FnMut((Vec<Event>, P::Made)) -> bool,
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
            if !pass((full, made)) {
                return Ok(());
            }
            count = 0;
        }
    }
    events.truncate(count);
    let made = prepare.part(true)?;
    pass((events, made));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generate, Writer, WriterOptions};
    use std::sync::mpsc::channel;

    /// Counts the events of each part.
    #[derive(Default)]
    struct Counts(usize);

    impl Prepare for Counts {
        type Made = usize;
        type Error = &'static str;

        fn event(&mut self, _: &Event) {
            self.0 += 1;
        }

        fn part(&mut self, _: bool) -> Result<usize, &'static str> {
            Ok(std::mem::take(&mut self.0))
        }
    }

    #[test]
    fn without_another_thread_the_same_parts_are_visited_until_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("trace");
        let mut writer = Writer::create(&path, WriterOptions::default()).expect("created");
        let manifest = generate::generate(&mut writer, 10_000, 7).expect("generated");
        writer.finish(manifest).expect("finished");
        let mut reader = Reader::open(&path).expect("opened");
        let wanted: Vec<Event> = reader.events().collect();
        let (mut got, mut parts) = (Vec::new(), 0);
        let (used, mut spare) = channel();
        let all = on_one_thread(
            &mut reader,
            &mut Counts::default(),
            &mut spare,
            |events, count| {
                assert_eq!(events.len(), count);
                got.extend_from_slice(&events);
                parts += 1;
                used.send(events).or(Ok(()))
            },
        );
        assert_eq!((all, parts), (Ok(()), wanted.len() / PART_EVENTS + 1));
        assert!(got == wanted);
        parts = 0;
        let stopped = on_one_thread(&mut reader, &mut Counts::default(), &mut spare, |_, _| {
            parts += 1;
            Err("the visitor stops")
        });
        assert_eq!((stopped, parts), (Err("the visitor stops"), 1));
    }
}
