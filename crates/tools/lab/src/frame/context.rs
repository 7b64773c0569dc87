//! The surroundings of a running experiment: options, children, watchdog, files.

use super::children::{Groups, Guarded};
use super::disturbance::{Observer, RULE};
use super::raw::{write_whole, Raw};
use super::rng::Rng;
use super::turns::{schedule, Limits, RoundsLog, RoundsTaken, Turns};
use super::watchdog::Watchdog;
use super::{LabError, Report, Result};
use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to do fewer and shorter runs, for a trial. The figures of such runs must not be
    /// quoted.
    pub quick: bool,
    pub long: bool,
    pub only: Option<String>,
    pub seed: u64,
    pub arrivals: Option<PathBuf>,
    pub dir: PathBuf,
    pub onbeat: PathBuf,
    pub before: Option<PathBuf>,
}

pub struct Context {
    options: Options,
    groups: Groups,
    watchdog: Watchdog,
    files: Vec<String>,
    rounds: RoundsLog,
    watch: RefCell<Watch>,
}

/// Observes parts of an experiment that have no rounds. Judges each step of a part separately,
/// because a short disturbance would not show in the average of a long part.
struct Watch {
    observer: Observer,
    why: Option<String>,
}

impl Watch {
    fn next_step(&mut self) {
        if self.observer.is_due() {
            let step = self.observer.end();
            self.why = self.why.take().or_else(|| step.why(&RULE));
            self.observer.begin();
        }
    }
}

impl Context {
    pub(super) fn new(options: Options, groups: Groups, watchdog: Watchdog) -> Self {
        Context {
            options,
            groups,
            watchdog,
            files: vec![],
            rounds: RoundsLog::default(),
            watch: RefCell::new(Watch {
                observer: Observer::start(),
                why: None,
            }),
        }
    }

    /// Ends the current step. Returns why a step since the last call was disturbed, or `None` if no
    /// step was disturbed.
    pub(super) fn take_why(&self) -> Option<String> {
        let mut watch = self.watch.borrow_mut();
        watch.next_step();
        watch.why.take()
    }

    pub(super) fn into_parts(self) -> (Vec<String>, Vec<RoundsTaken>) {
        (self.files, self.rounds.take())
    }

    /// Creates the turns of a comparison: `rounds` rounds, each with one turn of every arm.
    /// Disturbed rounds are set aside and repeated. [`Turns::finish`] returns the rounds that
    /// count.
    pub fn turns(&self, purpose: &str, arms: usize, rounds: usize) -> Turns {
        let order = schedule(arms, rounds, &mut self.rng(purpose));
        self.turns_in_order(purpose, order)
    }

    /// Creates turns that follow `order`, which contains `(round, arm)`. The turns of a round must
    /// follow one another.
    pub fn turns_in_order(&self, purpose: &str, order: Vec<(usize, usize)>) -> Turns {
        let limits = self.pick(Limits::FULL, Limits::QUICK);
        Turns::new(purpose.into(), order, limits, self.rounds.clone())
    }

    pub fn quick(&self) -> bool {
        self.options.quick
    }

    pub fn wants(&self, part: &str) -> bool {
        self.options.only.as_deref().is_none_or(|only| only == part)
    }

    /// Runs a part of an experiment, unless the user chose another part. If the part fails, the
    /// report lists `what` as skipped, and the other parts run. The machine is observed during the
    /// part, for figures that do not come from rounds.
    pub fn part(
        &mut self,
        report: &mut Report,
        (part, what): (&str, &str),
        measure: impl FnOnce(&mut Context, &mut Report) -> Result<()>,
    ) {
        if self.wants(part) {
            let (before, earlier) = (report.figures.len(), self.take_why());
            if let Err(e) = measure(self, report) {
                report.skip(what, e);
            }
            let why = self.take_why();
            report.disturbed_by(before, why.clone());
            self.watch.borrow_mut().why = earlier.or(why);
        }
    }

    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.options.quick {
            quick
        } else {
            full
        }
    }

    pub fn pick_of_three<T>(&self, long: T, usual: T, quick: T) -> T {
        match (self.options.long, self.options.quick) {
            (_, true) => quick,
            (true, _) => long,
            _ => usual,
        }
    }

    pub fn arrivals(&self) -> Option<&Path> {
        self.options.arrivals.as_deref()
    }

    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    pub fn onbeat(&self) -> &Path {
        &self.options.onbeat
    }

    pub fn before(&self) -> Option<&Path> {
        self.options.before.as_deref()
    }

    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    pub fn rng(&self, purpose: &str) -> Rng {
        Rng::for_purpose(self.options.seed, purpose)
    }

    /// Prints the name of the next step on standard error and limits its time to `limit_s`. A step
    /// that takes longer counts as hanging. Choose a generous limit, because the machine may be
    /// busy.
    pub fn step(&self, what: impl AsRef<str>, limit_s: u64) {
        eprintln!("-- {}", what.as_ref());
        self.watch.borrow_mut().next_step();
        let limit = Duration::from_secs(limit_s);
        self.watchdog.step(what.as_ref(), limit);
    }

    pub fn spawn(&self, command: &mut Command) -> Result<Guarded> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.groups
            .spawn(command)
            .map_err(|e| LabError::program(program, e))
    }

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

    /// Returns the path of a file in the project's source tree. Searches the parents of the current
    /// directory and of the `onbeat` program.
    pub fn source(&self, path: &str) -> Result<PathBuf> {
        let here = std::env::current_dir().unwrap_or_default();
        let exe = self.options.onbeat.canonicalize().unwrap_or_default();
        here.ancestors()
            .chain(exe.ancestors())
            .map(|d| d.join(path))
            .find(|p| p.exists())
            .ok_or_else(|| LabError::Missing {
                what: path.to_string(),
                fix: "run the experiment with ./dev bench in onbeat's source tree".into(),
            })
    }

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

    /// Creates a file for raw samples in the output directory. The file has a temporary name until
    /// [`Raw::finish`] is called.
    pub fn raw(&mut self, name: &str, header: &str) -> Result<Raw> {
        let raw = Raw::create(&self.options.dir.join(name), header)?;
        self.files.push(name.to_string());
        Ok(raw)
    }

    pub fn plot(&mut self, name: &str, svg: &str) -> Result<()> {
        write_whole(&self.options.dir.join(name), svg.as_bytes())?;
        self.files.push(name.to_string());
        Ok(())
    }
}

pub fn cache_dir() -> PathBuf {
    std::env::var_os("ONBEAT_CACHE")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into()))
                .join(".cache/onbeat")
        })
}
