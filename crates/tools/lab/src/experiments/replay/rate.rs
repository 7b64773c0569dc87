//! The rate, bandwidth and memory of `onbeat replay` on one CPU, from a file to UDP.

use super::recording::capture;
use crate::frame::children::{pin, Ended};
use crate::frame::files;
use crate::frame::report::{Figure, Report};
use crate::frame::{Context, LabError, Result};
use crate::measure::stats::{median, over_rounds};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BUFFER: u64 = 16 << 20;
/// The memory in bytes that the player may use besides its buffer: for the program, its stacks and
/// its figures.
const OTHER_MEMORY: u64 = 24 << 20;
/// The requested playback rate, as a multiple of the recorded pace. No player can reach it, so only
/// the CPU limits the pace.
const RATE: &str = "1000000";

#[derive(Deserialize)]
struct ReplayReport {
    items: Items,
    machine: Machine,
}

impl ReplayReport {
    fn seconds(&self) -> f64 {
        self.machine.wall_ns as f64 / 1e9
    }
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

pub(super) fn measure(context: &mut Context, report: &mut Report) -> Result<()> {
    // Nobody reads this socket. The kernel drops packets when it is full, which does not matter
    // here.
    let sink = UdpSocket::bind("127.0.0.1:0").map_err(|e| LabError::unexpected("a socket", e))?;
    let to = sink
        .local_addr()
        .map_err(|e| LabError::unexpected("a socket", e))?;
    let (small, large) = context.pick((1_000_000, 10_000), (50_000, 1000));
    let mut memory = 0;
    let mut path = context.dir().join("rate.pcap");
    for (what, count, bytes) in [("small", small, 106), ("large", large, 60_000)] {
        context.step(format!("{count} {what} packets on one CPU"), 200);
        path = context.dir().join(format!("rate-{what}.pcap"));
        capture(&path, (0..count).map(|n| (1000 * n, 0)), bytes)?;
        let mut turns = context.turns(&format!("rate, {what}"), 1, context.pick(5, 3));
        let mut cpu_s = vec![];
        for _ in turns.by_ref() {
            let (said, ended) = play(context, &path, &to.to_string())?;
            if said.items.played != count || said.items.lost > 0 {
                return Err(LabError::unexpected(
                    "onbeat replay",
                    "the player did not play all packets",
                ));
            }
            memory = memory.max(said.machine.peak_memory_bytes);
            cpu_s.push(ended.cpu_s());
        }
        let (kept, mut rng) = (turns.finish(), context.rng(what));
        let per_second = over_rounds(&kept, &cpu_s, &mut rng, |s| count as f64 / median(s));
        if what == "small" {
            let _ = std::fs::remove_file(&path);
        }
        report.figure(match what {
            "small" => {
                Figure::estimated("onbeat.rate", per_second, "messages/s").at_least(200_000.0)
            }
            _ => Figure::estimated(
                "onbeat.bandwidth",
                per_second.map(|rate| rate * bytes as f64 / 1e9),
                "GB/s",
            )
            .at_least(1.0),
        });
    }
    from_disk(context, report, &path, &to.to_string())?;
    let _ = std::fs::remove_file(&path);
    let most = (BUFFER + OTHER_MEMORY) as f64 / 1e6;
    report.figure(Figure::exact("onbeat.memory", memory as f64 / 1e6, "MB").at_most(most));
    report.note(format!(
        "onbeat.rate counts packets of 106 bytes, and onbeat.bandwidth counts the bytes of packets of 60000 bytes. Both \
         are per second of the CPU time of loader and player, with a buffer of {} MiB. The packets go from a file in \
         the page cache to UDP on the loopback interface",
        BUFFER >> 20
    ));
    Ok(())
}

/// Plays the file from the disk. Before, removes the file from the page cache as far as the kernel
/// allows.
fn from_disk(context: &Context, report: &mut Report, path: &Path, to: &str) -> Result<()> {
    let bytes = std::fs::metadata(path)
        .map_err(LabError::file("reading", path))?
        .len();
    context.step(
        "large packets that are read from the disk, not from the page cache",
        200,
    );
    drop_from_page_cache(path).map_err(LabError::file("writing", path))?;
    let (said, ended) = play(context, path, to)?;
    let share = ended.disk_bytes as f64 / bytes.max(1) as f64;
    if share < 0.9 {
        let what = format!(
            "only {:.0} % of the file came from the disk, the rest from the page cache",
            100.0 * share
        );
        report.skip("playing a file from the disk", what);
        return Ok(());
    }
    let bandwidth = bytes as f64 / said.seconds() / 1e9;
    report.value("onbeat.bandwidth.disk", bandwidth, "GB/s");
    // The bandwidth of the disk for a program that only reads.
    drop_from_page_cache(path).map_err(LabError::file("writing", path))?;
    let begun = Instant::now();
    let mut file = File::open(path).map_err(LabError::file("reading", path))?;
    let mut block = vec![0; 1 << 20];
    while file
        .read(&mut block)
        .map_err(LabError::file("reading", path))?
        > 0
    {}
    let bandwidth = bytes as f64 / begun.elapsed().as_secs_f64() / 1e9;
    report.value("disk.bandwidth", bandwidth, "GB/s");
    Ok(())
}

fn drop_from_page_cache(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // The kernel keeps pages that are not yet on the disk, so they are written first.
    file.sync_all()?;
    // SAFETY: a call with plain numbers on an open descriptor.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn play(context: &Context, path: &Path, to: &str) -> Result<(ReplayReport, Ended)> {
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
    let ended = context.succeed(&mut command, "onbeat replay", Duration::from_secs(180))?;
    Ok((files::take_json(&out)?, ended))
}
