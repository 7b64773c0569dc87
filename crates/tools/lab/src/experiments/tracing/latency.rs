//! What recording adds to the latency of a message between two compiled nodes.

use crate::frame::children::{self, Guarded};
use crate::frame::report::{number, Figure, Report, Table, Target};
use crate::frame::{Context, LabError};
use crate::measure::arms::{schedule, ArmSamples};
use crate::measure::recorder::Recorder;
use crate::measure::stats::{bootstrap, mean, Estimate};
use crate::measure::{native, ros};
use crate::plot::{bars, percentiles, Bar};
use onbeat_time::clock;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCE: &str = include_str!("../../../native/latency.c");
const REAL_TIME_PRIORITY: i32 = 20;
const ARMS: [&str; 2] = ["off", "onbeat"];

/// Mean message latency that ros2_tracing adds with all its events (arXiv 2201.00393), us.
const ROS2_TRACING_ADDED_US: f64 = 3.3;

/// Scheduling of the two nodes' processes. As real-time threads they are not disturbed by other
/// programs, so that what remains is the cost of the probes; as normal ones they compete with the
/// recorder, too.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Policy {
    Normal,
    RealTime,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Policy::Normal => "normal",
            Policy::RealTime => "realtime",
        }
    }
}

/// What one cell of the experiment sets.
#[derive(Debug, Clone, Copy)]
struct Setting {
    policy: Policy,
    rate_hz: u32,
    kib: u32,
}

impl Setting {
    fn title(&self) -> String {
        format!(
            "{} at {} Hz with {} KiB",
            self.policy.name(),
            self.rate_hz,
            self.kib
        )
    }

    fn id(&self) -> String {
        format!("{}.{}hz.{}kib", self.policy.name(), self.rate_hz, self.kib)
    }
}

/// Where a latency begins.
#[derive(Debug, Clone, Copy, PartialEq)]
enum From {
    /// At the start of the publishing callback, as the thesis and ros2_tracing have it.
    Callback,
    /// At the time that the callback was due: what delays its start counts too.
    Release,
}

/// One combination of policy, rate and size.
struct Cell {
    setting: Setting,
    /// From the start of the publishing callback to the start of the receiving one, us.
    message: ArmSamples,
    /// From the intended start of the publishing callback on, us.
    release: ArmSamples,
    /// Messages published while an arm was measured, and those of them that arrived.
    sent: [u64; 2],
    arrived: [u64; 2],
    /// Events that the recorder lost.
    lost_events: u64,
}

impl Cell {
    fn samples(&self, from: From) -> &ArmSamples {
        match from {
            From::Callback => &self.message,
            From::Release => &self.release,
        }
    }
}

/// A line of the subscriber's file.
struct Sample {
    sequence: u64,
    intended_ns: i64,
    sent_ns: i64,
    received_ns: i64,
}

/// The measurement.
pub fn measure(context: &mut Context, report: &mut Report) -> Result<(), LabError> {
    let env = context.ros_env("kilted")?;
    let program = native::compile(
        "latency",
        &ros::with_python_symbols(SOURCE, &env)?,
        &ros::link_arguments(
            &env,
            &[
                "std_msgs__rosidl_typesupport_c",
                "std_msgs__rosidl_generator_c",
            ],
        )?,
    )?;
    let rates: &[u32] = context.pick(&[100, 500, 1000, 2000], &[100, 2000]);
    let sizes: &[u32] = context.pick(&[1, 32, 64, 256], &[1, 64]);
    let rounds = context.pick(8, 4);
    let mut cells = vec![];
    for policy in [Policy::RealTime, Policy::Normal] {
        for &kib in sizes {
            for &rate_hz in rates {
                // Normal threads show what others do to them more than anything else: corners do.
                let outer = |all: &[u32], x| all.first() == Some(&x) || all.last() == Some(&x);
                if policy == Policy::Normal && !(outer(rates, rate_hz) && outer(sizes, kib)) {
                    continue;
                }
                let setting = Setting {
                    policy,
                    rate_hz,
                    kib,
                };
                // Enough messages for a 99th percentile also at the lowest rate.
                let segment = Duration::from_millis(if context.quick() {
                    1500
                } else {
                    (200_000 / rate_hz).clamp(1500, 2500).into()
                });
                let what = format!(
                    "latency, {}, {rounds} rounds of off and onbeat",
                    setting.title()
                );
                context.step(
                    &what,
                    segment * rounds as u32 * 20 + Duration::from_secs(120),
                );
                // One combination that fails does not take the others with it.
                match cell(context, &program, &env, setting, rounds, segment) {
                    Ok(measured) => cells.push(measured),
                    Err(e) => report.note(format!("not measured: {}: {e}", setting.title())),
                }
            }
        }
    }
    if cells.is_empty() {
        return Err(LabError::unexpected(
            "the latency of messages",
            "no combination of rate and size could be measured",
        ));
    }
    let mut raw = context.raw(
        "latency.csv",
        "policy,rate_hz,kib,from,arm,round,latency_us",
    )?;
    for c in &cells {
        let Setting {
            policy,
            rate_hz,
            kib,
        } = c.setting;
        c.message.write(
            &mut raw,
            &format!("{},{rate_hz},{kib},callback,", policy.name()),
        )?;
        c.release.write(
            &mut raw,
            &format!("{},{rate_hz},{kib},release,", policy.name()),
        )?;
    }
    raw.finish()?;
    for policy in [Policy::RealTime, Policy::Normal] {
        let of_policy: Vec<&Cell> = cells
            .iter()
            .filter(|c| c.setting.policy == policy)
            .collect();
        if of_policy.is_empty() {
            continue;
        }
        for from in [From::Callback, From::Release] {
            summarise(context, report, policy, from, &of_policy)?;
        }
        plot(context, policy, &of_policy)?;
    }
    totals(report, &cells);
    Ok(())
}

