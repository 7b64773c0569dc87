//! One run: programs on both hosts, what they measured, and what it cost all CPUs.

use super::arms::{Arm, Arms};
use crate::frame::children;
use crate::frame::files;
use crate::frame::{Context, LabError, Result};
use crate::measure::capture::{Capture, Packet, Seen};
use crate::measure::hosts::{Host, Hosts, INTERFACE};
use crate::measure::peer::{end_all, start_all, stop_all, Peer};
use onbeat_proc::system::CpuTicks;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// From the start command to the begin of a run.
const LEAD: Duration = Duration::from_millis(30);

/// Of what is urgent, where something else is not.
const REAL_TIME_PRIORITY: i32 = 20;

/// Runs of an arm that others make until it counts as failed: Fast DDS does not find the other host
/// in one of some ten.
const TRIES: usize = 3;

/// A stream of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// 0 (least urgent) to 2.
    pub priority: u8,
    /// Bytes of a message.
    pub bytes: usize,
    /// Between two messages, ns; 0: each as soon as the one before was taken.
    pub period_ns: u64,
    /// How many; 0: as long as others have messages.
    pub count: u64,
    /// First message, ns after the begin.
    pub offset_ns: u64,
}

/// How a run is done.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The streams; each of those that flood in a process of its own at the sender.
    pub streams: Vec<Stream>,
    /// Messages on their way in a stream, at most.
    pub credits: usize,
    /// Streams take turns of so many messages.
    pub turn: Option<u64>,
    /// Figure 5.15's networks before and after.
    pub network: bool,
    /// Consumers of each stream, where it is a channel.
    pub consumers: Option<usize>,
    /// What leaves the sender is captured.
    pub captured: bool,
    /// Streams that flood are in a process of their own. What is not is urgent: it runs in real time.
    pub apart: bool,
    /// Both hosts' programs run in real time, whole.
    pub real_time: bool,
}

/// A message that arrived; times in ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Its stream.
    pub stream: u32,
    /// Its number.
    pub number: u64,
    /// When it was due.
    pub intended_ns: i64,
    /// When its content was complete at the sender.
    pub sent_ns: i64,
    /// When it could be read.
    pub received_ns: i64,
    /// When the receiver's work on it was done.
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

    /// From complete at the sender to readable at the receiver, us.
    pub fn transfer_us(&self) -> f64 {
        (self.received_ns - self.sent_ns) as f64 / 1000.0
    }

    /// From when it was due to readable at the receiver, us.
    pub fn latency_us(&self) -> f64 {
        (self.received_ns - self.intended_ns) as f64 / 1000.0
    }
}

/// What a run showed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Messages, in the order of their stream and number.
    pub samples: Vec<Sample>,
    /// Use of all CPUs during the run, by everybody, %.
    pub cpu: f64,
    /// Bytes that left the sender, with all heads.
    pub sent_bytes: u64,
    /// Packets that left the sender, where that was wanted.
    pub packets: Vec<Packet>,
}

impl Outcome {
    /// The messages of a stream.
    pub fn of(&self, stream: u32) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |s| s.stream == stream)
    }
}

/// The hosts and the arms.
pub struct Field {
    /// The hosts.
    pub hosts: Hosts,
    /// The arms.
    pub arms: Arms,
    ports: std::cell::Cell<u16>,
    failed: RefCell<BTreeMap<&'static str, String>>,
}

impl Field {
    /// Of these.
    pub fn new(hosts: Hosts, arms: Arms) -> Field {
        let ports = std::cell::Cell::new(10_000);
        Field {
            hosts,
            arms,
            ports,
            failed: RefCell::default(),
        }
    }

    /// Arms that have failed, with the reason.
    pub fn failed(&self) -> Vec<(&'static str, String)> {
        self.failed.take().into_iter().collect()
    }

    /// The link as arms have it that do not sort.
    pub fn limit_plain(&self, limited: bool) -> Result<()> {
        self.hosts.limit(super::arms::TCP.limit(limited))
    }

