//! Tables beside the paper's, figures with their targets, and plots.

use super::arms::{Arm, Program, ARMS};
use super::cell::Setting;
use super::results::{
    Kpi, QueueResults, CPU, CPU_PER_MESSAGE, CYCLES, DELAY, JITTER, KPIS, LOSS, RAM,
};
use super::{Plan, COUNTS};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::rng::Rng;
use crate::frame::{Context, Estimate, Result};
use crate::measure::stats::{mean, Sorted};
use crate::measure::streams::{Spread, CAN, RADAR};
use crate::plot::{lines, percentiles, Axes, Line};

/// A table of the paper. Columns: 1, 2, 4, 8 and 10 streams. Rows: CPU, RAM, delay, jitter, loss.
/// The paper does not report the spread of cycles (the longest minus the shortest time between
/// outputs).
type Paper = [[f64; 5]; 5];

/// Table III of the paper, the values of its concept 2: CPU in % of a core, RAM in % of 16 GB,
/// delay and jitter in ms, loss in %.
const TABLE_3: Paper = [
    [7.6, 10.5, 16.4, 26.3, 29.9],
    [1.0, 1.2, 1.6, 2.4, 2.9],
    [0.3, 0.5, 0.8, 2.0, 3.1],
    [166.0, 168.0, 174.0, 177.0, 177.0],
    [0.2, 0.2, 0.3, 4.0, 15.6],
];
/// Table IV of the paper: the change from its concept 2 to its concept 1, in %.
const TABLE_4: Paper = [
    [-16.0, 39.0, 44.0, 43.0, 47.0],
    [-40.0, -50.0, -62.0, -75.0, -79.0],
    [3126.0, 481.0, 393.0, 270.0, 245.0],
    [26.0, 25.0, 16.0, 29.0, 31.0],
    [13566.0, 4262.0, 3529.0, 840.0, 225.0],
];
/// Table V of the paper: the change from its concept 2 to its concept 3, in %.
const TABLE_5: Paper = [
    [22.0, 17.0, 7.0, 9.0, 24.0],
    [0.0; 5],
    [33.0, 24.0, 22.0, 23.0, 9.0],
    [3.0, 4.0, 3.0, 12.0, 12.0],
    [-100.0; 5],
];
/// Table VI of the paper: the change from its concept 2 to its concept 4, in %.
const TABLE_6: Paper = [
    [62.0, 69.0, 94.0, 156.0, 188.0],
    [0.0, 0.0, 0.0, 0.0, -2.0],
    [2661.0, 1749.0, 1025.0, 559.0, 385.0],
    [46.0, 44.0, 33.0, 19.0, 11.0],
    [-100.0; 5],
];

/// The memory in MB of the paper's machine. The paper's RAM figures are percentages of this memory.
const PAPER_RAM_MB: f64 = 16.0 * 1024.0;

pub(super) fn input(report: &mut Report, plans: &[Plan]) {
    let mut table = Table::new(
        "Input: cycle and processing times, ns (paper, Table I)",
        "messages | bytes per message | values from | cycle min, ns | cycle mean, ns | cycle max, ns | processing time min, ns | processing time mean, ns | processing time max, ns",
    );
    let cells = |cycle: Spread, processing: Spread| -> Vec<String> {
        [cycle, processing]
            .iter()
            .flat_map(|s| [s.min as f64, s.mean, s.max as f64])
            .map(number)
            .collect()
    };
    let mut row = |setting: &Setting| {
        let kind = setting.kind;
        let paper = if kind.name == CAN.name { CAN } else { RADAR };
        let mut line = vec![
            kind.name.to_string(),
            kind.bytes.to_string(),
            "paper".into(),
        ];
        line.extend(cells(paper.cycle, paper.processing));
        table.row(line);
        // All streams together: the most deviating one then shows as minimum or maximum.
        let all = |of: fn(&super::Arrivals) -> Vec<u64>| -> Vec<u64> {
            setting.arrivals.iter().flat_map(of).collect()
        };
        let mut line = vec![String::new(), String::new(), "here".into()];
        line.extend(cells(
            Spread::of(&all(super::Arrivals::cycles)),
            Spread::of(&all(|a| a.processing_ns.clone())),
        ));
        table.row(line);
    };
    let mut seen = vec![];
    for plan in plans
        .iter()
        .filter(|p| p.setting.scenario == "standard")
        .rev()
    {
        if !seen.contains(&plan.setting.kind.name) {
            seen.push(plan.setting.kind.name);
            row(&plan.setting);
        }
    }
    report.tables.push(table);
}

