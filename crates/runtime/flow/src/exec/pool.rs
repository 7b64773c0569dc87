//! Starts, stops and drains the threads of an executor.

use super::options::TaskStats;
use super::program::{Program, TaskId};
use super::state::ExecutorState;
use super::thread::{self, ThreadError, ThreadOptions};
use super::wiring::wire;
use super::worker::{Step, Worker};
use crate::wait::Waker;
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc};
use thiserror::Error;

/// The error of an executor that stopped because the code of a task panicked.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a task on thread '{thread}' has panicked, and all threads were stopped. The panic message is on standard error.")]
pub struct Panicked {
    pub thread: String,
}

/// Starts the threads of a program. If one thread cannot get its settings, starts none. `order`
/// contains the tasks of each thread. `priorities` has one number per task if the executor runs by
/// priority.
pub(super) fn start(
    mut program: Program,
    order: &[Vec<usize>],
    priorities: Option<&[u32]>,
    step: Step,
) -> Result<Running, ThreadError> {
    let threads = std::mem::take(&mut program.threads);
    let (state, workers) = wire(program, order, priorities);
    let mut waiting = Vec::new();
    let mut result = Ok(());
    for (options, worker) in threads.into_iter().zip(workers) {
        match WaitingThread::spawn(options, worker, step) {
            Ok(thread) => waiting.push(thread),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    for thread in &waiting {
        result = result.and(thread.settings());
    }
    if let Err(error) = result {
        waiting.into_iter().for_each(WaitingThread::cancel);
        return Err(error);
    }
    let threads = waiting.into_iter().map(WaitingThread::release).collect();
    Ok(Running { state, threads })
}

struct WaitingThread {
    name: String,
    handle: std::thread::JoinHandle<()>,
    settings: mpsc::Receiver<Result<(), ThreadError>>,
    go: mpsc::Sender<()>,
}

impl WaitingThread {
    fn spawn(
        options: ThreadOptions,
        mut worker: Worker,
        step: Step,
    ) -> Result<WaitingThread, ThreadError> {
        let (report, settings) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let (name, stack_bytes) = (options.name.clone(), options.stack_bytes);
        let spawned = std::thread::Builder::new()
            .name(name.replace('\0', ""))
            .stack_size(stack_bytes)
            .spawn(move || {
                let applied = thread::apply(&options);
                let is_fine = applied.is_ok();
                let is_reported = report.send(applied).is_ok();
                if is_fine && is_reported && may_go.recv().is_ok() {
                    let _end = StopAtEnd(Arc::clone(&worker.state));
                    worker.serve(step);
                }
            });
        match spawned {
            Ok(handle) => Ok(WaitingThread {
                name,
                handle,
                settings,
                go,
            }),
            Err(reason) => Err(ThreadError::Spawn {
                thread: name,
                stack_bytes,
                reason,
            }),
        }
    }

    fn settings(&self) -> Result<(), ThreadError> {
        // A thread that panicked meanwhile reports nothing. Joining it shows the panic.
        self.settings.recv().unwrap_or(Ok(()))
    }

    fn release(self) -> (String, std::thread::JoinHandle<()>) {
        // Sending succeeds, because the thread waits for this message.
        let _ = self.go.send(());
        (self.name, self.handle)
    }

    fn cancel(self) {
        drop(self.go);
        let _ = self.handle.join();
    }
}

/// A guard that each thread of an executor owns. When the thread ends or panics, the guard is
/// dropped and stops all threads of the executor.
struct StopAtEnd(Arc<ExecutorState>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
        self.0.ended.fetch_add(1, Ordering::Release);
        self.0.owner.wake();
    }
}

/// A running executor. Dropping it stops its threads.
pub struct Running {
    state: Arc<ExecutorState>,
    threads: Vec<(String, std::thread::JoinHandle<()>)>,
}

impl Running {
    /// Returns the counters of a task, as of its last completed execution.
    pub fn stats(&self, task: TaskId) -> TaskStats {
        self.state.stats[task.0].get()
    }

    /// Reports whether the executor was stopped: by `stop`, by an overrun, or by a panic.
    pub fn is_stopped(&self) -> bool {
        self.state.is_stopped.load(Ordering::Acquire)
    }

    /// Ends each thread after its execution in progress. Items that no task has used are discarded.
    pub fn stop(&mut self) -> Result<(), Panicked> {
        self.state.stop();
        self.join()
    }

    /// Ends the threads once all items are used, even if an item must wait for a slot. Time alone
    /// starts no task meanwhile. At `deadline_ns` (CLOCK_MONOTONIC) the threads stop, even if items
    /// are left. Returns whether the tasks used all items.
    pub fn drain(&mut self, deadline_ns: Option<u64>) -> Result<bool, Panicked> {
        let state = Arc::clone(&self.state);
        state.is_draining.store(true, Ordering::Release);
        state.wakers.iter().for_each(Waker::wake);
        let threads = state.idle.len();
        let is_over = || state.ended.load(Ordering::Acquire) == threads;
        let drained = state.owner.wait(deadline_ns, is_over);
        self.stop()?;
        Ok(drained)
    }

    fn join(&mut self) -> Result<(), Panicked> {
        let mut result = Ok(());
        for (thread, handle) in self.threads.drain(..) {
            if handle.join().is_err() {
                result = Err(Panicked { thread });
            }
        }
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A program that wants to see panics calls `stop` itself.
        let _ = self.stop();
    }
}
