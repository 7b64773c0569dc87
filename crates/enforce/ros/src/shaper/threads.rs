//! The threads of an output: creates their endpoints and memory, starts and ends them.

use super::receiver::Receiver;
use super::sender::{self, Sender};
use super::{ShaperError, Shared, RECEIVE_DEPTH};
use crate::config::{Output, Place};
use crate::notifier::Notifier;
use crate::process;
use crate::rcl::{self, Node, Qos};
use crate::report::{flags, Record};
use onbeat_flow::thread::{self, Scheduling, ThreadOptions};
use onbeat_time::clock::monotonic_ns;
use rtrb::RingBuffer;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::thread::JoinHandle;

const STACK_BYTES: usize = 1 << 20;
const PREFAULT_BYTES: usize = 256 << 10;

pub(super) struct Running {
    pub(super) topic: String,
    data: Arc<Notifier>,
    receiver: JoinHandle<Result<(), ShaperError>>,
    sender: JoinHandle<Result<(), ShaperError>>,
}

impl Running {
    pub(super) fn start(
        shared: &Arc<Shared>,
        node: &Arc<Node>,
        (index, output): (usize, &Output),
        middleware: Option<&Place>,
        (type_name, offered): (&str, Qos),
    ) -> Result<Running, ShaperError> {
        let (receiver, sender) = workers(shared, node, (index, output), type_name, offered)?;
        let failed = |reason| ShaperError::Spawn {
            topic: output.topic.clone(),
            reason,
        };
        let receiving = options("onbeat-receive", middleware);
        let mut sending = options("onbeat-send", output.place.as_ref());
        sending.prefault_bytes = PREFAULT_BYTES;
        let data = sender.data.clone();
        let sender = spawn("onbeat-send", move || {
            thread::apply(&sending)?;
            process::no_slack();
            sender.run();
            Ok(())
        });
        let sender = sender.map_err(failed)?;
        let receiver = spawn("onbeat-receive", move || {
            thread::apply(&receiving)?;
            receiver.run()
        });
        let receiver = receiver.map_err(failed)?;
        shared.reporter.send(Record {
            arrival_ns: monotonic_ns() as i64,
            output: index as u16,
            flags: flags::READY,
            ..Record::default()
        });
        Ok(Running {
            topic: output.topic.clone(),
            data,
            receiver,
            sender,
        })
    }

    pub(super) fn notify(&self) {
        self.data.notify();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.receiver.is_finished() || self.sender.is_finished()
    }

    pub(super) fn join(self) -> Result<(), ShaperError> {
        self.notify();
        let receiver = ended(self.receiver, &self.topic);
        receiver.and(ended(self.sender, &self.topic))
    }
}

fn workers(
    shared: &Arc<Shared>,
    node: &Arc<Node>,
    (index, output): (usize, &Output),
    type_name: &str,
    offered: Qos,
) -> Result<(Receiver, Sender), ShaperError> {
    // Publishers do not announce their history. The one here is long, so that neither side waits.
    let publish = Qos {
        history: rcl::KEEP_LAST,
        depth: output.depth,
        ..offered
    };
    let receive = Qos {
        depth: RECEIVE_DEPTH,
        ..publish
    };
    let publisher = node.publisher(&output.topic, type_name, &publish)?;
    let subscription = node.subscription(&output.held_topic, type_name, &receive)?;
    let (filled_in, filled_out) = RingBuffer::new(output.capacity);
    let (mut empty_in, empty_out) = RingBuffer::new(output.capacity);
    for _ in 0..output.capacity {
        let item = node.item(output.item_bytes)?;
        // The ring has room for all items.
        let _ = empty_in.push(item);
    }
    let data = Arc::new(Notifier::new());
    let space = Arc::new(Notifier::new());
    let done = Arc::new(AtomicBool::new(false));
    let receiver = Receiver {
        shared: shared.clone(),
        subscription,
        holding: publisher.holding(),
        empty: empty_out,
        filled: filled_in,
        data: data.clone(),
        space: space.clone(),
        done: done.clone(),
    };
    let sender = Sender {
        shared: shared.clone(),
        index,
        kind: output.kind,
        holding: publisher.holding(),
        publisher,
        empty: empty_in,
        filled: filled_out,
        data,
        space,
        done,
        capacity: output.capacity,
        reports: 0,
        lead: output.spins.then(sender::lead),
    };
    Ok((receiver, sender))
}

fn spawn(
    name: &str,
    run: impl FnOnce() -> Result<(), ShaperError> + Send + 'static,
) -> std::io::Result<JoinHandle<Result<(), ShaperError>>> {
    let builder = std::thread::Builder::new().name(name.into());
    builder.stack_size(STACK_BYTES).spawn(run)
}

pub(super) fn options(name: &str, place: Option<&Place>) -> ThreadOptions {
    let mut options = ThreadOptions::new(name);
    options.stack_bytes = STACK_BYTES;
    if let Some(place) = place {
        options.cpus = place.cpus.clone();
        if let Some(priority) = place.priority {
            options.scheduling = Scheduling::Fifo { priority };
        }
    }
    options
}

fn ended(thread: JoinHandle<Result<(), ShaperError>>, topic: &str) -> Result<(), ShaperError> {
    thread.join().unwrap_or_else(|_| {
        Err(ShaperError::Worker {
            topic: topic.into(),
            reason: "a thread panicked. Report this as a bug of onbeat".into(),
        })
    })
}
