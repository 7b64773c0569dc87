//! Executors with several threads, compared with the same tasks in a chain.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::activation::{Input, Schedule};
use onbeat_flow::chain::Chain;
use onbeat_flow::clock::now_ns;
use onbeat_flow::graph::{Graph, GraphError};
use onbeat_flow::priority::Priorities;
use onbeat_flow::task::{Overrun, Task, TaskOptions, TaskResult};
use onbeat_flow::thread::{Scheduling, ThreadError, ThreadOptions};
use onbeat_flow::{Channel, Options, Panicked, Policy, Running, TaskId};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn threads(count: usize) -> Vec<ThreadOptions> {
    (0..count)
        .map(|i| ThreadOptions::new(&format!("thread {i}")))
        .collect()
}

fn inputs(thresholds: &[u32]) -> TaskOptions {
    let input = |&threshold: &u32| Input {
        threshold,
        ..Input::EACH
    };
    TaskOptions {
        inputs: thresholds.iter().map(input).collect(),
        ..TaskOptions::default()
    }
}

fn every_ns(period_ns: u64) -> TaskOptions {
    TaskOptions {
        schedule: Some(Schedule::Period {
            period_ns,
            offset_ns: 0,
        }),
        ..TaskOptions::default()
    }
}

fn wait_for(running: &Running, task: TaskId, executions: u64) {
    while running.stats(task).executions < executions && !running.is_stopped() {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}

fn hang_deadline() -> Option<u64> {
    Some(now_ns() + 60_000_000_000)
}

/// The starts (`true`) and ends (`false`) of executions in the order of time, each with the number
/// of its task.
type Log = Arc<Mutex<Vec<(usize, bool)>>>;

#[derive(Debug, Clone)]
struct Case {
    /// For each task: its predecessors, with the threshold of the input that takes their items.
    before: Vec<Vec<(usize, u32)>>,
    /// For each task, a number n: every nth execution has no output.
    silent: Vec<u64>,
    costs: Vec<u64>,
    items: u32,
    threads: usize,
}

impl Case {
    fn options(&self, task: usize) -> TaskOptions {
        match &self.before[task][..] {
            [] => inputs(&[1]),
            before => inputs(&before.iter().map(|b| b.1).collect::<Vec<_>>()),
        }
    }

    fn code(&self, task: usize, log: &Log) -> impl FnMut() -> TaskResult + Send + 'static {
        let (silent, log, mut executions) = (self.silent[task], Arc::clone(log), 0);
        move || {
            log.lock().unwrap().push((task, true));
            executions += 1;
            log.lock().unwrap().push((task, false));
            if executions % silent == 0 {
                TaskResult::Nothing
            } else {
                TaskResult::Output
            }
        }
    }

    fn run_as_chain(&self) -> Vec<(usize, bool)> {
        let log = Log::default();
        let mut chain = Chain::new(());
        let mut ids = Vec::new();
        for task in 0..self.before.len() {
            let mut code = self.code(task, &log);
            let name = task.to_string();
            let id = chain
                .task(&name, self.options(task), move |()| code())
                .unwrap();
            for (input, &(before, _)) in self.before[task].iter().enumerate() {
                chain.connect(ids[before], id, input).unwrap();
            }
            if self.before[task].is_empty() {
                let mut items = self.items;
                let all_at_once = move |(): &mut ()| std::mem::take(&mut items);
                chain.feed(id, 0, all_at_once).unwrap();
            }
            ids.push(id);
        }
        while chain.step(0) > 0 {}
        drop(chain);
        Arc::try_unwrap(log).unwrap().into_inner().unwrap()
    }

    fn task(&self, task: usize, log: &Log) -> Task<u32> {
        let mut code = self.code(task, log);
        let fed = self.before[task].is_empty();
        let run = move |left: &mut u32| {
            *left = left.saturating_sub(1);
            code()
        };
        let new = Task::new(&task.to_string(), self.options(task), self.items, run);
        let new = new.cost(self.costs[task]);
        if fed {
            new.on(task % self.threads).feed(0, |left| *left)
        } else {
            new
        }
    }

    fn run_as_graph(&self) -> Vec<(usize, bool)> {
        let log = Log::default();
        let mut graph = Graph::new("graph", threads(self.threads));
        let mut ids = Vec::new();
        for task in 0..self.before.len() {
            let id = graph.task(self.task(task, &log)).unwrap();
            for (input, &(before, _)) in self.before[task].iter().enumerate() {
                graph.connect(ids[before], id, input).unwrap();
            }
            ids.push(id);
        }
        if self.threads == 1 {
            graph.set_order(vec![ids]);
        }
        assert_eq!(graph.start().unwrap().drain(hang_deadline()), Ok(true));
        Arc::try_unwrap(log).unwrap().into_inner().unwrap()
    }

    fn run_by_priority(&self) -> Vec<(usize, bool)> {
        let log = Log::default();
        let mut tasks = Priorities::new("priorities", threads(self.threads));
        let mut ids = Vec::new();
        for task in 0..self.before.len() {
            let thread = task % self.threads;
            let priority = self.costs[task] as u32 % 3;
            let id = tasks.task(thread, priority, self.task(task, &log)).unwrap();
            for (input, &(before, _)) in self.before[task].iter().enumerate() {
                tasks.connect(ids[before], id, input).unwrap();
            }
            ids.push(id);
        }
        assert_eq!(tasks.start().unwrap().drain(hang_deadline()), Ok(true));
        Arc::try_unwrap(log).unwrap().into_inner().unwrap()
    }

    fn counts(&self, log: &[(usize, bool)]) -> Vec<usize> {
        (0..self.before.len())
            .map(|task| log.iter().filter(|&&l| l == (task, true)).count())
            .collect()
    }

    fn is_in_order(&self, log: &[(usize, bool)]) -> Result<(), TestCaseError> {
        let positions = |task: usize, begins: bool| {
            let all = log.iter().enumerate();
            all.filter(move |(_, &l)| l == (task, begins))
                .map(|(at, _)| at)
        };
        for (task, before) in self.before.iter().enumerate() {
            for &(source, threshold) in before.iter().filter(|b| b.1 > 0) {
                let outputs = positions(source, false).zip(1u64..);
                let outputs: Vec<usize> = outputs
                    .filter(|(_, execution)| execution % self.silent[source] != 0)
                    .map(|(at, _)| at)
                    .collect();
                for (begins, execution) in positions(task, true).zip(1..) {
                    let needed = outputs.get(execution * threshold as usize - 1);
                    prop_assert!(
                        needed.is_some_and(|&at| at < begins),
                        "execution {} of {} began before the output of {} that it takes",
                        execution,
                        task,
                        source
                    );
                }
            }
        }
        Ok(())
    }
}

