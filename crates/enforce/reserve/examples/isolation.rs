//! How far threads run out of their slots.
//!
//! `isolation [--backend v1|v2] [--cycles N] [--lead-us N] [--load] [--churn] [--idle] [--cpu N]
//! [--dispatcher-cpu N]`. Threads spin on one CPU and log each gap in their own running; what of
//! their running lies outside of their slots is the breach. `--load`: a thread of lower priority
//! and normal ones want the CPU too; `--churn`: cgroups are made, entered and removed meanwhile;
//! `--idle`: CPUs sleep as deeply as they like, where `onbeat shape` keeps them awake. Needs root.

use onbeat_reserve::{Choice, Histogram, Options, Reservation, Server};
use onbeat_time::clock::monotonic_ns as now_ns;
use onbeat_time::Slot;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::time::Duration;

const MS: u64 = 1_000_000;
/// Shorter gaps are interrupts.
const GAP_NS: u64 = 20_000;

/// Spins, and logs when it ran: [first, last] instants without a gap between.
fn spin(stop: &AtomicBool, tid: &mpsc::Sender<u32>) -> Vec<(u64, u64)> {
    // SAFETY: cannot fail.
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

/// What a container runtime does, all the time, in whichever hierarchies there are.
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

/// Time that the host took from all CPUs so far, in ms; 0 where it is not told.
fn stolen_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().nth(8).and_then(|t| t.parse().ok());
    ticks.unwrap_or(0) * 10
}

/// What of the slots and of the running belongs to each other.
#[derive(Default)]
struct Breaches {
    /// Running before a slot's start, after its end: the longest of each slot.
    early: Vec<u64>,
    late: Vec<u64>,
    /// From a slot's start to the first running in it.
    start: Vec<u64>,
    /// Slots in which it never ran.
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
        // Each run belongs to the slot whose half of the way to the next slot it is in.
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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut choice, mut cycles, mut lead_us, mut load) = (Choice::Auto, 300, None, false);
    let (mut cpu, mut dispatcher_cpu, mut churn, mut idle) = (1, 0, false, false);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().unwrap_or_default();
            value.parse::<u64>().expect("a number")
        };
        match argument.as_str() {
            "--cycles" => cycles = number(),
            "--lead-us" => lead_us = Some(number()),
            "--cpu" => cpu = number() as u16,
            "--dispatcher-cpu" => dispatcher_cpu = number() as u16,
            "--load" => load = true,
            "--churn" => churn = true,
            "--idle" => idle = true,
            "--backend" => {
                choice = match arguments.next().as_deref() {
                    Some("v1") => Choice::CgroupV1,
                    Some("v2") => Choice::CgroupV2,
                    other => panic!("no backend {other:?}"),
                }
            }
            other => panic!("no option {other:?}"),
        }
    }
    // Holds as long as the file is open.
    let _awake = (!idle).then(|| {
        let mut wish = std::fs::OpenOptions::new();
        let mut wish = wish.write(true).open("/dev/cpu_dma_latency").expect("root");
        wish.write_all(&0i32.to_ne_bytes())
            .expect("the kernel's consent");
        wish
    });
    let cycle = 100 * MS;
    // Six servers one after the other, one of them with three short slots (bands), and time left
    // over for the rest of the machine.
    let slots: [&[(u64, u64)]; 6] = [
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
    let servers: Vec<Server> = slots
        .iter()
        .enumerate()
        .map(|(i, s)| Server {
            name: format!("r{i}"),
            cpu,
            priority: 50,
            slots: s.iter().map(|s| Slot::new(s.0, s.1)).collect(),
        })
        .collect();
    let mut options = Options::new(dispatcher_cpu);
    options.backend = choice;
    if let Some(us) = lead_us {
        options.lead_ns = us * 1000;
    }
    let lead_ns = options.lead_ns;
    let origin = now_ns() + cycle;
    let reservation = Reservation::start(cycle, &servers, origin, options).unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(1);
    });
    println!("{}, lead {} us, {cycles} cycles of 100 ms, 6 servers, CPU {cpu}, dispatcher on {dispatcher_cpu}, {}",
        reservation.enforcer(), lead_ns / 1000, if load { "loaded" } else { "no other load" });
    if churn {
        println!("cgroups are made, entered and removed all the time");
    }
    for warning in reservation.warnings() {
        println!("{warning}");
    }
    let stop = Arc::new(AtomicBool::new(false));
    // Load: a thread of lower priority, and normal ones, that want the CPU all the time.
    let burnt = Arc::new(AtomicU64::new(0));
    let mut others = Vec::new();
    if load {
        for priority in [10, 0, 0] {
            let (stop, burnt) = (stop.clone(), burnt.clone());
            let (send, receive) = mpsc::channel();
            others.push(std::thread::spawn(move || {
                // SAFETY: cannot fail.
                send.send(unsafe { libc::gettid() } as u32).unwrap();
                // The real-time one leaves the normal ones their 5 %: else the kernel sees to that.
                let mut rest_ns = now_ns() + 3 * MS;
                while !stop.load(Relaxed) {
                    burnt.fetch_add(1, Relaxed);
                    if priority > 0 && now_ns() > rest_ns {
                        std::thread::sleep(Duration::from_millis(5));
                        rest_ns = now_ns() + 3 * MS;
                    }
                }
            }));
            let tid = receive.recv().unwrap();
            if priority > 0 {
                reservation.place(tid, cpu, priority).unwrap();
            }
        }
    }
    if churn {
        let stop = stop.clone();
        others.push(std::thread::spawn(move || make_cgroups(&stop)));
    }
    let mut threads = Vec::new();
    for server in &servers {
        let (send, receive) = mpsc::channel();
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || spin(&stop, &send)));
        let tid = receive.recv().unwrap();
        reservation.assign(tid, &server.name).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let now = now_ns();
    let from = origin + (now - origin).div_ceil(cycle) * cycle;
    let stolen_before = stolen_ms();
    std::thread::sleep(Duration::from_nanos(cycles * cycle));
    let to = now_ns();
    let stolen_ms = stolen_ms() - stolen_before;
    let stats = reservation.stats();
    stop.store(true, Relaxed);
    let report = reservation.stop();
    for other in others {
        other.join().unwrap();
    }

    println!(
        "{:<34}{:>8}{:>10}{:>10}{:>10}{:>10}",
        "", "n", "p50 us", "p99", "p99.9", "max"
    );
    let mut all = Breaches::default();
    for (thread, slots) in threads.into_iter().zip(slots) {
        let runs = thread.join().unwrap();
        let found = measure(&runs, slots, cycle, from, to);
        all.early.extend(found.early);
        all.late.extend(found.late);
        all.start.extend(found.start);
        all.silent += found.silent;
    }
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
    println!("the host took {stolen_ms} ms from this machine's CPUs meanwhile");
    println!("restored: {:?}", report.restored);
}
