//! The parking demo's chain, from the rear lidar's scan to the localiser's pose: Tables 4.2 to 4.4,
//! Figure 4.9, and the parking row of Table 4.5.

use super::app::{self, App};
use super::arm::{self, Arm, Turns};
use super::figures::{self, or_blank};
use super::results::ArmResults;
use super::synthetic;
use super::targets;
use super::Profiles;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use std::path::Path;

/// Table 4.2 of the thesis: callbacks and their measured worst-case execution times, in ms.
const TABLE_4_2: [(&str, f64); 5] = [
    ("filter_transform_vlp16_rear", 19.9),
    ("filter_transform_vlp16_front", 30.7),
    ("point_cloud_fusion", 3.3),
    ("voxel_grid_cloud_node", 9.2),
    ("p2d_ndt_localizer_node", 50.8),
];

/// The name of an arm that the thesis does not have. The threads of this arm are on the same CPUs
/// as in the other arms, but have no real-time priorities, as in an ordinary application.
const NORMAL: &str = "normal threads";

const BASELINE: &str = "SCHED_FIFO";

/// A configuration of Table 4.4 of the thesis.
struct Config {
    name: &'static str,
    file: &'static str,
    plan: &'static [&'static str],
    shape: &'static [&'static str],
    /// The average latency, maximum latency and jitter of this configuration in the thesis, in ms.
    paper: [f64; 3],
}

const INSIDE: &[&str] = &["--hold", "inside"];
const OUTSIDE: &[&str] = &["--hold", "outside"];
const ONE_BAND: &[&str] = &["--strategy", "bands", "--bands", "1", "--miss", "0.05"];
const THREE_BANDS: &[&str] = &["--strategy", "bands", "--bands", "3"];
const RANDOM: &[&str] = &[
    "--strategy",
    "bands",
    "--bands",
    "3",
    "--random",
    "--seed",
    "7",
];

const TABLE_4_4: [Config; 10] = [
    Config {
        name: NORMAL,
        file: "normal",
        plan: &["--strategy", "fifo"],
        shape: &[],
        paper: [f64::NAN; 3],
    },
    Config {
        name: BASELINE,
        file: "fifo",
        plan: &["--strategy", "fifo"],
        shape: &[],
        paper: [67.4, 84.7, 25.9],
    },
    Config {
        name: "1 server per callback",
        file: "server_per_callback",
        plan: &["--strategy", "server-per-callback"],
        shape: &[],
        paper: [72.8, 95.7, 24.3],
    },
    Config {
        name: "1 server per chain",
        file: "server_per_chain",
        plan: &["--strategy", "server-per-chain"],
        shape: &[],
        paper: [64.2, 84.4, 25.8],
    },
    Config {
        name: "one band",
        file: "one_band",
        plan: ONE_BAND,
        shape: OUTSIDE,
        paper: [86.6, 86.7, 0.1],
    },
    Config {
        name: "one band, held in the application",
        file: "one_band_inside",
        plan: ONE_BAND,
        shape: INSIDE,
        paper: [86.6, 86.7, 0.1],
    },
    Config {
        name: "bands for 6 %",
        file: "six_percent",
        plan: &["--strategy", "bands", "--average", "6%", "--miss", "0.05"],
        shape: OUTSIDE,
        paper: [71.3, 86.5, 0.1],
    },
    Config {
        name: "random 3-band LS",
        file: "random_bands",
        plan: RANDOM,
        shape: OUTSIDE,
        paper: [76.4, 86.6, 0.1],
    },
    Config {
        name: "optimised 3-band LS",
        file: "three_bands",
        plan: THREE_BANDS,
        shape: OUTSIDE,
        paper: [71.3, 86.5, 0.1],
    },
    Config {
        name: "3-band LS, held in the application",
        file: "three_bands_inside",
        plan: THREE_BANDS,
        shape: INSIDE,
        paper: [71.3, 86.5, 0.1],
    },
];