fn cases() -> impl Strategy<Value = Case> {
    // The first input is triggering, the others may be non-triggering.
    let task = |index: usize| {
        let before = prop::collection::btree_set(0..index.max(1), 0..=index.min(3));
        (before, (1u32..4, 0u32..4, 0u32..4), 2u64..6, 1u64..1000)
    };
    let tasks = (2usize..9).prop_flat_map(move |n| (0..n).map(task).collect::<Vec<_>>());
    (tasks, 1u32..20, 1usize..4).prop_map(|(tasks, items, threads)| Case {
        before: tasks
            .iter()
            .enumerate()
            .map(|(i, t)| {
                let before = t.0.iter().copied().filter(|&b| b < i);
                before.zip([t.1 .0, t.1 .1, t.1 .2]).collect()
            })
            .collect(),
        silent: tasks.iter().map(|t| t.2).collect(),
        costs: tasks.iter().map(|t| t.3).collect(),
        items,
        threads,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Checks for any graph and number of threads: each task runs after the tasks whose outputs it
    /// takes, and as often as in a chain. On one thread the order is that of the chain.
    #[test]
    fn executors_with_threads_run_the_same_tasks_as_a_chain(case in cases()) {
        let reference = case.run_as_chain();
        case.is_in_order(&reference)?;
        let graph = case.run_as_graph();
        prop_assert_eq!(case.counts(&graph), case.counts(&reference));
        case.is_in_order(&graph)?;
        if case.threads == 1 {
            prop_assert_eq!(&graph, &reference);
        }
        let by_priority = case.run_by_priority();
        prop_assert_eq!(case.counts(&by_priority), case.counts(&reference));
        case.is_in_order(&by_priority)?;
    }
}

#[test]
fn tasks_ready_at_the_same_time_run_in_their_threads_order() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut graph = Graph::new("graph", threads(2));
    let note = |name: &'static str, thread: usize| {
        let log = Arc::clone(&log);
        let run = move |left: &mut u32| {
            *left -= 1;
            log.lock().unwrap().push(name);
            TaskResult::Nothing
        };
        let task = Task::new(name, inputs(&[1]), 2, run);
        task.on(thread).feed(0, |left| *left)
    };
    let ids = ["a", "b", "c"].map(|name| graph.task(note(name, 0)).unwrap());
    let other = graph.task(note("other", 1)).unwrap();
    graph.set_order(vec![vec![ids[2], ids[0], ids[1]], vec![other]]);
    graph.start().unwrap().drain(None).unwrap();
    let mut log = log.lock().unwrap().clone();
    log.retain(|&name| name != "other");
    assert_eq!(log, ["c", "a", "b", "c", "a", "b"]);
}

