//! Measures how far threads run outside of their slots.
//!
//! Usage: `isolation [--backend v1|v2] [--cycles N] [--lead-us N] [--load] [--churn] [--idle]
//! [--cpu N] [--dispatcher-cpu N]`
//!
//! Threads spin on one CPU and log each gap in their own running. Running outside of the slots is
//! the breach. With `--load`, a thread of lower priority and normal threads want the CPU too. With
//! `--churn`, cgroups are made, entered and removed meanwhile. With `--idle`, CPUs may sleep
//! deeply, although `onbeat shape` would keep them awake. Needs root.

use onbeat_reserve::{Choice, Histogram, Options, Reservation, Server, Stats};
use onbeat_time::clock::monotonic_ns as now_ns;
use onbeat_time::Slot;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// The longest time for which a thread can lose the CPU within one run, in ns: the length of an
/// interrupt. After a longer gap, the thread's next run begins.
const GAP_NS: u64 = 20_000;

fn spin(stop: &AtomicBool, tid: &mpsc::Sender<u32>) -> Vec<(u64, u64)> {
    // SAFETY: the call cannot fail and takes no pointers.
    tid.send(unsafe { libc::gettid() } as u32).unwrap();
    let mut runs: Vec<(u64, u64)> = Vec::with_capacity(1 << 20);
    let mut first = now_ns();
    let mut last = first;
    while !stop.load(Relaxed) && runs.len() < runs.capacity() - 1 {
        let now = now_ns();
        if now - last > GAP_NS {
            runs.push((first, last));
            first = now;
        }
        last = now;
    }
    runs.push((first, last));
    runs
}

fn make_cgroups(stop: &AtomicBool) {
    use std::fs;
    while !stop.load(Relaxed) {
        for root in ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified"] {
            let dir = format!("{root}/isolation-churn");
            let mut child = match std::process::Command::new("sleep").arg("60").spawn() {
                Ok(child) => child,
                Err(_) => return,
            };
            let _ = fs::create_dir(&dir);
            let _ = fs::write(format!("{dir}/cgroup.procs"), child.id().to_string());
            let _ = child.kill();
            let _ = child.wait();
            let _ = fs::remove_dir(&dir);
        }
    }
}

fn stolen_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().nth(8).and_then(|t| t.parse().ok());
    ticks.unwrap_or(0) * 10
}

#[derive(Default)]
struct Breaches {
    early: Vec<u64>,
    late: Vec<u64>,
    start: Vec<u64>,
    silent: u64,
}

fn measure(runs: &[(u64, u64)], slots: &[(u64, u64)], cycle: u64, from: u64, to: u64) -> Breaches {
    let mut found = Breaches::default();
    let mut instants: Vec<(u64, u64)> = Vec::new();
    let mut base = from;
    while base + 2 * cycle <= to {
        instants.extend(slots.iter().map(|s| (base + s.0, base + s.1)));
        base += cycle;
    }
    instants.sort_unstable();
    let mut i = 0;
    for (n, &(start, end)) in instants.iter().enumerate() {
        // A run belongs to a slot if it is nearer to that slot than to its neighbours.
        let before = match n {
            0 => start.saturating_sub(cycle / 2),
            _ => (instants[n - 1].1 + start) / 2,
        };
        let after = instants.get(n + 1).map_or(end, |next| (end + next.0) / 2);
        while i < runs.len() && runs[i].1 < before {
            i += 1;
        }
        let (mut early, mut late, mut first) = (0, 0, None);
        for &(a, b) in runs[i..].iter().take_while(|r| r.0 < after) {
            let (a, b) = (a.max(before), b.min(after));
            if a < start {
                early = early.max(start - a);
            }
            if b > end {
                late = late.max(b - end);
            }
            if b >= start && a <= end {
                first = first.or(Some(a.saturating_sub(start)));
            }
        }
        found.early.push(early);
        found.late.push(late);
        match first {
            Some(f) => found.start.push(f),
            None => found.silent += 1,
        }
    }
    found
}

