//! Shows when each thread ran under a plan of three servers: `slots [v1|v2|sched-ext] [CYCLES]`.
//!
//! Threads spin on one CPU, and log each gap of at least 0.5 ms in their own running. Each line is
//! `slot SERVER BEGIN_US END_US` for the plan, or `ran SERVER FIRST_US LAST_US`, since the first
//! cycle's start. `scripts/slots-picture.py` draws them. Needs root.

use onbeat_reserve::{Choice, Options, Reservation, Server};
use onbeat_time::clock::monotonic_ns as now_ns;
use onbeat_time::Slot;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::time::Duration;

const MS: u64 = 1_000_000;
const CYCLE: u64 = 100 * MS;
/// The longest time for which a thread can lose the CPU within one run, in ns: the length of an
/// interrupt. After a longer gap, the thread's next run begins.
const GAP_NS: u64 = MS / 2;
const PLAN: [(&str, &[(u64, u64)]); 3] = [
    ("alpha", &[(0, 40)]),
    ("beta", &[(40, 60)]),
    ("bands", &[(65, 70), (80, 90)]),
];

fn spin(stop: &AtomicBool, tid: &mpsc::Sender<u32>) -> Vec<(u64, u64)> {
    // SAFETY: the call cannot fail and takes no pointers.
    tid.send(unsafe { libc::gettid() } as u32).unwrap();
    let mut runs = Vec::with_capacity(1 << 16);
    let mut first = now_ns();
    let mut last = first;
    while !stop.load(Relaxed) {
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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let choice = match arguments.next().as_deref() {
        Some("v1") => Choice::CgroupV1,
        Some("v2") => Choice::CgroupV2,
        Some("sched-ext") => Choice::SchedExt,
        None => Choice::Auto,
        Some(other) => panic!("no enforcer {other:?}: v1, v2 or sched-ext"),
    };
    let cycles: u64 = arguments.next().map_or(5, |n| n.parse().expect("a number"));
    // SAFETY: the call takes no pointers.
    let cpu = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u16 - 1;
    let slots = |slots: &[(u64, u64)]| {
        slots
            .iter()
            .map(|s| Slot::new(s.0 * MS, s.1 * MS))
            .collect()
    };
    let servers = PLAN.map(|(name, plan)| Server {
        name: name.into(),
        cpu,
        priority: 50,
        slots: slots(plan),
    });
    let mut options = Options::new(0);
    options.backend = choice;
    let origin = now_ns();
    let reservation = Reservation::start(CYCLE, &servers, origin, options).unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(1);
    });
    println!("enforcer {}", reservation.enforcer());
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for server in &servers {
        let (send, receive) = mpsc::channel();
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || spin(&stop, &send)));
        let tid = receive.recv().unwrap();
        reservation.assign(tid, &server.name).unwrap();
    }
    // The first cycles are left out, because threads are still being assigned.
    let from = origin + ((now_ns() - origin) / CYCLE + 3) * CYCLE;
    let to = from + cycles * CYCLE;
    std::thread::sleep(Duration::from_nanos(to + CYCLE - now_ns()));
    stop.store(true, Relaxed);
    reservation.stop();
    for (thread, (name, plan)) in threads.into_iter().zip(PLAN) {
        for cycle in 0..cycles {
            for (begin, end) in plan {
                let at = |ms| (cycle * CYCLE + ms * MS) / 1000;
                println!("slot {name} {} {}", at(begin), at(end));
            }
        }
        for (first, last) in thread.join().unwrap() {
            if last > from && first < to {
                let at = |ns: u64| (ns.clamp(from, to) - from) / 1000;
                println!("ran {name} {} {}", at(first), at(last));
            }
        }
    }
}