#[test]
fn list_scheduling_uses_all_threads_and_avoids_hand_overs_between_them() {
    let build = |count| {
        let mut graph = Graph::new("graph", threads(count));
        let mut task = |name: &str, thresholds: &[u32], cost| {
            let options = if thresholds.is_empty() {
                every_ns(1_000_000)
            } else {
                inputs(thresholds)
            };
            let new = Task::new(name, options, (), |()| TaskResult::Output).cost(cost);
            graph.task(new).unwrap()
        };
        let ids = [
            task("source", &[], 1),
            task("short", &[1], 10),
            task("long", &[1], 100),
            task("behind long", &[1], 20),
            task("sink", &[1, 1], 1),
        ];
        let [source, short, long, behind, sink] = ids;
        graph.connect(source, short, 0).unwrap();
        graph.connect(source, long, 0).unwrap();
        graph.connect(long, behind, 0).unwrap();
        graph.connect(short, sink, 0).unwrap();
        graph.connect(behind, sink, 1).unwrap();
        (graph, ids)
    };
    let (graph, [source, short, long, behind, sink]) = build(2);
    let order = graph.order().unwrap();
    assert_eq!(order, [vec![source, long, behind, sink], vec![short]]);
    let dot = graph.to_dot();
    assert!(
        dot.contains("label=\"thread 1\";\n    t1 [label=\"1. short\"]"),
        "{dot}"
    );
    assert!(dot.contains("t3 -> t4 [headlabel=\"1\"]"), "{dot}");
    let (graph, [source, short, long, behind, sink]) = build(1);
    let order = graph.order().unwrap();
    assert_eq!(order, [vec![source, long, behind, short, sink]]);
}

