//! The cost of recording a whole application: CPU time of probes and recorder, and bytes of the
//! trace.
//!
//! The application is the parking demo and SYN together, as in the thesis, section 3.7.

use crate::frame::children::Guarded;
use crate::frame::files;
use crate::frame::programs::quiet;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, LabError, Result};
use crate::measure::recorder::{self, recorded, Recorded};
use crate::measure::stats::{over_blocks, Sorted};
use crate::measure::uprobe::{program_name, programs_of, ProgramStats, RunStats};
use onbeat_time::clock;
use onbeat_trace::manifest::ProbeInfo;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A shell script that runs both applications, then writes their CPU time and their exit codes. The
/// CPU time comes from bash's `times`, which includes ended children.
const SCRIPT: &str = r#"
"$1" "$2" --duration "$3" & parking=$!
"$1" "$4" --duration "$3" --quiet & syn=$!
wait $parking; a=$?
wait $syn; b=$?
{ times; echo "$a $b"; } > "$5"
"#;

struct Watched {
    programs: Vec<ProgramStats>,
    names: BTreeMap<u32, String>,
    /// The recorder's use of a core in %, one value for each interval of about 200 ms. The first
    /// interval begins five seconds after the recorder's start. The CPU time comes from the
    /// kernel's account of the process.
    steady: Vec<f64>,
}

pub fn measure(
    context: &mut Context,
    report: &mut Report,
    hit_us: impl Fn(&ProbeInfo) -> Option<f64>,
) -> Result<()> {
    let seconds: u32 = context.pick(60, 10);
    context.step(
        format!("CPU time of recording and size of the trace: parking demo and synthetic demo SYN at the same time for {seconds} s"),
        u64::from(seconds) + 300,
    );
    let dir = context.dir().join("usage.trace");
    let times = context.dir().join("usage.times");
    let _ = std::fs::remove_dir_all(&dir);
    let stats = RunStats::enable()?;
    let mut command = command(context, &[], &dir, &times, seconds)?;
    let mut child = context.spawn(quiet(&mut command))?;
    let watched = watch(&mut child);
    drop(stats);
    let used = child
        .end(libc::SIGTERM)
        .map_err(|e| LabError::program("onbeat record", e))?;
    if !used.status.success() {
        return Err(LabError::program(
            "onbeat record",
            format!("{}{}", used.status, child.last_error()),
        ));
    }
    let recorded = recorded(&dir)?;
    let apps_s = app_cpu_s(&times)?;
    let codes = files::text(&times)?;
    if codes.lines().last() != Some("0 0") {
        // The applications have done their work anyway, and its cost counts.
        report.note(format!(
            "the exit codes of the parking demo and of the synthetic demo SYN were {}. Both demos end with an error on a machine that is too busy",
            codes.lines().last().unwrap_or_default()
        ));
    }
    let _ = std::fs::remove_dir_all(&dir);
    let _ = std::fs::remove_file(&times);
    let trap_s = probe_table(context, report, &recorded, hit_us)?;
    program_table(context, report, &watched)?;
    figures(report, &recorded, &watched, apps_s, trap_s)
}

/// Measures the application's CPU time with the library of `record --preload`. The report computes
/// the library's cost as the number of events times `event_us`. The recorder's process and the
/// kernel's records of context switches are not included.
pub fn of_library(context: &mut Context, report: &mut Report, event_us: f64) -> Result<()> {
    let seconds: u32 = context.pick(60, 10);
    let limit = Duration::from_secs(u64::from(seconds) + 300);
    let title = format!(
        "CPU time of the preloaded library: parking demo and synthetic demo SYN at the same time for {seconds} s"
    );
    context.step(&title, limit.as_secs());
    let dir = context.dir().join("usage.trace");
    let times = context.dir().join("usage.times");
    let _ = std::fs::remove_dir_all(&dir);
    let mut command = command(context, &["--preload"], &dir, &times, seconds)?;
    context.succeed(quiet(&mut command), "onbeat record --preload", limit)?;
    let manifest = recorded(&dir)?.manifest;
    let apps_s = app_cpu_s(&times)?;
    let hits = recorder::hits(&manifest);
    let _ = std::fs::remove_dir_all(&dir);
    let _ = std::fs::remove_file(&times);
    let share = hits as f64 * event_us / 1e6 / apps_s * 100.0;
    report.figure(
        Figure::new("usage.library", share, "% of apps")
            .at_most(0.05)
            .baseline(0.3, "thesis, section 3.7")
            .samples(hits),
    );
    Ok(())
}