    /// Runs a plan once; `None` where the arm has failed, now or before. Our own must not.
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
            if tried.is_ok() || !arm.foreign() {
                break;
            }
            tried = self.run(context, arm, limited, plan);
        }
        match tried {
            Ok(outcome) => Ok(Some(outcome)),
            Err(e) if arm.foreign() => {
                self.failed.borrow_mut().insert(arm.name, e.to_string());
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Runs a plan once.
    pub fn run(&self, context: &Context, arm: &Arm, limited: bool, plan: &Plan) -> Result<Outcome> {
        self.hosts.limit(arm.limit(limited))?;
        // Ports of their own, since those of the last run linger.
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
        let before = CpuTicks::now(None);
        start_all(&mut peers, LEAD)?;
        for peer in &mut peers {
            peer.done()?;
        }
        let after = CpuTicks::now(None);
        let sent_bytes = self.hosts.sent_bytes(Host::Sender)? - sent_before;
        stop_all(&mut peers)?;
        let packets = capture.map(|c| c.stop().map_err(captured)).transpose()?;
        end_all(&mut peers);
        let idle = after.idle.saturating_sub(before.idle) as f64;
        let used = (after.used - before.used) as f64 + (after.stolen - before.stolen) as f64;
        let samples = read(&file)?;
        let _ = std::fs::remove_file(&file);
        check(plan, &samples, arm)?;
        crossed(plan, sent_bytes, arm)?;
        Ok(Outcome {
            samples,
            sent_bytes,
            cpu: 100.0 * used / (used + idle).max(1.0),
            packets: packets.unwrap_or_default(),
        })
    }

    /// The receiver first. Both wait for each other.
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
                // What is urgent, and the other host, do not wait for the load's processor.
                children::real_time(&mut command, REAL_TIME_PRIORITY);
            }
            self.hosts.enter(host, &mut command);
            peers.push(Peer::start(context, &mut command, arm.name)?);
        }
        Ok(peers)
    }

    fn capture(&self) -> Result<Capture> {
        let started = self
            .hosts
            .run_on(Host::Sender, || Capture::start(INTERFACE, Seen::Leaving));
        started.map_err(captured)
    }
}

fn captured(source: std::io::Error) -> LabError {
    LabError::program("the capture", source)
}

fn read(file: &Path) -> Result<Vec<Sample>> {
    let text = files::text(file)?;
    let samples: Option<Vec<Sample>> = text.lines().map(Sample::read).collect();
    let mut samples = samples.ok_or_else(|| LabError::unexpected("a sample", "not six numbers"))?;
    samples.sort_unstable_by_key(|s| (s.stream, s.number));
    Ok(samples)
}

/// Every message of a stream that ends arrived, once.
fn check(plan: &Plan, samples: &[Sample], arm: &Arm) -> Result<()> {
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
                "{came} of {} messages arrived, {} different ones",
                stream.count,
                numbers.len()
            );
            return Err(LabError::program(arm.name, why));
        }
    }
    Ok(())
}

/// What arrived went over the link: a middleware that finds shared memory would be measured for
/// something else.
fn crossed(plan: &Plan, sent_bytes: u64, arm: &Arm) -> Result<()> {
    let content: u64 = plan.streams.iter().map(|s| s.count * s.bytes as u64).sum();
    if sent_bytes >= content {
        return Ok(());
    }
    let why = format!("{sent_bytes} bytes crossed the link, of {content} that arrived");
    Err(LabError::program(arm.name, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_losses_are_found() {
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
        assert!(check(&plan, &of(&[0, 1]), &super::super::arms::TCP).is_ok());
        assert!(crossed(&plan, 128, &super::super::arms::TCP).is_ok());
        assert!(crossed(&plan, 127, &super::super::arms::TCP).is_err());
        assert!(check(&plan, &of(&[0]), &super::super::arms::TCP).is_err());
        assert!(check(&plan, &of(&[0, 0]), &super::super::arms::TCP).is_err());
    }
}