#[test]
fn circles_and_deadlocking_orders_are_refused_by_name() {
    let graph = |connections: &[(usize, usize)], order: Option<[&[usize]; 2]>| {
        let mut graph = Graph::new("graph", threads(2));
        let ids: Vec<TaskId> = ["a", "b", "c", "d"]
            .map(|name| Task::new(name, inputs(&[1]), (), |()| TaskResult::Output))
            .into_iter()
            .map(|task| graph.task(task).unwrap())
            .collect();
        for &(from, to) in connections {
            graph.connect(ids[from], ids[to], 0).unwrap();
        }
        if let Some(order) = order {
            let by_id = |tasks: &[usize]| tasks.iter().map(|&t| ids[t]).collect();
            graph.set_order(order.map(by_id).to_vec());
        }
        graph.order().map_err(|e| e.to_string())
    };
    let refused = graph(&[(0, 1), (1, 2), (2, 1)], None).unwrap_err();
    assert!(refused.contains("b -> c -> b"), "{refused}");
    // With a -> b and c -> d placed crosswise, each thread would wait for the other's second task.
    let crosswise = [&[1, 2][..], &[3, 0]];
    let refused = graph(&[(0, 1), (2, 3)], Some(crosswise)).unwrap_err();
    assert!(refused.contains("a -> b -> c -> d -> a"), "{refused}");
    let refused = graph(&[(0, 1)], Some([&[1, 0, 2, 3], &[]])).unwrap_err();
    assert!(refused.contains("a -> b -> a"), "{refused}");
    let refused = graph(&[], Some([&[0, 1], &[2, 0]])).unwrap_err();
    assert!(
        refused.contains("the order names task 'a' 2 times"),
        "{refused}"
    );
    assert!(graph(&[(0, 1), (2, 3)], Some([&[0, 3], &[2, 1]])).is_ok());

    let mut anywhere = Graph::new("graph", threads(2));
    let fed = Task::new("fed", inputs(&[1]), (), |()| TaskResult::Nothing).feed(0, |()| 0);
    assert!(matches!(
        anywhere.task(fed),
        Err(GraphError::FedAnywhere { .. })
    ));
    let far = Task::new("far", inputs(&[1]), (), |()| TaskResult::Nothing).on(2);
    assert!(matches!(
        anywhere.task(far),
        Err(GraphError::NoThread { .. })
    ));
}

fn blocking(runs: &Arc<AtomicBool>, go: &Arc<AtomicBool>) -> Task<u32> {
    let (runs, go) = (Arc::clone(runs), Arc::clone(go));
    let run = move |left: &mut u32| {
        *left -= 1;
        runs.store(true, Ordering::Release);
        while !go.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        TaskResult::Nothing
    };
    Task::new("blocking", inputs(&[1]), 1, run).feed(0, |left| *left)
}

#[test]
fn tasks_run_by_priority_then_by_when_they_became_ready() {
    let [runs, go] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Priorities::new("priorities", threads(2));
    // Tasks that become ready meanwhile wait for this one, because nothing preempts it.
    tasks.task(0, 1, blocking(&runs, &go)).unwrap();
    let note = |name: &'static str| {
        let log = Arc::clone(&log);
        Task::new(name, inputs(&[1]), (), move |()| {
            log.lock().unwrap().push(name);
            TaskResult::Nothing
        })
    };
    let [low, x, y, z, high] = [("low", 2), ("x", 5), ("y", 5), ("z", 5), ("high", 9)]
        .map(|(name, priority)| tasks.task(0, priority, note(name)).unwrap());
    // The other thread makes the tasks ready one after the other: low, z, x, high, y.
    let mut before = None;
    for follower in [low, z, x, high, y] {
        let fed = before.is_none();
        let runs = Arc::clone(&runs);
        let source = Task::new("source", inputs(&[1]), u32::from(fed), move |left| {
            *left = 0;
            while !runs.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            TaskResult::Output
        });
        let source = if fed {
            source.feed(0, |left| *left)
        } else {
            source
        };
        let source = tasks.task(1, 1, source).unwrap();
        tasks.connect(source, follower, 0).unwrap();
        if let Some(before) = before.replace(source) {
            tasks.connect(before, source, 0).unwrap();
        }
    }
    let last = {
        let go = Arc::clone(&go);
        Task::new("last", inputs(&[1]), (), move |()| {
            go.store(true, Ordering::Release);
            TaskResult::Nothing
        })
    };
    let last = tasks.task(1, 0, last).unwrap();
    tasks.connect(before.unwrap(), last, 0).unwrap();
    let dot = tasks.to_dot();
    assert!(
        dot.contains("label=\"thread 0\";\n    t5 [label=\"high (9)\"]"),
        "{dot}"
    );
    tasks.start().unwrap().drain(None).unwrap();
    assert_eq!(*log.lock().unwrap(), ["high", "z", "x", "y", "low"]);
}

