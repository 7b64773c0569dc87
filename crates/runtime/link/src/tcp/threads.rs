//! The two threads of a connection: one writes the most urgent frame, the other reads.

use super::frame::{self, Chunk, Head, Status, HEAD_BYTES};
use super::state::{Connection, Posted, Shared, Value, Work};
use super::stream::{FrameReader, FrameWriter};
use crate::interface::End;
use crate::port::{Arrivals, Counted, Go, Seated, Turn};
use crate::resume::Violation;
use crate::steps::Step;
use onbeat_flow::clock::now_ns;
use std::io::{ErrorKind, Read};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

const BEAT_NS: u64 = 250_000_000;
/// The time without a frame from the peer after which the connection counts as broken.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(2);

fn next_connection(
    shared: &Shared,
    generation: u64,
    at: &crate::pi::Bell,
) -> Option<Arc<Connection>> {
    let mut state = shared.lock();
    loop {
        if state.stopping || state.end.is_some() {
            return None;
        }
        match &state.link.connection {
            Some(c) if c.generation > generation => return Some(Arc::clone(c)),
            _ => state = shared.wait(at, state, None)?,
        }
    }
}

pub fn write(shared: &Shared) {
    let mut generation = 0;
    while let Some(connection) = next_connection(shared, generation, &shared.writer_bell) {
        generation = connection.generation;
        let seat = shared.seat.as_ref();
        if seat.is_some_and(|seat| seat.begin(&connection.stream).is_err()) {
            let reason = "the port's thread cannot wait for events of the TCP connection (epoll)";
            shared.on_broken(generation, reason.into());
            continue;
        }
        let keys = connection.keys.as_ref();
        let counted = Counted {
            stream: &connection.stream,
            transfer: seat,
            marked: false,
        };
        let mut writer = FrameWriter::new(counted, keys);
        shared.writer_is_free(now_ns());
        while let Some(work) = next_work(shared, generation) {
            // A peer may have closed the link before it ended the connection. The reader finds this
            // out once it has read everything that came.
            if perform(shared, generation, &mut writer, work).is_err() {
                break;
            }
        }
        if let Some(seat) = seat {
            seat.end();
        }
    }
}

fn next_work(shared: &Shared, generation: u64) -> Option<Work> {
    let mut state = shared.lock();
    let beat_ns = now_ns() + BEAT_NS;
    let mut is_heard = shared.seat.is_none();
    loop {
        if state.stopping || !state.is_present(generation) {
            return None;
        }
        if let Some(work) = state.next_work() {
            return Some(work);
        }
        if !std::mem::replace(&mut is_heard, true) {
            drop(state);
            shared.seat.iter().for_each(Seated::hand_over);
            state = shared.lock();
            continue;
        }
        state = match shared.wait(&shared.writer_bell, state, Some(beat_ns)) {
            Some(state) => state,
            None => {
                let mut state = shared.lock();
                state.status_due = true;
                state
            }
        };
    }
}

type Frames<'c> = FrameWriter<'c, Counted<'c>>;

fn perform(
    shared: &Shared,
    generation: u64,
    writer: &mut Frames<'_>,
    work: Work,
) -> std::io::Result<()> {
    match work {
        Work::Status(status) => write_status(shared, generation, writer, status),
        Work::Ask => writer.write(&frame::ask(), &[]),
        Work::Value(value) => write_value(shared, generation, writer, value),
        Work::Message(message) => write_message(shared, generation, writer, message),
    }
}

fn wait_for_port(
    shared: &Shared,
    generation: u64,
    writer: &mut Frames<'_>,
    (bytes, since_ns): (usize, u64),
    due_ns: &mut u64,
) -> std::io::Result<Turn> {
    let mut turn = Turn::default();
    let Some(seat) = &shared.seat else {
        return Ok(turn);
    };
    let mut beat_ns = now_ns() + BEAT_NS;
    // Rings until now say nothing about this chunk.
    let _ = seat.take_rung();
    loop {
        let bell = seat.bell();
        let (until_ns, is_full) = match seat.ask(bytes, since_ns, &mut turn) {
            Go::Now => return Ok(turn),
            Go::Later(until_ns) => (until_ns, false),
            Go::Full(until_ns) => (until_ns, true),
        };
        let asked_ns = shared.done(Step::Post, *due_ns);
        if asked_ns >= beat_ns {
            beat_ns = asked_ns + BEAT_NS;
            shared.lock().status_due = true;
        }
        write_due_status(shared, generation, writer)?;
        let until_ns = until_ns.min(beat_ns);
        if is_full {
            let stream = writer.stream().stream;
            seat.sleep_until_acknowledged(stream, bell, until_ns, &mut turn);
        } else {
            seat.sleep(bell, until_ns);
        }
        // Without a ring, the thread has slept until its time or has heard of an acknowledgement.
        *due_ns = seat.take_rung().unwrap_or_else(|| now_ns().min(until_ns));
    }
}