pub(super) fn fill(
    context: &mut Context,
    report: &mut Report,
    results: &QueueResults,
) -> Result<()> {
    // Recorded arrivals take the radar's place.
    let kind = results.settings[0].kind.name;
    baseline(report, results, kind);
    differences(report, results, kind);
    for (scenario, kind) in results.groups() {
        all_arms(report, results, scenario, kind);
    }
    compare(context, report, results, kind);
    losses(report, results);
    overhead(report, results, kind);
    notes(report, results);
    plots(context, results, kind)
}

fn table(title: String, counts: &[usize]) -> Table {
    let counts = counts.iter().map(|c| match c {
        1 => "1 stream".to_string(),
        c => format!("{c} streams"),
    });
    Table::over(title, "figure |", counts)
}

fn add(table: &mut Table, figure: &mut String, who: &str, cells: impl IntoIterator<Item = String>) {
    let firsts = [std::mem::take(figure), who.to_string()];
    table.row(firsts.into_iter().chain(cells));
}

fn paper_cell(values: &[f64; 5], count: usize, text: impl Fn(f64) -> String) -> String {
    let at = COUNTS.iter().position(|c| *c == count);
    at.map_or(String::new(), |at| text(values[at]))
}

fn paper_row<'a>(paper: &'a Paper, kpi: &Kpi) -> Option<&'a [f64; 5]> {
    let names = [CPU.name, RAM.name, DELAY.name, JITTER.name, LOSS.name];
    names.iter().position(|n| *n == kpi.name).map(|i| &paper[i])
}

/// The numbers of streams for which the report has figures. Its tables show all numbers of streams.
const ENDS: [usize; 2] = [1, 10];

fn baseline(report: &mut Report, results: &QueueResults, kind: &str) {
    let counts = results.counts("standard", kind);
    let mut table = table(
        format!(
            "Concept 2 (drop-oldest), {kind}, standard processing time: values (paper, Table III)"
        ),
        &counts,
    );
    for kpi in &KPIS {
        let mut first = kpi.title.to_string();
        if let Some(values) = paper_row(&TABLE_3, kpi) {
            let text = |v: f64| match kpi.name {
                "ram" => format!("{} ({v} %)", number(v / 100.0 * PAPER_RAM_MB)),
                _ => number(v),
            };
            let cells = counts.iter().map(|c| paper_cell(values, *c, text));
            add(&mut table, &mut first, "paper", cells);
        }
        for (arm, who) in [("ros1-nodelets", "ROS 1 nodelets"), ("drop", "onbeat")] {
            let mut cells = vec![];
            for &count in &counts {
                let setting = results.setting("standard", kind, count);
                let value = setting.and_then(|s| results.estimate(arm, s, kpi));
                cells.push(value.map_or("-".into(), |e| number(e.value)));
                if let Some(value) = value.filter(|_| ENDS.contains(&count)) {
                    let name = format!("queues.standard.{arm}.{}.{count}", kpi.name);
                    let (_, unit) = kpi.title.split_once(", ").unwrap_or_default();
                    report.figure(Figure::estimated(name, value, unit));
                }
            }
            add(&mut table, &mut first, who, cells);
        }
    }
    report.tables.push(table);
}

fn difference(base: Option<f64>, value: Option<f64>) -> String {
    match (base, value) {
        (Some(base), Some(value)) if base > 0.0 => signed((value / base - 1.0) * 100.0),
        (Some(_), Some(0.0)) => "0 and 0".into(),
        (Some(_), Some(value)) => format!("0 and {}", number(value)),
        _ => "-".into(),
    }
}

fn signed(percent: f64) -> String {
    let digits = usize::from(percent.abs() < 10.0 && percent != 0.0);
    format!("{percent:+.digits$}%").replace("+0%", "0%")
}