fn command(
    context: &Context,
    words: &[&str],
    dir: &Path,
    times: &Path,
    seconds: u32,
) -> Result<Command> {
    let python = context.ros_env("kilted")?.join("bin/python");
    let (parking, syn) = (
        context.source("demos/parking/run.py")?,
        context.source("demos/syn/syn.py")?,
    );
    let mut command = Command::new(context.onbeat());
    command
        .arg("record")
        .args(words)
        .arg("-o")
        .arg(dir)
        .args(["--", "bash", "-c", SCRIPT, "bash"])
        .args([&python, &parking])
        .arg(seconds.to_string())
        .arg(&syn)
        .arg(times);
    Ok(command)
}

fn watch(child: &mut Guarded) -> Watched {
    let mut watched = Watched {
        programs: vec![],
        names: BTreeMap::new(),
        steady: vec![],
    };
    let mut last: Option<(Instant, f64)> = None;
    let begin = Instant::now();
    while child.running() {
        if let (Ok(programs), Some(cpu_s)) = (programs_of(child.pid()), cpu_s_of(child.pid())) {
            // A process that ends has closed its descriptors, so the last complete reading counts.
            if programs.len() >= watched.programs.len() {
                watched.set_programs(programs);
            }
            if begin.elapsed() > Duration::from_secs(5) {
                let now = Instant::now();
                if let Some((before, at)) = last.replace((now, cpu_s)) {
                    let share = (cpu_s - at) / (now - before).as_secs_f64();
                    watched.steady.push(100.0 * share);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    watched
}

impl Watched {
    fn set_programs(&mut self, programs: Vec<ProgramStats>) {
        for p in &programs {
            if !self.names.contains_key(&p.id) {
                self.names
                    .extend(program_name(p.id).map(|name| (p.id, name)));
            }
        }
        self.programs = programs;
    }
}

fn cpu_s_of(pid: u32) -> Option<f64> {
    clock::process_cpu_ns(pid).map(|ns| ns as f64 / 1e9)
}

fn app_cpu_s(file: &Path) -> Result<f64> {
    let text = files::text(file)?;
    let seconds = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let parts: Option<Vec<f64>> = text
        .lines()
        .nth(1)
        .map(|l| l.split(' ').map(seconds).collect())
        .unwrap_or_default();
    match parts {
        Some(p) if p.len() == 2 => Ok(p[0] + p[1]),
        _ => Err(LabError::in_file(file, format!("'{}'", text.trim()))),
    }
}

/// Adds a table with the number of hits and the time in traps of each probe. Returns the sum of
/// these times in s.
fn probe_table(
    context: &mut Context,
    report: &mut Report,
    recorded: &Recorded,
    hit_us: impl Fn(&ProbeInfo) -> Option<f64>,
) -> Result<f64> {
    let manifest = &recorded.manifest;
    let observed_s = manifest.span.duration_ns as f64 / 1e9;
    let mut probes: Vec<&ProbeInfo> = manifest
        .observed
        .probes
        .iter()
        .filter(|p| p.hits > 0)
        .collect();
    probes.sort_by_key(|p| std::cmp::Reverse(p.hits));
    let (mut trap_s, mut unknown) = (0.0, 0u64);
    let mut table = Table::new(
        format!("Probes while the parking demo and the synthetic demo SYN run at the same time, {observed_s:.0} s"),
        "probe | placement | hits | time in traps, ms",
    );
    let mut raw = context.raw("usage.csv", "probe,library,placement,hits,trap_us_per_hit")?;
    for p in &probes {
        let each_us = if p.placement == "tracepoint" {
            Some(0.0)
        } else {
            hit_us(p)
        };
        let total_us = each_us.map(|us| us * p.hits as f64);
        trap_s += total_us.unwrap_or(0.0) / 1e6;
        unknown += if each_us.is_none() { p.hits } else { 0 };
        let text = each_us.map_or_else(String::new, |us| us.to_string());
        raw.line(format_args!(
            "{},{},{},{},{text}",
            p.name, p.library, p.placement, p.hits
        ))?;
        table.row([
            p.name.clone(),
            p.placement.clone(),
            number(p.hits as f64),
            total_us.map(|us| number(us / 1e3)).unwrap_or_default(),
        ]);
    }
    raw.finish()?;
    report.tables.push(table);
    if unknown > 0 {
        report.note(format!(
            "{unknown} hits are of probes with a kind of placement whose cost was not measured. The cost of these hits counts as 0"
        ));
    }
    Ok(trap_s)
}

fn program_table(context: &mut Context, report: &mut Report, watched: &Watched) -> Result<()> {
    let mut table = Table::new(
        "BPF programs, by the kernel's accounting",
        "BPF program | runs | ns per run | all runs, ms",
    );
    let mut programs: Vec<&ProgramStats> = watched.programs.iter().filter(|p| p.runs > 0).collect();
    programs.sort_by_key(|p| std::cmp::Reverse(p.run_time_ns));
    if programs.is_empty() {
        return Err(LabError::unexpected(
            "the kernel's accounting of BPF programs",
            "no BPF program of the recorder ran",
        ));
    }
    let mut raw = context.raw("usage-programs.csv", "program,runs,run_time_ns")?;
    for p in programs {
        let name = watched.names.get(&p.id);
        let name = name.cloned().unwrap_or_else(|| p.id.to_string());
        raw.line(format_args!("{name},{},{}", p.runs, p.run_time_ns))?;
        let each = p.run_time_ns as f64 / p.runs as f64;
        table.row([
            name,
            number(p.runs as f64),
            number(each),
            number(p.run_time_ns as f64 / 1e6),
        ]);
    }
    raw.finish()?;
    report.tables.push(table);
    Ok(())
}

fn figures(
    report: &mut Report,
    recorded: &Recorded,
    watched: &Watched,
    apps_s: f64,
    trap_s: f64,
) -> Result<()> {
    let manifest = &recorded.manifest;
    let observed_s = manifest.span.duration_ns as f64 / 1e9;
    let bpf_s = watched.programs.iter().map(|p| p.run_time_ns).sum::<u64>() as f64 / 1e9;
    let runs: u64 = watched.programs.iter().map(|p| p.runs).sum();
    let share = |s: f64| s / apps_s * 100.0;
    report.value("usage.apps_cpu", apps_s / observed_s, "cores");
    report.figure(
        Figure::new("usage.probes_bpf", share(bpf_s), "% of apps")
            .baseline(0.3, "thesis, section 3.7")
            .samples(runs),
    );
    report.figure(
        Figure::new("usage.probes_bpf_cores", bpf_s / observed_s, "cores")
            .baseline(0.008, "thesis, section 3.7"),
    );
    report.figure(
        Figure::new(
            "usage.probes_with_traps",
            share(bpf_s + trap_s),
            "% of apps",
        )
        .at_most(0.15)
        .baseline(
            0.3,
            "thesis, section 3.7 (without the time of the probes' traps)",
        )
        .samples(runs),
    );
    if !watched.steady.is_empty() {
        let steady = over_blocks(&watched.steady, Sorted::mean);
        report.figure(Figure::estimated("usage.recorder", steady, "% of a core").at_most(1.0));
    }
    report.figure(
        Figure::exact(
            "usage.trace",
            recorded.bytes as f64 / 1e6 * 60.0 / observed_s,
            "MB per 60 s",
        )
        .at_most(3.0)
        .baseline(9.0, "thesis, section 3.7"),
    );
    report.value(
        "usage.events",
        manifest.written.events as f64 / observed_s,
        "events/s",
    );
    let lost = recorder::lost(manifest);
    report.figure(Figure::exact("usage.events_lost", lost as f64, "events").at_most(0.0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_cpu_times_of_bash_are_parsed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("times");
        std::fs::write(&file, "0m0.003s 0m0.004s\n1m2.500s 0m0.250s\n0 0\n").unwrap();
        assert_eq!(app_cpu_s(&file).unwrap(), 62.75);
        std::fs::write(&file, "0m0.003s 0m0.004s\n").unwrap();
        assert!(app_cpu_s(&file).is_err());
    }

    #[test]
    fn cpu_time_of_a_process_grows_with_work() {
        let before = cpu_s_of(std::process::id()).unwrap();
        let mut x = 1u64;
        while cpu_s_of(std::process::id()).unwrap() < before + 0.05 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert_eq!(cpu_s_of(u32::MAX), None);
    }
}
