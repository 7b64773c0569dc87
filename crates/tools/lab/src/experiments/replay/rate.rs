//! How much goes through `onbeat replay` on one CPU, from a file to UDP, and in how much memory.

use super::recording::capture;
use crate::frame::children::pin;
use crate::frame::report::{Figure, Report, Target};
use crate::frame::{Context, LabError};
use serde::Deserialize;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Bytes of the buffer in this part.
const BUFFER: u64 = 16 << 20;
/// What the process has beside its buffer: program, stacks, figures.
const BESIDE: u64 = 24 << 20;
/// Much faster than it can: only the CPU sets the pace.
const RATE: &str = "1000000";

/// What a report of `onbeat replay` says.
#[derive(Deserialize)]
struct Said {
    items: Items,
    machine: Machine,
}

#[derive(Deserialize)]
struct Items {
    played: u64,
    lost: u64,
}

#[derive(Deserialize)]
struct Machine {
    wall_ns: u64,
    peak_memory_bytes: u64,
}

/// Plays small and large packets as fast as one CPU can.
pub(super) fn measure(context: &mut Context, report: &mut Report) -> Result<(), LabError> {
    // Nobody reads: what the socket has no room for is the receiver's loss, which is not looked at.
    let sink = UdpSocket::bind("127.0.0.1:0").map_err(|e| LabError::unexpected("a socket", e))?;
    let to = sink
        .local_addr()
        .map_err(|e| LabError::unexpected("a socket", e))?;
    let (small, large) = context.pick((1_000_000, 10_000), (50_000, 1000));
    let mut memory = 0;
    for (what, count, bytes) in [("small", small, 106), ("large", large, 60_000)] {
        context.step(
            &format!("{count} {what} packets on one CPU"),
            Duration::from_secs(200),
        );
        let path = context.dir().join("rate.pcap");
        capture(&path, (0..count).map(|n| (1000 * n, 0)), bytes)?;
        let said = play(context, &path, &to.to_string())?;
        let _ = std::fs::remove_file(&path);
        if said.items.played != count || said.items.lost > 0 {
            return Err(LabError::unexpected("onbeat replay", "it has lost packets"));
        }
        let seconds = said.machine.wall_ns as f64 / 1e9;
        memory = memory.max(said.machine.peak_memory_bytes);
        report.figure(match what {
            "small" => Figure::new("onbeat.rate", count as f64 / seconds, "messages/s")
                .target(Target::AtLeast(200_000.0)),
            _ => Figure::new(
                "onbeat.bandwidth",
                (count * bytes as u64) as f64 / seconds / 1e9,
                "GB/s",
            )
            .target(Target::AtLeast(1.0)),
        });
    }
    let most = (BUFFER + BESIDE) as f64 / 1e6;
    report.figure(
        Figure::new("onbeat.memory", memory as f64 / 1e6, "MB").target(Target::AtMost(most)),
    );
    report.note(format!(
        "rate and bandwidth: from a file in the page cache to UDP on the loopback, loader and player on \
         one CPU, a buffer of {} MiB; packets of 106 and 60000 bytes",
        BUFFER >> 20
    ));
    Ok(())
}

fn play(context: &Context, path: &std::path::Path, to: &str) -> Result<Said, LabError> {
    let out = context.dir().join("rate.json");
    let mut command = Command::new(context.onbeat());
    command
        .arg("replay")
        .arg(path)
        .args(["--to", &format!("udp:{to}")]);
    command.args([
        "--rate",
        RATE,
        "--buffer",
        &BUFFER.to_string(),
        "--unmeasured",
        "--priority",
        "0",
    ]);
    command.arg("--report").arg(&out);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    pin(&mut command, 0);
    let failed = |why: String| LabError::program("onbeat replay", why);
    let mut child = context.spawn(&mut command)?;
    let ended = child
        .wait(Duration::from_secs(180))
        .map_err(|e| failed(e.to_string()))?;
    match ended {
        Some(ended) if ended.status.success() => {}
        Some(ended) => return Err(failed(ended.status.to_string())),
        None => return Err(failed("it does not end".into())),
    }
    let text = std::fs::read(&out).map_err(LabError::file("reading", &out))?;
    let _ = std::fs::remove_file(&out);
    serde_json::from_slice(&text).map_err(|e| LabError::unexpected("onbeat replay's report", e))
}