fn differences(report: &mut Report, results: &QueueResults, kind: &str) {
    // The first arm, the second arm, and the label of the row.
    type Pair = (&'static str, &'static str, &'static str);
    let tables: [(&str, &Paper, &[Pair]); 3] = [
        (
            "Concept 1 against concept 2 (paper, Table IV)",
            &TABLE_4,
            &[
                ("ros1-nodelets", "ros1-nodes", "ROS 1"),
                ("drop", "drop-processes", "onbeat"),
            ],
        ),
        (
            "Concept 3 against concept 2 (paper, Table V)",
            &TABLE_5,
            &[
                ("ros1-nodelets", "ros1-token", "ROS 1"),
                ("drop", "credit", "onbeat, one process"),
                (
                    "drop-processes",
                    "credit-processes",
                    "onbeat, two processes",
                ),
            ],
        ),
        (
            "Concept 4 against concept 2 (paper, Table VI)",
            &TABLE_6,
            &[
                ("ros1-nodelets", "ros1-service", "ROS 1"),
                ("drop", "swap", "onbeat"),
                ("drop", "swap-flush", "onbeat, with flush"),
            ],
        ),
    ];
    let (counts, mut rng) = (results.counts("standard", kind), Rng::new(1));
    for (title, paper, pairs) in tables {
        let mut table = table(format!("{title}, {kind}, standard"), &counts);
        for kpi in &KPIS {
            let mut first = kpi.title.split(',').next().unwrap_or_default().to_string();
            if let Some(values) = paper_row(paper, kpi) {
                let cells = counts.iter().map(|c| paper_cell(values, *c, signed));
                add(&mut table, &mut first, "paper", cells);
            }
            for (a, b, who) in pairs {
                let cells: Vec<String> = counts
                    .iter()
                    .map(|c| results.setting("standard", kind, *c))
                    .map(|s| difference(results.value(a, s, kpi), results.value(b, s, kpi)))
                    .collect();
                for &count in counts.iter().filter(|c| ENDS.contains(c)) {
                    let setting = results.setting("standard", kind, count);
                    let added = setting.and_then(|s| results.added(a, b, &[s], kpi, &mut rng));
                    if let Some(added) = added.filter(|e| e.value.is_finite()) {
                        let name = format!("queues.{b}_over_{a}.{}.{count}", kpi.name);
                        report.figure(Figure::estimated(name, added, "%"));
                    }
                }
                add(&mut table, &mut first, who, cells);
            }
        }
        report.tables.push(table);
    }
}

fn all_arms(report: &mut Report, results: &QueueResults, scenario: &str, kind: &str) {
    let counts = results.counts(scenario, kind);
    let mut table = table(format!("All arms, {kind}, {scenario}"), &counts);
    for kpi in &KPIS {
        let mut first = kpi.title.to_string();
        for arm in &ARMS {
            let values: Vec<Option<f64>> = counts
                .iter()
                .map(|c| results.value(arm.name, results.setting(scenario, kind, *c), kpi))
                .collect();
            if values.iter().all(Option::is_none) {
                continue;
            }
            let cells = values.into_iter().map(|v| v.map_or("-".into(), number));
            add(&mut table, &mut first, arm.title, cells);
        }
    }
    report.tables.push(table);
}

/// Compares the policy credit with the policy drop-oldest. The difference of their costs is the
/// price of losing nothing.
fn compare(context: &Context, report: &mut Report, results: &QueueResults, kind: &str) {
    let mut rng = context.rng("interval");
    let counts = results.counts("standard", kind);
    let settings: Vec<usize> = counts
        .iter()
        .filter_map(|c| results.setting("standard", kind, *c))
        .collect();
    let sides = [
        ("drop", "credit", "one_process"),
        ("drop-processes", "credit-processes", "two_processes"),
    ];
    // The key figure, its row in the paper's tables, and the limit in %.
    let limits = [
        (CPU, 0, 5.0),
        (DELAY, 2, 10.0),
        (JITTER, 3, 3.0),
        (CYCLES, 3, 3.0),
    ];
    for (a, b, side) in sides {
        let e = results.added(a, b, &settings, &CPU_PER_MESSAGE, &mut rng);
        if let Some(e) = e {
            let name = format!("queues.credit.{side}.{}_added", CPU_PER_MESSAGE.name);
            report.figure(Figure::estimated(name, e, "%"));
        }
        for (kpi, paper, limit) in limits {
            let figure = |name: String, e: Estimate, paper: f64| {
                Figure::estimated(name, e, "%")
                    .at_most(limit)
                    .baseline(paper, "paper, Table V")
            };
            let name = format!("queues.credit.{side}.{}_added", kpi.name);
            if let Some(e) = results.added(a, b, &settings, &kpi, &mut rng) {
                report.figure(figure(name.clone(), e, mean(&TABLE_5[paper])));
            }
            for (count, setting) in counts.iter().zip(&settings) {
                let Some(e) = results.added(a, b, &[*setting], &kpi, &mut rng) else {
                    continue;
                };
                let at = COUNTS.iter().position(|c| c == count).unwrap_or(0);
                report.figure(figure(format!("{name}.{count}"), e, TABLE_5[paper][at]));
            }
        }
    }
}

fn losses(report: &mut Report, results: &QueueResults) {
    for (i, arm) in ARMS.iter().enumerate() {
        let of_arm = || results.rows.iter().filter(|r| r.arm == i);
        if of_arm().next().is_none() {
            continue;
        }
        let all = || of_arm().flat_map(|r| &r.measured.streams);
        let (messages, lost, misplaced) = all().fold((0, 0, 0), |(n, lost, misplaced), s| {
            (
                n + s.messages,
                lost + s.messages - s.processed,
                misplaced + s.misplaced,
            )
        });
        let figure = |what: &str, value: usize| {
            let figure = Figure::exact(
                format!("queues.{what}.{}", arm.name),
                value as f64,
                "messages",
            )
            .samples(messages as u64);
            figure.at_most(arm.lossless().then_some(0.0))
        };
        report.figure(figure("lost", lost));
        if misplaced > 0 || arm.lossless() {
            report.figure(figure("misplaced", misplaced));
        }
    }
}

fn overhead(report: &mut Report, results: &QueueResults, kind: &str) {
    let Some(setting) = results.setting("standard", kind, 10) else {
        return;
    };
    let over = Kpi {
        name: "",
        title: "",
        of: |m| m.cpu - m.processing,
    };
    let peers = ["ros1-nodelets", "ros1-nodes", "ros2-keep-last"];
    let peer = peers
        .iter()
        .find_map(|p| Some((*p, results.value(p, Some(setting), &over)?)));
    for arm in ARMS.iter().filter(|a| a.program == Program::Onbeat) {
        let Some(e) = results.estimate(arm.name, setting, &over) else {
            continue;
        };
        let name = format!("queues.beyond_processing.{}", arm.name);
        // The target is for the rate of Table I.
        let is_judged = arm.name.starts_with("credit") && kind == RADAR.name;
        let (value, whose) = peer.map_or((None, ""), |(p, value)| (Some(value), title_of(p)));
        let figure = Figure::estimated(name, e, "% of a core").baseline(value, whose);
        report.figure(figure.at_most(is_judged.then_some(1.0)));
    }
}

fn title_of(arm: &str) -> &'static str {
    ARMS.iter().find(|a| a.name == arm).map_or("", |a| a.title)
}

