//! Starts and ends a pair of nodes with one script, in a ROS domain of its own.
//!
//! A pair runs for one segment, alone or with LTTng, beside the pair that runs all the time.

use super::super::lttng::Lttng;
use super::nodes::{read_samples, Nodes, Sample, REAL_TIME_PRIORITY};
use super::{Policy, Setting};
use crate::frame::children::Guarded;
use crate::frame::{Context, LabError, Result};
use crate::measure::ros;
use onbeat_time::clock;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const DOMAIN: &str = "77";
/// A shell script that starts both nodes, and ends them when its standard input ends. The receiving
/// node ends 0.3 s later, so that messages on their way still arrive.
const SCRIPT: &str = r#"$5 "$1" sub "$2" & sub=$!
$5 "$1" pub "$3" "$4" & pub=$!
read end; kill $pub; sleep 0.3; kill $sub; wait"#;

pub enum Tracer<'w> {
    None,
    Lttng(&'w Lttng),
}

pub fn measure(
    context: &Context,
    nodes: &Nodes<'_>,
    setting: Setting,
    segment: Duration,
    way: Tracer<'_>,
) -> Result<(Vec<Sample>, i64, i64)> {
    let file = context.dir().join("pair.samples");
    let mut command = Command::new("sh");
    let session = match way {
        Tracer::None => None,
        Tracer::Lttng(lttng) => {
            command.env("LD_PRELOAD", lttng.library());
            Some(lttng.begin()?)
        }
    };
    let pair = start(context, nodes, setting, &file, command)?;
    let (from_ns, to_ns) = wait(segment);
    end(pair)?;
    let samples = read_samples(&file)?;
    if let Some(session) = session {
        let published = session.end()?;
        if published < samples.len() as u64 {
            let what = format!(
                "the trace has only {published} publications, but {} messages were received",
                samples.len()
            );
            return Err(LabError::unexpected("LTTng's recording of a pair", what));
        }
    }
    Ok((samples, from_ns, to_ns))
}

pub fn wait(segment: Duration) -> (i64, i64) {
    let from_ns = clock::monotonic_ns() as i64;
    std::thread::sleep(segment);
    (from_ns, clock::monotonic_ns() as i64)
}

/// Starts a pair of nodes that writes its samples to `file`, and waits until the nodes have found
/// each other. `shell` is a shell without arguments, or a command that ends with one.
pub fn start(
    context: &Context,
    nodes: &Nodes<'_>,
    setting: Setting,
    file: &Path,
    mut shell: Command,
) -> Result<Guarded> {
    let _ = std::fs::remove_file(file);
    let before = match setting.policy {
        Policy::Normal => String::new(),
        Policy::RealTime => format!("chrt -f {REAL_TIME_PRIORITY}"),
    };
    shell
        .args(["-c", SCRIPT, "sh"])
        .args([nodes.program, file])
        .args([
            setting.rate_hz.to_string(),
            (setting.kib * 1024).to_string(),
        ])
        .arg(before)
        .env("ROS_DOMAIN_ID", DOMAIN)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    ros::enter(&mut shell, nodes.env);
    let mut pair = context.spawn(&mut shell)?;
    wait_ready(&mut pair, 2)?;
    // The pair that runs all the time waits for the same time.
    std::thread::sleep(Duration::from_millis(500));
    Ok(pair)
}

pub fn end(mut pair: Guarded) -> Result<()> {
    drop(pair.child().stdin.take());
    match pair.wait(Duration::from_secs(60)) {
        Ok(Some(_)) => Ok(()),
        _ => Err(LabError::program(
            "a pair of nodes",
            "the nodes did not end within 60 s",
        )),
    }
}

pub fn wait_ready(pair: &mut Guarded, sides: usize) -> Result<()> {
    let out = pair.child().stdout.take();
    let lines = out.into_iter().flat_map(|out| BufReader::new(out).lines());
    let ready = lines.map_while(Result::ok).filter(|line| line == "ready");
    if ready.take(sides).count() == sides {
        return Ok(());
    }
    let reason = format!("the nodes did not start{}", pair.last_error());
    Err(LabError::program("a pair of nodes", reason))
}
