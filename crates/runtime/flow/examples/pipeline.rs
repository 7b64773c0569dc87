//! A pipeline that measures its own timing while it is recorded. A test compares the model of the
//! recording with the values that this program writes.
//!
//! usage: pipeline chain|graph|priority SECONDS TRUTH.json

use onbeat_flow::activation::{Input, Schedule};
use onbeat_flow::chain::Chain;
use onbeat_flow::clock::now_ns;
use onbeat_flow::graph::Graph;
use onbeat_flow::priority::Priorities;
use onbeat_flow::task::{Task, TaskOptions, TaskResult};
use onbeat_flow::thread::ThreadOptions;
use onbeat_flow::Waker;
use onbeat_time::clock::thread_cpu_ns;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PERIOD_NS: u64 = 20_000_000;
/// The tasks of the pipeline. Each entry has the task's name, its execution time in ns, and the
/// indices of the tasks whose outputs the task takes.
const TASKS: [(&str, u64, &[usize]); 5] = [
    ("lidar", 1_000_000, &[]),
    ("filter", 3_000_000, &[0]),
    ("map", 2_000_000, &[0]),
    ("fuse", 2_000_000, &[1, 2]),
    ("brake", 1_000_000, &[3]),
];

#[derive(Default)]
struct Truth {
    starts_ns: Vec<AtomicU64>,
    cpu_ns: [Mutex<Vec<u64>>; TASKS.len()],
    latency_ns: Mutex<Vec<u64>>,
}

impl Truth {
    fn to_json(&self) -> String {
        let tasks: Vec<String> = TASKS
            .iter()
            .zip(&self.cpu_ns)
            .map(|(t, cpu)| format!("\"{}\": {:?}", t.0, cpu.lock().unwrap()))
            .collect();
        let latency = self.latency_ns.lock().unwrap();
        format!(
            "{{\"cpu_ns\": {{{}}}, \"latency_ns\": {latency:?}}}\n",
            tasks.join(", ")
        )
    }
}

fn options(task: usize) -> TaskOptions {
    TaskOptions {
        inputs: vec![Input::EACH; TASKS[task].2.len()],
        schedule: TASKS[task].2.is_empty().then_some(Schedule::Period {
            period_ns: PERIOD_NS,
            offset_ns: 0,
        }),
        ..TaskOptions::default()
    }
}

fn code(task: usize, truth: &Arc<Truth>) -> impl FnMut() -> TaskResult + Send + 'static {
    let truth = Arc::clone(truth);
    let mut executions = 0;
    move || {
        let begin = thread_cpu_ns();
        if task == 0 {
            truth.starts_ns[executions].store(now_ns(), Ordering::Release);
        }
        while thread_cpu_ns() - begin < TASKS[task].1 {}
        if task + 1 == TASKS.len() {
            let start_ns = truth.starts_ns[executions].load(Ordering::Acquire);
            truth.latency_ns.lock().unwrap().push(now_ns() - start_ns);
        }
        truth.cpu_ns[task]
            .lock()
            .unwrap()
            .push(thread_cpu_ns() - begin);
        executions += 1;
        TaskResult::Output
    }
}

fn threads() -> Vec<ThreadOptions> {
    ["a", "b"].map(ThreadOptions::new).to_vec()
}

fn task(task: usize, truth: &Arc<Truth>) -> Task<()> {
    let (name, cost_ns, _) = TASKS[task];
    let mut code = code(task, truth);
    Task::new(name, options(task), (), move |()| code()).cost(cost_ns)
}

fn connections() -> impl Iterator<Item = (usize, usize, usize)> {
    let tasks = TASKS.iter().enumerate();
    tasks.flat_map(|(to, t)| t.2.iter().enumerate().map(move |(n, &from)| (from, to, n)))
}

type Failure = Box<dyn std::error::Error>;

fn run_chain(truth: &Arc<Truth>, duration: Duration) -> Result<(), Failure> {
    let mut chain = Chain::named("car", ());
    let mut ids = Vec::new();
    for (t, it) in TASKS.iter().enumerate() {
        let mut code = code(t, truth);
        ids.push(chain.task(it.0, options(t), move |()| code())?);
    }
    for (from, to, input) in connections() {
        chain.connect(ids[from], ids[to], input)?;
    }
    let (waker, stop) = (Waker::new(), Arc::new(AtomicBool::new(false)));
    let (end, sleeper) = (Arc::clone(&stop), waker.clone());
    let timer = std::thread::spawn(move || {
        std::thread::sleep(duration);
        end.store(true, Ordering::Release);
        sleeper.wake();
    });
    chain.run(&waker, &stop);
    stop.store(false, Ordering::Release);
    chain.drain(&waker, &stop);
    timer
        .join()
        .map_err(|_| "the thread that ends the run has panicked")?;
    Ok(())
}

fn run_graph(truth: &Arc<Truth>, duration: Duration) -> Result<(), Failure> {
    let mut graph = Graph::new("car", threads());
    let mut ids = Vec::new();
    for t in 0..TASKS.len() {
        ids.push(graph.task(task(t, truth))?);
    }
    for (from, to, input) in connections() {
        graph.connect(ids[from], ids[to], input)?;
    }
    let mut running = graph.start()?;
    std::thread::sleep(duration);
    running.drain(None)?;
    Ok(())
}

fn run_by_priority(truth: &Arc<Truth>, duration: Duration) -> Result<(), Failure> {
    let mut tasks = Priorities::new("car", threads());
    let mut ids = Vec::new();
    for t in 0..TASKS.len() {
        ids.push(tasks.task(t % 2, t as u32, task(t, truth))?);
    }
    for (from, to, input) in connections() {
        tasks.connect(ids[from], ids[to], input)?;
    }
    let mut running = tasks.start()?;
    std::thread::sleep(duration);
    running.drain(None)?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let [_, kind, seconds, path] = &words[..] else {
        return Err("usage: pipeline chain|graph|priority SECONDS TRUTH.json".into());
    };
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let most = duration.as_nanos() as u64 / PERIOD_NS + 100;
    let truth = Arc::new(Truth {
        starts_ns: (0..most).map(|_| AtomicU64::new(0)).collect(),
        ..Truth::default()
    });
    match kind.as_str() {
        "chain" => run_chain(&truth, duration)?,
        "graph" => run_graph(&truth, duration)?,
        "priority" => run_by_priority(&truth, duration)?,
        other => {
            return Err(
                format!("there is no executor '{other}': choose chain, graph or priority").into(),
            )
        }
    }
    std::fs::write(path, truth.to_json())?;
    Ok(())
}
