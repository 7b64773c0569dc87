//! Observes the machine during the turns of an experiment, and decides which turns were disturbed.
//!
//! [`RULE`] is fixed before any run. It uses only observations that the measured programs cannot
//! cause: time that the host took, other programs, and late wake-ups of threads that run above all
//! measured ones. The measured programs also cause run-queue delays and CPU pressure, so these are
//! only recorded.

use super::sentinel::{Lateness, Sentinels};
use onbeat_proc::system::{self, CpuTicks};
use onbeat_proc::{processes, threads, tree, Stat};
use onbeat_time::clock;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The limit for the time that the virtual machine's host took from one CPU, as a share of a
    /// turn (the measurement of one arm in a round). A turn above the limit is disturbed if this
    /// time is at least `LEAST_TICKS` ticks.
    pub stolen: f64,
    /// The limit for the time that a thread at the highest real-time priority was ready but did not
    /// get its CPU, as a share of a turn. A turn above the limit is disturbed.
    pub away: f64,
    /// The limit for the CPU time of programs outside of the experiment, as a number of busy CPUs.
    /// A turn above the limit is disturbed.
    pub foreign: f64,
}

pub const RULE: Rule = Rule {
    stolen: 0.02,
    away: 0.02,
    foreign: 0.10,
};

/// The shortest time for which disturbances are judged. Several shorter turns of a round, or
/// several shorter steps, are judged together, because the kernel counts in ticks of some ms.
const SHORTEST: Duration = Duration::from_millis(500);

/// The smallest number of ticks stolen by the host with which a turn counts as disturbed. A single
/// tick can be a large share of a short turn.
const LEAST_TICKS: u64 = 2;

/// The disturbances that were observed during a time, for example during a turn. Shares refer to
/// this time and are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Disturbance {
    pub seconds: f64,
    /// The share of the observed time that the virtual machine's host took from a CPU, for the CPU
    /// with the largest share.
    pub stolen: f64,
    pub stolen_ticks: u64,
    /// The share of the observed time for which the most urgent thread of a CPU was ready but did
    /// not get this CPU, for the CPU with the largest share. `None` without the right to real-time
    /// priorities.
    pub away: Option<f64>,
    /// The longest wake-up delay of a thread that runs above all other threads, in us.
    pub floor_us: Option<f64>,
    /// The CPU time of programs outside of the experiment, as a number of CPUs that they kept busy.
    pub foreign: f64,
    /// The time for which threads of the experiment waited for a CPU, summed over these threads, as
    /// a multiple of the observed time.
    pub queued: f64,
    /// The share of the observed time in which at least one thread of the machine waited for a CPU.
    /// `None` if the kernel does not measure it.
    pub pressure: Option<f64>,
}

impl Disturbance {
    pub fn why(&self, rule: &Rule) -> Option<String> {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        if self.stolen > rule.stolen && self.stolen_ticks >= LEAST_TICKS {
            return Some(format!("the host took {} of a CPU", percent(self.stolen)));
        }
        if let Some(away) = self.away.filter(|away| *away > rule.away) {
            return Some(format!(
                "a thread with the highest real-time priority was ready but did not get its CPU for {} of the time",
                percent(away)
            ));
        }
        let foreign = self.foreign;
        (foreign > rule.foreign)
            .then(|| format!("other programs used {} of a CPU", percent(foreign)))
    }

    pub fn worst(self, other: Disturbance) -> Disturbance {
        let greater = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (one, other) => one.or(other),
        };
        Disturbance {
            seconds: self.seconds.max(other.seconds),
            stolen: self.stolen.max(other.stolen),
            stolen_ticks: self.stolen_ticks.max(other.stolen_ticks),
            away: greater(self.away, other.away),
            floor_us: greater(self.floor_us, other.floor_us),
            foreign: self.foreign.max(other.foreign),
            queued: self.queued.max(other.queued),
            pressure: greater(self.pressure, other.pressure),
        }
    }
}

struct Counters {
    at: Instant,
    stolen: Vec<u64>,
    pressure_us: Option<u64>,
    /// The CPU time in ns of each process that does not belong to the experiment, by process id and
    /// start time in ticks.
    foreign: HashMap<(u32, u64), u64>,
    /// The time in ns for which each thread of the experiment has waited for a CPU since it began,
    /// by thread id.
    queued: HashMap<u32, u64>,
}

impl Counters {
    fn now() -> Counters {
        let own: HashSet<u32> = tree(std::process::id()).into_iter().collect();
        let mut foreign = HashMap::new();
        for stat in processes().into_iter().filter_map(Stat::of) {
            if !own.contains(&stat.id) && is_foreign(&stat) {
                let used_ns = clock::process_cpu_ns(stat.id).unwrap_or(0);
                foreign.insert((stat.id, stat.start_ticks), used_ns);
            }
        }
        let of_threads = own
            .iter()
            .flat_map(|pid| threads(*pid).into_iter().map(move |tid| (*pid, tid)));
        let queued = of_threads.filter_map(|(pid, tid)| Some((tid, queued_ns(pid, tid)?)));
        Counters {
            stolen: (0..super::machine::cpus())
                .map(|cpu| CpuTicks::now(Some(cpu)).stolen)
                .collect(),
            pressure_us: pressure_us(),
            foreign,
            queued: queued.collect(),
            at: Instant::now(),
        }
    }

