//! Chains and graphs of compiled nodes: Tables 4.1 and 4.5, Figures 4.8 and 4.10, and overruns.

use super::app::{self, App};
use super::arm::{self, Arm, Turns};
use super::figures::{self, or_blank};
use super::results::ArmResults;
use super::targets;
use super::Profiles;
use crate::frame::files;
use crate::frame::report::{number, Report, Table};
use crate::frame::{Context, LabError, Result};
use crate::measure::stats::Sorted;
use std::path::{Path, PathBuf};

/// Table 4.1 of the thesis: the interfering load in ms per 100 ms, and the chain's maximum latency
/// and jitter in ms under SCHED_FIFO.
const TABLE_4_1: [(&str, f64, f64); 5] = [
    ("0", 57.35, 16.2),
    ("10", 58.1, 16.72),
    ("20", 58.78, 17.14),
    ("30", 59.8, 17.73),
    ("40", 62.8, 18.13),
];
/// Table 4.1 of the thesis: the chain's maximum latency and jitter in ms with a reservation server
/// per callback. Both are the same for every load.
const SERVERS_4_1: (f64, f64) = (80.0, 5.0);

pub(super) fn slots(plan: &Path) -> Result<Vec<(String, String)>> {
    let text = files::text(plan)?;
    let plan = onbeat_plan::file::read(text.as_bytes()).map_err(|e| LabError::in_file(plan, e))?;
    let list = |s: &onbeat_plan::schema::Server| {
        let slots: Vec<String> = s
            .slots_ms
            .iter()
            .map(|s| format!("[{:.1}, {:.1}]", s.0 .0 as f64 / 1e6, s.1 .0 as f64 / 1e6))
            .collect();
        (s.name.clone(), slots.join(" "))
    };
    Ok(plan.servers.iter().map(list).collect())
}

pub(super) const ONE_BAND: &[&str] = &["--strategy", "bands", "--bands", "1", "--miss", "0.05"];

fn interference<'a>(load: &'a str, period: &'a str) -> Vec<&'a str> {
    match load {
        "0" => vec![],
        load => vec!["--interference", load, "--interference-period", period],
    }
}

pub(super) fn arms<'a>(
    context: &Context,
    report: &mut Report,
    app: &'a App,
    profile: &Path,
    list: &[(&str, &[&str])],
) -> Vec<Arm<'a>> {
    let mut arms = Vec::new();
    for (i, (name, words)) in list.iter().enumerate() {
        let plan = context.dir().join(format!("{}.{i}.yaml", app.name));
        match Arm::planned(app, context, report, (profile, &plan), (name, words)) {
            Ok(arm) => arms.push(arm),
            Err(error) => report.skip(format!("{}: {name}", app.name), error),
        }
    }
    arms
}

