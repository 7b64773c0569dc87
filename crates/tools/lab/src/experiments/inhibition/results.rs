//! Makes the tables, figures and plots of a middleware under all conditions.

use super::condition::{Condition, Layout, Order, Place, Threads};
use super::locks::Account;
use super::measures::{Pattern, PATTERNS};
use super::programs::Middleware;
use super::run::Run;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::stats::{mean, mean_80, mean_replaced, median, resampled, Sorted};
use crate::plot::{boxes, dots};
use std::collections::BTreeMap;

/// The smallest mean of running time plus waiting time, in ns, with which a thread is shown in the
/// table.
const LEAST_SHOWN_NS: u64 = 1_000_000;

pub struct Arm {
    pub condition: Condition,
    pub runs: Vec<Run>,
}

impl Arm {
    pub fn new(condition: Condition) -> Arm {
        Arm {
            condition,
            runs: vec![],
        }
    }

    fn count(&self, pattern: Pattern) -> usize {
        let runs = self.runs.iter();
        runs.filter(|r| r.measures.pattern() == pattern).count()
    }

    fn largest(&self, of: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(of).fold(0.0, f64::max)
    }

    fn worst(&self) -> Option<&Run> {
        let key = |r: &&Run| r.measures.send_max();
        self.runs.iter().max_by(|a, b| key(a).total_cmp(&key(b)))
    }
}

pub fn judge(
    context: &mut Context,
    report: &mut Report,
    middleware: Middleware,
    arms: &[Arm],
) -> Result<()> {
    report.tables.push(measures(middleware, arms));
    report.tables.push(means(middleware, arms));
    report.tables.push(patterns(middleware, arms));
    report.tables.push(threads(middleware, arms));
    report.tables.push(holders(middleware, arms));
    figures(context, report, middleware, arms);
    write_loops(context, middleware, arms)?;
    plots(context, middleware, arms)
}

fn ms(us: f64) -> String {
    number(us / 1000.0)
}

fn measures(middleware: Middleware, arms: &[Arm]) -> Table {
    let title = format!(
        "{}: the measures M1 to M4 of the forum post on inhibited child threads (medians and extremes of all runs)",
        middleware.name()
    );
    let head =
        "condition | runs | M1 (whole run) median, s | M1 max, s | from start to first answer, ms | M2 (sending) p50, ms | \
M2 max, ms | M3 (from ping to answer) p50, ms | M3 max, ms | M4 (between wake-ups) max, ms | late or lost answers, % | \
unanswered pings | loopback packets per ping";
    let mut table = Table::new(title, head);
    for arm in arms {
        let all = |of: fn(&Run) -> &[f64]| Sorted::new(arm.runs.iter().flat_map(of).copied());
        let of_runs = |of: fn(&Run) -> f64| arm.runs.iter().map(of).collect::<Vec<_>>();
        let loops = |r: &Run| r.measures.send_us.len().max(1) as f64;
        let packets: Vec<f64> = arm
            .runs
            .iter()
            .map(|r| r.packets as f64 / loops(r))
            .collect();
        table.row([
            arm.condition.name(),
            arm.runs.len().to_string(),
            number(median(&of_runs(|r| r.measures.whole_s))),
            number(arm.largest(|r| r.measures.whole_s)),
            number(median(&of_runs(|r| r.measures.start_s)) * 1000.0),
            ms(all(|r| &r.measures.send_us).quantile(0.5)),
            ms(arm.largest(|r| r.measures.send_max())),
            ms(all(|r| &r.measures.answer_us).quantile(0.5)),
            ms(arm.largest(|r| r.measures.answer_max())),
            ms(arm.largest(|r| r.measures.gap_max())),
            number(100.0 * mean(&of_runs(|r| r.measures.late_share()))),
            number(of_runs(|r| r.measures.unanswered() as f64).iter().sum()),
            number(median(&packets)),
        ]);
    }
    table
}

