//! The processes of one arm, which are started once for many runs.

use crate::frame::children;
use crate::frame::machine;
use crate::frame::{Context, Result};
use crate::measure::peer::{end_all, Peer, Usage};
use crate::measure::run::{carry_out, Run};
use crate::measure::samples::{self, Sample};
use crate::measure::transport::{Arm, Peers};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

pub const WARM_UP: u32 = 20;

const LEAD: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// One publisher process, and as many subscriber processes as the value says.
    Processes(usize),
    Pair,
    Thread,
}

impl Place {
    pub fn readers(self) -> usize {
        match self {
            Place::Processes(n) => n,
            Place::Pair | Place::Thread => 1,
        }
    }
}

pub struct Session {
    peers: Vec<Peer>,
    place: Place,
    subscriptions: usize,
    files: Vec<PathBuf>,
    roudi: Option<u32>,
}

pub struct SessionResults {
    pub samples: Vec<Sample>,
    /// The resources that all processes used together. A message counts once, regardless of the
    /// number of processes that receive it.
    pub usage: Usage,
    pub lost: u64,
}

pub struct Side {
    pub samples: Vec<Sample>,
    pub usage: Usage,
}

pub struct StallResults {
    pub slow: Side,
    pub flood: Side,
}

impl Session {
    pub fn start(context: &Context, peers: &Peers, arm: &Arm, place: Place) -> Result<Session> {
        let roles = match place {
            Place::Processes(_) => ("sub", "pub"),
            Place::Pair => ("", "pair"),
            Place::Thread => ("", arm.thread_role),
        };
        Session::with_roles(context, peers, arm, place, roles)
    }

    pub fn with_roles(
        context: &Context,
        peers: &Peers,
        arm: &Arm,
        place: Place,
        (receiving, sending): (&str, &str),
    ) -> Result<Session> {
        let name = peers.name();
        let cpus = machine::cpus();
        let readers = place.readers();
        // One process polls all subscriptions, because several would only wait for a CPU.
        let receivers = match place {
            Place::Processes(_) if arm.spins => 1,
            Place::Processes(n) => n,
            _ => 0,
        };
        let process = |role: &str, cpu: Option<usize>| {
            let mut command = peers.command(arm.program, arm.shares_memory)?;
            let wait = if arm.spins { "spin" } else { "sleep" };
            command.args([
                format!("role={role}"),
                format!("name={name}"),
                format!("readers={readers}"),
                format!("wait={wait}"),
            ]);
            if let Some(cpu) = cpu {
                children::pin(&mut command, cpu % cpus);
            }
            Peer::start(context, &mut command, arm.name)
        };
        let mut started = vec![];
        for i in 0..receivers {
            started.push(process(receiving, Some(1 + i))?);
        }
        // The scheduler chooses the CPUs of two threads.
        let cpu = if place == Place::Pair { None } else { Some(0) };
        started.push(process(sending, cpu)?);
        let files = (0..started.len())
            .map(|i| context.dir().join(format!("transport.{i}.samples")))
            .collect();
        Ok(Session {
            peers: started,
            place,
            subscriptions: readers / receivers.max(1),
            files,
            roudi: peers.roudi().filter(|_| arm.shares_memory),
        })
    }

    pub fn run(&mut self, run: Run) -> Result<SessionResults> {
        let before = self.roudi.and_then(Usage::of_process);
        let used = self.carry_out(run)?;
        let usage = self.usage(run, &used, before);
        let mut samples = vec![];
        for file in self.receiving_files() {
            samples.extend(samples::read(file)?);
        }
        let expected = u64::from(run.count) * self.place.readers() as u64;
        Ok(SessionResults {
            lost: expected.saturating_sub(samples.len() as u64),
            samples,
            usage,
        })
    }

    fn carry_out(&mut self, run: Run) -> Result<Vec<Usage>> {
        // Receivers prepare first: a publisher is ready when they are connected.
        for (peer, file) in self.peers.iter_mut().zip(&self.files) {
            peer.say(&run.line(file))?;
            peer.expect("ready")?;
        }
        carry_out(&mut self.peers, LEAD, Duration::ZERO)
    }

    fn usage(&self, run: Run, used: &[Usage], roudi_before: Option<Usage>) -> Usage {
        let mut usage = Usage::default();
        for (i, used) in used.iter().enumerate() {
            // Each process counts from its own first message, and one message per subscription.
            let sends = i + 1 == self.peers.len();
            let subscriptions = if sends { 1 } else { self.subscriptions };
            let (cpu_ns, switches) = used.each();
            let times = f64::from(run.count) * subscriptions as f64;
            usage.cpu_ns += cpu_ns * times;
            usage.switches += switches * times;
        }
        usage.messages = f64::from(run.count);
        // The daemon's usage during the warm-up does not count.
        let after = self.roudi.and_then(Usage::of_process);
        if let (Some(before), Some(after)) = (roudi_before, after) {
            let share = f64::from(run.count) / f64::from(run.count + WARM_UP);
            usage.cpu_ns += (after.cpu_ns - before.cpu_ns) * share;
            usage.switches += (after.switches - before.switches) * share;
        }
        usage
    }

    fn receiving_files(&self) -> &[PathBuf] {
        match self.place {
            Place::Processes(_) => &self.files[..self.files.len() - 1],
            Place::Pair | Place::Thread => &self.files,
        }
    }

    pub fn stall(&mut self, run: Run) -> Result<StallResults> {
        let used = self.carry_out(run)?;
        let side = |i: usize| -> Result<Side> {
            Ok(Side {
                samples: samples::read(&self.files[i])?,
                usage: used[i],
            })
        };
        Ok(StallResults {
            slow: side(0)?,
            flood: side(1)?,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        end_all(&mut self.peers);
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}
