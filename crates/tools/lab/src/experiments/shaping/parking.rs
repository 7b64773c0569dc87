//! The parking demo's chain from the rear lidar's scan to the localiser's pose: Tables 4.2 to 4.4, Figure 4.9.

use super::app::{self, App};
use super::arm::{self, Arm, Turns};
use crate::frame::report::{number, Figure, Report, Table, Target};
use crate::frame::{Context, LabError};

/// Table 4.2: callback and its measured worst case, ms.
const TABLE_4_2: [(&str, f64); 5] = [
    ("filter_transform_vlp16_rear", 19.9),
    ("filter_transform_vlp16_front", 30.7),
    ("point_cloud_fusion", 3.3),
    ("voxel_grid_cloud_node", 9.2),
    ("p2d_ndt_localizer_node", 50.8),
];

/// The arm without priorities, which the thesis does not have: the threads where the other arms have
/// them, but as normal ones, as applications come.
const NORMAL: &str = "normal threads";

/// The arm that the others are held against.
const BASELINE: &str = "SCHED_FIFO";

/// Table 4.4: configuration, words for the plan, average, maximum, jitter, ms.
const TABLE_4_4: [(&str, &str, &[&str], [f64; 3]); 7] = [
    (
        NORMAL,
        "normal",
        &["--strategy", "fifo"],
        [f64::NAN, f64::NAN, f64::NAN],
    ),
    (
        BASELINE,
        "fifo",
        &["--strategy", "fifo"],
        [67.4, 84.7, 25.9],
    ),
    (
        "1 server per callback",
        "server_per_callback",
        &["--strategy", "server-per-callback"],
        [72.8, 95.7, 24.3],
    ),
    (
        "1 server per chain",
        "server_per_chain",
        &["--strategy", "server-per-chain"],
        [64.2, 84.4, 25.8],
    ),
    (
        "1-band LS",
        "one_band",
        &["--strategy", "bands", "--bands", "1"],
        [86.6, 86.7, 0.1],
    ),
    (
        "random 3-band LS",
        "random_bands",
        &[
            "--strategy",
            "bands",
            "--bands",
            "3",
            "--random",
            "--seed",
            "7",
        ],
        [76.4, 86.6, 0.1],
    ),
    (
        "optimised 3-band LS",
        "three_bands",
        &["--strategy", "bands", "--bands", "3"],
        [71.3, 86.5, 0.1],
    ),
];

