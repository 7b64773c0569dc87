//! Reads the events of a trace on a separate thread. This thread also follows processes and threads,
//! and makes the rows of switches.

use super::pass::{take_stays, Take};
use super::system::{System, Thread};
use arrow_schema::ArrowError;
use onbeat_trace::reader::ahead::{self, Prepare};
use onbeat_trace::{Event, Reader};
use std::sync::mpsc::Receiver;

/// Consecutive events, and the threads that end within them.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) events: Vec<Event>,
    pub(crate) threads: Vec<Thread>,
}

struct Following<'a, T> {
    system: System,
    switches: &'a mut T,
}

impl<T: Take + Send> Prepare for Following<'_, T> {
    type Made = Vec<Thread>;
    type Error = ArrowError;

    #[inline]
    fn event(&mut self, event: &Event) {
        self.system.push(event);
    }

    fn part(&mut self, last: bool) -> Result<Vec<Thread>, ArrowError> {
        if last {
            self.system.finish();
        }
        take_stays(&mut self.system.done.stays, self.switches)?;
        Ok(std::mem::take(&mut self.system.done.threads))
    }
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
    let mut following = Following {
        system: System::default(),
        switches,
    };
    ahead::read(reader, &mut following, spare, |events, threads| {
        visit(Part { events, threads })
    })?;
    Ok(following.system)
}
