//! A pipeline that knows its own timing, to be recorded: what `onbeat model` makes of the recording
//! is compared with what this writes.
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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PERIOD_NS: u64 = 20_000_000;
/// Name, what it burns, and what it gets its inputs from.
const TASKS: [(&str, u64, &[usize]); 5] = [
    ("lidar", 1_000_000, &[]),
    ("filter", 3_000_000, &[0]),
    ("map", 2_000_000, &[0]),
    ("fuse", 2_000_000, &[1, 2]),
    ("brake", 1_000_000, &[3]),
];

/// CPU time of the calling thread in ns.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What the tasks know of themselves.
#[derive(Default)]
struct Truth {
    /// Start of the lidar's execution that the next one will take; by its number.
    starts_ns: Vec<AtomicU64>,
    cpu_ns: [Mutex<Vec<u64>>; TASKS.len()],
    latency_ns: Mutex<Vec<u64>>,
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
        let begin = cpu_ns();
        if task == 0 {
            truth.starts_ns[executions].store(now_ns(), Ordering::Release);
        }
        while cpu_ns() - begin < TASKS[task].1 {}
        if task + 1 == TASKS.len() {
            let start_ns = truth.starts_ns[executions].load(Ordering::Acquire);
            truth.latency_ns.lock().unwrap().push(now_ns() - start_ns);
        }
        truth.cpu_ns[task].lock().unwrap().push(cpu_ns() - begin);
        executions += 1;
        TaskResult::Output
    }
}

fn threads() -> Vec<ThreadOptions> {
    ["a", "b"].map(ThreadOptions::new).to_vec()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    let task = |t: usize| {
        let mut code = code(t, &truth);
        Task::new(TASKS[t].0, options(t), (), move |()| code()).cost(TASKS[t].1)
    };
    let edges = TASKS
        .iter()
        .enumerate()
        .flat_map(|(to, t)| t.2.iter().enumerate().map(move |(n, &from)| (from, to, n)));
    match kind.as_str() {
        "chain" => {
            let mut chain = Chain::named("car", ());
            let mut ids = Vec::new();
            for (t, it) in TASKS.iter().enumerate() {
                let mut code = code(t, &truth);
                ids.push(chain.task(it.0, options(t), move |()| code())?);
            }
            for (from, to, input) in edges {
                chain.connect(ids[from], ids[to], input)?;
            }
            let (waker, stop) = (Waker::new(), Arc::new(AtomicBool::new(false)));
            let (end, place) = (Arc::clone(&stop), waker.clone());
            let timer = std::thread::spawn(move || {
                std::thread::sleep(duration);
                end.store(true, Ordering::Release);
                place.wake();
            });
            chain.run(&waker, &stop);
            stop.store(false, Ordering::Release);
            chain.drain(&waker, &stop);
            timer.join().map_err(|_| "the timer has panicked")?;
        }
        "graph" => {
            let mut graph = Graph::new("car", threads());
            let mut ids = Vec::new();
            for t in 0..TASKS.len() {
                ids.push(graph.task(task(t))?);
            }
            for (from, to, input) in edges {
                graph.connect(ids[from], ids[to], input)?;
            }
            let mut running = graph.start()?;
            std::thread::sleep(duration);
            running.drain(None)?;
        }
        "priority" => {
            let mut tasks = Priorities::new("car", threads());
            let mut ids = Vec::new();
            for t in 0..TASKS.len() {
                ids.push(tasks.task(t % 2, t as u32, task(t))?);
            }
            for (from, to, input) in edges {
                tasks.connect(ids[from], ids[to], input)?;
            }
            let mut running = tasks.start()?;
            std::thread::sleep(duration);
            running.drain(None)?;
        }
        other => {
            return Err(format!("no executor '{other}': take chain, graph or priority").into())
        }
    }
    let tasks: Vec<String> = TASKS
        .iter()
        .zip(&truth.cpu_ns)
        .map(|(t, cpu)| format!("\"{}\": {:?}", t.0, cpu.lock().unwrap()))
        .collect();
    let latency = truth.latency_ns.lock().unwrap();
    let text = format!(
        "{{\"cpu_ns\": {{{}}}, \"latency_ns\": {latency:?}}}\n",
        tasks.join(", ")
    );
    std::fs::write(path, text)?;
    Ok(())
}
