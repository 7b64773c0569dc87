//! Tasks on one thread, in a fixed order, for C. Time, items of a channel, or other tasks activate
//! them.

use crate::arguments::{text, write_unless_null};
use crate::channel::OnbeatChannel;
use crate::ends::{attach_failure, OnbeatItem};
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::handle::{give, take_back, using, Handle, Opaque};
use onbeat_flow::activation::Schedule;
use onbeat_flow::chain::{Chain, ChainError, TaskId, TaskOptions, TaskResult};
use onbeat_flow::{Consumer, Waker};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The value that a task returns. It says whether the tasks that follow this task run.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnbeatTaskResult {
    /// The task does not activate the tasks that follow it.
    Nothing = 0,
    /// The task activates the tasks that follow it.
    Output = 1,
}

/// A callback that runs a task and returns a value of OnbeatTaskResult. It must return, and must
/// not throw.
pub type OnbeatRun = Option<unsafe extern "C" fn(context: *mut c_void) -> u32>;

/// A callback that runs a task with an item, which it reads in place. It returns a value of
/// OnbeatTaskResult. It must return, and must not throw.
pub type OnbeatRunOnItem = Option<
    unsafe extern "C" fn(context: *mut c_void, bytes: *const u8, item: *const OnbeatItem) -> u32,
>;

#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the pointer is only passed on to callbacks. They run on the thread that runs the tasks;
// the header says so.
unsafe impl Send for Context {}

impl Context {
    /// Returns the pointer. A closure that calls this method captures the whole struct, not the
    /// bare pointer.
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

type Consumers = Vec<Consumer>;

/// A signal that wakes and ends the thread that runs the tasks. Other threads may use it while the
/// handle is in use.
#[derive(Debug, Default)]
struct StopSignal {
    waker: Waker,
    stop: AtomicBool,
}

pub(crate) struct Tasks {
    chain: Chain<Consumers>,
    ids: Vec<TaskId>,
    stop_signal: Arc<StopSignal>,
}

/// A handle of tasks that run on one thread, in the order in which they were added.
pub struct OnbeatTasks {
    handle: Handle<Tasks>,
    stop_signal: Arc<StopSignal>,
}

impl Opaque for OnbeatTasks {
    type Inner = Tasks;
    fn handle(&self) -> &Handle<Tasks> {
        &self.handle
    }
}

fn chain_failure(error: ChainError) -> Failure {
    Failure::new(OnbeatCode::Argument, error)
}

fn result(code: u32) -> TaskResult {
    if code == OnbeatTaskResult::Output as u32 {
        TaskResult::Output
    } else {
        TaskResult::Nothing
    }
}

impl Tasks {
    fn add(
        &mut self,
        name: &str,
        options: TaskOptions,
        run: impl FnMut(&mut Consumers) -> TaskResult + Send + 'static,
    ) -> Outcome<TaskId> {
        let id = self.chain.task(name, options, run).map_err(chain_failure)?;
        self.ids.push(id);
        Ok(id)
    }

    /// Writes the number of the task that was added last.
    ///
    /// # Safety
    /// `place` is null or can be written.
    unsafe fn number(&self, place: *mut u32) -> Outcome<OnbeatCode> {
        let last = u32::try_from(self.ids.len() - 1).unwrap_or(u32::MAX);
        // SAFETY: the caller promises it.
        unsafe { write_unless_null(place, last) };
        Ok(OnbeatCode::Ok)
    }
}

/// Creates an executor without tasks. In recordings its name precedes the names of the tasks.
///
/// # Safety
/// `name` ends with 0, `tasks` can be written. Null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_new(
    name: *const c_char,
    tasks: *mut *mut OnbeatTasks,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(tasks, || {
            let stop_signal = Arc::<StopSignal>::default();
            let handle = Handle::from(Tasks {
                chain: Chain::named(text(name)?, Consumers::new()),
                ids: Vec::new(),
                stop_signal: Arc::clone(&stop_signal),
            });
            Ok(OnbeatTasks {
                handle,
                stop_signal,
            })
        })
    })
}

/// Adds a task that runs once per period: at `offset_ns`, `offset_ns` + `period_ns` and so on, on
/// CLOCK_MONOTONIC. Writes the number of the task to `task` unless that is null.
///
/// # Safety
/// `tasks` is open, `name` ends with 0, `run` may be called with `context`. Null is refused, except
/// for `context` and `task`.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_every(
    tasks: *mut OnbeatTasks,
    name: *const c_char,
    period_ns: u64,
    offset_ns: u64,
    run: OnbeatRun,
    context: *mut c_void,
    task: *mut u32,
) -> OnbeatCode {
    let context = Context(context);
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let run = run.ok_or(Failure::null("the callback is null"))?;
        let name = text(name)?;
        using(tasks, |tasks| {
            let options = TaskOptions::default().within(Schedule::Period {
                period_ns,
                offset_ns,
            });
            tasks.add(name, options, move |_| result(run(context.pointer())))?;
            tasks.number(task)
        })
    })
}

