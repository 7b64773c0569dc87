//! Runs programs on both hosts once and returns their samples and their CPU time.

use super::arms::{Arm, Arms};
use super::records::Records;
use crate::frame::children;
use crate::frame::{files, machine};
use crate::frame::{Context, LabError, Result};
use crate::measure::capture::{Capture, Direction, Packet};
use crate::measure::hosts::{Host, Hosts, INTERFACE};
use crate::measure::peer::{end_all, start_all, stop_all, used_ns, Peer};
use onbeat_link::status::Stall;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const LEAD: Duration = Duration::from_millis(30);

/// The SCHED_FIFO priority of the programs with urgent streams, which run beside a load that is not
/// urgent.
const REAL_TIME_PRIORITY: i32 = 20;

/// The number of attempts after which an arm of another project counts as failed. Fast DDS does not
/// find the other host in about one of ten attempts.
const TRIES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    pub priority: u8,
    pub bytes: usize,
    /// The time between two messages, in ns. With 0, each message follows as soon as the receiver
    /// has taken the previous one.
    pub period_ns: u64,
    /// The number of messages of the stream. With 0, the stream sends as long as other streams do.
    pub count: u64,
    pub offset_ns: u64,
}
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub streams: Vec<Stream>,
    pub credits: usize,
    /// The number of messages that a stream sends before the next stream sends. `None` if streams
    /// do not take turns.
    pub turn: Option<u64>,
    pub network: bool,
    pub consumers: Option<usize>,
    pub captured: bool,
    /// Whether streams with a `count` of 0 send from a process of their own. If true, the programs
    /// of all other streams are urgent and have a real-time priority.
    pub apart: bool,
    pub real_time: bool,
    /// Whether the experiment reads the stalls of the links repeatedly during the run. A stall is a
    /// step of a link's threads that took longer than usual.
    pub recorded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub stream: u32,
    pub number: u64,
    pub intended_ns: i64,
    pub sent_ns: i64,
    pub received_ns: i64,
    pub finished_ns: i64,
}

impl Sample {
    fn read(line: &str) -> Option<Sample> {
        let numbers: Vec<i64> = line.split(',').map_while(|w| w.parse().ok()).collect();
        let [stream, number, intended_ns, sent_ns, received_ns, finished_ns] = numbers[..] else {
            return None;
        };
        Some(Sample {
            stream: stream as u32,
            number: number as u64,
            intended_ns,
            sent_ns,
            received_ns,
            finished_ns,
        })
    }

    /// Returns the time in us from when the sender had the complete message to when the receiver
    /// could read it.
    pub fn transfer_us(&self) -> f64 {
        (self.received_ns - self.sent_ns) as f64 / 1000.0
    }

    /// Returns the time in us from the message's due time to when the receiver could read the
    /// message.
    pub fn latency_us(&self) -> f64 {
        (self.received_ns - self.intended_ns) as f64 / 1000.0
    }
}

#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub samples: Vec<Sample>,
    /// The CPU time of the experiment's programs and of the kernel's threads, in % of all CPUs.
    pub cpu: f64,
    pub sent_bytes: u64,
    pub packets: Vec<Packet>,
    /// The stalls that the links recorded: steps that took longer than usual. `None` if the plan
    /// does not read them, or if a link had more stalls between two readings than it can record.
    pub stalls: Option<Vec<Stall>>,
}

impl Outcome {
    pub fn of(&self, stream: u32) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |s| s.stream == stream)
    }
}
pub struct Testbed {
    pub hosts: Hosts,
    pub arms: Arms,
    ports: std::cell::Cell<u16>,
    failed: RefCell<BTreeMap<&'static str, String>>,
}

impl Testbed {
    pub fn new(hosts: Hosts, arms: Arms) -> Testbed {
        let ports = std::cell::Cell::new(10_000);
        Testbed {
            hosts,
            arms,
            ports,
            failed: RefCell::default(),
        }
    }

    pub fn failed(&self) -> Vec<(&'static str, String)> {
        self.failed.take().into_iter().collect()
    }