    fn since(&self, before: &Counters) -> Disturbance {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-6);
        let stolen = self.stolen.iter().zip(&before.stolen);
        let stolen_ticks = stolen.map(|(now, then)| now.saturating_sub(*then)).max();
        let stolen_ticks = stolen_ticks.unwrap_or(0);
        let pressure = self.pressure_us.zip(before.pressure_us);
        Disturbance {
            seconds,
            stolen: stolen_ticks as f64 / system::ticks_per_second() as f64 / seconds,
            stolen_ticks,
            away: None,
            floor_us: None,
            foreign: grown(&self.foreign, &before.foreign) as f64 / 1e9 / seconds,
            queued: grown(&self.queued, &before.queued) as f64 / 1e9 / seconds,
            pressure: pressure.map(|(now, then)| now.saturating_sub(then) as f64 / 1e6 / seconds),
        }
    }
}

/// Returns whether a process outside of the experiment's process tree counts as another program.
/// Kernel threads do not count, because they work for all programs. onbeat's guards do not count,
/// because they belong to the experiment and leave its tree on purpose.
fn is_foreign(stat: &Stat) -> bool {
    const KERNEL: u32 = 2;
    stat.id != KERNEL && stat.parent != KERNEL && !stat.name.starts_with("onbeat")
}

/// Returns by how much the counters grew in total between `before` and `now`. A counter that is not
/// in `before` counts from 0.
fn grown<K: std::hash::Hash + Eq>(now: &HashMap<K, u64>, before: &HashMap<K, u64>) -> u64 {
    let grown = now
        .iter()
        .map(|(key, value)| value.saturating_sub(before.get(key).copied().unwrap_or(0)));
    grown.sum()
}

fn queued_ns(pid: u32, tid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn pressure_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

pub struct Observer {
    sentinels: Sentinels,
    begun: Counters,
}

impl Observer {
    pub fn start() -> Observer {
        Observer {
            sentinels: Sentinels::start(),
            begun: Counters::now(),
        }
    }

    pub fn is_due(&self) -> bool {
        self.begun.at.elapsed() >= SHORTEST
    }

    pub fn begin(&mut self) {
        self.begun = Counters::now();
        let _ = self.sentinels.take();
    }

    pub fn end(&self) -> Disturbance {
        let seen = self.sentinels.take();
        let mut turn = Counters::now().since(&self.begun);
        if let Some(seen) = seen {
            let most = |of: fn(&Lateness) -> u64| seen.iter().map(of).max().unwrap_or(0) as f64;
            turn.away = Some(most(|l| l.away_ns) / 1e9 / turn.seconds);
            turn.floor_us = Some(most(|l| l.longest_ns) / 1e3);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_disturbed_only_by_causes_outside_of_the_measured_programs() {
        let quiet = Disturbance {
            seconds: 1.0,
            queued: 4.0,
            pressure: Some(1.0),
            floor_us: Some(900.0),
            away: Some(0.01),
            ..Disturbance::default()
        };
        assert_eq!(quiet.why(&RULE), None);
        let stolen = |stolen_ticks| Disturbance {
            stolen: 0.04,
            stolen_ticks,
            ..quiet
        };
        assert_eq!(stolen(1).why(&RULE), None, "one tick of a short turn");
        assert!(stolen(2).why(&RULE).unwrap().contains("4.0 %"));
        let away = Disturbance {
            away: Some(0.03),
            ..quiet
        };
        let foreign = Disturbance {
            foreign: 0.11,
            ..quiet
        };
        assert!(away.why(&RULE).is_some() && foreign.why(&RULE).is_some());
        assert_eq!(quiet.worst(foreign).foreign, 0.11);
    }

    #[test]
    fn another_program_is_distinguished_from_the_experiments_own() {
        let mut observer = Observer::start();
        observer.begin();
        let until = clock::thread_cpu_ns() + 30_000_000;
        while clock::thread_cpu_ns() < until {
            std::hint::black_box(0);
        }
        let turn = observer.end();
        let own = Counters::now().foreign;
        assert!(own.keys().all(|(pid, _)| *pid != std::process::id()));
        assert!(turn.seconds >= 0.03, "{turn:?}");
        let used = HashMap::from([((7, 1), 50), ((8, 1), 10)]);
        let before = HashMap::from([((7, 1), 20), ((9, 1), 5)]);
        assert_eq!(grown(&used, &before), 40);
    }
}
