//! The frame: what an experiment is, what it gets, and how it is run and written down.

use crate::arms::ArmSamples;
use crate::children::{Groups, Guarded};
use crate::experiments;
use crate::machine::{Load, LoadMeter, Machine};
use crate::report::{self, Figure, Report};
use crate::rng::Rng;
use crate::watchdog::Watchdog;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A measurement that can be repeated with one command.
pub trait Experiment {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// One line on what it shows, and which table or figure of the papers stands beside it.
    fn about(&self) -> &'static str;
    /// Parts that can be run alone; none when it is a whole.
    fn parts(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether it can stream a recording of arrivals.
    fn takes_arrivals(&self) -> bool {
        false
    }
    /// Does it. Parts that this machine cannot do go into [`Report::skipped`]; an error is for
    /// when nothing can be said.
    fn run(&self, context: &mut Context) -> Result<Report, LabError>;
}

/// Why an experiment could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No experiment of this name.
    #[error("no experiment '{0}': `onbeat-lab` lists them")]
    Unknown(String),
    /// No part of this name.
    #[error("no part '{part}' in {experiment}: it has {}", if known.is_empty() { "none" } else { known })]
    NoPart {
        /// What was asked for.
        part: String,
        /// Of which experiment.
        experiment: &'static str,
        /// What there is.
        known: String,
    },
    /// The experiment has no streams.
    #[error("{experiment} streams no messages: leave --arrivals out")]
    NoArrivals {
        /// Which.
        experiment: &'static str,
    },
    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried: "writing", "reading".
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started, or ended badly.
    #[error("running {program}: {why}")]
    Program {
        /// Which.
        program: String,
        /// What happened, and what to do where that is known.
        why: String,
    },
    /// Something that the experiment needs is not there.
    #[error("{what} is missing: {fix}")]
    Missing {
        /// What.
        what: String,
        /// How to get it.
        fix: String,
    },
    /// A program or file said something that cannot be used.
    #[error("{what} is not as expected: {why}")]
    Unexpected {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// The kernel refused something.
    #[error("{action}: {source}; run as root on Linux 5.8 or newer")]
    Kernel {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A plot could not be drawn.
    #[error("drawing the plot {name}: {why}")]
    Plot {
        /// File name.
        name: String,
        /// What happened.
        why: String,
    },
}

impl LabError {
    /// For `map_err` after file operations.
    pub fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File {
            action,
            path,
            source,
        }
    }

    /// A program that could not be run or failed.
    pub fn program(program: impl Into<String>, why: impl ToString) -> LabError {
        LabError::Program {
            program: program.into(),
            why: why.to_string(),
        }
    }

    /// Something unusable.
    pub fn unexpected(what: impl Into<String>, why: impl ToString) -> LabError {
        LabError::Unexpected {
            what: what.into(),
            why: why.to_string(),
        }
    }
}

/// Every experiment there is, in the order they are listed.
pub fn registry() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(experiments::tracing::Tracing),
        Box::new(experiments::model::ModelSpeed),
        Box::new(experiments::parking::Parking),
        Box::new(experiments::transport::Transport),
        Box::new(experiments::queues::Queues),
        Box::new(experiments::planner::Planner),
        Box::new(experiments::shaping::Shaping),
    ]
}

/// The experiment of a name.
pub fn find(name: &str) -> Result<Box<dyn Experiment>, LabError> {
    registry()
        .into_iter()
        .find(|e| e.name() == name)
        .ok_or_else(|| LabError::Unknown(name.to_string()))
}

/// How an experiment is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Fewer and shorter runs: to see that it works, not to quote figures.
    pub quick: bool,
    /// Only this part of an experiment that has parts.
    pub only: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// A recording of arrivals to stream instead of made-up ones, for experiments with streams.
    pub arrivals: Option<PathBuf>,
    /// Directory for the results; made if need be.
    pub dir: PathBuf,
    /// The `onbeat` program, for experiments that record.
    pub onbeat: PathBuf,
}

/// What a running experiment works with.
pub struct Context {
    options: Options,
    groups: Groups,
    watchdog: Watchdog,
    files: Vec<String>,
}

