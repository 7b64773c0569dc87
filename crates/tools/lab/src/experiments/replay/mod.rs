//! The `replay` experiment: how late replayed packets arrive, with `onbeat replay` beside
//! tcpreplay.
//!
//! The packets are streams of Table I of the paper of Konheiser et al. They go from one network
//! namespace to another, on an idle machine and beside busy programs. `onbeat replay` plays them
//! from two files: the capture that tcpreplay also plays, and a BLF log with the same packets.
//!
//! The lateness of a packet is the kernel's time stamp at the receiver minus its recorded time,
//! minus the smallest such difference of the run. No arm's own figures are used.

mod judge;
mod rate;
mod recording;

use crate::frame::children::real_time;
use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Extra, Kept, LabError, Result};
use crate::measure::capture::{Capture, Direction, Packet};
use crate::measure::floor::{Cyclictest, Floor};
use crate::measure::hosts::{Host, Hosts, INTERFACE};
use crate::measure::stats::Sorted;
use crate::measure::streams::RADAR;
use recording::Recording;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

const COUNTS: &[usize] = &[1, 2, 4, 8, 10];
const PRIORITY: i32 = 80;
const MTU: &str = "2000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    Onbeat,
    OnbeatBlf,
    Tcpreplay,
    TcpreplayFifo,
}

const ARMS: [Arm; 4] = [
    Arm::Onbeat,
    Arm::OnbeatBlf,
    Arm::Tcpreplay,
    Arm::TcpreplayFifo,
];

impl Arm {
    fn name(self) -> &'static str {
        match self {
            Arm::Onbeat => "onbeat",
            Arm::OnbeatBlf => "onbeat (BLF)",
            Arm::Tcpreplay => "tcpreplay",
            Arm::TcpreplayFifo => "tcpreplay (FIFO)",
        }
    }

    fn is_onbeat(self) -> bool {
        matches!(self, Arm::Onbeat | Arm::OnbeatBlf)
    }

    fn command(self, hosts: &Hosts, context: &Context, recording: &Recording) -> Command {
        let path = match self {
            Arm::OnbeatBlf => &recording.blf,
            _ => &recording.path,
        };
        let mut command = match self {
            Arm::Onbeat | Arm::OnbeatBlf => {
                let mut command = hosts.command(Host::Sender, context.onbeat());
                command.arg("replay").arg(path);
                command.args(["--to", &format!("eth:{INTERFACE}")]);
                command
            }
            _ => {
                let mut command = hosts.command(Host::Sender, "tcpreplay");
                command.args(["-q", "-i", INTERFACE]).arg(path);
                command
            }
        };
        if self == Arm::TcpreplayFifo {
            real_time(&mut command, PRIORITY);
        }
        let command_io = command.stdin(Stdio::null()).stdout(Stdio::null());
        command_io.stderr(Stdio::null());
        command
    }
}

struct Run {
    arm: Arm,
    round: usize,
    streams: usize,
    late_us: Sorted,
    lost: usize,
    /// The number of packets that arrived out of order: after a packet with a later recorded time.
    misplaced: usize,
    cpu: f64,
}

struct Load {
    busy: bool,
    runs: Vec<Run>,
    floor: Floor,
    kept: Kept,
}

fn load_name(busy: bool) -> &'static str {
    match busy {
        true => "one busy program per CPU",
        false => "idle machine",
    }
}

pub const EXPERIMENT: Experiment = Experiment {
    name: "replay",
    about: "lateness of replayed packets, compared with tcpreplay and cyclictest (paper of Konheiser et al., Table I)",
    parts: &[],
    takes: &[Extra::Long],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    report.skip(
        "canplayer",
        "canplayer needs a CAN interface, and this kernel has no CAN",
    );
    let no_wheel = "not compared, because no package index has rosbag2's player for this platform. The issues 1254, 1963 and 2091 of rosbag2 describe delays and lost messages of this player";
    report.skip("rosbag2's player", no_wheel);
    let arms = available(&mut report);
    let hosts = Hosts::new()?;
    for host in [Host::Sender, Host::Receiver] {
        hosts.ip(host, &["link", "set", "dev", INTERFACE, "mtu", MTU])?;
    }
    let messages = context.pick(1500, 200);
    let counts = context.pick(COUNTS, &[1, 4, 10]);
    let counts = counts.repeat(context.pick_of_three(5, 1, 1));
    let mut rng = context.rng("arrivals");
    let mut loads = Vec::new();
    for busy in [false, true] {
        let (mut runs, mut floor) = (Vec::new(), Floor::default());
        let mut recording = Recording::default();
        // Each planned round plays a different number of streams with all arms.
        let what = format!("replay, {}", load_name(busy));
        let mut turns = context.turns(&what, arms.len(), counts.len());
        let mut last = None;
        while let Some((round, arm)) = turns.next() {
            if last.replace(round) != Some(round) {
                let streams = counts[turns.origin(round)];
                recording = Recording::write(context, &RADAR, streams, messages, &mut rng)?;
            }
            let run = play(context, &hosts, arms[arm], &recording, busy, &mut floor)?;
            runs.push(Run { round, ..run });
        }
        let kept = turns.finish();
        loads.push(Load {
            busy,
            runs,
            floor,
            kept,
        });
    }
    // The seed can generate the recording again.
    for path in recording::paths(context) {
        let _ = std::fs::remove_file(path);
    }
    judge::judge(context, &mut report, &loads)?;
    rate::measure(context, &mut report)?;
    Ok(report)
}

