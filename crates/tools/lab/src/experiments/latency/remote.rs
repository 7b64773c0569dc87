//! Measures two hosts. They are network namespaces with a link of the paper's wireless rate that
//! other traffic also uses (Figures 3 to 5).

use super::group::{Group, Node};
use super::tables::{self, Series};
use crate::frame::report::Report;
use crate::frame::size::size_name;
use crate::frame::{cache_dir, Context, Result};
use crate::measure::hosts::{Host, Hosts, Limit};
use crate::measure::peer::{end_all, start_all, stop_all, Peer};
use crate::measure::run::Run;
use crate::measure::samples::latencies_us;
use crate::measure::transport::{Peers, ROS2};
use std::process::Command;
use std::time::Duration;

/// The rate of the link in each direction, in bits/s. It is close to the rates of the paper's link
/// (76.8 Mbit/s down, 94.6 Mbit/s up).
const RATE: u64 = 90_000_000;
/// The sizes of messages in bytes. The largest is the paper's largest, 512 KiB.
const SIZES: [usize; 7] = [
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    512 << 10,
];
const OTHER_TRAFFIC_BYTES: u64 = 64 << 10;

/// The loads that share the link from the talker's host to the listener's host: name, id, and rate
/// in bits/s.
const LOADS: [(&str, &str, u64); 3] = [
    ("nothing else", "alone", 0),
    ("15 Mbit/s beside", "normal", 15_000_000),
    ("70 Mbit/s beside", "heavy", 70_000_000),
];

pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let hosts = Hosts::new()?;
    hosts.limit(Limit::Rate {
        bits_per_second: RATE,
    })?;
    let count = context.pick(300, 20);
    let mut all = vec![];
    for (name, id, bits_per_second) in LOADS {
        let mut group = start(context, peers, &hosts)?;
        let traffic = Traffic::start(context, &hosts, bits_per_second)?;
        let mut series = Series::new(name, id);
        for bytes in SIZES {
            let what = format!("two hosts, {name}: {}", size_name(bytes));
            context.step(&what, 240);
            let wire_s = bytes as f64 * 8.0 / RATE as f64;
            // Each message has left before the next one is sent, even beside the heaviest traffic.
            let rate_hz = (0.12 / wire_s).min(50.0);
            let run = Run {
                bytes,
                other_bytes: Some(64),
                rate_hz,
                count,
            };
            let taken = group.run(run)?;
            series.add(bytes, latencies_us(&taken[0]), u64::from(count));
        }
        drop(traffic);
        all.push(series);
    }
    report.note("remote: this kernel has no netem, so the link has a limited rate but no delay. The delay of a wireless network is not imitated");
    tables::add(
        context,
        report,
        (
            "remote",
            "Two hosts at 90 Mbit/s (Embedded Systems, Lab 1, Figures 3 to 5)",
        ),
        &all,
    )
}

fn start(context: &Context, peers: &Peers, hosts: &Hosts) -> Result<Group> {
    let topic = format!("name={}", peers.name());
    let node = |role: &str, host: Host| -> Result<Node> {
        let words = [format!("role={role}"), topic.clone(), "readers=1".into()];
        let mut command = peers.command(ROS2.program, false)?;
        command.env("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET");
        // Both hosts are one machine. With shared memory, nothing would cross the link.
        command.env("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4");
        hosts.enter(host, &mut command);
        Ok(Node::new(command, &words, role == "sub"))
    };
    Group::start(
        context,
        vec![node("sub", Host::Receiver)?, node("pub", Host::Sender)?],
    )
}

struct Traffic {
    peers: Vec<Peer>,
    key: std::path::PathBuf,
}

impl Traffic {
    fn start(context: &Context, hosts: &Hosts, bits_per_second: u64) -> Result<Traffic> {
        let key = context.dir().join("traffic.key");
        let mut traffic = Traffic { peers: vec![], key };
        if bits_per_second == 0 {
            return Ok(traffic);
        }
        let program = cache_dir().join("peers/release/peer-link");
        let period_ns = OTHER_TRAFFIC_BYTES * 8 * 1_000_000_000 / bits_per_second;
        for (host, side) in [(Host::Receiver, "receive"), (Host::Sender, "send")] {
            let mut command = Command::new(&program);
            command.args([
                format!("side={side}"),
                "arm=tcp".into(),
                format!("host={}", Host::Receiver.address()),
                format!("key={}", traffic.key.display()),
                "rate=0".into(),
                "port=9000".into(),
                "streams=0".into(),
                format!("s0=0,{OTHER_TRAFFIC_BYTES},{period_ns},0,0"),
            ]);
            hosts.enter(host, &mut command);
            traffic
                .peers
                .push(Peer::start(context, &mut command, "other traffic")?);
        }
        for peer in &mut traffic.peers {
            peer.expect("ready")?;
        }
        start_all(&mut traffic.peers, Duration::from_millis(20))?;
        for peer in &mut traffic.peers {
            peer.done()?;
        }
        Ok(traffic)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = stop_all(&mut self.peers);
        end_all(&mut self.peers);
        let _ = std::fs::remove_file(&self.key);
    }
}