impl Context {
    /// True when only a quick look is wanted.
    pub fn quick(&self) -> bool {
        self.options.quick
    }

    /// True unless another part of the experiment was asked for.
    pub fn wants(&self, part: &str) -> bool {
        self.options.only.as_deref().is_none_or(|only| only == part)
    }

    /// `full`, or `quick` when only a quick look is wanted.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.options.quick {
            quick
        } else {
            full
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

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Random numbers for one purpose.
    pub fn rng(&self, purpose: &str) -> Rng {
        Rng::for_purpose(self.options.seed, purpose)
    }

    /// Announces the next step on standard error, and how long it may take before it counts as
    /// hanging (be generous: the machine may be busy).
    pub fn step(&self, what: &str, limit: Duration) {
        eprintln!("-- {what}");
        self.watchdog.step(what, limit);
    }

    /// Starts a child that cannot outlive the experiment. Call it on the thread that runs the
    /// experiment: the kernel ties the child's life to the thread that started it.
    pub fn spawn(&self, command: &mut Command) -> Result<Guarded, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.groups
            .spawn(command)
            .map_err(|e| LabError::program(program, e))
    }

    /// The ROS 2 environment of a distribution, as `./dev ros-env` makes them.
    pub fn ros_env(&self, distribution: &str) -> Result<PathBuf, LabError> {
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
    pub fn source(&self, path: &str) -> Result<PathBuf, LabError> {
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

    /// A file for raw samples in the output directory, written under a temporary name until
    /// [`Raw::finish`].
    pub fn raw(&mut self, name: &str, header: &str) -> Result<Raw, LabError> {
        let raw = Raw::create(&self.options.dir.join(name), header)?;
        self.files.push(name.to_string());
        Ok(raw)
    }

    /// Writes samples of interleaved arms as CSV with the columns `arm,round,value`.
    pub fn raw_arms(&mut self, name: &str, samples: &ArmSamples) -> Result<(), LabError> {
        let mut raw = self.raw(name, "arm,round,value")?;
        raw.arms(samples, "")?;
        raw.finish()
    }

    /// Writes a plot into the output directory.
    pub fn plot(&mut self, name: &str, svg: &str) -> Result<(), LabError> {
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

/// A file of raw samples that is being written.
pub struct Raw {
    out: BufWriter<File>,
    path: PathBuf,
    temporary: PathBuf,
}

impl Raw {
    fn create(path: &Path, header: &str) -> Result<Self, LabError> {
        let temporary = temporary_name(path);
        let file = File::create(&temporary).map_err(LabError::file("writing", &temporary))?;
        let mut raw = Raw {
            out: BufWriter::new(file),
            path: path.to_path_buf(),
            temporary,
        };
        raw.line(format_args!("{header}"))?;
        Ok(raw)
    }

    /// Writes one line.
    pub fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), LabError> {
        writeln!(self.out, "{line}").map_err(LabError::file("writing", &self.temporary))
    }

    /// Writes the samples of interleaved arms, each line with a prefix.
    pub fn arms(&mut self, samples: &ArmSamples, prefix: &str) -> Result<(), LabError> {
        samples
            .write_csv(&mut self.out, prefix)
            .map_err(LabError::file("writing", &self.temporary))
    }

    /// Gives the file its name.
    pub fn finish(mut self) -> Result<(), LabError> {
        self.out
            .flush()
            .map_err(LabError::file("writing", &self.temporary))?;
        fs::rename(&self.temporary, &self.path).map_err(LabError::file("writing", &self.path))
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    path.with_file_name(name)
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    let temporary = temporary_name(path);
    fs::write(&temporary, bytes).map_err(LabError::file("writing", &temporary))?;
    fs::rename(&temporary, path).map_err(LabError::file("writing", path))
}

/// What stands in `results.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Always [`report::SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// What it shows.
    pub about: String,
    /// The command that repeats it.
    pub command: String,
    /// True when the figures come from a quick look.
    pub quick: bool,
    /// Seed.
    pub seed: u64,
    /// Version of onbeat.
    pub version: String,
    /// Start, seconds since 1970.
    pub started: u64,
    /// How long it took.
    pub duration_s: f64,
    /// The machine.
    pub machine: Machine,
    /// How busy it was.
    pub load: Load,
    /// Raw samples and plots beside this file.
    pub files: Vec<String>,
    /// Figures, tables, notes, what was skipped.
    #[serde(flatten)]
    pub report: Report,
}

/// Runs an experiment and writes its results; returns them for printing.
pub fn run(experiment: &dyn Experiment, options: &Options) -> Result<Results, LabError> {
    if let Some(only) = options
        .only
        .as_deref()
        .filter(|o| !experiment.parts().contains(o))
    {
        let known = experiment.parts().join(", ");
        return Err(LabError::NoPart {
            part: only.into(),
            experiment: experiment.name(),
            known,
        });
    }
    if options.arrivals.is_some() && !experiment.takes_arrivals() {
        return Err(LabError::NoArrivals {
            experiment: experiment.name(),
        });
    }
    fs::create_dir_all(&options.dir).map_err(LabError::file("making", &options.dir))?;
    let groups = Groups::default();
    let doomed = groups.clone();
    let name = experiment.name();
    let watchdog = Watchdog::start(move |step, limit| {
        doomed.kill_all();
        eprintln!(
            "onbeat-lab {name}: '{step}' did not end within {} s: stopped. Raw samples so far are kept as *.new",
            limit.as_secs()
        );
        std::process::exit(124);
    });
    let mut context = Context {
        options: options.clone(),
        groups,
        watchdog,
        files: vec![],
    };
    let machine = Machine::here();
    let (meter, clock, started) = (
        LoadMeter::start(),
        std::time::Instant::now(),
        SystemTime::now(),
    );
    context.step(experiment.name(), Duration::from_secs(600));
    let report = experiment.run(&mut context)?;
    let load = meter.finish();
    unique_names(&report.figures)?;
    let results = Results {
        schema: report::SCHEMA.into(),
        experiment: name.into(),
        about: experiment.about().into(),
        command: format!(
            "./dev bench {name}{}{}{}",
            if options.quick { " --quick" } else { "" },
            options
                .only
                .as_ref()
                .map(|o| format!(" --only {o}"))
                .unwrap_or_default(),
            options
                .arrivals
                .as_ref()
                .map(|a| format!(" --arrivals {}", a.display()))
                .unwrap_or_default()
        ),
        quick: options.quick,
        seed: options.seed,
        version: env!("CARGO_PKG_VERSION").into(),
        started: started
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs()),
        duration_s: clock.elapsed().as_secs_f64(),
        machine,
        load,
        files: context.files,
        report,
    };
    let text = serde_json::to_string_pretty(&results)
        .map_err(|e| LabError::unexpected("results.json", e))?;
    write_whole(&options.dir.join("results.json"), text.as_bytes())?;
    Ok(results)
}

fn unique_names(figures: &[Figure]) -> Result<(), LabError> {
    let mut names: Vec<_> = figures.iter().map(|f| f.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|w| w[0] == w[1]) {
        Some(twice) => Err(LabError::unexpected(
            "the list of figures",
            format!("'{}' stands in it twice", twice[0]),
        )),
        None => Ok(()),
    }
}

impl Results {
    /// Everything for the reader.
    pub fn text(&self) -> String {
        let m = &self.machine;
        format!(
            "{}: {}\n{}\n{} cores, {}, Linux {}{}; {:.0} % busy, {:.1} % steal, load {:.1} to {:.1}; seed {}; {:.0} s\n",
            self.experiment,
            self.about,
            self.report.text().trim_end(),
            m.cores,
            m.cpu,
            m.kernel,
            if m.virtual_machine { " (virtual machine)" } else { "" },
            self.load.busy * 100.0,
            self.load.steal * 100.0,
            self.load.load1_start,
            self.load.load1_end,
            self.seed,
            self.duration_s,
        ) + if self.quick { "A quick look: not for quoting.\n" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Target;
    use crate::{arms, plot};

    struct Trivial;

    impl Experiment for Trivial {
        fn name(&self) -> &'static str {
            "trivial"
        }
        fn about(&self) -> &'static str {
            "shows the frame"
        }
        fn run(&self, context: &mut Context) -> Result<Report, LabError> {
            context.step("measure", Duration::from_secs(3600));
            let samples = arms::interleave(
                &["off", "on"],
                context.pick(20, 4),
                &mut context.rng("order"),
                |arm, round| Ok::<_, LabError>(vec![100.0 + round as f64 + arm as f64; 10]),
            )?;
            context.raw_arms("samples.csv", &samples)?;
            let series = [("off", samples.pooled(0)), ("on", samples.pooled(1))];
            context.plot(
                "latency.svg",
                &plot::percentiles("<latency> & more", "us", &series)?,
            )?;
            let added = samples.added_mean(0, 1, &mut context.rng("interval"));
            let mut report = Report::new();
            report.figure(
                Figure::new("added", added.value, "us")
                    .target(Target::AtMost(0.5))
                    .baseline(3.3, "ros2_tracing")
                    .interval(added.low, added.high),
            );
            report.figure(Figure::new("plain", 2.0, "1"));
            report.skip("nothing", "all was there");
            Ok(report)
        }
    }

    fn options(dir: &Path) -> Options {
        Options {
            quick: true,
            only: None,
            seed: 5,
            arrivals: None,
            dir: dir.join("out"),
            onbeat: "onbeat".into(),
        }
    }

    #[test]
    fn an_experiment_leaves_results_samples_and_plots() {
        let dir = tempfile::tempdir().unwrap();
        let results = run(&Trivial, &options(dir.path())).unwrap();
        let out = dir.path().join("out");

        // The schema that readers of results.json rely on, read without our own types.
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(out.join("results.json")).unwrap()).unwrap();
        let figure = &json["figures"][0];
        assert_eq!(figure["name"], "added");
        assert_eq!(figure["value"], 1.0);
        assert_eq!(figure["unit"], "us");
        assert_eq!(figure["target"], 0.5);
        assert_eq!(figure["met"], false);
        assert_eq!(figure["baseline"], 3.3);
        for key in ["target", "met", "baseline"] {
            assert!(
                json["figures"][1].get(key).is_some_and(|v| v.is_null()),
                "{key} stands there as null"
            );
        }
        assert!(json["machine"]["cores"].as_u64().unwrap() >= 1);
        assert!(!json["machine"]["kernel"].as_str().unwrap().is_empty());
        assert_eq!(
            json["files"],
            serde_json::json!(["samples.csv", "latency.svg"])
        );
        assert_eq!(serde_json::from_value::<Results>(json).unwrap(), results);

        let csv = fs::read_to_string(out.join("samples.csv")).unwrap();
        assert_eq!(csv.lines().next(), Some("arm,round,value"));
        assert_eq!(csv.lines().count(), 1 + 2 * 4 * 10);
        let svg = fs::read_to_string(out.join("latency.svg")).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.contains("&lt;latency&gt; &amp; more"),
            "titles are escaped"
        );
        let left: Vec<_> = fs::read_dir(&out)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 3, "no temporary files stay: {left:?}");

        let text = results.text();
        assert!(
            text.contains("MISSED") && text.contains("<= 0.5") && text.contains("skipped: nothing")
        );
    }

    #[test]
    fn equal_seeds_give_equal_order_and_figures() {
        let dir = tempfile::tempdir().unwrap();
        let a = run(&Trivial, &options(dir.path())).unwrap().report;
        let b = run(&Trivial, &options(dir.path())).unwrap().report;
        assert_eq!(a, b);
    }

    #[test]
    fn unknown_experiments_are_refused_and_names_are_unique() {
        assert!(matches!(find("nonsense"), Err(LabError::Unknown(_))));
        let dir = tempfile::tempdir().unwrap();
        let only = Options {
            only: Some("nonsense".into()),
            ..options(dir.path())
        };
        assert!(matches!(run(&Trivial, &only), Err(LabError::NoPart { .. })));
        let streams = Options {
            arrivals: Some("recording.csv".into()),
            ..options(dir.path())
        };
        assert!(matches!(
            run(&Trivial, &streams),
            Err(LabError::NoArrivals { .. })
        ));
        let all = registry();
        for e in &all {
            assert_eq!(
                all.iter().filter(|o| o.name() == e.name()).count(),
                1,
                "{}",
                e.name()
            );
            assert!(!e.about().contains('\n'));
        }
    }
}