fn row(name: &str, values: &mut [u64]) {
    values.sort_unstable();
    let q = |q: f64| match values.len() {
        0 => 0.0,
        n => values[((n as f64 * q).ceil() as usize).clamp(1, n) - 1] as f64 / 1e3,
    };
    println!(
        "{name:<34}{:>8}{:>10.0}{:>10.0}{:>10.0}{:>10.0}",
        values.len(),
        q(0.5),
        q(0.99),
        q(0.999),
        q(1.0)
    );
}

fn histogram(name: &str, h: &Histogram) {
    let us = |q| h.quantile_ns(q) as f64 / 1e3;
    println!(
        "{name:<34}{:>8}{:>10.0}{:>10.0}{:>10.0}{:>10.0}",
        h.count(),
        us(0.5),
        us(0.99),
        us(0.999),
        us(1.0)
    );
}

struct Arguments {
    backend: Choice,
    cycles: u64,
    lead_us: Option<u64>,
    cpu: u16,
    dispatcher_cpu: u16,
    load: bool,
    churn: bool,
    idle: bool,
}

impl Arguments {
    fn read() -> Arguments {
        let mut found = Arguments {
            backend: Choice::Auto,
            cycles: 300,
            lead_us: None,
            cpu: 1,
            dispatcher_cpu: 0,
            load: false,
            churn: false,
            idle: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            let number = |value: String| value.parse::<u64>().expect("a number");
            match word.as_str() {
                "--cycles" => found.cycles = number(value()),
                "--lead-us" => found.lead_us = Some(number(value())),
                "--cpu" => found.cpu = number(value()) as u16,
                "--dispatcher-cpu" => found.dispatcher_cpu = number(value()) as u16,
                "--load" => found.load = true,
                "--churn" => found.churn = true,
                "--idle" => found.idle = true,
                "--backend" => {
                    found.backend = match value().as_str() {
                        "v1" => Choice::CgroupV1,
                        "v2" => Choice::CgroupV2,
                        other => panic!("no backend {other:?}"),
                    }
                }
                other => panic!("no option {other:?}"),
            }
        }
        found
    }

    fn reserve(&self, servers: &[Server], origin: u64) -> Reservation {
        let mut options = Options::new(self.dispatcher_cpu);
        options.backend = self.backend;
        if let Some(us) = self.lead_us {
            options.lead_ns = us * 1000;
        }
        let lead_us = options.lead_ns / 1000;
        let started = Reservation::start(CYCLE_NS, servers, origin, options);
        let reservation = started.unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(1);
        });
        println!(
            "{}, lead {lead_us} us, {} cycles of 100 ms, 6 servers, CPU {}, dispatcher on {}, {}",
            reservation.enforcer(),
            self.cycles,
            self.cpu,
            self.dispatcher_cpu,
            if self.load { "loaded" } else { "no other load" }
        );
        if self.churn {
            println!("cgroups are made, entered and removed all the time");
        }
        for warning in reservation.warnings() {
            println!("{warning}");
        }
        reservation
    }
}

const CYCLE_NS: u64 = 100 * MS;

/// The slots of six servers that follow one another. The fourth server has three short slots
/// (bands). In the rest of the cycle, all servers' gates are closed.
const SLOTS: [&[(u64, u64)]; 6] = [
    &[(0, 14 * MS)],
    &[(14 * MS, 28 * MS)],
    &[(28 * MS, 40 * MS)],
    &[
        (42 * MS, 43 * MS),
        (50 * MS, 51 * MS),
        (60 * MS, 60 * MS + MS / 2),
    ],
    &[(62 * MS, 75 * MS)],
    &[(75 * MS, 90 * MS)],
];

fn servers(cpu: u16) -> Vec<Server> {
    let server = |(i, slots): (usize, &&[(u64, u64)])| Server {
        name: format!("r{i}"),
        cpu,
        priority: 50,
        slots: slots.iter().map(|s| Slot::new(s.0, s.1)).collect(),
    };
    SLOTS.iter().enumerate().map(server).collect()
}

