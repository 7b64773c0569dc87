//! How an experiment is asked to run, and what it works with then: options, children, watchdog, files.

use super::children::{Groups, Guarded};
use super::raw::{write_whole, Raw};
use super::rng::Rng;
use super::watchdog::Watchdog;
use super::{LabError, Report, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How an experiment is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Fewer and shorter runs: to see that it works, not to quote figures.
    pub quick: bool,
    /// More and longer runs than usual, for experiments that have them.
    pub long: bool,
    /// Only this part of an experiment that has parts.
    pub only: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// A recording of arrivals to stream instead of generated ones, for experiments with streams.
    pub arrivals: Option<PathBuf>,
    /// Directory for the results; made if need be.
    pub dir: PathBuf,
    /// The `onbeat` program, for experiments that record.
    pub onbeat: PathBuf,
    /// Another build of it to measure in the same rounds, for experiments that compare builds.
    pub before: Option<PathBuf>,
}

/// What a running experiment works with.
pub struct Context {
    options: Options,
    groups: Groups,
    watchdog: Watchdog,
    files: Vec<String>,
}

impl Context {
    /// For one run of an experiment.
    pub(super) fn new(options: Options, groups: Groups, watchdog: Watchdog) -> Self {
        Context {
            options,
            groups,
            watchdog,
            files: vec![],
        }
    }

    /// Names of the files that were written, in their order.
    pub(super) fn into_files(self) -> Vec<String> {
        self.files
    }

    /// True when only a quick look is wanted.
    pub fn quick(&self) -> bool {
        self.options.quick
    }

    /// True unless another part of the experiment was asked for.
    pub fn wants(&self, part: &str) -> bool {
        self.options.only.as_deref().is_none_or(|only| only == part)
    }

    /// Runs a part of an experiment if it is wanted. One that fails does not take the others with it:
    /// the report says so, about `what`.
    pub fn part(
        &mut self,
        report: &mut Report,
        (part, what): (&str, &str),
        measure: impl FnOnce(&mut Context, &mut Report) -> Result<()>,
    ) {
        if self.wants(part) {
            if let Err(e) = measure(self, report) {
                report.skip(what, e);
            }
        }
    }

    /// `full`, or `quick` when only a quick look is wanted.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.options.quick {
            quick
        } else {
            full
        }
    }

    /// `long` where longer runs are wanted, `quick` when only a quick look is; else `usual`.
    pub fn pick_of_three<T>(&self, long: T, usual: T, quick: T) -> T {
        match (self.options.long, self.options.quick) {
            (_, true) => quick,
            (true, _) => long,
            _ => usual,
        }
    }

    /// A recording of arrivals, where one was given.
    pub fn arrivals(&self) -> Option<&Path> {
        self.options.arrivals.as_deref()
    }

    /// The output directory.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// The `onbeat` program.
    pub fn onbeat(&self) -> &Path {
        &self.options.onbeat
    }

    /// Another build of it to compare with, where one was given.
    pub fn before(&self) -> Option<&Path> {
        self.options.before.as_deref()
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Random numbers for one purpose.
    pub fn rng(&self, purpose: &str) -> Rng {
        Rng::for_purpose(self.options.seed, purpose)
    }

    /// Announces the next step on standard error, and how many seconds it may take before it counts
    /// as hanging (be generous: the machine may be busy).
    pub fn step(&self, what: impl AsRef<str>, limit_s: u64) {
        eprintln!("-- {}", what.as_ref());
        let limit = Duration::from_secs(limit_s);
        self.watchdog.step(what.as_ref(), limit);
    }

    /// Starts a child that cannot outlive the experiment. Call it on the thread that runs the
    /// experiment: the kernel ties the child's life to the thread that started it.
    pub fn spawn(&self, command: &mut Command) -> Result<Guarded> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.groups
            .spawn(command)
            .map_err(|e| LabError::program(program, e))
    }

    /// The ROS 2 environment of a distribution, as `./dev ros-env` makes them.
    pub fn ros_env(&self, distribution: &str) -> Result<PathBuf> {
        let dir = cache_dir().join(format!("ros-{distribution}"));
        if dir.join(".onbeat-packages").is_file() {
            Ok(dir)
        } else {
            Err(LabError::Missing {
                what: format!("ROS 2 {distribution} in {}", dir.display()),
                fix: format!("run `./dev ros-env {distribution}`"),
            })
        }
    }

    /// A file of the project's source tree (demos); experiments that need one run from within it.
    pub fn source(&self, path: &str) -> Result<PathBuf> {
        let here = std::env::current_dir().unwrap_or_default();
        let exe = self.options.onbeat.canonicalize().unwrap_or_default();
        here.ancestors()
            .chain(exe.ancestors())
            .map(|d| d.join(path))
            .find(|p| p.exists())
            .ok_or_else(|| LabError::Missing {
                what: path.to_string(),
                fix: "run the experiment from within onbeat's source tree, with ./dev bench".into(),
            })
    }

    /// A file without a name, which is gone once it is closed.
    pub fn unnamed_file(&self) -> Result<File> {
        let path = self.options.dir.join("unnamed.new");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(LabError::file("writing", &path))?;
        std::fs::remove_file(&path).map_err(LabError::file("removing", &path))?;
        Ok(file)
    }

    /// A file for raw samples in the output directory, written under a temporary name until
    /// [`Raw::finish`].
    pub fn raw(&mut self, name: &str, header: &str) -> Result<Raw> {
        let raw = Raw::create(&self.options.dir.join(name), header)?;
        self.files.push(name.to_string());
        Ok(raw)
    }

    /// Writes a plot into the output directory.
    pub fn plot(&mut self, name: &str, svg: &str) -> Result<()> {
        write_whole(&self.options.dir.join(name), svg.as_bytes())?;
        self.files.push(name.to_string());
        Ok(())
    }
}

/// Where environments, built targets and other things worth keeping are.
pub fn cache_dir() -> PathBuf {
    std::env::var_os("ONBEAT_CACHE")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into()))
                .join(".cache/onbeat")
        })
}
