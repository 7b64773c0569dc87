//! Empty functions that `onbeat record` attaches probes to: a task starts, ends, publishes.
//!
//! They correspond to the calls of `libtracetools.so` in ROS 2. Each begins with a 5-byte nop and a
//! short one, which the kernel emulates, so a probe there costs little. The executors call them
//! only while `onbeat_flow_watched` counts a probe. A recorder that attaches late finds the names
//! through the arguments, which are addresses of structs that never move.
//!
//! A recorder sees a task as a ROS 2 node of its own in the namespace of its executor. The node has
//! a timer, a subscription for each task or feed that the task receives from, and a topic for its
//! output.

use crate::watch::{self, address, c_string, probe};
use std::ffi::CString;

/// The data that a recorder reads about a task. The names are addresses of zero-terminated strings,
/// stored as numbers so that the struct may move to another thread.
#[repr(C)]
#[derive(Debug)]
struct TaskRecord {
    name: u64,
    executor: u64,
    topic: u64,
    period_ns: u64,
}

#[repr(C)]
#[derive(Debug)]
struct CallbackRecord {
    task: u64,
    source: u64,
    kind: u64,
}

probe! {
    /// Marks the creation of a callback. `callback` is the address of its `CallbackRecord`. An
    /// earlier callback at the same address no longer exists.
    onbeat_flow_task_init(callback) = 1
}
probe! {
    /// Marks the start of a task that `callback` activated. `sequence` is the number of the item
    /// that the task takes.
    onbeat_flow_task_start(callback, sequence) = 2
}
probe! {
    /// Marks the end of the task that `callback` activated.
    onbeat_flow_task_end(callback) = 3
}
probe! {
    /// Marks that `task` publishes its output number `sequence`. `task` is the address of a
    /// `TaskRecord`.
    onbeat_flow_publish(task, sequence) = 4
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputKind {
    /// The input takes the output of another task. One item is enough to activate the task that has
    /// this input.
    Alone = 0,
    /// The input takes the output of another task. The task that has this input also waits for
    /// items of other inputs.
    Joined = 1,
    /// The items of the input come from outside of the executor. The recorder sees them when the
    /// task receives them from a link or a named channel.
    Fed = 2,
}

#[derive(Debug)]
pub(crate) struct CallbackProbe {
    record: Box<CallbackRecord>,
    _source: Option<CString>,
}

impl CallbackProbe {
    pub(crate) fn handle(&self) -> u64 {
        address(&*self.record)
    }
}

#[derive(Debug)]
pub(crate) struct TaskProbe {
    record: Box<TaskRecord>,
    _texts: [CString; 3],
    timer: CallbackProbe,
}

pub(crate) fn topic(executor: &str, task: &str) -> String {
    format!("/{executor}/{task}")
}

impl TaskProbe {
    pub(crate) fn new(executor: &str, name: &str, period_ns: u64) -> TaskProbe {
        watch::keep_note();
        let texts = [
            c_string(name),
            c_string(executor),
            c_string(&topic(executor, name)),
        ];
        let [name, executor, topic] = [0, 1, 2].map(|i: usize| texts[i].as_ptr() as u64);
        let record = Box::new(TaskRecord {
            name,
            executor,
            topic,
            period_ns,
        });
        let timer = callback(&record, None, InputKind::Alone);
        TaskProbe {
            record,
            _texts: texts,
            timer,
        }
    }

    pub(crate) fn timer(&self) -> u64 {
        self.timer.handle()
    }

    pub(crate) fn subscription(&self, topic: &str, kind: InputKind) -> CallbackProbe {
        callback(&self.record, Some(c_string(topic)), kind)
    }

    pub(crate) fn task(&self) -> u64 {
        address(&*self.record)
    }
}

fn callback(task: &TaskRecord, source: Option<CString>, kind: InputKind) -> CallbackProbe {
    let record = Box::new(CallbackRecord {
        task: address(task),
        source: source.as_ref().map_or(0, |s| s.as_ptr() as u64),
        kind: kind as u64,
    });
    onbeat_flow_task_init(address(&*record));
    CallbackProbe {
        record,
        _source: source,
    }
}
