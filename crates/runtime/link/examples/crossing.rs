//! Two processes that a link connects, and that measure their own timing while they are recorded. A
//! test compares the model of the recording with the values that they write.
//!
//! A lidar runs in one process, fusion and brake in the other. With `channel` the link is a channel
//! of flow, and an item activates the fusion. Otherwise the link is the interface below, which the
//! fusion polls every 5 ms: `messages`, `messages` with `promises` of quality, or the latest of
//! `values`.
//!
//! usage: crossing channel|messages|promises|values sense|fuse PLACE EXECUTIONS TRUTH.json

use onbeat_flow::chain::{Chain, TaskId, TaskOptions, TaskResult};
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Medium, Options, Policy, Typed, Waker};
use onbeat_link::channels::Place;
use onbeat_link::interface::{Backend, End, Halves, Memory, Sizes};
use onbeat_link::qos::OnBreach;
use onbeat_link::{Key, Links, Qos, Shm, Tcp};
use std::io::Write;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

const PERIOD_NS: u64 = 20_000_000;
const POLL_NS: u64 = 5_000_000;

fn options() -> Options {
    Options::of::<u64>(Policy::Credit { credits: 4 })
}

fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes only to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[derive(Default)]
struct Measured {
    cpu_ns: Vec<u64>,
    begun: u64,
}

impl Measured {
    fn begin(&mut self) {
        self.begun = cpu_ns();
    }

    fn end(&mut self, ns: u64) {
        while cpu_ns() - self.begun < ns {}
        self.cpu_ns.push(cpu_ns() - self.begun);
    }
}

fn promising(way: &str, backend: impl Backend + 'static) -> Box<dyn Backend> {
    match way {
        "promises" => {
            let qos = Qos::new().acknowledged(Duration::from_millis(200), 3, OnBreach::Warn);
            Box::new(qos.checked(OnBreach::Warn).around(backend))
        }
        _ => Box::new(backend),
    }
}

fn end_of(way: &str, place: &str, listens: bool) -> Result<Halves, Failure> {
    let backend = match (place.parse::<Place>()?, listens) {
        (Place::Shm(name), true) => promising(way, Shm::listen(&name)),
        (Place::Shm(name), false) => promising(way, Shm::connect(&name)),
        (Place::Tcp(at, key), true) => promising(way, Tcp::listen(at, Key::read_file(&key)?)?),
        (Place::Tcp(at, key), false) => promising(way, Tcp::connect(at, Key::read_file(&key)?)),
        _ => return Err("this example links only shm:// and tcp:// places".into()),
    };
    let sizes = Sizes {
        value_bytes: 8,
        ..Sizes::of_messages(8)
    };
    let deadline_ns = now_ns() + 30_000_000_000;
    Ok(backend.initialize(sizes, Memory::Allot, Some(deadline_ns))?)
}

fn write(path: &str, tasks: &[(&str, &Measured)], latency_ns: &[u64]) -> Result<(), Failure> {
    let tasks: Vec<String> = tasks
        .iter()
        .map(|(name, measured)| format!("\"{name}\": {:?}", measured.cpu_ns))
        .collect();
    let mut file = std::fs::File::create(path)?;
    let tasks = tasks.join(", ");
    writeln!(
        file,
        "{{\"cpu_ns\": {{{tasks}}}, \"latency_ns\": {latency_ns:?}}}"
    )?;
    Ok(())
}

fn run<S: 'static>(chain: &mut Chain<S>, waker: &Waker, until: impl Fn(&Chain<S>) -> bool) {
    while !until(chain) {
        waker.wait(chain.wake_ns(now_ns()), || chain.step(now_ns()) > 0);
    }
}