#[test]
fn a_task_that_is_still_ready_runs_after_tasks_of_equal_priority() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Priorities::new("priorities", threads(1));
    for name in ["a", "b"] {
        let log = Arc::clone(&log);
        let run = move |left: &mut u32| {
            *left -= 1;
            log.lock().unwrap().push(name);
            TaskResult::Nothing
        };
        let task = Task::new(name, inputs(&[1]), 3, run).feed(0, |left| *left);
        tasks.task(0, 1, task).unwrap();
    }
    tasks.start().unwrap().drain(None).unwrap();
    assert_eq!(*log.lock().unwrap(), ["a", "b", "a", "b", "a", "b"]);
}

#[test]
fn an_item_in_a_channel_wakes_the_thread_and_draining_takes_all_items() {
    const ITEMS: u64 = 1000;
    let channel = Channel::new(Options::new(Policy::Credit { credits: 8 }, 8)).unwrap();
    let mut graph = Graph::new("graph", threads(2));
    let consumer = channel.consumer_on(&graph.waker(1)).unwrap();
    let sum = Arc::new(AtomicU64::new(0));
    let total = Arc::clone(&sum);
    // The task takes one item, and a second one if there is one. The executor must not count the
    // second one again.
    let run = move |consumer: &mut onbeat_flow::Consumer| {
        let add = |bytes: &[u8]| {
            let number = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            total.fetch_add(number, Ordering::Relaxed);
        };
        add(&consumer.receive().expect("the feed has counted it"));
        consumer.receive().iter().for_each(|item| add(item));
        TaskResult::Output
    };
    let receive = Task::new("receive", inputs(&[1]), consumer, run)
        .on(1)
        .feed(0, |consumer| consumer.stats().waiting as u32);
    let receive = graph.task(receive).unwrap();
    let behind = Task::new("behind", inputs(&[1]), (), |()| TaskResult::Nothing).on(0);
    let behind = graph.task(behind).unwrap();
    graph.connect(receive, behind, 0).unwrap();
    let mut running = graph.start().unwrap();
    let mut producer = channel.producer().unwrap();
    for i in 0..ITEMS {
        producer.send(&i.to_le_bytes()).unwrap();
    }
    assert_eq!(running.drain(None), Ok(true));
    assert_eq!(running.drain(None), Ok(true), "it is over");
    assert_eq!(sum.load(Ordering::Relaxed), ITEMS * (ITEMS - 1) / 2);
    let executions = |task| running.stats(task).executions;
    assert!((ITEMS / 2..=ITEMS).contains(&executions(receive)));
    assert_eq!(executions(behind), executions(receive));
}

#[test]
fn a_non_triggering_input_does_not_wake_the_thread() {
    let polls = Arc::new(AtomicU64::new(0));
    let mut graph = Graph::new("graph", threads(2));
    let tick = Task::new("tick", every_ns(50_000), (), |()| TaskResult::Output).on(0);
    let tick = graph.task(tick).unwrap();
    let options = TaskOptions {
        inputs: vec![Input::EACH, Input::NON_TRIGGERING],
        ..TaskOptions::default()
    };
    let counted = Arc::clone(&polls);
    let idle = Task::new("idle", options, (), |()| TaskResult::Nothing)
        .on(1)
        .feed(0, move |()| {
            counted.fetch_add(1, Ordering::Relaxed);
            0
        });
    let idle = graph.task(idle).unwrap();
    graph.connect(tick, idle, 1).unwrap();
    let mut running = graph.start().unwrap();
    wait_for(&running, tick, 200);
    let polls = polls.load(Ordering::Relaxed);
    running.stop().unwrap();
    // The thread polls twice before it sleeps, and once or twice around that.
    assert!(polls < 10, "{polls} polls in 200 hand-overs");
    assert_eq!(running.stats(idle).executions, 0);
    // Releases before the executor's start are not overruns.
    assert!(running.stats(tick).overruns < now_ns() / 50_000 / 2);
}

