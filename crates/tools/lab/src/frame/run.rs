//! Runs one experiment and writes its results.

use super::children::Groups;
use super::disturbance::{Observer, RULE};
use super::files;
use super::machine::{LoadMeter, Machine};
use super::raw::write_whole;
use super::report::{self, Figure};
use super::results::RunFacts;
use super::watchdog::Watchdog;
use super::{Context, Experiment, Extra, LabError, Options, Result, Results};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub fn run(experiment: &Experiment, options: &Options) -> Result<Results> {
    check(experiment, options)?;
    files::make_dir(&options.dir)?;
    let mut context = guarded(experiment.name, options);
    let machine = Machine::here();
    let (meter, clock) = (LoadMeter::start(), Instant::now());
    let observer = Observer::start();
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    context.step(experiment.name, 600);
    let mut report = (experiment.run)(&mut context)?;
    let (load, disturbance) = (meter.finish(), observer.end());
    drop(observer);
    report.disturbed_by(0, context.take_why());
    report.judge();
    let (files, rounds) = context.into_parts();
    unique_names(&report.figures)?;
    let results = Results {
        schema: report::SCHEMA.into(),
        experiment: experiment.name.into(),
        about: experiment.about.into(),
        run: RunFacts {
            command: command(experiment.name, options),
            quick: options.quick,
            seed: options.seed,
            version: env!("CARGO_PKG_VERSION").into(),
            started,
            duration_s: clock.elapsed().as_secs_f64(),
        },
        machine,
        load,
        rule: RULE,
        disturbance,
        rounds,
        files,
        report,
    };
    let text = serde_json::to_string_pretty(&results)
        .map_err(|e| LabError::unexpected("results.json", e))?;
    write_whole(&options.dir.join("results.json"), text.as_bytes())?;
    Ok(results)
}

fn check(experiment: &Experiment, options: &Options) -> Result<()> {
    if let Some(only) = &options.only {
        if !experiment.parts.contains(&only.as_str()) {
            return Err(LabError::NoPart {
                part: only.clone(),
                experiment: experiment.name,
                known: experiment.parts.join(", "),
            });
        }
    }
    let given = [
        (options.long, Extra::Long),
        (options.arrivals.is_some(), Extra::Arrivals),
        (options.before.is_some(), Extra::Before),
    ];
    for (is_given, extra) in given {
        if is_given && !experiment.takes.contains(&extra) {
            let (option, lacks) = extra.words();
            return Err(LabError::NoExtra {
                experiment: experiment.name,
                option,
                lacks,
            });
        }
    }
    Ok(())
}

/// Returns a context with a watchdog. If a step of the experiment exceeds its time limit, the
/// watchdog kills all children and ends the program.
fn guarded(name: &'static str, options: &Options) -> Context {
    let groups = Groups::default();
    let doomed = groups.clone();
    let watchdog = Watchdog::start(move |step, limit| {
        doomed.kill_all();
        eprintln!(
            "onbeat-lab {name}: '{step}' did not end within {} s and was stopped. The raw samples so far are in *.new",
            limit.as_secs()
        );
        std::process::exit(124);
    });
    Context::new(options.clone(), groups, watchdog)
}

fn command(name: &str, options: &Options) -> String {
    let mut command = format!("./dev bench {name}");
    if options.quick {
        command += " --quick";
    }
    if options.long {
        command += " --long";
    }
    if let Some(only) = &options.only {
        command += &format!(" --only {only}");
    }
    if let Some(arrivals) = &options.arrivals {
        command += &format!(" --arrivals {}", arrivals.display());
    }
    if let Some(before) = &options.before {
        command += &format!(" --baseline {}", before.display());
    }
    command
}

fn unique_names(figures: &[Figure]) -> Result<()> {
    let mut names: Vec<_> = figures.iter().map(|f| f.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|w| w[0] == w[1]) {
        Some(twice) => Err(LabError::unexpected(
            "the list of figures",
            format!("the list has the figure '{}' twice", twice[0]),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Report, Turns};
    use crate::measure::arms;
    use crate::plot;
    use std::fs;
    use std::path::Path;

    const TRIVIAL: Experiment = Experiment {
        name: "trivial",
        about: "shows the frame",
        parts: &[],
        takes: &[],
        run: trivial,
    };

    fn trivial(context: &mut Context) -> Result<Report> {
        context.step("measure", 3600);
        let turns = Turns::quiet(2, context.pick(20, 4), &mut context.rng("order"));
        let samples = arms::interleave(turns, &["off", "on"], |arm, round| {
            Ok::<_, LabError>(vec![100.0 + round as f64 + arm as f64; 10])
        })?;
        samples.save(context, "samples.csv")?;
        let series = [("off", samples.pooled(0)), ("on", samples.pooled(1))];
        context.plot(
            "latency.svg",
            &plot::percentiles("<latency> & more", "us", &series)?,
        )?;
        let added = samples.added_mean(0, 1, &mut context.rng("interval"));
        let mut report = Report::new();
        report.figure(
            Figure::estimated("added", added, "us")
                .at_most(0.5)
                .baseline(3.3, "ros2_tracing"),
        );
        report.value("plain", 2.0, "1");
        report.skip("nothing", "all was there");
        Ok(report)
    }

    fn options(dir: &Path) -> Options {
        Options {
            quick: true,
            long: false,
            only: None,
            seed: 5,
            arrivals: None,
            dir: dir.join("out"),
            onbeat: "onbeat".into(),
            before: None,
        }
    }

    #[test]
    fn an_experiment_writes_results_samples_and_plots() {
        let dir = tempfile::tempdir().unwrap();
        let results = run(&TRIVIAL, &options(dir.path())).unwrap();
        let out = dir.path().join("out");

        // Readers of results.json rely on this schema. The test reads it without the lab's own
        // types.
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(out.join("results.json")).unwrap()).unwrap();
        let figure = &json["figures"][0];
        assert_eq!(figure["name"], "added");
        assert_eq!(figure["value"], 1.0);
        assert_eq!(figure["unit"], "us");
        assert_eq!(figure["target"], 0.5);
        assert_eq!(figure["verdict"], "missed");
        assert_eq!(figure["rounds"], 4);
        assert_eq!(json["rule"]["foreign"], 0.1);
        assert_eq!(figure["baseline"], 3.3);
        for key in ["target", "baseline"] {
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
            text.contains("missed: added: the figure's 95 % confidence interval 1 .. 1 (computed from 4 rounds")
                && text.contains("<= 0.5")
                && text.contains("skipped: nothing")
        );
    }

    #[test]
    fn equal_seeds_give_equal_order_and_figures() {
        let dir = tempfile::tempdir().unwrap();
        let run = || {
            let mut report = run(&TRIVIAL, &options(dir.path())).unwrap().report;
            // Other programs can disturb one of the two runs.
            for figure in &mut report.figures {
                figure.evidence.disturbed = None;
            }
            report
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn an_experiment_refuses_options_that_it_does_not_support() {
        let dir = tempfile::tempdir().unwrap();
        let only = Options {
            only: Some("nonsense".into()),
            ..options(dir.path())
        };
        assert!(matches!(run(&TRIVIAL, &only), Err(LabError::NoPart { .. })));
        let streams = Options {
            arrivals: Some("recording.csv".into()),
            ..options(dir.path())
        };
        assert!(matches!(
            run(&TRIVIAL, &streams),
            Err(LabError::NoExtra { .. })
        ));
    }
}