fn sense(way: &str, place: &str, executions: u64, path: &str) -> Result<(), Failure> {
    let links;
    let mut send: Box<dyn FnMut(u64) + Send> = if way == "channel" {
        links = Links::sending(place)?;
        let mut scans = Typed::<u64>::over(links.channel("scans", options())?)?.producer()?;
        Box::new(move |start| scans.send(&start).expect("the fusion is there"))
    } else {
        // Both halves stay alive: a peer that is still connecting waits for each.
        let (mut out, incoming) = end_of(way, place, true)?;
        let is_value = way == "values";
        Box::new(move |start: u64| {
            let _ = &incoming;
            let start = start.to_ne_bytes();
            let sent = if is_value {
                out.publish(8, &mut |slot| slot.copy_from_slice(&start))
            } else {
                out.send_copy(&start).map(|_| ())
            };
            sent.expect("the fusion is there");
        })
    };
    // After this pause the other process is ready to receive.
    std::thread::sleep(Duration::from_millis(500));
    let mut chain = Chain::named("front", Measured::default());
    let period = TaskOptions::every(PERIOD_NS, now_ns() % PERIOD_NS);
    let lidar = chain.task("lidar", period, move |measured: &mut Measured| {
        let start = now_ns();
        measured.begin();
        // The send is part of the measured execution: promises and encryption take their time.
        send(start);
        measured.end(1_000_000);
        TaskResult::Nothing
    })?;
    let is_done = |chain: &Chain<Measured>| chain.stats(lidar).executions >= executions;
    run(&mut chain, &Waker::new(), is_done);
    write(path, &[("lidar", chain.state())], &[])?;
    // After this pause, all items have arrived before the link ends.
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

type Next = Box<dyn FnMut() -> Result<Option<u64>, End> + Send>;

struct Drive {
    next: Next,
    is_over: bool,
    waiting: Box<dyn Fn() -> u32 + Send>,
    start: u64,
    fuse: Measured,
    brake: Measured,
    latency_ns: Vec<u64>,
}

fn receiving(way: &str, place: &str, waker: &Waker) -> Result<(Drive, Option<Links>), Failure> {
    let mut drive = Drive {
        next: Box::new(|| Ok(None)),
        is_over: false,
        waiting: Box::new(|| 0),
        start: 0,
        fuse: Measured::default(),
        brake: Measured::default(),
        latency_ns: Vec::new(),
    };
    if way == "channel" {
        let links = Links::receiving(place)?;
        let scans = Typed::<u64>::over(links.channel("scans", options())?)?;
        let scans = std::sync::Arc::new(std::sync::Mutex::new(scans.consumer_on(waker)?));
        let waiting = std::sync::Arc::clone(&scans);
        drive.next = Box::new(move || Ok(scans.lock().ok().and_then(|scans| scans.take())));
        drive.waiting = Box::new(move || waiting.lock().map_or(0, |scans| scans.waiting()));
        return Ok((drive, Some(links)));
    }
    let (out, mut incoming) = end_of(way, place, false)?;
    let is_value = way == "values";
    let mut last = None;
    drive.next = Box::new(move || {
        let _ = &out;
        let mut start = None;
        let take = &mut |bytes: &[u8]| start = bytes.try_into().ok().map(u64::from_ne_bytes);
        if is_value {
            // Over TCP the answer takes a moment.
            incoming.read(Some(now_ns() + 1_000_000_000), take)?;
            // The latest value can be read again until the next one is published.
            start = start.filter(|_| start != last);
            last = start.or(last);
        } else {
            incoming.receive(Some(now_ns()), &mut |_, bytes| take(bytes))?;
        }
        Ok(start)
    });
    Ok((drive, None))
}

fn build(chain: &mut Chain<Drive>, way: &str) -> Result<TaskId, Failure> {
    let activation = match way {
        "channel" => TaskOptions::each(1),
        _ => TaskOptions::every(POLL_NS, now_ns() % POLL_NS),
    };
    let fuse = chain.task("fuse", activation, |drive: &mut Drive| {
        drive.fuse.begin();
        let start = match (drive.next)() {
            Ok(Some(start)) => start,
            other => {
                drive.is_over |= other.is_err();
                return TaskResult::Nothing;
            }
        };
        drive.start = start;
        drive.fuse.end(2_000_000);
        TaskResult::Output
    })?;
    if way == "channel" {
        chain.feed_waiting(fuse, 0, |drive| (drive.waiting)())?;
    }
    let brake = chain.task("brake", TaskOptions::each(1), |drive: &mut Drive| {
        drive.brake.begin();
        drive.brake.end(1_000_000);
        drive.latency_ns.push(now_ns() - drive.start);
        TaskResult::Nothing
    })?;
    chain.connect(fuse, brake, 0)?;
    Ok(brake)
}

fn fuse(way: &str, place: &str, executions: u64, path: &str) -> Result<(), Failure> {
    let waker = Waker::new();
    let (drive, _links) = receiving(way, place, &waker)?;
    let mut chain = Chain::named("drive", drive);
    let brake = build(&mut chain, way)?;
    let is_done =
        |chain: &Chain<Drive>| chain.state().is_over || chain.stats(brake).executions >= executions;
    run(&mut chain, &waker, is_done);
    let drive = chain.state();
    let tasks = [("fuse", &drive.fuse), ("brake", &drive.brake)];
    write(path, &tasks, &drive.latency_ns)
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, way, "sense", place, executions, path] => sense(way, place, executions.parse()?, path),
        [_, way, "fuse", place, executions, path] => fuse(way, place, executions.parse()?, path),
        _ => Err("usage: crossing channel|messages|promises|values sense|fuse PLACE EXECUTIONS TRUTH.json".into()),
    }
}