#[test]
fn draining_waits_for_a_slot_until_its_deadline() {
    let run = |start_ns: u64, deadline_ns: Option<u64>| {
        let mut graph = Graph::new("graph", threads(2));
        let source = Task::new("source", inputs(&[1]), 1, |left| {
            *left = 0;
            TaskResult::Output
        });
        let source = graph.task(source.on(0).feed(0, |left| *left)).unwrap();
        let shaper = TaskOptions {
            schedule: Some(Schedule::slots(1 << 60, start_ns, [(0, 1 << 50)])),
            ..inputs(&[1])
        };
        let shaper = Task::new("shaper", shaper, (), |()| TaskResult::Nothing).on(1);
        let shaper = graph.task(shaper).unwrap();
        let endless = Task::new("endless", every_ns(100_000), (), |()| TaskResult::Nothing);
        graph.task(endless.on(1)).unwrap();
        graph.connect(source, shaper, 0).unwrap();
        let mut running = graph.start().unwrap();
        let drained = running.drain(deadline_ns).unwrap();
        (drained, running.stats(shaper).executions)
    };
    assert_eq!(run(now_ns() + 20_000_000, None), (true, 1));
    assert_eq!(
        run(now_ns() + (1 << 50), Some(now_ns() + 20_000_000)),
        (false, 0)
    );
}

#[test]
fn draining_a_chain_waits_for_a_slot() {
    let mut chain = Chain::new((0, 0));
    let tick = chain
        .task("tick", every_ns(1000), |s: &mut (u32, u32)| {
            s.0 += 1;
            TaskResult::Output
        })
        .unwrap();
    let slot = TaskOptions {
        schedule: Some(Schedule::Period {
            period_ns: 1 << 60,
            offset_ns: now_ns() + 10_000_000,
        }),
        ..inputs(&[1])
    };
    let shaper = chain
        .task("shaper", slot, |s: &mut (u32, u32)| {
            s.1 += 1;
            TaskResult::Nothing
        })
        .unwrap();
    chain.connect(tick, shaper, 0).unwrap();
    chain.step(now_ns());
    let (waker, stop) = (onbeat_flow::Waker::new(), AtomicBool::new(false));
    chain.drain(&waker, &stop);
    assert_eq!(*chain.state(), (1, 1));
}

#[test]
fn an_overrun_with_policy_stop_or_a_panic_ends_all_threads() {
    let build = |panics: bool| {
        let mut tasks = Priorities::new("priorities", threads(2));
        let options = TaskOptions {
            deadline_ns: Some(1000),
            overrun: Overrun::Stop,
            ..every_ns(1_000_000)
        };
        let slow = Task::new("slow", options, (), move |()| {
            assert!(!panics, "the panic that the test causes");
            std::thread::sleep(std::time::Duration::from_millis(1));
            TaskResult::Output
        });
        let slow = tasks.task(0, 1, slow).unwrap();
        let after = Task::new("after", inputs(&[1]), (), |()| TaskResult::Nothing);
        let after = tasks.task(1, 1, after).unwrap();
        tasks.connect(slow, after, 0).unwrap();
        let running = tasks.start().unwrap();
        while !running.is_stopped() {
            std::thread::yield_now();
        }
        (running, slow, after)
    };
    let (mut running, slow, after) = build(false);
    assert_eq!(running.stop(), Ok(()));
    let stats = running.stats(slow);
    assert_eq!((stats.executions, stats.late), (1, 1));
    assert!(stats.longest_ns >= 1_000_000);
    assert_eq!(running.stats(after).executions, 0);
    let (mut running, ..) = build(true);
    let thread = "thread 0".to_owned();
    assert_eq!(running.stop(), Err(Panicked { thread }));
}