fn notes(report: &mut Report, results: &QueueResults) {
    report.note(
        "Delay is the time from sending a message to the end of its processing. For jitter, each output's time is compared with the message's time in the input trace: jitter is the largest minus the smallest difference of these two times. The spread of cycles is the longest minus the shortest time between outputs. The paper gives no formula for its jitter. The paper's values of jitter and the spread of cycles are both about as long as the longest cycle of the input",
    );
    report.note(format!(
        "Queues hold {} messages in every arm (the paper says \"small\"). All measured programs run on one core, with priority over other programs",
        super::arms::DEPTH
    ));
    let others: Vec<f64> = results.rows.iter().map(|r| r.measured.others).collect();
    report.note(format!(
        "Other programs used {} % of the measured programs' core on average during measurements, and {} % at most (cells.csv has each measurement)",
        number(mean(&others)),
        number(others.iter().copied().fold(0.0, f64::max))
    ));
    let killed: usize = results.rows.iter().map(|r| r.measured.killed).sum();
    if killed > 0 {
        report.note(format!(
            "{killed} peer processes did not end after writing their logs and were killed"
        ));
    }
    let late: Vec<String> = results
        .rows
        .iter()
        .filter(|r| !r.measured.complete)
        .map(|r| {
            let s = &results.settings[r.setting];
            format!(
                "{} ({} {}, {} streams)",
                ARMS[r.arm].name,
                s.scenario,
                s.kind.name,
                s.streams()
            )
        })
        .collect();
    if !late.is_empty() {
        report.note(format!(
            "Measurements in which a stream was not finished after twice its planned time, so that the remaining messages of the stream count as lost: {}",
            late.join(", ")
        ));
    }
}

