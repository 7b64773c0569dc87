//! LTTng as an arm: a session of its user-space tracer with the contexts and events of
//! ros2_tracing.
//!
//! The events are those of two nodes on rcl: rcl_publish, rmw_publish, rmw_take, rcl_take.

use crate::frame::children::Guarded;
use crate::frame::programs::{output, quiet};
use crate::frame::{Context, LabError, Result};
use crate::measure::native;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const START: Duration = Duration::from_secs(20);

pub struct Lttng {
    library: PathBuf,
    session: String,
    trace: PathBuf,
    _daemon: Option<Guarded>,
}

impl Lttng {
    /// Compiles the lab's library for LTTng, and starts LTTng's daemon unless one is running.
    ///
    /// # Errors
    ///
    /// Fails if LTTng or its reader is not installed, or if the daemon does not start.
    pub fn start(context: &Context) -> Result<Lttng> {
        for program in ["lttng", "lttng-sessiond", "babeltrace2"] {
            run(&[program, "--version"])?;
        }
        let source = |name: &str| context.source(&format!("crates/tools/lab/native/{name}"));
        let (code, events) = (source("lttng.c")?, source("lttng-events.h")?);
        // LTTng's headers include the header of the events from this directory.
        let beside = code.parent().unwrap_or(Path::new("."));
        let include = format!("-I{}", beside.display());
        let words = ["-shared", "-fPIC", &include, "-llttng-ust", "-ldl"].map(String::from);
        let library = native::build("lttng", "cc", &[code], &[events], &words)?;
        let is_up = || run(&["lttng", "--no-sessiond", "list"]).is_ok();
        let mut daemon = None;
        if !is_up() {
            let mut command = Command::new("lttng-sessiond");
            command.args(["--no-kernel", "--quiet"]);
            let mut child = context.spawn(quiet(&mut command))?;
            let begin = Instant::now();
            while !is_up() {
                if !child.running() || begin.elapsed() > START {
                    let reason = format!("the daemon did not start{}", child.last_error());
                    return Err(LabError::program("lttng-sessiond", reason));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            daemon = Some(child);
        }
        Ok(Lttng {
            library,
            session: format!("onbeat-lab-{}", std::process::id()),
            trace: context.dir().join("lttng.trace"),
            _daemon: daemon,
        })
    }

    pub fn library(&self) -> &Path {
        &self.library
    }

    pub fn begin(&self) -> Result<Session<'_>> {
        let _ = std::fs::remove_dir_all(&self.trace);
        let output = format!("--output={}", self.trace.display());
        self.lttng(&["create", &self.session, &output])?;
        let session = Session { lttng: self };
        self.lttng(&["enable-event", "--userspace", "ros2:*"])?;
        let contexts = ["-t", "vpid", "-t", "vtid", "-t", "procname"];
        self.lttng(&[&["add-context", "--userspace"], &contexts[..]].concat())?;
        self.lttng(&["start", &self.session])?;
        Ok(session)
    }

    fn lttng(&self, words: &[&str]) -> Result<String> {
        run(&[&["lttng", "--no-sessiond"], words].concat())
    }
}

pub struct Session<'l> {
    lttng: &'l Lttng,
}

impl Session<'_> {
    pub fn end(self) -> Result<u64> {
        let trace = self.lttng.trace.clone();
        self.lttng.lttng(&["stop", &self.lttng.session])?;
        drop(self);
        let text = run(&["babeltrace2", &trace.display().to_string()])?;
        let _ = std::fs::remove_dir_all(&trace);
        Ok(text
            .lines()
            .filter(|l| l.contains("ros2:rmw_publish"))
            .count() as u64)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = self.lttng.lttng(&["destroy", &self.lttng.session]);
    }
}

fn run(words: &[&str]) -> Result<String> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    output(
        &mut command,
        words[0],
        "install lttng-tools and babeltrace2",
    )
}