fn own_settings() -> (i32, i32, Vec<usize>) {
    unsafe {
        let mut parameters = std::mem::zeroed::<libc::sched_param>();
        let mut cpus = std::mem::zeroed::<libc::cpu_set_t>();
        libc::sched_getparam(0, &mut parameters);
        libc::sched_getaffinity(0, std::mem::size_of_val(&cpus), &mut cpus);
        let cpus = (0..64).filter(|&cpu| libc::CPU_ISSET(cpu, &cpus)).collect();
        (libc::sched_getscheduler(0), parameters.sched_priority, cpus)
    }
}

fn start_with(options: Vec<ThreadOptions>) -> Result<Vec<(i32, i32, Vec<usize>)>, GraphError> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let mut graph = Graph::new("graph", options.clone());
    for (thread, options) in options.iter().enumerate() {
        let found = Arc::clone(&found);
        let note = move |left: &mut u32| {
            *left = 0;
            found.lock().unwrap().push((thread, own_settings()));
            TaskResult::Nothing
        };
        let task = Task::new(&options.name, inputs(&[1]), 1, note);
        graph.task(task.on(thread).feed(0, |left| *left)).unwrap();
    }
    let result = graph.start().map(|mut running| running.drain(None));
    let mut found = found.lock().unwrap().clone();
    found.sort();
    if result.is_err() {
        assert_eq!(found, [], "no task has run");
    }
    result.map(|_| found.into_iter().map(|f| f.1).collect())
}

#[test]
fn threads_start_only_if_each_can_get_its_settings() {
    let own = own_settings();
    let cpu = own.2[0];
    let pinned = |name: &str| ThreadOptions {
        cpus: vec![cpu],
        prefault_bytes: 256 << 10,
        ..ThreadOptions::new(name)
    };
    let found = start_with(vec![
        pinned("pinned"),
        ThreadOptions::new("like its parent"),
    ])
    .unwrap();
    assert_eq!(found, [(own.0, own.1, vec![cpu]), own.clone()]);

    let nowhere = ThreadOptions {
        cpus: vec![cpu, 1000],
        ..ThreadOptions::new("nowhere")
    };
    let refused = start_with(vec![pinned("fine"), nowhere]).unwrap_err();
    assert!(matches!(
        &refused,
        GraphError::Thread(ThreadError::Cpus { .. })
    ));
    assert!(refused.to_string().contains("'nowhere'"), "{refused}");
    let deep = ThreadOptions {
        prefault_bytes: 2 << 20,
        ..ThreadOptions::new("deep")
    };
    let refused = start_with(vec![deep, pinned("fine")]).unwrap_err();
    assert!(matches!(
        refused,
        GraphError::Thread(ThreadError::Stack { .. })
    ));
    let none = ThreadOptions {
        scheduling: Scheduling::RoundRobin { priority: 100 },
        ..ThreadOptions::new("above all")
    };
    let refused = start_with(vec![pinned("fine"), none])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("'above all'") && refused.contains("rr"),
        "{refused}"
    );
}