const CONCEPTS: [&str; 6] = [
    "drop",
    "credit",
    "swap",
    "swap-flush",
    "drop-processes",
    "credit-processes",
];
const PEERS: [&str; 6] = [
    "drop",
    "credit",
    "ros1-nodelets",
    "ros1-nodes",
    "ros2-keep-last",
    "ros2-keep-all",
];

fn plots(context: &mut Context, results: &QueueResults, kind: &str) -> Result<()> {
    for scenario in ["standard", "bottleneck"] {
        let counts = results.counts(scenario, kind);
        for (group, arms) in [("concepts", CONCEPTS), ("peers", PEERS)] {
            let measured: Vec<&Arm> = ARMS
                .iter()
                .filter(|a| arms.contains(&a.name))
                .filter(|a| results.rows.iter().any(|r| ARMS[r.arm].name == a.name))
                .collect();
            if let Some(setting) = counts
                .last()
                .and_then(|c| results.setting(scenario, kind, *c))
            {
                let series: Vec<(&str, Sorted)> = measured
                    .iter()
                    .map(|a| {
                        let all = results.of(a.name, setting);
                        (
                            a.title,
                            Sorted::new(all.flat_map(|r| r.measured.delays_us())),
                        )
                    })
                    .collect();
                let title = format!(
                    "Delay, {} {kind} streams, {scenario}",
                    results.settings[setting].streams()
                );
                let svg = percentiles(&title, "us", &series)?;
                context.plot(&format!("delay-{scenario}-{group}.svg"), &svg)?;
            }
            for kpi in [CPU, JITTER, LOSS] {
                let all: Vec<Line> = measured
                    .iter()
                    .map(|a| Line {
                        name: a.title.to_string(),
                        points: counts
                            .iter()
                            .filter_map(|c| {
                                let setting = results.setting(scenario, kind, *c);
                                Some((*c as f64, results.value(a.name, setting, &kpi)?))
                            })
                            .collect(),
                    })
                    .collect();
                let axes = Axes::new("parallel streams", kpi.title);
                let title = format!("{}, {kind}, {scenario}", kpi.title);
                let svg = lines(&title, axes, &all)?;
                context.plot(&format!("{}-{scenario}-{group}.svg", kpi.name), &svg)?;
            }
        }
    }
    let of = |all: fn(&super::Arrivals) -> Vec<u64>| {
        let streams = results.settings.iter().find(|s| s.scenario == "standard");
        Sorted::new(
            streams
                .iter()
                .flat_map(|s| s.arrivals.iter().flat_map(all))
                .map(|ns| ns as f64 / 1e3),
        )
    };
    let series = [
        ("cycle time", of(super::Arrivals::cycles)),
        ("processing time", of(|a| a.processing_ns.clone())),
    ];
    let svg = percentiles(
        &format!("Input: a stream of {kind} messages"),
        "us",
        &series,
    )?;
    context.plot("input.svg", &svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_differences_are_formatted_as_in_the_paper() {
        assert_eq!(difference(Some(2.0), Some(3.0)), "+50%");
        assert_eq!(difference(Some(2.0), Some(2.1)), "+5.0%");
        assert_eq!(difference(Some(2.0), Some(0.0)), "-100%");
        assert_eq!(difference(Some(2.0), Some(2.0)), "0%");
        assert_eq!(difference(Some(0.0), Some(0.0)), "0 and 0");
        assert_eq!(difference(Some(0.0), Some(1.5)), "0 and 1.5");
        assert_eq!(difference(None, Some(1.5)), "-");
    }

    #[test]
    fn every_arm_that_a_figure_of_the_queues_experiment_names_exists() {
        let named = CONCEPTS
            .iter()
            .chain(&PEERS)
            .chain(&super::super::EVERY_ROUND)
            .chain(&super::super::EVERY_ROUND_OF_TEN);
        for name in named {
            assert!(!title_of(name).is_empty(), "{name}");
        }
        for arm in &ARMS {
            let same = ARMS
                .iter()
                .filter(|a| a.name == arm.name || a.title == arm.title);
            assert_eq!(same.count(), 1, "{}", arm.name);
        }
    }

    #[test]
    fn the_papers_columns_are_found_by_the_number_of_streams() {
        assert_eq!(paper_cell(&TABLE_3[0], 10, number), "29.9");
        assert_eq!(paper_cell(&TABLE_3[0], 3, number), "");
        assert_eq!(paper_row(&TABLE_3, &LOSS).map(|r| r[4]), Some(15.6));
        assert!(paper_row(&TABLE_3, &CYCLES).is_none());
    }
}