/// Shows for each arm the mean over the means of its runs, with an 80 % interval as in the papers.
/// The interval comes from the runs, because the loops within a run depend on one another.
fn means(middleware: Middleware, arms: &[Arm]) -> Table {
    let title = format!(
        "{}: mean of the runs' means, with 80 % confidence intervals, ms (M3 counts only answers that arrived. In the last column, \
         the median replaces answers that are more than 1.5 interquartile ranges outside of the quartiles)",
        middleware.name()
    );
    let head =
        "condition | M1 (whole run) | M2 (sending) | M3 (from ping to answer) | M3 with outliers replaced";
    let mut table = Table::new(title, head);
    for arm in arms {
        let over = |of: &dyn Fn(&Run) -> f64| {
            let values: Vec<f64> = arm.runs.iter().map(of).collect();
            let mean = mean_80(&values);
            format!(
                "{} ± {}",
                number(mean.value),
                number(mean.high - mean.value)
            )
        };
        let came = |r: &Run| Sorted::new(r.measures.answers().map(|us| us / 1000.0));
        table.row([
            arm.condition.name(),
            over(&|r| r.measures.whole_s * 1000.0),
            over(&|r| mean(&r.measures.send_us) / 1000.0),
            over(&|r| came(r).mean()),
            over(&|r| mean_replaced(&came(r))),
        ]);
    }
    table
}

fn patterns(middleware: Middleware, arms: &[Arm]) -> Table {
    let title = format!(
        "{}: runs by pattern (the first pattern that fits a run counts)",
        middleware.name()
    );
    let names = PATTERNS.map(Pattern::name);
    let mut table = Table::over(title, "condition", names);
    for arm in arms {
        let counts = PATTERNS.map(|p| arm.count(p).to_string());
        table.row_of(arm.condition.name(), counts);
    }
    table
}

fn threads(middleware: Middleware, arms: &[Arm]) -> Table {
    let title = format!(
        "{}: how long threads ran, and were ready without a CPU, while the inhibitor ran (mean of the runs, from the kernel's schedstat)",
        middleware.name()
    );
    let mut table = Table::new(
        title,
        "thread | condition | on a CPU, ms | ready without a CPU, ms",
    );
    let shown = arms.iter().filter(|a| {
        a.condition.layout == Layout::TwoProcesses
            && a.condition.order == Order::AtOnce
            && a.condition.same_core
            && a.condition.place == Place::Together
    });
    for arm in shown {
        let mut by_name: BTreeMap<String, Account> = BTreeMap::new();
        for (process, name, account) in arm.runs.iter().flat_map(|r| &r.threads) {
            let sum = by_name.entry(format!("{process}: {name}")).or_default();
            sum.ran_ns += account.ran_ns;
            sum.waited_ns += account.waited_ns;
        }
        let each = |ns: u64| number(ns as f64 / 1e6 / arm.runs.len().max(1) as f64);
        let least = LEAST_SHOWN_NS * arm.runs.len() as u64;
        by_name.retain(|_, sum| sum.ran_ns.max(sum.waited_ns) >= least);
        for (name, sum) in by_name {
            table.row([
                name,
                arm.condition.name(),
                each(sum.ran_ns),
                each(sum.waited_ns),
            ]);
        }
    }
    table
}

fn holders(middleware: Middleware, arms: &[Arm]) -> Table {
    let title = format!(
        "{}: locks that a main thread waited for (checked every 2 ms)",
        middleware.name()
    );
    let mut table = Table::new(
        title,
        "condition | waiting thread | lock held by | runs | observations",
    );
    for arm in arms {
        let mut by_holder: BTreeMap<&(&str, String), (u32, u32)> = BTreeMap::new();
        for (who, looks) in arm.runs.iter().flat_map(|r| &r.held) {
            let sum = by_holder.entry(who).or_default();
            *sum = (sum.0 + 1, sum.1 + looks);
        }
        for ((process, name), (runs, looks)) in by_holder {
            table.row([
                arm.condition.name(),
                format!("{process}: main"),
                name.clone(),
                runs.to_string(),
                looks.to_string(),
            ]);
        }
    }
    table
}