pub(super) fn parking(context: &mut Context, report: &mut Report) -> Result<(), LabError> {
    let executions = context.pick(500, 40);
    let rounds = context.pick(2, 1);
    // Arms and profile see the same: the whole drive, along which varies what there is to compute.
    let app = app::parking(context, 36)?;
    let profile = app.profile(context, context.pick(27, 5), context.pick(6, 1))?;
    let model = app::load(&profile)?;
    worst_cases(report, &model);

    let mut arms = Vec::new();
    let mut slots = Table::new(
        "Reserved time slots of the parking chain, ms (thesis, Table 4.3)",
        &["config.", "server", "slots"],
    );
    for (name, file, words, _) in TABLE_4_4 {
        let plan = context.dir().join(format!("parking.{file}.yaml"));
        match app.plan(context, &profile, &plan, words) {
            Ok(()) => {}
            Err(error) => {
                report.skip(format!("parking: {name}"), error);
                continue;
            }
        }
        if name == NORMAL {
            App::without_priorities(&plan)?;
        }
        for (server, list) in super::synthetic::slots(&plan)? {
            slots.row([name.to_owned(), server, list]);
        }
        arms.push(Arm {
            name: name.into(),
            app: &app,
            plan,
        });
    }
    report.tables.push(slots);
    let turns = Turns {
        executions,
        rounds,
        baseline: arms.iter().position(|a| a.name == BASELINE),
    };
    let outcomes = arm::run(context, report, "parking", &arms, turns)?;
    arm::plot(
        context,
        "figure-4.9.svg",
        "Latency of the parking chain under different plans (Figure 4.9)",
        &arms,
        &outcomes,
        |o| &o.latency_ms,
    )?;

    let mut table = Table::new(
        "The parking chain under different plans, ms (thesis, Table 4.4)",
        &[
            "config.",
            "avg",
            "max",
            "jitter",
            "p0.5-p99.5",
            "per band",
            "in slot %",
            "thesis avg",
            "max",
            "jitter",
        ],
    );
    for (arm, outcome) in arms.iter().zip(&outcomes) {
        let Some((_, file, _, paper)) = TABLE_4_4.iter().find(|t| t.0 == arm.name) else {
            continue;
        };
        let sorted = outcome.sorted();
        let bands: Vec<String> = outcome
            .band_jitters_ms()
            .iter()
            .map(|j| format!("{j:.3}"))
            .collect();
        let mut row = vec![arm.name.clone()];
        row.extend(
            [
                sorted.mean(),
                sorted.quantile(1.0),
                outcome.full_jitter_ms(),
                outcome.jitter_ms(),
            ]
            .map(|v| format!("{v:.3}")),
        );
        row.push(bands.join(" "));
        row.push(if bands.is_empty() {
            String::new()
        } else {
            format!("{:.2}", outcome.inside() * 100.0)
        });
        row.extend(paper.map(|v| if v.is_nan() { String::new() } else { number(v) }));
        table.row(row);
        for (what, value, theirs) in [
            ("average", sorted.mean(), paper[0]),
            ("max", sorted.quantile(1.0), paper[1]),
            ("full_jitter", outcome.full_jitter_ms(), paper[2]),
        ] {
            let figure = Figure::new(format!("parking.{file}.{what}"), value, "ms")
                .samples(outcome.latency_ms.len() as u64);
            report.figure(if theirs.is_nan() {
                figure
            } else {
                figure.baseline(theirs, "thesis, Table 4.4")
            });
        }
        report.figure(Figure::new(
            format!("parking.{file}.jitter"),
            outcome.jitter_ms(),
            "ms",
        ));
    }
    report.tables.push(table);

    let find = |file: &str| {
        let name = TABLE_4_4.iter().find(|t| t.1 == file)?.0;
        let at = arms.iter().position(|a| a.name == name)?;
        outcomes.get(at)
    };
    if let (Some(normal), Some(one)) = (find("normal"), find("one_band")) {
        report.figure(Figure::new(
            "shaping.jitter_ratio_to_normal_threads",
            normal.jitter_ms() / one.jitter_ms().max(1e-6),
            "1",
        ));
    }
    if let (Some(base), Some(one)) = (find("fifo"), find("one_band")) {
        report.figure(
            Figure::new(
                "shaping.jitter_ratio",
                base.jitter_ms() / one.jitter_ms().max(1e-6),
                "1",
            )
            .target(Target::AtLeast(250.0))
            .baseline(259.0, "thesis, Table 4.4"),
        );
        report.figure(Figure::new(
            "shaping.full_jitter_ratio",
            base.full_jitter_ms() / one.full_jitter_ms().max(1e-6),
            "1",
        ));
        let one_worst = one.sorted().quantile(1.0);
        let worst = one_worst / base.sorted().quantile(1.0) - 1.0;
        report.figure(
            Figure::new("shaping.worst_added", worst * 100.0, "%")
                .target(Target::AtMost(2.5))
                .baseline(2.4, "thesis, Table 4.4"),
        );
        // The profile ran at SCHED_FIFO too, and its worst is where the slot comes from.
        let profiled = app.chain_of(&model)?.figures.latency_ns.max() as f64 / 1e6;
        report.figure(Figure::new(
            "shaping.worst_added_to_profile",
            (one_worst / profiled - 1.0) * 100.0,
            "%",
        ));
        report.figure(
            Figure::new("shaping.in_slot", one.inside() * 100.0, "%").target(Target::AtLeast(99.9)),
        );
        let outside = one.outside_ms.iter().copied().fold(0.0, f64::max);
        report.figure(
            Figure::new("shaping.outside_slot_p999", outside, "ms").target(Target::AtMost(0.3)),
        );
        let most = |of: fn(&(f64, f64)) -> f64| one.cpu.iter().map(of).fold(0.0, f64::max);
        report.figure(
            Figure::new("shaping.onbeat_cpu", most(|c| c.0), "%").target(Target::AtMost(0.5)),
        );
        report.figure(Figure::new("shaping.shaper_cpu", most(|c| c.1), "%"));
        if let Some(three) = find("three_bands") {
            let added = three.sorted().mean() / base.sorted().mean() - 1.0;
            report.figure(
                Figure::new("shaping.three_bands_average_added", added * 100.0, "%")
                    .target(Target::AtMost(6.0))
                    .baseline(5.8, "thesis, Table 4.4"),
            );
        }
    }
    Ok(())
}

fn worst_cases(report: &mut Report, model: &onbeat_model::Model) {
    let mut table = Table::new(
        "Measured worst-case execution times in the parking chain, ms (thesis, Table 4.2)",
        &["node", "mWCET", "thesis"],
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