struct Measured(Vec<(&'static str, String, ArmResults)>);

impl Measured {
    fn find(&self, file: &str) -> Option<&ArmResults> {
        self.0.iter().find(|m| m.0 == file).map(|m| &m.2)
    }
}

pub(super) fn parking(context: &mut Context, report: &mut Report, _: &mut Profiles) -> Result<()> {
    let (executions, rounds) = context.pick_of_three((500, 2), (300, 2), (40, 1));
    // The arms and the profile use the same part of the drive, because the amount of computation
    // varies along it.
    let app = app::parking(context, 36)?;
    // Starts differ, and the executions of one start depend on each other. Many short starts
    // therefore show more than few long ones.
    let (seconds, starts) = context.pick_of_three((27, 6), (5, 12), (5, 1));
    let profile = app.profile(context, seconds, starts)?;
    let model = app::load(&profile)?;
    worst_cases(report, &model);
    let arms = plans(context, report, &app, &profile)?;
    let turns = Turns {
        executions,
        rounds,
        baseline: context
            .pick_of_three(true, false, false)
            .then(|| arms.iter().position(|a| a.name == BASELINE))
            .flatten(),
        once: !context.pick_of_three(true, false, false),
    };
    let all = arm::run(context, report, "parking", &arms, turns)?;
    figures::plot(
        context,
        (
            "figure-4.9.svg",
            "Latency of the parking chain under different plans (Figure 4.9)",
        ),
        &arms,
        &all,
        |r| &r.latency_ms,
    )?;
    for (arm, result) in arms.iter().zip(&all).filter(|(arm, _)| arm.is_judged()) {
        let file = arm.id();
        targets::figures(report, &format!("parking.{file}"), arm, result);
    }
    let file = |name: &str| TABLE_4_4.iter().find(|c| c.name == name).map(|c| c.file);
    let measured = Measured(
        arms.iter()
            .zip(all)
            .filter_map(|(arm, result)| Some((file(&arm.name)?, arm.name.clone(), result)))
            .collect(),
    );
    table_4_4(report, &measured);
    same_executions(report, &measured);
    let profiled_ms = app.chain_of(&model)?.figures.latency_ns.max() as f64 / 1e6;
    compare(report, &measured, profiled_ms);
    Ok(())
}

pub(super) fn logical(context: &mut Context, report: &mut Report, _: &mut Profiles) -> Result<()> {
    let turns = Turns::even(context.pick_of_three((500, 2), (150, 1), (40, 1)));
    let app = app::parking(context, 36)?;
    let (seconds, starts) = context.pick_of_three((27, 6), (5, 8), (5, 1));
    let profile = app.profile(context, seconds, starts)?;
    let list: [(&str, &[&str]); 3] = [
        ("1-band LS", synthetic::ONE_BAND),
        ("LET per callback", &["--strategy", "let-per-callback"]),
        ("LET per chain", &["--strategy", "let-per-chain"]),
    ];
    let arms = synthetic::arms(context, report, &app, &profile, &list);
    let results = arm::run(context, report, "parking-let", &arms, turns)?;
    let title = "Logical execution time: latency of the parking chain, ms (thesis, Table 4.5)";
    // The thesis has no jitter here, and no figures for LET per callback, which failed there.
    let paper: Vec<[f64; 2]> = arms
        .iter()
        .map(|arm| match arm.name.as_str() {
            "1-band LS" => [86.7, f64::NAN],
            "LET per chain" => [100.0, f64::NAN],
            _ => [f64::NAN; 2],
        })
        .collect();
    synthetic::beside(report, title, "parking-let", &arms, &results, &paper);
    Ok(())
}

fn plans<'a>(
    context: &Context,
    report: &mut Report,
    app: &'a App,
    profile: &Path,
) -> Result<Vec<Arm<'a>>> {
    let mut arms = Vec::new();
    let mut slots = Table::new(
        "Reserved time slots of the parking chain, ms (thesis, Table 4.3)",
        "config. | server | slots",
    );
    for Config {
        name,
        file,
        plan: words,
        shape,
        ..
    } in TABLE_4_4
    {
        // In a quick run: the arms with a target, and the arm with which they are compared.
        let in_quick = ["fifo", "one_band", "one_band_inside", "six_percent"].contains(&file);
        if !context.pick_of_three(true, true, in_quick) {
            continue;
        }
        let plan = context.dir().join(format!("parking.{file}.yaml"));
        let arm = match Arm::planned(app, context, report, (profile, &plan), (name, words)) {
            Ok(arm) => arm,
            Err(error) => {
                report.skip(format!("parking: {name}"), error);
                continue;
            }
        };
        if name == NORMAL {
            App::without_priorities(&plan)?;
        }
        for (server, list) in synthetic::slots(&plan)? {
            slots.row([name.to_owned(), server, list]);
        }
        arms.push(Arm {
            options: shape,
            ..arm
        });
    }
    report.tables.push(slots);
    Ok(arms)
}