#[test]
fn real_time_threads_get_policy_priority_and_locked_memory() {
    let other = ThreadOptions {
        scheduling: Scheduling::Other,
        ..ThreadOptions::new("other")
    };
    let round_robin = ThreadOptions {
        scheduling: Scheduling::RoundRobin { priority: 3 },
        ..ThreadOptions::new("round robin")
    };
    let threads = vec![ThreadOptions::real_time("real-time", 7), other, round_robin];
    match start_with(threads) {
        Ok(found) => {
            let found: Vec<(i32, i32)> = found.into_iter().map(|f| (f.0, f.1)).collect();
            let expected = [
                (libc::SCHED_FIFO, 7),
                (libc::SCHED_OTHER, 0),
                (libc::SCHED_RR, 3),
            ];
            assert_eq!(found, expected);
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let locked = status.lines().find_map(|l| l.strip_prefix("VmLck:"));
            assert!(
                locked.is_some_and(|l| !l.trim().starts_with("0 ")),
                "{locked:?}"
            );
            unsafe { libc::munlockall() };
        }
        // SAFETY: the call only reads the user id.
        Err(refused) if unsafe { libc::geteuid() } != 0 => {
            println!("SKIPPED: real-time threads are not allowed here: {refused}");
        }
        Err(refused) => panic!("{refused}"),
    }
}

#[test]
fn threads_run_time_outs_and_conditions_on_contents() {
    const MS: u64 = 1_000_000;
    for by_priority in [false, true] {
        let channel = Channel::new(Options::new(Policy::Credit { credits: 8 }, 8)).unwrap();
        let mut producer = channel.producer().unwrap();
        let mut graph = Graph::new("graph", threads(1));
        let mut priorities = Priorities::new("priorities", threads(1));
        let waker = if by_priority {
            priorities.waker(0)
        } else {
            graph.waker(0)
        };
        let scans = channel.consumer_on(&waker).unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&log);
        // The task takes pairs whose first number is even, or the items that have come after 20 ms.
        let options = inputs(&[2]).or_after_item(0, 20 * MS);
        let pairs = Task::new("pairs", options, scans, move |scans| {
            let mut pair = Vec::new();
            while pair.len() < 2 {
                let Some(item) = scans.receive() else { break };
                pair.push(item[0]);
            }
            seen.lock().unwrap().push(pair);
            TaskResult::Output
        })
        .feed(0, |scans| scans.waiting())
        .only_if(|scans| scans.peek(0).is_some_and(|item| item[0] % 2 == 0))
        .on(0);
        let (pairs, watch) = if by_priority {
            let pairs = priorities.task(0, 1, pairs).unwrap();
            let options = inputs(&[1]).or_after_silence_of(20 * MS);
            let watch = Task::new("watch", options, (), |()| TaskResult::Nothing);
            let watch = priorities.task(0, 2, watch).unwrap();
            priorities.connect(pairs, watch, 0).unwrap();
            (pairs, watch)
        } else {
            let pairs = graph.task(pairs).unwrap();
            let options = inputs(&[1]).or_after_silence_of(20 * MS);
            let watch = Task::new("watch", options, (), |()| TaskResult::Nothing).on(0);
            let watch = graph.task(watch).unwrap();
            graph.connect(pairs, watch, 0).unwrap();
            (pairs, watch)
        };
        let mut running = if by_priority {
            priorities.start().unwrap()
        } else {
            graph.start().unwrap()
        };
        let begin = now_ns();
        // Pairs that begin with an odd number wait for the time-out. Others do not.
        producer.send(&[1]).unwrap();
        producer.send(&[2]).unwrap();
        wait_for(&running, pairs, 1);
        assert!(now_ns() - begin >= 20 * MS);
        assert_eq!(running.stats(pairs).by_time, 1);
        producer.send(&[4]).unwrap();
        producer.send(&[5]).unwrap();
        wait_for(&running, pairs, 2);
        // The watchdog runs the task while no item comes.
        let fired = running.stats(watch).by_time;
        while running.stats(watch).by_time < fired + 2 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // Draining does not use an item that does not fulfil the condition.
        producer.send(&[7]).unwrap();
        producer.send(&[8]).unwrap();
        assert_eq!(running.drain(hang_deadline()), Ok(true));
        let log = log.lock().unwrap();
        assert_eq!(log[..2], [vec![1, 2], vec![4, 5]], "{by_priority}");
        assert_eq!(
            running.stats(watch).executions - running.stats(watch).by_time,
            log.len() as u64
        );
    }
}