fn write_chunk(
    shared: &Shared,
    writer: &mut Frames<'_>,
    (head, body): (&[u8], &[u8]),
    chunk: &Chunk,
    (turn, due_ns): (&Turn, &mut u64),
) -> std::io::Result<()> {
    writer.stream().marked = true;
    let written = writer.write(head, body);
    writer.stream().marked = false;
    written?;
    if let Some(seat) = &shared.seat {
        seat.wrote(chunk.bytes, chunk.offset, chunk.is_last(), turn);
        *due_ns = shared.done(Step::Post, *due_ns);
        shared.writer_is_free(*due_ns);
    }
    Ok(())
}

fn write_message(
    shared: &Shared,
    generation: u64,
    writer: &mut Frames<'_>,
    message: Posted,
) -> std::io::Result<()> {
    let (number, total) = (message.number, message.bytes);
    let slot = &shared.slots.out[shared.slot_of(number)];
    let mut offset = 0;
    let mut due_ns = message.since_ns.max(shared.writer_free_since_ns());
    loop {
        let bytes = shared.chunk_now().min(total - offset);
        let chunk = Chunk {
            number,
            offset,
            bytes,
            total,
        };
        let since_ns = message.since_ns;
        let turn = wait_for_port(shared, generation, writer, (bytes, since_ns), &mut due_ns)?;
        let content = slot.lock();
        let frame: (&[u8], &[u8]) = (&chunk.message_head(), &content[offset..offset + bytes]);
        write_chunk(shared, writer, frame, &chunk, (&turn, &mut due_ns))?;
        drop(content);
        shared.chunk_written();
        offset += bytes;
        if chunk.is_last() {
            break;
        }
        write_due_status(shared, generation, writer)?;
    }
    shared.show_port();
    let mut state = shared.lock();
    if state.is_present(generation) {
        state.sender.transmitted();
        shared.report_next_to_port(&state);
    }
    drop(state);
    shared.pass_port_on();
    Ok(())
}

fn write_status(
    shared: &Shared,
    generation: u64,
    writer: &mut Frames<'_>,
    status: Status,
) -> std::io::Result<()> {
    writer.write(&status.bytes(), &[])?;
    let mut state = shared.lock();
    if state.is_present(generation) {
        state.status_under_way = false;
    }
    drop(state);
    // A closing end waits until the peer has this status.
    shared.application_bell.ring();
    Ok(())
}

fn write_due_status(
    shared: &Shared,
    generation: u64,
    writer: &mut Frames<'_>,
) -> std::io::Result<()> {
    let mut state = shared.lock();
    if !state.is_present(generation) {
        return Err(ErrorKind::NotConnected.into());
    }
    let work = if state.status_due {
        state.next_work()
    } else {
        None
    };
    drop(state);
    match work {
        Some(Work::Status(status)) => write_status(shared, generation, writer, status),
        _ => Ok(()),
    }
}

fn write_value(
    shared: &Shared,
    generation: u64,
    writer: &mut Frames<'_>,
    value: Option<Value>,
) -> std::io::Result<()> {
    let none = Value {
        slot: 0,
        bytes: 0,
        version: 0,
    };
    let Value {
        slot,
        bytes: total,
        version: number,
    } = value.unwrap_or(none);
    let (mut offset, mut since_ns) = (0, now_ns());
    let mut due_ns = since_ns;
    // The value takes the turn of a message that waits already.
    if let Some(message) = shared.lock().next_message() {
        since_ns = since_ns.min(message.since_ns);
    }
    loop {
        let bytes = shared.chunk_now().min(total - offset);
        let chunk = Chunk {
            number,
            offset,
            bytes,
            total,
        };
        let turn = wait_for_port(shared, generation, writer, (bytes, since_ns), &mut due_ns)?;
        let value = shared.slots.values[slot].lock();
        let frame: (&[u8], &[u8]) = (&chunk.value_head(), &value[offset..offset + bytes]);
        write_chunk(shared, writer, frame, &chunk, (&turn, &mut due_ns))?;
        drop(value);
        offset += bytes;
        if chunk.is_last() {
            break;
        }
        write_due_status(shared, generation, writer)?;
    }
    let mut state = shared.lock();
    if state.is_present(generation) {
        state.values.sending_slot = None;
        shared.report_next_to_port(&state);
    }
    drop(state);
    shared.pass_port_on();
    Ok(())
}

/// Reads from one connection after the other until the link ends. Calls `left` whenever a
/// connection has ended.
pub fn read(shared: &Shared, left: impl Fn()) {
    let mut generation = 0;
    while let Some(connection) = next_connection(shared, generation, &shared.connection_bell) {
        generation = connection.generation;
        let _ = connection.stream.set_read_timeout(Some(SILENCE_LIMIT));
        let arrivals = Arrivals::of(&connection.stream, &shared.arrived_ns);
        let mut reader = FrameReader::new(arrivals, connection.keys.as_ref());
        match read_frames(shared, generation, &mut reader) {
            Stopped::Broken(reason) => shared.on_broken(generation, reason),
            Stopped::Protocol(what) => shared.ended(End::Protocol { what }),
        }
        left();
    }
}