fn table_4_4(report: &mut Report, measured: &Measured) {
    let mut table = Table::new(
        "Latency of the parking chain under different plans, ms (thesis, Table 4.4)",
        "plan | mean latency | max latency | jitter | jitter, p0.5 to p99.5 | jitter of each band | outputs in their slot, % | \
mean latency in the thesis | max latency in the thesis | jitter in the thesis",
    );
    for (file, name, result) in &measured.0 {
        let Some(Config { paper, .. }) = TABLE_4_4.iter().find(|c| c.file == *file) else {
            continue;
        };
        let sorted = result.sorted();
        let (average, worst) = (sorted.mean(), sorted.quantile(1.0));
        let (full, jitter) = (result.full_jitter_ms(), result.jitter_ms());
        let bands: Vec<String> = result
            .band_jitters_ms()
            .iter()
            .map(|j| format!("{j:.3}"))
            .collect();
        let mut row = vec![name.clone()];
        row.extend([average, worst, full, jitter].map(|v| format!("{v:.3}")));
        row.push(bands.join(" "));
        row.push(if bands.is_empty() {
            String::new()
        } else {
            format!("{:.2}", result.inside() * 100.0)
        });
        row.extend(paper.map(or_blank));
        table.row(row);
        for (figure, theirs) in result
            .figures(&format!("parking.{file}"))
            .into_iter()
            .zip(paper)
        {
            let figure = figure.samples(result.latency_ms.len() as u64);
            let theirs = (!theirs.is_nan()).then_some(*theirs);
            report.figure(figure.baseline(theirs, "thesis, Table 4.4"));
        }
        report.figure(result.jitter_figure(&format!("parking.{file}")));
    }
    report.tables.push(table);
}

fn compare(report: &mut Report, measured: &Measured, profiled_ms: f64) {
    let Some(one) = measured.find("one_band") else {
        return;
    };
    if let Some(normal) = measured.find("normal") {
        report.value(
            "shaping.jitter_ratio_to_normal_threads",
            normal.jitter_ms() / one.jitter_ms().max(1e-6),
            "1",
        );
    }
    let Some(base) = measured.find("fifo") else {
        return;
    };
    let ratio = base.jitter_ms() / one.jitter_ms().max(1e-6);
    report.figure(
        Figure::new("shaping.jitter_ratio", ratio, "1").baseline(259.0, "thesis, Table 4.4"),
    );
    let ratio = base.full_jitter_ms() / one.full_jitter_ms().max(1e-6);
    report.value("shaping.full_jitter_ratio", ratio, "1");
    let one_worst = one.sorted().quantile(1.0);
    let worst = one_worst / base.sorted().quantile(1.0) - 1.0;
    report.figure(
        Figure::new("shaping.worst_added", worst * 100.0, "%").baseline(2.4, "thesis, Table 4.4"),
    );
    // The profile also ran at SCHED_FIFO, and its worst case determines the slot.
    let added = (one_worst / profiled_ms - 1.0) * 100.0;
    report.value("shaping.worst_added_to_profile", added, "%");
    if let Some(three) = measured.find("three_bands") {
        let added = three.sorted().mean() / base.sorted().mean() - 1.0;
        report.figure(
            Figure::new("shaping.three_bands_average_added", added * 100.0, "%")
                .baseline(5.8, "thesis, Table 4.4"),
        );
    }
}

fn same_executions(report: &mut Report, measured: &Measured) {
    let mut table = Table::new(
        "Latency of the same executions until the output was ready (unshaped) and until it left (shaped), ms",
        "plan | mean, unshaped | mean, shaped | max, unshaped | max, shaped | jitter, unshaped | jitter, shaped | jitter, unshaped / shaped",
    );
    for (file, name, result) in &measured.0 {
        let (jitter, average, worst) = result.unshaped_ms();
        let shaped = result.sorted();
        // Without bands the output leaves when it is ready.
        if result.band.iter().all(Option::is_none) {
            continue;
        }
        let ratio = jitter / result.jitter_ms().max(1e-6);
        let mut row = vec![name.clone()];
        let pairs = [
            (average, shaped.mean()),
            (worst, shaped.quantile(1.0)),
            (jitter, result.jitter_ms()),
        ];
        row.extend(
            pairs
                .iter()
                .flat_map(|p| [p.0, p.1])
                .map(|v| format!("{v:.3}")),
        );
        row.push(format!("{ratio:.1}"));
        table.row(row);
        let added = |p: (f64, f64)| (p.1 / p.0.max(1e-6) - 1.0) * 100.0;
        let name = |what: &str| format!("parking.{file}.{what}");
        report.value(name("average_added"), added(pairs[0]), "%");
        report.value(name("worst_added"), added(pairs[1]), "%");
        report.value(name("unshaped_jitter_ratio"), ratio, "1");
    }
    report.tables.push(table);
}

fn worst_cases(report: &mut Report, model: &onbeat_document::Model) {
    let mut table = Table::new(
        "Measured worst-case execution times in the parking chain, ms (thesis, Table 4.2)",
        "node | mWCET | thesis",
    );
    for (node, paper) in TABLE_4_2 {
        let of_node = model.callbacks.iter().filter(|c| c.node.ends_with(node));
        let worst = of_node.map(|c| c.figures.exec_ns.max()).max().unwrap_or(0);
        table.row([
            node.to_owned(),
            format!("{:.1}", worst as f64 / 1e6),
            number(paper),
        ]);
    }
    report.tables.push(table);
}