/// Adds a task that runs for each item of a channel. The task is a consumer of the channel.
///
/// # Safety
/// The rules of onbeat_tasks_every() apply, and `channel` is open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_on_item(
    tasks: *mut OnbeatTasks,
    name: *const c_char,
    channel: *mut OnbeatChannel,
    run: OnbeatRunOnItem,
    context: *mut c_void,
    task: *mut u32,
) -> OnbeatCode {
    let context = Context(context);
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let run = run.ok_or(Failure::null("the callback is null"))?;
        let name = text(name)?;
        using(tasks, |tasks| {
            let waker = &tasks.stop_signal.waker;
            let consumer = using(channel, |c| c.consumer_on(waker).map_err(attach_failure))?;
            let place = tasks.chain.state().len();
            let id = tasks.add(name, TaskOptions::each(1), move |consumers| {
                let item = consumers[place].receive();
                let run = |item| result(run_on(run, context, &item));
                item.map_or(TaskResult::Nothing, run)
            })?;
            tasks.chain.state_mut().push(consumer);
            let waiting = move |consumers: &mut Consumers| consumers[place].waiting();
            tasks
                .chain
                .feed_waiting(id, 0, waiting)
                .map_err(chain_failure)?;
            tasks.number(task)
        })
    })
}

/// Calls the callback with an item.
///
/// # Safety
/// The callback may be called with this context.
unsafe fn run_on(
    run: unsafe extern "C" fn(*mut c_void, *const u8, *const OnbeatItem) -> u32,
    context: Context,
    item: &onbeat_flow::Item<'_>,
) -> u32 {
    // SAFETY: the caller promises it.
    unsafe { run(context.pointer(), item.as_ptr(), &OnbeatItem::of(item)) }
}

/// Adds a task that runs after each output of an earlier task. `after` is the number of that task.
///
/// # Safety
/// The rules of onbeat_tasks_every() apply.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_after(
    tasks: *mut OnbeatTasks,
    name: *const c_char,
    after: u32,
    run: OnbeatRun,
    context: *mut c_void,
    task: *mut u32,
) -> OnbeatCode {
    let context = Context(context);
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        let run = run.ok_or(Failure::null("the callback is null"))?;
        let name = text(name)?;
        using(tasks, |tasks| {
            let Some(&from) = tasks.ids.get(after as usize) else {
                let text = format!(
                    "no task has the number {after} yet. Add tasks in the order in which they run."
                );
                return Err(Failure::new(OnbeatCode::Argument, text));
            };
            let options = TaskOptions::each(1);
            let id = tasks.add(name, options, move |_| result(run(context.pointer())))?;
            tasks.chain.connect(from, id, 0).map_err(chain_failure)?;
            tasks.number(task)
        })
    })
}

/// Runs the tasks on the calling thread, with its policy, priority and CPUs, until
/// onbeat_tasks_stop(). Sleeps while no task is ready. Tasks that are ready at the stop no longer
/// run.
///
/// # Safety
/// `tasks` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_run(tasks: *mut OnbeatTasks) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(tasks, |tasks| {
            let stop_signal = &tasks.stop_signal;
            tasks.chain.run(&stop_signal.waker, &stop_signal.stop);
            Ok(OnbeatCode::Ok)
        })
    })
}

/// Ends onbeat_tasks_run(). If no thread is in onbeat_tasks_run(), its next call returns at once.
/// May be called from any thread, a task or a signal handler.
///
/// # Safety
/// `tasks` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_stop(tasks: *mut OnbeatTasks) -> OnbeatCode {
    guarded(|| {
        if tasks.is_null() {
            return Err(Failure::null("the handle is null"));
        }
        // SAFETY: not null, and open. Atomic fields need no mark of the handle.
        let stop_signal = unsafe { &(*tasks).stop_signal };
        stop_signal.stop.store(true, Ordering::Release);
        stop_signal.waker.wake();
        Ok(OnbeatCode::Ok)
    })
}

/// Closes the tasks and their consumers. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_close(tasks: *mut OnbeatTasks) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(tasks) })
}