#[derive(Debug)]
pub enum Stopped {
    Broken(String),
    Protocol(&'static str),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Stopped {
        Stopped::Broken(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("nothing came for {} s", SILENCE_LIMIT.as_secs())
            }
            ErrorKind::UnexpectedEof => "the peer closed the connection".into(),
            _ => format!("cannot read: {error}"),
        })
    }
}

impl From<Violation> for Stopped {
    fn from(violation: Violation) -> Stopped {
        Stopped::Protocol(match violation {
            Violation::Progress => "counts of received and consumed messages that are impossible",
            Violation::Turn => "a message out of order",
            Violation::Credits => "more messages than the peer has credits for",
        })
    }
}

pub fn read_frames<R: Read>(shared: &Shared, generation: u64, reader: &mut R) -> Stopped {
    // The last chunk of a message, and of a value, that has not arrived completely.
    let (mut of_message, mut of_value) = (None, None);
    loop {
        let step = read_frame(shared, generation, reader, &mut of_message, &mut of_value);
        if let Err(stopped) = step {
            return stopped;
        }
    }
}

fn follows(last: &Option<Chunk>, chunk: &Chunk) -> bool {
    match last {
        None => chunk.offset == 0,
        Some(last) => {
            let same = (last.number, last.total) == (chunk.number, chunk.total);
            same && last.offset + last.bytes == chunk.offset
        }
    }
}

fn read_frame<R: Read>(
    shared: &Shared,
    generation: u64,
    reader: &mut R,
    of_message: &mut Option<Chunk>,
    of_value: &mut Option<Chunk>,
) -> Result<(), Stopped> {
    let mut head = [0; HEAD_BYTES];
    reader.read_exact(&mut head)?;
    let head = Head::parse(&head, shared.limits())
        .ok_or(Stopped::Protocol("bytes that are not a frame"))?;
    let left = || Stopped::Broken("a newer connection has replaced this one".into());
    match head {
        Head::Message(chunk) => {
            let out_of_turn = Stopped::Protocol("a chunk out of order");
            let is_next = follows(of_message, &chunk);
            is_next.then_some(()).ok_or(out_of_turn)?;
            let state = shared.lock();
            state
                .is_present(generation)
                .then_some(())
                .ok_or_else(left)?;
            state.receiver.check(chunk.number)?;
            drop(state);
            let mut slot = shared.slots.incoming[shared.slot_of(chunk.number)].lock();
            reader.read_exact(&mut slot[chunk.offset..chunk.offset + chunk.bytes])?;
            drop(slot);
            *of_message = (!chunk.is_last()).then_some(chunk);
            if !chunk.is_last() {
                shared.acknowledge_now(generation);
            }
            if chunk.is_last() {
                let mut state = shared.lock();
                state
                    .is_present(generation)
                    .then_some(())
                    .ok_or_else(left)?;
                state.on_message(&chunk)?;
                drop(state);
                shared.application_bell.ring();
                shared.wake_writer();
            }
            // Without the kernel's time, the step takes no time.
            let arrived_ns = shared.arrived_ns.swap(u64::MAX, Ordering::Relaxed);
            shared.done(Step::Read, arrived_ns);
        }
        Head::Status { flags, sent } => {
            let mut body = [0; 16];
            reader.read_exact(&mut body)?;
            let mut state = shared.lock();
            state
                .is_present(generation)
                .then_some(())
                .ok_or_else(left)?;
            let could_go = state.next_message().is_some();
            state.on_status(Status::of(flags, sent, &body))?;
            let changes = could_go != state.next_message().is_some();
            if changes {
                shared.writer_is_free(now_ns());
                shared.report_next_to_port(&state);
            }
            shared.show_in_flight(&state);
            drop(state);
            if changes {
                shared.pass_port_on();
            }
            shared.application_bell.ring();
            shared.wake_writer();
        }
        Head::Ask => {
            shared.lock().values.asked = true;
            shared.wake_writer();
        }
        Head::Value(chunk) => read_value(shared, reader, of_value, chunk)?,
    }
    Ok(())
}

fn read_value<R: Read>(
    shared: &Shared,
    reader: &mut R,
    of_value: &mut Option<Chunk>,
    chunk: Chunk,
) -> Result<(), Stopped> {
    let unasked = Stopped::Protocol("a value that this end did not ask for");
    let state = shared.lock();
    let is_due = state.questions.asked > state.questions.answered && follows(of_value, &chunk);
    drop(state);
    is_due.then_some(()).ok_or(unasked)?;
    let mut slot = shared.slots.value_read.lock();
    reader.read_exact(&mut slot[chunk.offset..chunk.offset + chunk.bytes])?;
    drop(slot);
    *of_value = (!chunk.is_last()).then_some(chunk);
    if chunk.is_last() {
        let mut state = shared.lock();
        state.questions.answered = state.questions.asked;
        state.questions.answer = (chunk.number > 0).then_some((chunk.number, chunk.total));
        drop(state);
        shared.application_bell.ring();
        shared.wake_writer();
    }
    Ok(())
}
