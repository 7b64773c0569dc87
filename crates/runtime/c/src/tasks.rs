//! Tasks on one thread, in a fixed order: activated by time, by items of a channel, or by each other.

use crate::arguments::{put, text};
use crate::channel::OnbeatChannel;
use crate::ends::{not_attached, OnbeatItem};
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::handle::{give, take_back, using, Handle, Opaque};
use onbeat_flow::activation::Schedule;
use onbeat_flow::chain::{Chain, ChainError, TaskId, TaskOptions, TaskResult};
use onbeat_flow::{Consumer, Waker};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// What a task returns.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnbeatTaskResult {
    /// Tasks that follow are not activated.
    Nothing = 0,
    /// Tasks that follow are activated.
    Output = 1,
}

/// A task: returns one of OnbeatTaskResult. Must return, and must not throw.
pub type OnbeatRun = Option<unsafe extern "C" fn(context: *mut c_void) -> u32>;

/// A task that gets an item, where it was written: returns one of OnbeatTaskResult. Must return, and
/// must not throw.
pub type OnbeatRunOnItem = Option<
    unsafe extern "C" fn(context: *mut c_void, bytes: *const u8, item: *const OnbeatItem) -> u32,
>;

/// A pointer of the application's that its own callbacks get.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: it is only passed on, to callbacks that run on the thread that runs the tasks; the header
// says so.
unsafe impl Send for Context {}

impl Context {
    /// A method, so that closures take the whole and not the bare pointer.
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// The consumers of the tasks.
type Consumers = Vec<Consumer>;

/// What wakes the thread, and what ends it: for other threads, beside the mark of the handle.
#[derive(Debug, Default)]
struct Ending {
    waker: Waker,
    stop: AtomicBool,
}

/// The tasks of one thread.
pub(crate) struct Tasks {
    chain: Chain<Consumers>,
    ids: Vec<TaskId>,
    ending: Arc<Ending>,
}

/// Tasks that run on one thread, in the order in which they were added.
pub struct OnbeatTasks {
    handle: Handle<Tasks>,
    ending: Arc<Ending>,
}

impl Opaque for OnbeatTasks {
    type Inner = Tasks;
    fn handle(&self) -> &Handle<Tasks> {
        &self.handle
    }
}

fn refused(error: ChainError) -> Failure {
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
        let id = self.chain.task(name, options, run).map_err(refused)?;
        self.ids.push(id);
        Ok(id)
    }

    /// Writes the number of the last task.
    ///
    /// # Safety
    /// The place is null or can be written.
    unsafe fn number(&self, place: *mut u32) -> Outcome<OnbeatCode> {
        let last = u32::try_from(self.ids.len() - 1).unwrap_or(u32::MAX);
        // SAFETY: the caller promises it.
        unsafe { put(place, last) };
        Ok(OnbeatCode::Ok)
    }
}

/// No tasks yet. Recordings show the name before those of the tasks.
///
/// # Safety
/// `name` ends with 0, `tasks` can be written; null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_new(
    name: *const c_char,
    tasks: *mut *mut OnbeatTasks,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(tasks, || {
            let ending = Arc::<Ending>::default();
            let handle = Handle::from(Tasks {
                chain: Chain::named(text(name)?, Consumers::new()),
                ids: Vec::new(),
                ending: Arc::clone(&ending),
            });
            Ok(OnbeatTasks { handle, ending })
        })
    })
}

/// Adds a task that runs once per period, from `offset_ns` on; `task` (or null) gets its number.
///
/// # Safety
/// `tasks` is open, `name` ends with 0, `run` may be called with `context`; null is refused, for
/// `context` and `task` not.
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

/// Adds a task that runs for each item of a channel, of which it is a consumer.
///
/// # Safety
/// As for onbeat_tasks_every(); `channel` is open.
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
            let waker = &tasks.ending.waker;
            let consumer = using(channel, |c| c.consumer_on(waker).map_err(not_attached))?;
            let place = tasks.chain.state().len();
            let id = tasks.add(name, TaskOptions::each(1), move |consumers| {
                let item = consumers[place].receive();
                let run = |item| result(run_on(run, context, &item));
                item.map_or(TaskResult::Nothing, run)
            })?;
            tasks.chain.state_mut().push(consumer);
            let waiting = move |consumers: &mut Consumers| consumers[place].waiting();
            tasks.chain.feed_waiting(id, 0, waiting).map_err(refused)?;
            tasks.number(task)
        })
    })
}

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

/// Adds a task that runs after each output of an earlier one, `after` by its number.
///
/// # Safety
/// As for onbeat_tasks_every().
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
                let text = format!("there is no task {after} yet");
                return Err(Failure::new(OnbeatCode::Argument, text));
            };
            let options = TaskOptions::each(1);
            let id = tasks.add(name, options, move |_| result(run(context.pointer())))?;
            tasks.chain.connect(from, id, 0).map_err(refused)?;
            tasks.number(task)
        })
    })
}

/// Runs the tasks on the calling thread, with its policy, priority and CPUs, and sleeps in between,
/// until onbeat_tasks_stop(). Tasks that are ready then no longer run.
///
/// # Safety
/// `tasks` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_run(tasks: *mut OnbeatTasks) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        using(tasks, |tasks| {
            let ending = &tasks.ending;
            tasks.chain.run(&ending.waker, &ending.stop);
            Ok(OnbeatCode::Ok)
        })
    })
}

/// Ends onbeat_tasks_run(), now or as soon as it is called. From any thread, a task or a signal
/// handler.
///
/// # Safety
/// `tasks` is null (refused) or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_stop(tasks: *mut OnbeatTasks) -> OnbeatCode {
    guarded(|| {
        if tasks.is_null() {
            return Err(Failure::null("the handle is null"));
        }
        // SAFETY: not null, and open; the mark of the handle is not needed for what is atomic.
        let ending = unsafe { &(*tasks).ending };
        ending.stop.store(true, Ordering::Release);
        ending.waker.wake();
        Ok(OnbeatCode::Ok)
    })
}

/// Closes the tasks and their consumers. Null is fine.
///
/// # Safety
/// The handle is null, or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_tasks_close(tasks: *mut OnbeatTasks) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(tasks) })
}
