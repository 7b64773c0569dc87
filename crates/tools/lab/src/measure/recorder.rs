//! Runs `onbeat record` as a child of an experiment.

use crate::frame::children::Guarded;
use crate::frame::programs::quiet;
use crate::frame::{Context, LabError, Result};
use onbeat_trace::{Manifest, Reader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ATTACH_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Recorder {
    child: Guarded,
    dir: PathBuf,
}

#[derive(Debug)]
pub struct Recorded {
    pub manifest: Manifest,
    pub bytes: u64,
}

impl Recorder {
    pub fn attach(context: &Context, dir: &Path, pids: &[u32], arguments: &[&str]) -> Result<Self> {
        let _ = std::fs::remove_dir_all(dir);
        let mut command = Command::new(context.onbeat());
        command.arg("record").arg("-o").arg(dir).args(arguments);
        for pid in pids {
            command.args(["--pid", &pid.to_string()]);
        }
        let child = context.spawn(quiet(&mut command))?;
        let mut recorder = Recorder {
            child,
            dir: dir.to_path_buf(),
        };
        recorder.wait_attached(pids)?;
        Ok(recorder)
    }

    fn wait_attached(&mut self, pids: &[u32]) -> Result<()> {
        let until = Instant::now() + ATTACH_LIMIT;
        while Instant::now() < until {
            if !self.child.running() {
                return Err(LabError::program(
                    "onbeat record",
                    format!("it ended{}", self.child.last_error()),
                ));
            }
            // The manifest lists probes and processes only once the probes are attached.
            if let Ok(text) = std::fs::read(self.dir.join("manifest.json")) {
                if let Ok(m) = serde_json::from_slice::<Manifest>(&text) {
                    let seen = |pid: &u32| m.observed.processes.iter().any(|p| p.pid == *pid);
                    if m.observed.probes.iter().any(|p| p.attached) && pids.iter().all(seen) {
                        return Ok(());
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(LabError::program(
            "onbeat record",
            format!(
                "the recorder attached no probe within {} s",
                ATTACH_LIMIT.as_secs()
            ),
        ))
    }

    pub fn stop(mut self) -> Result<Recorded> {
        let used = self
            .child
            .end(libc::SIGINT)
            .map_err(|e| LabError::program("onbeat record", e))?;
        if !used.status.success() {
            return Err(LabError::program(
                "onbeat record",
                format!("{}{}", used.status, self.child.last_error()),
            ));
        }
        recorded(&self.dir)
    }
}

pub fn open(dir: &Path) -> Result<Reader> {
    Reader::open(dir).map_err(|e| LabError::unexpected(format!("the trace {}", dir.display()), e))
}

pub fn lost(manifest: &Manifest) -> u64 {
    manifest.lost.values().flat_map(|cpus| cpus.values()).sum()
}

pub fn hits(manifest: &Manifest) -> u64 {
    let probes = manifest.observed.probes.iter();
    let called = probes.filter(|p| p.placement != "tracepoint");
    called.map(|p| p.hits).sum()
}

pub fn recorded(dir: &Path) -> Result<Recorded> {
    let manifest = open(dir)?.manifest().clone();
    let bytes = std::fs::read_dir(dir)
        .map_err(LabError::file("reading", dir))?
        .filter_map(|e| e.ok()?.metadata().ok())
        .map(|m| m.len())
        .sum();
    Ok(Recorded { manifest, bytes })
}