fn targets(report: &mut Report, part: &str, arms: &[Arm<'_>], results: &[ArmResults]) {
    for (arm, result) in arms.iter().zip(results) {
        if arm.is_judged() {
            let file = arm.id();
            targets::figures(report, &format!("{part}.{file}"), arm, result);
        }
    }
}

fn profile(context: &Context, app: &App, profiles: &mut Profiles) -> Result<PathBuf> {
    let (seconds, starts) = context.pick_of_three((50, 5), (12, 5), (8, 1));
    if context.pick_of_three(true, false, false) {
        return app.profile(context, seconds, starts);
    }
    if let Some(profile) = &profiles.chain {
        return Ok(profile.clone());
    }
    let app = app::synthetic(context, "chain", "chain", &interference("2", "10"))?;
    let profile = app.profile(context, seconds, starts)?;
    Ok(profiles.chain.insert(profile).clone())
}

pub(super) fn motivation(
    context: &mut Context,
    report: &mut Report,
    profiles: &mut Profiles,
) -> Result<()> {
    let turns = Turns::even(context.pick_of_three((500, 2), (150, 1), (30, 1)));
    let loads: &[usize] = context.pick_of_three(&[0, 1, 2, 3, 4], &[4], &[0, 4]);
    let mut table = Table::new(
        "Maximum latency and jitter under interference, ms (thesis, Table 4.1)",
        "load | arm | max latency | jitter | jitter, p0.5 to p99.5 | max latency in the thesis | jitter in the thesis",
    );
    for (load, max, jitter) in loads.iter().map(|&i| TABLE_4_1[i]) {
        let name = format!("motivation-{load}");
        let app = app::synthetic(context, &name, "chain", &interference(load, "100"))?;
        let profile = profile(context, &app, profiles)?;
        let list: [(&str, &[&str]); 3] = [
            ("SCHED_FIFO", &["--strategy", "fifo"]),
            (
                "server per callback",
                &["--strategy", "server-per-callback"],
            ),
            ("1-band LS", ONE_BAND),
        ];
        // The arms with a target, and the arm without servers.
        let usual = |name: &str| name != "server per callback";
        let mut list = list.to_vec();
        list.retain(|arm| context.pick_of_three(true, usual(arm.0), true));
        let arms = arms(context, report, &app, &profile, &list);
        let results = arm::run(context, report, &name, &arms, turns)?;
        targets(report, &name, &arms, &results);
        for (arm, result) in arms.iter().zip(&results) {
            let paper = match arm.name.as_str() {
                "SCHED_FIFO" => [number(max), number(jitter)],
                "1-band LS" => [String::new(), String::new()],
                _ => [number(SERVERS_4_1.0), number(SERVERS_4_1.1)],
            };
            let longest = result.sorted().quantile(1.0);
            let mut row = vec![load.to_owned(), arm.name.clone()];
            row.extend(
                [longest, result.full_jitter_ms(), result.jitter_ms()].map(|v| format!("{v:.3}")),
            );
            row.extend(paper);
            table.row(row);
            let file = arm.id();
            report
                .figures
                .extend(result.figures(&format!("motivation.{load}.{file}")));
        }
    }
    report.tables.push(table);
    Ok(())
}

pub(super) fn beside(
    report: &mut Report,
    title: &str,
    part: &str,
    arms: &[Arm<'_>],
    results: &[ArmResults],
    paper: &[[f64; 2]],
) {
    let mut table = Table::new(
        title,
        "arm | executions | mean latency | max latency | jitter | jitter, p0.5 to p99.5 | outputs in their slot, % | max latency in the thesis | jitter in the thesis",
    );
    for (i, (arm, result)) in arms.iter().zip(results).enumerate() {
        let sorted = result.sorted();
        let mut row = vec![arm.name.clone(), result.latency_ms.len().to_string()];
        row.extend(
            [
                sorted.mean(),
                sorted.quantile(1.0),
                result.full_jitter_ms(),
                result.jitter_ms(),
            ]
            .map(|v| format!("{v:.3}")),
        );
        row.push(if result.band.iter().all(Option::is_none) {
            String::new()
        } else {
            format!("{:.2}", result.inside() * 100.0)
        });
        let theirs = paper.get(i).map(|p| p.map(or_blank));
        row.extend(theirs.unwrap_or_default());
        table.row(row);
        let file = arm.id();
        let name = format!("{part}.{file}");
        report.figures.extend(result.figures(&name));
        report.figure(result.jitter_figure(&name));
    }
    report.tables.push(table);
}

pub(super) fn asynchronous(
    context: &mut Context,
    report: &mut Report,
    _: &mut Profiles,
) -> Result<()> {
    let turns = Turns::even(context.pick_of_three((500, 3), (150, 1), (40, 1)));
    let mut words = interference("2", "10");
    words.push("--async-last");
    let mut app = app::synthetic(context, "async", "chain", &words)?;
    app.listener = Some((app::stage(context)?, "/t5"));
    let (seconds, starts) = context.pick_of_three((50, 5), (8, 5), (8, 1));
    let profile = app.profile(context, seconds, starts)?;
    let list: [(&str, &[&str]); 3] = [
        ("SCHED_FIFO", &["--strategy", "fifo"]),
        (
            "publisher thread in the slot",
            &["--strategy", "bands", "--bands", "1", "--design", "async"],
        ),
        ("republished in the slot", ONE_BAND),
    ];
    let mut arms = arms(context, report, &app, &profile, &list);
    if let Some(last) = arms.iter().rposition(|arm| arm.is_one_band) {
        let plan = arms[last].plan.clone();
        let hard = Arm::of(&app, &profile, "one band with hard gates", plan)?;
        arms.push(Arm {
            options: &["--gate", "hard"],
            ..hard
        });
    }
    let results = arm::run(context, report, "async", &arms, turns)?;
    targets(report, "async", &arms, &results);
    let title =
        "Latency of the synthetic chain with asynchronous publication, ms (thesis, Figure 4.8)";
    let paper = [[58.5, 16.5], [59.6, 0.1], [f64::NAN, f64::NAN]];
    beside(report, title, "async", &arms, &results, &paper);
    let mut table = Table::new(
        "Latency of the synthetic chain at a subscriber outside of the application, ms",
        "arm | items | mean latency | max latency | jitter | jitter, p0.5 to p99.5",
    );
    for (arm, result) in arms.iter().zip(&results) {
        let heard = Sorted::new(result.heard_ms.iter().copied());
        let half = |high, low| (heard.quantile(high) - heard.quantile(low)) / 2.0;
        let mut row = vec![arm.name.clone(), result.heard_ms.len().to_string()];
        let values = [
            heard.mean(),
            heard.quantile(1.0),
            half(1.0, 0.0),
            half(0.995, 0.005),
        ];
        row.extend(values.map(|v| format!("{v:.3}")));
        table.row(row);
        let file = arm.id();
        report.value(
            format!("async.{file}.heard_jitter"),
            half(0.995, 0.005),
            "ms",
        );
    }
    report.tables.push(table);
    figures::plot(
        context,
        (
            "figure-4.8.svg",
            "Latency of the synthetic chain at a subscriber outside of the application (Figure 4.8)",
        ),
        &arms,
        &results,
        |o| &o.heard_ms,
    )
}

pub(super) fn logical(
    context: &mut Context,
    report: &mut Report,
    profiles: &mut Profiles,
) -> Result<()> {
    let turns = Turns::even(context.pick_of_three((500, 3), (100, 1), (40, 1)));
    let app = app::synthetic(context, "let", "chain", &interference("2", "10"))?;
    let profile = profile(context, &app, profiles)?;
    let list: [(&str, &[&str]); 3] = [
        ("1-band LS", ONE_BAND),
        ("LET per callback", &["--strategy", "let-per-callback"]),
        ("LET per chain", &["--strategy", "let-per-chain"]),
    ];
    // Other parts already measure one band of the same chain.
    let first = context.pick_of_three(0, 1, 0);
    let arms = arms(context, report, &app, &profile, &list[first..]);
    let results = arm::run(context, report, "let", &arms, turns)?;
    targets(report, "let", &arms, &results);
    let title = "Logical execution time: latency of the synthetic chain, ms (thesis, Table 4.5)";
    let paper = [[59.2, f64::NAN], [500.0, f64::NAN], [100.0, f64::NAN]];
    beside(report, title, "let", &arms, &results, &paper[first..]);
    Ok(())
}

pub(super) fn dag(context: &mut Context, report: &mut Report, _: &mut Profiles) -> Result<()> {
    let turns = Turns::even(context.pick_of_three((500, 2), (60, 1), (20, 1)));
    let app = app::synthetic(context, "dag", "dag", &[])?;
    let (seconds, starts) = context.pick_of_three((120, 4), (18, 5), (20, 1));
    let profile = app.profile(context, seconds, starts)?;
    // The latency is a sum of nine callbacks, so later executions may exceed the worst of a few
    // hundred. Few executions support only a high miss rate.
    let miss = context.pick_of_three("0.01", "0.05", "0.2");
    let list: [(&str, &[&str]); 2] = [
        ("SCHED_FIFO", &["--strategy", "fifo"]),
        (
            "1-band LS",
            &["--strategy", "bands", "--bands", "1", "--miss", miss],
        ),
    ];
    let first = context.pick_of_three(0, 1, 0);
    let arms = arms(context, report, &app, &profile, &list[first..]);
    let results = arm::run(context, report, "dag", &arms, turns)?;
    targets(report, "dag", &arms, &results);
    let title = "Latency of the graph of 18 callbacks on two CPUs, ms (thesis, Figure 4.10)";
    beside(
        report,
        title,
        "dag",
        &arms,
        &results,
        &[[450.0, f64::NAN], [450.0, f64::NAN]],
    );
    figures::plot(
        context,
        ("figure-4.10.svg", "Latency of the graph (Figure 4.10)"),
        &arms,
        &results,
        |o| &o.latency_ms,
    )
}

pub(super) fn overshoot(
    context: &mut Context,
    report: &mut Report,
    profiles: &mut Profiles,
) -> Result<()> {
    let turns = Turns::even(context.pick_of_three((500, 3), (80, 1), (60, 1)));
    let calm = app::synthetic(context, "overshoot-calm", "chain", &[])?;
    let profile = profile(context, &calm, profiles)?;
    let app = app::synthetic(
        context,
        "overshoot",
        "chain",
        &["--over-every", "20", "--over", "70"],
    )?;
    let words = ["carry", "drop", "stop"].map(|policy| {
        let always = ["--strategy", "bands", "--bands", "1", "--overshoot"];
        (policy, [&always[..], &[policy]].concat())
    });
    let list: Vec<(&str, &[&str])> = words.iter().map(|(name, w)| (*name, &w[..])).collect();
    let arms = arms(context, report, &app, &profile, &list);
    let results = arm::run(context, report, "overshoot", &arms, turns)?;
    let mut table = Table::new(
        "Overruns: one output in 20 is too late for its slot",
        "policy | outputs | late outputs | discarded outputs | outputs in their slot, % | max latency, ms | max latency of late outputs, ms | jitter, p0.5 to p99.5, ms",
    );
    for (arm, result) in arms.iter().zip(&results) {
        table.row([
            arm.name.clone(),
            result.latency_ms.len().to_string(),
            result.late.to_string(),
            result.dropped.to_string(),
            format!("{:.2}", result.inside() * 100.0),
            format!("{:.3}", result.sorted().quantile(1.0)),
            format!("{:.3}", result.late_ms.iter().copied().fold(0.0, f64::max)),
            format!("{:.3}", result.jitter_ms()),
        ]);
        let inside = result.inside() * 100.0;
        report.value(format!("overshoot.{}.in_slot", arm.name), inside, "%");
        report.value(
            format!("overshoot.{}.late", arm.name),
            result.late as f64,
            "1",
        );
        targets::late(report, &arm.name, result, 2);
    }
    report.tables.push(table);
    figures::plot(
        context,
        ("overshoot.svg", "Overruns under each policy"),
        &arms,
        &results,
        |o| &o.latency_ms,
    )
}
