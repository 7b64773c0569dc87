//! Tests that the steady path allocates nothing and makes no system call. An allocator counts, and
//! the kernel kills a process that makes a system call.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::activation::{Input, Schedule};
use onbeat_flow::chain::{Chain, TaskOptions, TaskResult};
use onbeat_flow::graph::Graph;
use onbeat_flow::priority::Priorities;
use onbeat_flow::task::Task;
use onbeat_flow::thread::ThreadOptions;
use onbeat_flow::{Channel, Consumer, Options, Policy, Producer, Running, TaskId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn chain() -> Chain<u64> {
    let mut chain = Chain::new(0);
    let first = TaskOptions {
        schedule: Some(Schedule::Period {
            period_ns: 1,
            offset_ns: 0,
        }),
        deadline_ns: Some(1_000_000_000),
        ..TaskOptions::default()
    };
    let mut before = chain.task("0", first, |_| TaskResult::Output).unwrap();
    for i in 1..10 {
        let behind = TaskOptions {
            inputs: vec![Input::EACH],
            ..TaskOptions::default()
        };
        let count = |n: &mut u64| {
            *n += 1;
            TaskResult::Output
        };
        let task = chain.task(&i.to_string(), behind, count).unwrap();
        chain.connect(before, task, 0).unwrap();
        before = task;
    }
    chain
}

/// Makes a task of *data OR time* with a condition on the contents of a channel. Each step sends an
/// item, and every second item fulfils the condition.
fn conditional() -> (Chain<(Consumer, u64)>, Producer) {
    let channel = Channel::new(Options::new(Policy::Credit { credits: 4 }, 8)).unwrap();
    let (producer, consumer) = (channel.producer().unwrap(), channel.consumer().unwrap());
    let mut chain = Chain::new((consumer, 0));
    let options = TaskOptions::each(1).or_after_item(0, 1);
    let take = |state: &mut (Consumer, u64)| {
        state.1 += u64::from(state.0.receive().is_some());
        TaskResult::Output
    };
    let task = chain.task("conditional", options, take).unwrap();
    chain.feed_waiting(task, 0, |s| s.0.waiting()).unwrap();
    chain.only_if(task, |s| s.0.peek(0).is_some_and(|item| item[0] % 2 == 0));
    (chain, producer)
}

/// Sends items and runs a step for each. An even item activates the task at once. An odd item
/// activates the task in the next step, by the time-out of 1 ns.
fn work_by_contents(
    (chain, producer): &mut (Chain<(Consumer, u64)>, Producer),
    rounds: u64,
) -> bool {
    let begin = chain.state().1;
    for i in 0..rounds {
        let mut loan = producer.loan(1).expect("no item is in use");
        loan[0] = i as u8;
        loan.send().unwrap();
        let now_ns = 10 * (begin + i);
        let ran = (chain.step(now_ns), chain.step(now_ns + 1));
        if ran != if i % 2 == 0 { (1, 0) } else { (0, 1) } {
            return false;
        }
    }
    chain.state().1 - begin == rounds
}

fn ends() -> Vec<(Producer, Consumer)> {
    let policies = [
        Policy::Latest,
        Policy::DropOldest { depth: 4 },
        Policy::Credit { credits: 4 },
        Policy::Swap {
            length: 4,
            flush: true,
        },
    ];
    policies
        .into_iter()
        .map(|policy| {
            let channel = Channel::new(Options::new(policy, 1024)).unwrap();
            (channel.producer().unwrap(), channel.consumer().unwrap())
        })
        .collect()
}

fn work(chain: &mut Chain<u64>, ends: &mut [(Producer, Consumer)], rounds: u64) -> bool {
    let begin = *chain.state();
    let from = begin; // each step needs its own time
    for i in 0..rounds {
        chain.step(from + i);
        for (producer, consumer) in ends.iter_mut() {
            for size in [1, 64, 1000] {
                let mut loan = producer.loan(size).expect("no item is in use");
                loan[0] = i as u8;
                loan.send().unwrap();
                let item = consumer.receive().expect("it was sent");
                if (item.len(), item[0]) != (size, i as u8) {
                    return false;
                }
            }
        }
    }
    *chain.state() - begin == 9 * rounds
}

/// Forbids all system calls except those that end the thread or the process. The kernel kills the
/// process at any other call. (Seccomp's strict mode would also forbid the time stamp counter, and
/// with it the clock.)
fn forbid_system_calls() -> bool {
    const LOAD_NUMBER: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, 1, 0, libc::SYS_exit as u32),
        step(IF_EQUAL, 0, 1, libc::SYS_exit_group as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}

#[derive(Clone, Copy)]
struct Hooks {
    begin: fn(),
    end: fn(),
}

fn source(options: TaskOptions, rounds: u64, hooks: Hooks) -> Task<u64> {
    let run = move |left: &mut u64| {
        WATCHED.set(true);
        if *left == rounds {
            (hooks.begin)();
        }
        *left -= 1;
        if *left == 0 {
            (hooks.end)();
        }
        TaskResult::Output
    };
    // The feed offers one item at a time, so that the other thread sleeps and is woken each time.
    Task::new("0", options, rounds, run).feed(0, |left| u32::from(*left > 0))
}

/// Starts a chain of ten tasks, on the executor of graphs or the executor by priority. Assigns the
/// tasks to the threads in turn. Each thread's allocations count from its first execution on.
fn executor(by_priority: bool, threads: usize, rounds: u64, hooks: Hooks) -> (Running, TaskId) {
    let options = (0..threads).map(|t| ThreadOptions::new(&t.to_string()));
    let options: Vec<_> = options.collect();
    let mut graph = Graph::new("graph", options.clone());
    let mut priorities = Priorities::new("priorities", options);
    let mut before = None;
    for i in 0..10 {
        let options = TaskOptions {
            deadline_ns: Some(1_000_000_000),
            ..TaskOptions::each(1)
        };
        let task = if before.is_none() {
            source(options, rounds, hooks)
        } else {
            Task::new(&i.to_string(), options, 0, |_| {
                WATCHED.set(true);
                TaskResult::Output
            })
        };
        let thread = i % threads;
        let id = if by_priority {
            priorities.task(thread, i as u32, task).unwrap()
        } else {
            graph.task(task.on(thread)).unwrap()
        };
        if let Some(before) = before.replace(id) {
            if by_priority {
                priorities.connect(before, id, 0).unwrap();
            } else {
                graph.connect(before, id, 0).unwrap();
            }
        }
    }
    let running = if by_priority {
        priorities.start().unwrap()
    } else {
        graph.start().unwrap()
    };
    (running, before.expect("there are tasks"))
}

#[test]
fn executors_allocate_nothing_on_their_threads() {
    // Allocations while a thread ends do not count, because `end` is called before.
    static AT_END: AtomicU64 = AtomicU64::new(u64::MAX);
    for by_priority in [false, true] {
        let end = || AT_END.store(ALLOCATIONS.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let hooks = Hooks { begin: || (), end };
        let (mut running, last) = executor(by_priority, 2, 10_000, hooks);
        running.drain(None).unwrap();
        assert_eq!(running.stats(last).executions, 10_000);
        assert_eq!(AT_END.load(Ordering::Relaxed), before);
    }
}

#[test]
#[ignore = "ends its process"]
fn executors_run_with_system_calls_forbidden() {
    let by_priority = std::env::var_os("BY_PRIORITY").is_some();
    let forbidden = std::env::var_os("FORBIDDEN").is_some();
    let quit = || unsafe {
        libc::syscall(libc::SYS_exit_group, 0);
    };
    let getpid = || unsafe {
        libc::syscall(libc::SYS_getpid);
    };
    let hooks = Hooks {
        begin: || assert!(forbid_system_calls()),
        end: if forbidden { getpid } else { quit },
    };
    let (mut running, _) = executor(by_priority, 1, 10_000, hooks);
    running.drain(None).unwrap();
}

fn assert_no_system_call(helper: &str, variables: &[&str]) {
    for forbidden in [false, true] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--ignored", helper]);
        child.envs(variables.iter().map(|name| (name, "1")));
        if forbidden {
            child.env("FORBIDDEN", "1");
        }
        let status = child.output().unwrap().status;
        let expected = if forbidden { Some(libc::SIGSYS) } else { None };
        assert_eq!(status.signal(), expected, "{helper} {variables:?}");
        assert!(forbidden || status.success(), "{status}");
    }
}

#[test]
fn executors_make_no_system_call_while_a_task_is_ready() {
    for variables in [&[][..], &["BY_PRIORITY"]] {
        assert_no_system_call("executors_run_with_system_calls_forbidden", variables);
    }
}

#[test]
fn a_chain_and_channels_allocate_nothing() {
    let (mut chain, mut ends, mut by_contents) = (chain(), ends(), conditional());
    assert!(work(&mut chain, &mut ends, 10) && work_by_contents(&mut by_contents, 10));
    WATCHED.set(true);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(work(&mut chain, &mut ends, 10_000) && work_by_contents(&mut by_contents, 10_000));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
    WATCHED.set(false);
}

/// Runs in a process that the next test starts. The process is not a fork of the test: while a
/// recorder runs on the machine, a fork without exec crashes at the probes of its parent on Linux
/// 6.18.
#[test]
#[ignore = "ends its process"]
fn a_chain_and_channels_run_with_system_calls_forbidden() {
    let forbidden = std::env::var_os("FORBIDDEN").is_some();
    let (mut chain, mut ends, mut by_contents) = (chain(), ends(), conditional());
    let fine = work(&mut chain, &mut ends, 10)
        && forbid_system_calls()
        && work(&mut chain, &mut ends, 1000)
        && work_by_contents(&mut by_contents, 1000);
    if forbidden {
        unsafe { libc::syscall(libc::SYS_getpid) };
    }
    unsafe { libc::syscall(libc::SYS_exit_group, i32::from(!fine)) };
}

#[test]
fn a_chain_and_channels_make_no_system_call() {
    assert_no_system_call("a_chain_and_channels_run_with_system_calls_forbidden", &[]);
}
