//! Two nodes that are started for one segment: alone, with the library that `onbeat record --preload`
//! loads into them, or with LTTng. They run in a domain of their own, beside the pair that runs all the time.

use super::super::lttng::Lttng;
use super::nodes::{read_samples, Nodes, RecordedEvents, Sample, REAL_TIME_PRIORITY};
use super::{Policy, Setting};
use crate::frame::children::Guarded;
use crate::frame::{Context, LabError};
use crate::measure::{recorder, ros};
use onbeat_time::clock;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const DOMAIN: &str = "77";
/// Starts both sides, and ends them at the end of its input: the messages on their way arrive.
const SCRIPT: &str = r#"$5 "$1" sub "$2" & sub=$!
$5 "$1" pub "$3" "$4" & pub=$!
read end; kill $pub; sleep 0.3; kill $sub; wait"#;

/// What observes a pair.
pub enum Way<'w> {
    /// Nothing.
    Alone,
    /// The preloaded library; what it has recorded is added here.
    Preload(&'w mut RecordedEvents),
    Lttng(&'w Lttng),
}

/// The samples of a pair, and the begin and end of its segment, ns.
pub fn measure(
    context: &Context,
    nodes: &Nodes<'_>,
    setting: Setting,
    segment: Duration,
    way: Way<'_>,
) -> Result<(Vec<Sample>, i64, i64), LabError> {
    let (file, trace) = ("pair.samples", "pair.trace");
    let (file, trace) = (context.dir().join(file), context.dir().join(trace));
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_dir_all(&trace);
    let session = match way {
        Way::Lttng(lttng) => Some(lttng.begin()?),
        _ => None,
    };
    let mut pair = start(context, nodes, setting, (&file, &trace), &way)?;
    wait_ready(&mut pair)?;
    // As the others wait, once they have met.
    std::thread::sleep(Duration::from_millis(500));
    let from_ns = clock::monotonic_ns() as i64;
    std::thread::sleep(segment);
    let to_ns = clock::monotonic_ns() as i64;
    drop(pair.child().stdin.take());
    let ended = pair.wait(Duration::from_secs(60));
    if !matches!(ended, Ok(Some(_))) {
        return Err(LabError::program("a pair of nodes", "it does not end"));
    }
    let samples = read_samples(&file)?;
    if let Some(session) = session {
        let published = session.end()?;
        if published < samples.len() as u64 {
            let what = format!("{published} publications of {} messages", samples.len());
            return Err(LabError::unexpected("LTTng's recording of a pair", what));
        }
    }
    if let Way::Preload(recorded) = way {
        if recorded.add(&recorder::recorded(&trace)?.manifest) == 0 {
            let what = "the recording of a pair with the library";
            return Err(LabError::unexpected(what, "nothing was called"));
        }
        let _ = std::fs::remove_dir_all(&trace);
    }
    Ok((samples, from_ns, to_ns))
}

fn start(
    context: &Context,
    nodes: &Nodes<'_>,
    setting: Setting,
    (file, trace): (&Path, &Path),
    way: &Way<'_>,
) -> Result<Guarded, LabError> {
    let mut command = Command::new("sh");
    match way {
        Way::Alone => {}
        Way::Preload(_) => {
            command = Command::new(context.onbeat());
            command.args(["record", "--preload", "-o"]).arg(trace);
            command.args(["--", "sh"]);
        }
        Way::Lttng(lttng) => {
            command.env("LD_PRELOAD", lttng.library());
        }
    }
    let before = match setting.policy {
        Policy::Normal => String::new(),
        Policy::RealTime => format!("chrt -f {REAL_TIME_PRIORITY}"),
    };
    command
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
    ros::enter(&mut command, nodes.env);
    context.spawn(&mut command)
}

/// Waits until both sides have found each other.
fn wait_ready(pair: &mut Guarded) -> Result<(), LabError> {
    let out = pair.child().stdout.take();
    let lines = out.into_iter().flat_map(|out| BufReader::new(out).lines());
    let ready = lines.map_while(Result::ok).filter(|line| line == "ready");
    if ready.take(2).count() == 2 {
        return Ok(());
    }
    let reason = format!("it did not start{}", pair.said());
    Err(LabError::program("a pair of nodes", reason))
}