/// Starts one side and waits until it has found the other.
fn side(
    context: &Context,
    program: &Path,
    env: &Path,
    policy: Policy,
    arguments: &[String],
) -> Result<Guarded, LabError> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    ros::enter(&mut command, env);
    if policy == Policy::RealTime {
        children::real_time(&mut command, REAL_TIME_PRIORITY);
    }
    context.spawn(&mut command)
}

fn wait_ready(child: &mut Guarded) -> Result<(), LabError> {
    let mut line = String::new();
    if let Some(out) = child.child().stdout.take() {
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.trim() == "ready" {
        Ok(())
    } else {
        Err(LabError::program(
            "the latency program",
            format!("it did not start{}", child.said()),
        ))
    }
}

fn cell(
    context: &Context,
    program: &Path,
    env: &Path,
    setting: Setting,
    rounds: usize,
    segment: Duration,
) -> Result<Cell, LabError> {
    let Setting {
        policy,
        rate_hz,
        kib,
    } = setting;
    let file = context.dir().join("latency.samples");
    let _ = std::fs::remove_file(&file);
    let mut subscriber = side(
        context,
        program,
        env,
        policy,
        &["sub".into(), file.display().to_string()],
    )?;
    let mut publisher = side(
        context,
        program,
        env,
        policy,
        &["pub".into(), rate_hz.to_string(), (kib * 1024).to_string()],
    )?;
    wait_ready(&mut publisher)?;
    wait_ready(&mut subscriber)?;
    std::thread::sleep(Duration::from_millis(500));

    // (round, arm, from, to), in order of time
    let mut segments: Vec<(usize, usize, i64, i64)> = vec![];
    let (mut hits, mut lost_events) = (0, 0);
    let trace = context.dir().join("latency.trace");
    for (round, arm) in schedule(ARMS.len(), rounds, &mut context.rng(&setting.id())) {
        let recorder = match arm {
            0 => None,
            _ => Some(Recorder::attach(
                context,
                &trace,
                &[publisher.pid(), subscriber.pid()],
                &[],
            )?),
        };
        // What starting and stopping a recorder stirs up is not what recording costs.
        std::thread::sleep(Duration::from_millis(300));
        let from = clock::monotonic_ns() as i64;
        std::thread::sleep(segment);
        segments.push((round, arm, from, clock::monotonic_ns() as i64));
        if let Some(recorder) = recorder {
            let manifest = recorder.stop()?.manifest;
            hits += manifest
                .probes
                .iter()
                .filter(|p| p.placement != "tracepoint")
                .map(|p| p.hits)
                .sum::<u64>();
            lost_events += manifest
                .lost
                .values()
                .flat_map(|cpus| cpus.values())
                .sum::<u64>();
        }
        for (child, name) in [
            (&mut publisher, "publisher"),
            (&mut subscriber, "subscriber"),
        ] {
            if !child.running() {
                return Err(LabError::program(
                    name,
                    format!("it ended while it was measured{}", child.said()),
                ));
            }
        }
    }
    publisher
        .end(libc::SIGTERM)
        .map_err(|e| LabError::program("the publisher", e))?;
    // What is on its way arrives.
    std::thread::sleep(Duration::from_millis(300));
    subscriber
        .end(libc::SIGTERM)
        .map_err(|e| LabError::program("the subscriber", e))?;
    let samples = read_samples(&file)?;
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_dir_all(&trace);
    if hits == 0 {
        return Err(LabError::unexpected(
            "the recording of the two nodes",
            "no probe in them was hit",
        ));
    }
    let cell = sort_into_arms(setting, rounds, &samples, &segments);
    Ok(Cell {
        lost_events,
        ..cell
    })
}

fn sort_into_arms(
    setting: Setting,
    rounds: usize,
    samples: &[Sample],
    segments: &[(usize, usize, i64, i64)],
) -> Cell {
    let mut cell = Cell {
        setting,
        message: ArmSamples::new(&ARMS, rounds),
        release: ArmSamples::new(&ARMS, rounds),
        sent: [0; 2],
        arrived: [0; 2],
        lost_events: 0,
    };
    for &(round, arm, from, to) in segments {
        // A message belongs to the segment that its whole intended way lies in.
        let mine: Vec<&Sample> = samples
            .iter()
            .filter(|s| s.intended_ns >= from && s.intended_ns < to)
            .collect();
        let us = |ns: i64| ns as f64 / 1000.0;
        cell.message.extend(
            round,
            arm,
            mine.iter().map(|s| us(s.received_ns - s.sent_ns)),
        );
        cell.release.extend(
            round,
            arm,
            mine.iter().map(|s| us(s.received_ns - s.intended_ns)),
        );
        if let (Some(first), Some(last)) = (mine.first(), mine.last()) {
            cell.sent[arm] += last.sequence - first.sequence + 1;
            cell.arrived[arm] += mine.len() as u64;
        }
    }
    cell
}

fn read_samples(file: &Path) -> Result<Vec<Sample>, LabError> {
    let text = std::fs::read_to_string(file).map_err(LabError::file("reading", file))?;
    text.lines()
        .map(|line| {
            let n: Vec<i64> = line.split(',').filter_map(|v| v.parse().ok()).collect();
            match n[..] {
                [sequence, intended_ns, sent_ns, received_ns] if sequence >= 0 => Ok(Sample {
                    sequence: sequence as u64,
                    intended_ns,
                    sent_ns,
                    received_ns,
                }),
                _ => Err(LabError::unexpected(
                    file.display().to_string(),
                    format!("line '{line}'"),
                )),
            }
        })
        .collect()
}

fn summarise(
    context: &Context,
    report: &mut Report,
    policy: Policy,
    from: From,
    cells: &[&Cell],
) -> Result<(), LabError> {
    let mut rng = context.rng("interval");
    let (word, start) = match from {
        From::Callback => ("callback", "the start of the publishing callback"),
        From::Release => ("release", "its intended start"),
    };
    let mut table = Table::new(
        format!(
            "Latency from {start} to the start of the receiving callback, {} threads, us",
            policy.name()
        ),
        &[
            "rate, size",
            "off mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "max",
            "onbeat mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "max",
            "added mean",
            "95 % interval",
            "added p50",
            "p99 ratio",
        ],
    );
    let (mut means, mut medians, mut ratios) = (vec![], vec![], vec![]);
    for c in cells {
        let samples = c.samples(from);
        let added = samples.added_mean(0, 1, &mut rng);
        let added_p50 = samples.added_quantile(0, 1, 0.5, &mut rng);
        let p99 = samples.quantile_ratio(0, 1, 0.99, &mut rng);
        let (off, on) = (samples.pooled(0).summary(), samples.pooled(1).summary());
        let figure = |what: &str, e: Estimate, unit: &str| {
            Figure::new(
                format!("latency.{word}.{}.{what}", c.setting.id()),
                e.value,
                unit,
            )
            .interval(e.low, e.high)
            .samples((off.count + on.count) as u64)
        };
        report.figure(figure("added_mean", added, "us").target(Target::AtMost(5.0)));
        report.figure(figure("added_p50", added_p50, "us"));
        report.figure(figure("p99_ratio", p99, "1").target(Target::AtMost(1.1)));
        let mut row = vec![format!("{} Hz, {} KiB", c.setting.rate_hz, c.setting.kib)];
        for s in [off, on] {
            row.extend([s.mean, s.p50, s.p90, s.p99, s.p99_9, s.p99_99, s.max].map(number));
        }
        row.extend([
            number(added.value),
            format!("{} .. {}", number(added.low), number(added.high)),
            number(added_p50.value),
            number(p99.value),
        ]);
        table.row(row);
        means.push(added.value);
        medians.push(added_p50.value);
        ratios.push(p99.value);
    }
    report.tables.push(table);

    // Over all cells: what one message costs more, whatever its size and rate.
    let mut over_cells = |values: &[f64]| {
        bootstrap(values.len(), 400, &mut rng, |pick| {
            mean(&pick.iter().map(|&i| values[i]).collect::<Vec<_>>())
        })
    };
    let name = format!("latency.{word}.{}", policy.name());
    let added = over_cells(&means);
    report.figure(
        Figure::new(format!("{name}.added_mean"), added.value, "us")
            .target(Target::AtMost(5.0))
            .baseline(
                ROS2_TRACING_ADDED_US,
                "ros2_tracing, all events (arXiv 2201.00393)",
            )
            .interval(added.low, added.high),
    );
    let added_p50 = over_cells(&medians);
    report.figure(
        Figure::new(format!("{name}.added_p50"), added_p50.value, "us")
            .interval(added_p50.low, added_p50.high),
    );
    let ratio = over_cells(&ratios);
    report.figure(
        Figure::new(format!("{name}.p99_ratio"), ratio.value, "1")
            .target(Target::AtMost(1.1))
            .interval(ratio.low, ratio.high),
    );
    Ok(())
}

fn plot(context: &mut Context, policy: Policy, cells: &[&Cell]) -> Result<(), LabError> {
    let mut rng = context.rng("plot");
    let all = |of: fn(&Setting) -> u32| -> BTreeSet<u32> {
        cells.iter().map(|c| of(&c.setting)).collect()
    };
    let (rates, sizes) = (all(|s| s.rate_hz), all(|s| s.kib));
    let categories: Vec<String> = rates.iter().map(|r| format!("{r} Hz")).collect();
    let mut series = vec![];
    for kib in sizes {
        // Cells of one size stand in the order of the rates.
        let bars = cells.iter().filter(|c| c.setting.kib == kib).map(|c| {
            let e = c.message.added_quantile(0, 1, 0.5, &mut rng);
            Bar {
                value: e.value,
                low: e.low,
                high: e.high,
            }
        });
        series.push((format!("{kib} KiB"), bars.collect()));
    }
    let title = format!(
        "Median latency that recording adds to a message, {} threads",
        policy.name()
    );
    let svg = bars(
        &title,
        "us",
        &categories,
        &series,
        Some((5.0, "target: 5 us")),
    )?;
    context.plot(&format!("latency-added-{}.svg", policy.name()), &svg)?;
    for c in cells {
        let series = [
            ("off", c.message.pooled(0)),
            ("onbeat", c.message.pooled(1)),
        ];
        let svg = percentiles(
            &format!("Message latency, {}", c.setting.title()),
            "us",
            &series,
        )?;
        context.plot(
            &format!("latency-{}.svg", c.setting.id().replace('.', "-")),
            &svg,
        )?;
    }
    Ok(())
}

fn totals(report: &mut Report, cells: &[Cell]) {
    let sum = |of: &dyn Fn(&Cell) -> u64| cells.iter().map(of).sum::<u64>();
    let missing = |arm: usize| {
        let sent = sum(&|c| c.sent[arm]).max(1);
        (sent - sum(&|c| c.arrived[arm]).min(sent)) as f64 / sent as f64 * 100.0
    };
    report.figure(
        Figure::new("latency.messages_missing", missing(1), "%")
            .baseline(missing(0), "off")
            .samples(sum(&|c| c.sent[1])),
    );
    report.figure(
        Figure::new(
            "latency.events_lost",
            sum(&|c| c.lost_events) as f64,
            "events",
        )
        .target(Target::AtMost(0.0)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_arm_in_whose_segment_they_were_due() {
        let sample = |sequence: u64, intended_ns: i64, late: i64| Sample {
            sequence,
            intended_ns,
            sent_ns: intended_ns + 1_000,
            received_ns: intended_ns + late,
        };
        // Message 2 is lost; message 4 was due before the second segment.
        let samples = [
            sample(0, 100, 6_000),
            sample(1, 200, 7_000),
            sample(3, 299, 8_000),
            sample(4, 300, 1),
            sample(5, 500, 9_000),
        ];
        let setting = Setting {
            policy: Policy::Normal,
            rate_hz: 100,
            kib: 1,
        };
        let cell = sort_into_arms(setting, 1, &samples, &[(0, 0, 100, 300), (0, 1, 400, 600)]);
        assert_eq!(cell.release.pooled(0).values(), [6.0, 7.0, 8.0]);
        assert_eq!(cell.message.pooled(0).values(), [5.0, 6.0, 7.0]);
        assert_eq!(cell.release.pooled(1).values(), [9.0]);
        assert_eq!((cell.sent, cell.arrived), ([4, 1], [3, 1]));
    }
}