fn figures(context: &Context, report: &mut Report, middleware: Middleware, arms: &[Arm]) {
    let mut rng = context.rng("intervals");
    for arm in arms {
        let name = |what: &str| format!("{}.{}.{what}", middleware.part(), arm.condition.key());
        let whole: Vec<f64> = arm.runs.iter().map(|r| r.measures.whole_s).collect();
        let estimate = resampled(&whole, &mut rng, median);
        let m1 = Figure::estimated(name("m1_median"), estimate, "s");
        report.figure(m1.samples(whole.len() as u64));
        type Of = fn(&Run) -> f64;
        let maxima: [(&str, Of); 3] = [
            ("m2_max", |r| r.measures.send_max()),
            ("m3_max", |r| r.measures.answer_max()),
            ("m4_max", |r| r.measures.gap_max()),
        ];
        for (what, of) in maxima {
            let of_runs: Vec<f64> = arm.runs.iter().map(of).collect();
            let longest = resampled(&of_runs, &mut rng, |us| {
                us.iter().copied().fold(0.0, f64::max)
            });
            report.figure(Figure::estimated(name(what), longest, "us"));
        }
    }
}

fn write_loops(context: &mut Context, middleware: Middleware, arms: &[Arm]) -> Result<()> {
    let file = format!("{}.csv", middleware.part());
    let mut raw = context.raw(&file, "condition,run,loop,m2_us,m3_us,m4_us")?;
    for arm in arms {
        for (run, measured) in arm.runs.iter().enumerate() {
            let m = &measured.measures;
            for (i, (send, answer)) in m.send_us.iter().zip(&m.answer_us).enumerate() {
                let gap = i.checked_sub(1).map_or(f64::NAN, |before| m.gap_us[before]);
                let key = arm.condition.key();
                raw.line(format_args!("{key},{run},{i},{send},{answer},{gap}"))?;
            }
        }
    }
    raw.finish()
}

fn plots(context: &mut Context, middleware: Middleware, arms: &[Arm]) -> Result<()> {
    let shown: Vec<&Arm> = arms
        .iter()
        .filter(|a| a.condition.layout == Layout::TwoProcesses)
        .filter(|a| a.condition.threads != Threads::RealTime && a.condition.same_core)
        .collect();
    let series = |of: fn(&Run) -> &[f64]| -> Vec<(String, Vec<(f64, f64)>)> {
        let points = |run: &Run| {
            let finite = of(run).iter().enumerate().filter(|(_, us)| us.is_finite());
            finite.map(|(i, us)| (i as f64, us / 1000.0)).collect()
        };
        let named = |arm: &&Arm| Some((short(arm.condition), points(arm.worst()?)));
        shown.iter().filter_map(named).collect()
    };
    let part = middleware.part();
    for (file, what, series) in [
        (
            "m2",
            "M2, time from the wake-up until the ping is sent",
            series(|r| &r.measures.send_us),
        ),
        (
            "m3",
            "M3, time from the ping to its answer",
            series(|r| &r.measures.answer_us),
        ),
    ] {
        let svg = dots(&format!("{part}: {what}"), "loop", "ms", &series)?;
        context.plot(&format!("{part}-{file}.svg"), &svg)?;
    }
    context.plot(&format!("{part}-boxes.svg"), &box_plot(part, arms)?)
}

fn box_plot(part: &str, arms: &[Arm]) -> Result<String> {
    let kinds = [
        Threads::TimeSharing,
        Threads::RealTime,
        Threads::Remedy,
        Threads::Shaped,
    ];
    let orders = [Order::None, Order::Before, Order::AtOnce, Order::Later];
    let of = |threads: Threads, order: Order| {
        let shown = arms.iter().filter(move |a| {
            let c = a.condition;
            (c.layout, c.threads, c.order, c.same_core)
                == (Layout::TwoProcesses, threads, order, true)
                && c.place != Place::Anywhere
        });
        let came = shown
            .flat_map(|a| &a.runs)
            .flat_map(|r| r.measures.answers());
        Sorted::new(came.map(|us| us / 1000.0))
    };
    let series: Vec<(String, Vec<Sorted>)> = kinds
        .map(|kind| {
            let all = orders.map(|order| of(kind, order));
            (kind.name().to_owned(), all.to_vec())
        })
        .to_vec();
    let names = ["none", "before", "at once", "later"].map(str::to_owned);
    boxes(
        &format!("{part}: M3, time from the ping to its answer"),
        ("inhibitor", "ms"),
        &names,
        &series,
    )
}

fn short(condition: Condition) -> String {
    let name = condition.name();
    name.replace("2e, ", "")
        .replace("inhibitor ", "")
        .replace("middleware's ", "")
}