fn keep_awake() -> std::fs::File {
    let mut wish = std::fs::OpenOptions::new();
    let mut wish = wish.write(true).open("/dev/cpu_dma_latency").expect("root");
    wish.write_all(&0i32.to_ne_bytes())
        .expect("the kernel's consent");
    wish
}

fn burn(stop: &AtomicBool, priority: u8, tid: &mpsc::Sender<u32>) {
    // SAFETY: the call cannot fail and takes no pointers.
    tid.send(unsafe { libc::gettid() } as u32).unwrap();
    // The real-time thread leaves the normal threads their 5 %. Otherwise the kernel would enforce
    // it.
    let mut rest_ns = now_ns() + 3 * MS;
    while !stop.load(Relaxed) {
        if priority > 0 && now_ns() > rest_ns {
            std::thread::sleep(Duration::from_millis(5));
            rest_ns = now_ns() + 3 * MS;
        }
    }
}

fn others(
    asked: &Arguments,
    reservation: &Reservation,
    stop: &Arc<AtomicBool>,
) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    for priority in [10, 0, 0].into_iter().filter(|_| asked.load) {
        let stop = stop.clone();
        let (send, receive) = mpsc::channel();
        threads.push(std::thread::spawn(move || burn(&stop, priority, &send)));
        let tid = receive.recv().unwrap();
        if priority > 0 {
            reservation.place(tid, asked.cpu, priority).unwrap();
        }
    }
    if asked.churn {
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || make_cgroups(&stop)));
    }
    threads
}

fn main() {
    let asked = Arguments::read();
    let _awake = (!asked.idle).then(keep_awake);
    let servers = servers(asked.cpu);
    let origin = now_ns() + CYCLE_NS;
    let reservation = asked.reserve(&servers, origin);
    let stop = Arc::new(AtomicBool::new(false));
    let others = others(&asked, &reservation, &stop);
    let mut threads = Vec::new();
    for server in &servers {
        let (send, receive) = mpsc::channel();
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || spin(&stop, &send)));
        let tid = receive.recv().unwrap();
        reservation.assign(tid, &server.name).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let from = origin + (now_ns() - origin).div_ceil(CYCLE_NS) * CYCLE_NS;
    let stolen_before = stolen_ms();
    std::thread::sleep(Duration::from_nanos(asked.cycles * CYCLE_NS));
    let to = now_ns();
    let stolen_ms = stolen_ms() - stolen_before;
    let stats = reservation.stats();
    stop.store(true, Relaxed);
    let report = reservation.stop();
    for other in others {
        other.join().unwrap();
    }
    let mut all = Breaches::default();
    for (thread, slots) in threads.into_iter().zip(SLOTS) {
        let found = measure(&thread.join().unwrap(), slots, CYCLE_NS, from, to);
        all.early.extend(found.early);
        all.late.extend(found.late);
        all.start.extend(found.start);
        all.silent += found.silent;
    }
    print(all, &stats);
    println!("the host took {stolen_ms} ms from this machine's CPUs meanwhile");
    println!("restored: {:?}", report.restored);
}

fn print(mut all: Breaches, stats: &Stats) {
    println!(
        "{:<34}{:>8}{:>10}{:>10}{:>10}{:>10}",
        "", "n", "p50 us", "p99", "p99.9", "max"
    );
    row("ran before its slot by", &mut all.early);
    row("ran after its slot by", &mut all.late);
    row("first ran after slot's start by", &mut all.start);
    histogram("dispatcher late by", &stats.lateness);
    histogram("thaw took", &stats.opening);
    histogram("freeze took", &stats.closing);
    println!(
        "slots without any run {}, skipped by the dispatcher {}, failed thaws {}, freezes {}",
        all.silent, stats.skipped_slots, stats.open_failures, stats.close_failures
    );
    println!(
        "dispatcher: {:.3} % of a core ({:.1} ms in {:.1} s)",
        100.0 * stats.cpu_ns as f64 / stats.elapsed_ns as f64,
        stats.cpu_ns as f64 / 1e6,
        stats.elapsed_ns as f64 / 1e9
    );
}