    pub fn limit_plain(&self, limited: bool) -> Result<()> {
        self.hosts.limit(super::arms::TCP.limit(limited))
    }

    /// Runs a plan once with one arm. Returns `None` if an arm of another project fails or has
    /// failed before. If an onbeat arm fails, returns an error.
    pub fn try_run(
        &self,
        context: &Context,
        arm: &Arm,
        limited: bool,
        plan: &Plan,
    ) -> Result<Option<Outcome>> {
        if self.failed.borrow().contains_key(arm.name) {
            return Ok(None);
        }
        let mut tried = self.run(context, arm, limited, plan);
        for _ in 1..TRIES {
            if tried.is_ok() || !arm.is_foreign() {
                break;
            }
            tried = self.run(context, arm, limited, plan);
        }
        match tried {
            Ok(outcome) => Ok(Some(outcome)),
            Err(e) if arm.is_foreign() => {
                self.failed.borrow_mut().insert(arm.name, e.to_string());
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    pub fn run(&self, context: &Context, arm: &Arm, limited: bool, plan: &Plan) -> Result<Outcome> {
        self.hosts.limit(arm.limit(limited))?;
        // Each run has new ports, since those of the last run linger.
        let port = self.ports.get();
        self.ports
            .set(if port > 60_000 { 10_000 } else { port + 8 });
        let file = context.dir().join("link.samples");
        let mut peers = self.start(context, (arm, limited), plan, port, &file)?;
        let capture = plan.captured.then(|| self.capture()).transpose()?;
        for peer in &mut peers {
            peer.expect("ready")?;
        }
        let sent_before = self.hosts.sent_bytes(Host::Sender)?;
        let (before_ns, begun) = (used_ns(&peers)?, Instant::now());
        start_all(&mut peers, LEAD)?;
        let records = plan.recorded.then(|| Records::of(&peers));
        for peer in &mut peers {
            peer.done()?;
        }
        let elapsed_ns = begun.elapsed().as_nanos() as f64;
        let used_ns = used_ns(&peers)?.saturating_sub(before_ns) as f64;
        let sent_bytes = self.hosts.sent_bytes(Host::Sender)? - sent_before;
        let stalls = records.map(Records::finish).transpose()?;
        stop_all(&mut peers)?;
        let packets = capture
            .map(|c| c.stop().map_err(capture_failed))
            .transpose()?;
        end_all(&mut peers);
        let samples = read(&file)?;
        let _ = std::fs::remove_file(&file);
        check_all_arrived(plan, &samples, arm)?;
        check_crossed_link(plan, sent_bytes, arm)?;
        Ok(Outcome {
            samples,
            sent_bytes,
            cpu: 100.0 * used_ns / (elapsed_ns * machine::cpus() as f64),
            packets: packets.unwrap_or_default(),
            stalls: stalls.flatten(),
        })
    }

    fn start(
        &self,
        context: &Context,
        (arm, limited): (&Arm, bool),
        plan: &Plan,
        port: u16,
        file: &Path,
    ) -> Result<Vec<Peer>> {
        let all: Vec<usize> = (0..plan.streams.len()).collect();
        let (floods, timed) = all
            .iter()
            .partition(|i| plan.apart && plan.streams[**i].count == 0);
        let floods: Vec<usize> = floods;
        let mut sides = vec![(Host::Receiver, all.clone()), (Host::Sender, timed)];
        if !floods.is_empty() {
            sides.push((Host::Sender, floods));
        }
        let mut peers = vec![];
        for (host, streams) in sides {
            let mut command = self.arms.command(context, arm, host, limited)?;
            let ids: Vec<String> = streams.iter().map(usize::to_string).collect();
            command.arg(format!("port={port}"));
            command.arg(format!("streams={}", ids.join(",")));
            for (i, s) in plan.streams.iter().enumerate() {
                let Stream {
                    priority,
                    bytes,
                    period_ns,
                    count,
                    offset_ns,
                } = s;
                command.arg(format!(
                    "s{i}={priority},{bytes},{period_ns},{count},{offset_ns}"
                ));
            }
            command.arg(format!("credits={}", plan.credits.max(1)));
            if let Some(turn) = plan.turn {
                command.arg(format!("turn={turn}"));
            }
            if plan.network {
                command.arg("network=yes");
            }
            if let Some(consumers) = plan.consumers {
                command.arg(format!("consumers={consumers}"));
            }
            if host == Host::Receiver {
                command.arg(format!("file={}", file.display()));
            }
            let floods = host == Host::Sender && plan.apart && peers.len() == 2;
            if plan.real_time || (plan.apart && !floods) {
                // Urgent programs and the receiver must not wait for the load's processor.
                children::real_time(&mut command, REAL_TIME_PRIORITY);
            }
            self.hosts.enter(host, &mut command);
            peers.push(Peer::start(context, &mut command, arm.name)?);
        }
        Ok(peers)
    }

    fn capture(&self) -> Result<Capture> {
        let started = self.hosts.run_on(Host::Sender, || {
            Capture::start(INTERFACE, Direction::Leaving)
        });
        started.map_err(capture_failed)
    }
}

fn capture_failed(source: std::io::Error) -> LabError {
    LabError::program("the capture", source)
}

fn read(file: &Path) -> Result<Vec<Sample>> {
    let text = files::text(file)?;
    let samples: Option<Vec<Sample>> = text.lines().map(Sample::read).collect();
    let mut samples = samples.ok_or_else(|| {
        LabError::unexpected(
            "a sample",
            "the line of this sample does not have six numbers",
        )
    })?;
    samples.sort_unstable_by_key(|s| (s.stream, s.number));
    Ok(samples)
}

fn check_all_arrived(plan: &Plan, samples: &[Sample], arm: &Arm) -> Result<()> {
    for (i, stream) in plan.streams.iter().enumerate() {
        let mut numbers: Vec<u64> = samples
            .iter()
            .filter(|s| s.stream == i as u32)
            .map(|s| s.number)
            .collect();
        let came = numbers.len() as u64;
        numbers.dedup();
        if stream.count > 0 && (came != stream.count || numbers.len() as u64 != came) {
            let why = format!(
                "{came} of {} messages arrived, {} of them distinct",
                stream.count,
                numbers.len()
            );
            return Err(LabError::program(arm.name, why));
        }
    }
    Ok(())
}

fn check_crossed_link(plan: &Plan, sent_bytes: u64, arm: &Arm) -> Result<()> {
    let content: u64 = plan.streams.iter().map(|s| s.count * s.bytes as u64).sum();
    if sent_bytes >= content {
        return Ok(());
    }
    let why = format!("{content} bytes arrived, but only {sent_bytes} bytes crossed the link");
    Err(LabError::program(arm.name, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_lost_or_repeated_messages_are_errors() {
        let sample = Sample::read("1,7,100,1100,4100,5100").unwrap();
        assert_eq!((sample.stream, sample.number), (1, 7));
        assert_eq!((sample.transfer_us(), sample.latency_us()), (3.0, 4.0));
        assert_eq!(Sample::read("1,7,100,1100,4100"), None);
        let stream = Stream {
            priority: 0,
            bytes: 64,
            period_ns: 1,
            count: 2,
            offset_ns: 0,
        };
        let plan = Plan {
            streams: vec![stream],
            ..Plan::default()
        };
        let of = |numbers: &[u64]| -> Vec<Sample> {
            let one = |&number: &u64| Sample {
                stream: 0,
                number,
                ..sample
            };
            numbers.iter().map(one).collect()
        };
        assert!(check_all_arrived(&plan, &of(&[0, 1]), &super::super::arms::TCP).is_ok());
        assert!(check_crossed_link(&plan, 128, &super::super::arms::TCP).is_ok());
        assert!(check_crossed_link(&plan, 127, &super::super::arms::TCP).is_err());
        assert!(check_all_arrived(&plan, &of(&[0]), &super::super::arms::TCP).is_err());
        assert!(check_all_arrived(&plan, &of(&[0, 0]), &super::super::arms::TCP).is_err());
    }
}
