//! Runs the ping-pong once under a condition, with the inhibitor beside it, and observes the
//! threads of both.

use super::condition::{Condition, Layout, Order};
use super::locks::{self, Account};
use super::measures::{Loop, Measures};
use super::programs::{Middleware, Programs};
use crate::frame::files;
use crate::frame::rng::Rng;
use crate::frame::{Context, LabError, Result};
use crate::measure::peer::Peer;
use onbeat_time::clock::monotonic_ns;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub const CORE: u32 = 1;
const OTHER_CORE: u32 = 0;
const LOOP_PERIOD: Duration = Duration::from_millis(10);
const INHIBITOR_PRIORITY: u32 = 90;
const LAB_PRIORITY: i32 = 99;
const LOOK: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy)]
pub struct Length {
    pub loops: u32,
    pub inhibitor: Duration,
}

impl Length {
    pub fn of_loops(loops: u32) -> Length {
        Length {
            loops,
            inhibitor: LOOP_PERIOD * loops,
        }
    }
}

pub struct Bench<'a> {
    pub context: &'a Context,
    pub programs: &'a Programs,
    pub middleware: Middleware,
    pub length: Length,
}
pub struct Run {
    pub measures: Measures,
    pub packets: i64,
    /// The threads, each with its process, its name, and the times in which it ran and in which it
    /// waited for a CPU, both while the inhibitor ran.
    pub threads: Vec<(&'static str, String, Account)>,
    /// By process and name of the thread that held a lock: the number of samples in which the main
    /// thread of the process waited for this lock.
    pub held: BTreeMap<(&'static str, String), u32>,
    pub identity: Identity,
}

#[derive(Debug, Clone, Default)]
pub struct Identity {
    pub processes: Vec<(&'static str, u32)>,
    pub inhibitor: Option<u32>,
    pub span_ns: (u64, u64),
}

struct Processes {
    pong: Option<Peer>,
    ping: Peer,
    began: Instant,
}

impl Processes {
    fn ids(&self) -> Vec<(&'static str, u32)> {
        let pong = self.pong.iter().map(|p| ("pong", p.pid()));
        pong.chain([("ping", self.ping.pid())]).collect()
    }
}

impl Bench<'_> {
    pub fn run(&self, condition: Condition, rng: &mut Rng) -> Result<Run> {
        let samples = self.context.dir().join("loops.new");
        let from_ns = monotonic_ns();
        let mut inhibitor = None;
        if condition.order == Order::Before {
            inhibitor = Some(self.inhibit(condition)?);
        }
        let _priority = RaisedPriority::raise();
        let mut processes = self.start(condition, &samples)?;
        match condition.order {
            Order::AtOnce => std::thread::sleep(Duration::from_millis(rng.below(300))),
            Order::Later => {
                processes.ping.expect("ready")?;
                std::thread::sleep(Duration::from_millis(50 + rng.below(100)));
            }
            Order::None | Order::Before => {}
        }
        if matches!(condition.order, Order::AtOnce | Order::Later) {
            inhibitor = Some(self.inhibit(condition)?);
        }
        let mut watch = Watch::default();
        while processes.ping.running() {
            let inhibited = inhibitor.as_mut().is_some_and(Peer::running);
            watch.look(&processes.ids(), inhibited);
            std::thread::sleep(LOOK);
        }
        let whole_s = processes.began.elapsed().as_secs_f64();
        let identity = Identity {
            processes: processes.ids(),
            inhibitor: inhibitor.as_ref().map(Peer::pid),
            span_ns: (from_ns, monotonic_ns()),
        };
        let times = processes.ping.expect("times")?;
        let text = files::take_text(&samples)?;
        if let Some(inhibitor) = inhibitor {
            inhibitor.succeed(4 * self.length.inhibitor)?;
        }
        finish(whole_s, &times, &text, watch).map(|run| Run { identity, ..run })
    }

    fn start(&self, condition: Condition, samples: &std::path::Path) -> Result<Processes> {
        let words = |role: &str| -> Result<_> {
            let (main, children) = condition.threads.priorities();
            let mut command = self.programs.ping_pong_command(self.middleware)?;
            command.args([
                format!("role={role}"),
                format!("loops={}", self.length.loops),
                format!("period_us={}", LOOP_PERIOD.as_micros()),
                format!("file={}", samples.display()),
                format!("cpu={CORE}"),
                format!("other={OTHER_CORE}"),
                format!("pin={}", condition.place.pin_argument()),
                format!("main={main}"),
                format!("children={children}"),
            ]);
            Ok(command)
        };
        let start = |role: &str| Peer::start(self.context, &mut words(role)?, role);
        let began = Instant::now();
        let (pong, ping) = match condition.layout {
            Layout::OneNode => (None, start("one")?),
            Layout::TwoNodes => (None, start("two")?),
            Layout::TwoProcesses => (Some(start("pong")?), start("ping")?),
        };
        Ok(Processes { pong, ping, began })
    }

    fn inhibit(&self, condition: Condition) -> Result<Peer> {
        let cpu = if condition.same_core {
            CORE
        } else {
            OTHER_CORE
        };
        let mut command = self.programs.inhibitor_command();
        command.args([
            format!("cpu={cpu}"),
            format!("priority={INHIBITOR_PRIORITY}"),
            format!("ms={}", self.length.inhibitor.as_millis()),
        ]);
        let mut inhibitor = Peer::start(self.context, &mut command, "the inhibitor")?;
        inhibitor.expect("begun")?;
        Ok(inhibitor)
    }
}
#[derive(Default)]
struct Watch {
    first: BTreeMap<(u32, u32), Account>,
    last: BTreeMap<(u32, u32), Account>,
    names: BTreeMap<(u32, u32), (&'static str, String)>,
    held: BTreeMap<(&'static str, String), u32>,
}

impl Watch {
    fn look(&mut self, processes: &[(&'static str, u32)], inhibited: bool) {
        for &(process, pid) in processes {
            if let Some(tid) = locks::holder(pid) {
                let holder = (process, thread_name(pid, tid));
                *self.held.entry(holder).or_default() += 1;
            }
            if !inhibited {
                continue;
            }
            for (tid, account) in locks::accounts(pid) {
                let key = (pid, tid);
                self.first.entry(key).or_insert(account);
                self.last.insert(key, account);
                let named = self.names.entry(key);
                named.or_insert_with(|| (process, thread_name(pid, tid)));
            }
        }
    }

    fn threads(&self) -> Vec<(&'static str, String, Account)> {
        let of = |(key, (process, name)): (_, &(&'static str, String))| {
            let (first, last) = (self.first.get(key)?, self.last.get(key)?);
            Some((*process, name.clone(), last.since(*first)))
        };
        self.names.iter().filter_map(of).collect()
    }
}

fn thread_name(pid: u32, tid: u32) -> String {
    let name = locks::name(pid, tid);
    match pid == tid {
        true => "main".into(),
        false if name == locks::name(pid, pid) => "unnamed".into(),
        false => name,
    }
}

/// Gives this thread a priority above all others until the value is dropped. Programs that the
/// thread starts begin with normal priority.
struct RaisedPriority;

impl RaisedPriority {
    fn raise() -> Option<RaisedPriority> {
        set_scheduler(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, LAB_PRIORITY)
            .then_some(RaisedPriority)
    }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        set_scheduler(libc::SCHED_OTHER, 0);
    }
}

fn set_scheduler(policy: i32, priority: i32) -> bool {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the system call changes this thread only, and the parameter is valid during the call.
    unsafe { libc::sched_setscheduler(0, policy, &parameter) == 0 }
}

fn finish(whole_s: f64, times: &str, samples: &str, watch: Watch) -> Result<Run> {
    let numbers: Vec<i64> = times.split(' ').map_while(|w| w.parse().ok()).collect();
    let [began, ready, _, packets] = numbers[..] else {
        return Err(LabError::unexpected("the ping-pong's times", times));
    };
    let read = |line: &str| {
        Loop::read(line)
            .ok_or_else(|| LabError::unexpected("a damaged line in the ping-pong's samples", line))
    };
    let loops: Vec<Loop> = samples.lines().map(read).collect::<Result<_>>()?;
    Ok(Run {
        measures: Measures::of(whole_s, (ready - began) as f64 / 1e9, &loops),
        packets,
        threads: watch.threads(),
        held: watch.held,
        identity: Identity::default(),
    })
}