fn available(report: &mut Report) -> Vec<Arm> {
    let there = Command::new("tcpreplay").arg("--version").output().is_ok();
    if there {
        return ARMS.to_vec();
    }
    report.skip(
        "tcpreplay",
        "tcpreplay is not installed. Run apt-get install tcpreplay",
    );
    vec![Arm::Onbeat, Arm::OnbeatBlf]
}

fn play(
    context: &Context,
    hosts: &Hosts,
    arm: Arm,
    recording: &Recording,
    busy: bool,
    floor: &mut Floor,
) -> Result<Run> {
    let load = load_name(busy);
    let what = format!("{} streams, {load}: {}", recording.streams, arm.name());
    context.step(&what, 120);
    let _busy = if busy { context.busy_cpus()? } else { vec![] };
    let failed = |e: io::Error| LabError::unexpected("the capture", e);
    let capture = hosts.run_on(Host::Receiver, || {
        Capture::start(INTERFACE, Direction::Arriving)
    });
    let capture = capture.map_err(failed)?;
    let beside = Cyclictest::start(context);
    let mut player = context.spawn(&mut arm.command(hosts, context, recording))?;
    let limit = Duration::from_nanos(3 * recording.length_ns()) + Duration::from_secs(20);
    let ended = player
        .wait(limit)
        .map_err(|e| LabError::program(arm.name(), e))?;
    if let Some(beside) = beside {
        beside.end(floor);
    }
    let packets = capture.stop().map_err(failed)?;
    let ended =
        ended.ok_or_else(|| LabError::program(arm.name(), "the player did not end in time"))?;
    if !ended.status.success() {
        return Err(LabError::program(arm.name(), ended.status));
    }
    let cpu = 100e9 * ended.cpu_s() / recording.length_ns().max(1) as f64;
    Ok(Run {
        arm,
        streams: recording.streams,
        cpu,
        ..compare(recording, &packets, arm)
    })
}

fn compare(recording: &Recording, packets: &[Packet], arm: Arm) -> Run {
    let mut seen = vec![false; recording.due_ns.len()];
    let (mut late, mut misplaced, mut last) = (Vec::new(), 0, None);
    for packet in packets {
        let Some(mark) = packet.marks.first() else {
            continue;
        };
        let number = mark.number as usize;
        let Some(&due_ns) = recording.due_ns.get(number) else {
            continue;
        };
        misplaced += usize::from(last.is_some_and(|last| number <= last));
        last = Some(number);
        seen[number] = true;
        late.push(packet.at_ns - due_ns as i64);
    }
    let least = late.iter().copied().min().unwrap_or(0);
    Run {
        arm,
        round: 0,
        streams: recording.streams,
        late_us: Sorted::new(late.iter().map(|ns| (ns - least) as f64 / 1000.0)),
        lost: seen.iter().filter(|s| !**s).count(),
        misplaced,
        cpu: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::capture::Mark;

    #[test]
    fn lost_misplaced_and_late_packets_are_counted() {
        let recording = Recording {
            path: Default::default(),
            blf: Default::default(),
            streams: 1,
            due_ns: vec![0, 1000, 2000, 3000],
        };
        let packet = |number, at_ns| Packet {
            at_ns,
            bytes: 60,
            marks: vec![Mark { stream: 0, number }],
        };
        // The offset of the clocks is 500. Number 3 came before 2, and 1 never came.
        let packets = [
            packet(0, 500),
            packet(3, 3500),
            packet(2, 9500),
            packet(7, 1),
        ];
        let run = compare(&recording, &packets, Arm::Onbeat);
        assert_eq!((run.lost, run.misplaced), (1, 1));
        assert_eq!(run.late_us.values(), [0.0, 0.0, 7.0]);
    }
}
