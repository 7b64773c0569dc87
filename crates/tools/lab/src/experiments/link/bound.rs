//! Compares the computed bound of each stream on a port with its longest measured latency, on the
//! machine as it is and beside a load of all CPUs. If a message is later than its bound, something
//! must have broken the bound's assumptions by at least as much: stalls in the records of its
//! links, or a sender that woke up later than the assumed jitter. For such a sender, the bound is
//! computed again with the largest jitter that was measured around the message.

use super::arms::{OURS, RATE};
use super::cell::{Outcome, Plan, Sample, Stream, Testbed};
use super::network::hog;
use super::size::name_of;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{machine, Context, Estimate, Kept, LabError, Result};
use crate::measure::stats::over_blocks;
use onbeat_link::bound::{Bound, Cpu, Load};
use onbeat_link::port::Settings;
use onbeat_link::status::{Stall, Step};

/// The priority, the size in bytes and the period in ns of each stream. The periods are not
/// multiples of one another, so messages meet in many ways.
const STREAMS: [(u8, usize, u64); 3] = [
    (2, 1 << 10, 5_030_000),
    (1, 1 << 20, 21_170_000),
    (0, 1 << 20, 43_310_000),
];
const MTU: usize = 1500;
/// The longest time that a message spends in the kernels and on the virtual wire, in ns, in
/// addition to the time for its bytes.
const WAY_NS: u64 = 100_000;
const ARMS: [&str; 2] = ["without an added load", "while a load uses all CPUs"];
/// The precision, in ns, with which a link records the end and the length of a stall.
const RECORD_NS: i64 = 10_000;
const MOST_SHOWN: usize = 12;

struct Run {
    round: usize,
    arm: usize,
    outcome: Outcome,
}

struct Late {
    arm: usize,
    stream: usize,
    latency_ns: i64,
    beyond_ns: i64,
    /// The time in ns for which at least one step of the links' threads took longer than usual (a
    /// stall) while the message was on its way. `steps` has the longest stall of each step.
    stalled_ns: i64,
    steps: Vec<(Step, u64)>,
    is_explained: bool,
}

pub fn measure(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let (rounds, seconds) = context.pick_of_three((60, 30), (15, 10), (3, 8));
    let streams = STREAMS.map(|s| stream(s, seconds * 1_000_000_000));
    let plan = Plan {
        streams: streams.to_vec(),
        credits: 4,
        real_time: true,
        recorded: true,
        ..Plan::default()
    };
    let mut turns = context.turns("bound", ARMS.len(), rounds);
    let mut runs = vec![];
    for (round, arm) in turns.by_ref() {
        context.step(format!("bound: three streams, {}", ARMS[arm]), 150);
        let hogs = hog(context, testbed, arm * machine::cpus())?;
        let outcome = testbed.run(context, &OURS, true, &plan)?;
        drop(hogs);
        runs.push(Run {
            round,
            arm,
            outcome,
        });
    }
    let kept = turns.finish();
    let all = runs.len();
    runs.retain(|run: &Run| run.outcome.stalls.is_some());
    if runs.len() < all {
        let without = all - runs.len();
        report.note(format!("bound: {without} of {all} runs do not count, because a link had more stalls between two readings of its status than the status can hold"));
    }
    let bounds = bounds(usual_jitter_ns())?;
    let mut late = vec![];
    for run in &runs {
        late.extend(late_of(run, &bounds)?);
    }
    add_results(report, &bounds, (&runs, &kept), &late);
    add_late(report, &late);
    Ok(())
}

fn stream((priority, bytes, period_ns): (u8, usize, u64), last_ns: u64) -> Stream {
    Stream {
        priority,
        bytes,
        period_ns,
        count: last_ns / period_ns,
        offset_ns: 50_000_000,
    }
}

/// Returns the largest time in ns by which a sender can wake up late for its next message, as long
/// as the CPUs behave as the bound assumes.
fn usual_jitter_ns() -> u64 {
    Cpu::default().wake_ns + Cpu::default().stall_ns
}

fn bounds(jitter_ns: u64) -> Result<Vec<Bound>> {
    let load = |(priority, bytes, period_ns)| Load {
        priority,
        bytes,
        period_ns,
        jitter_ns,
    };
    let port = Settings::of_rate(RATE).model(MTU, false, WAY_NS);
    let bounds = port.bounds(&STREAMS.map(load), &Cpu::default());
    let bounds: Result<Vec<Bound>, _> = bounds.into_iter().collect();
    bounds.map_err(|e| LabError::unexpected("a bound", e))
}

fn latency_ns(sample: &Sample) -> i64 {
    sample.received_ns - sample.sent_ns
}

fn late_of(run: &Run, bounds: &[Bound]) -> Result<Vec<Late>> {
    let mut late = vec![];
    for sample in &run.outcome.samples {
        let stream = sample.stream as usize;
        if latency_ns(sample) > bounds[stream].longest_ns() as i64 {
            late.push(explain(run, sample, bounds)?);
        }
    }
    Ok(late)
}

/// Finds out whether broken assumptions of the bound explain why a message was later than its
/// bound. Looks at the time from the message's sending to its arrival. Also looks at the time
/// before the sending, for as long as the bound, because the message may have waited for earlier,
/// delayed messages.
fn explain(run: &Run, sample: &Sample, bounds: &[Bound]) -> Result<Late> {
    let stream = sample.stream as usize;
    let bound_ns = bounds[stream].longest_ns() as i64;
    let window = (sample.sent_ns - bound_ns, sample.received_ns);
    let met = |s: &&Sample| s.received_ns >= window.0 && s.intended_ns <= window.1;
    let senders = run.outcome.samples.iter().filter(met);
    let jitter = senders.map(|s| s.sent_ns - s.intended_ns).max();
    let jitter_ns = usual_jitter_ns().max(jitter.unwrap_or(0).max(0) as u64);
    let allowed_ns = self::bounds(jitter_ns)?[stream].longest_ns() as i64;
    let (stalled_ns, steps) = stalled(run.outcome.stalls.iter().flatten(), window);
    let beyond_assumption = (stalled_ns - Cpu::default().stall_ns as i64).max(0);
    let latency_ns = latency_ns(sample);
    Ok(Late {
        arm: run.arm,
        stream,
        latency_ns,
        beyond_ns: latency_ns - bound_ns,
        stalled_ns,
        steps,
        is_explained: latency_ns <= allowed_ns + beyond_assumption + RECORD_NS,
    })
}

/// Returns for how many ns of a window at least one step of the links' threads took longer than
/// usual (a stall), and the longest stall of each step.
fn stalled<'s>(
    stalls: impl Iterator<Item = &'s Stall>,
    (from, to): (i64, i64),
) -> (i64, Vec<(Step, u64)>) {
    let usual_ns = Cpu::default().wake_ns;
    let (mut parts, mut steps) = (vec![], vec![]);
    for stall in stalls {
        let end = stall.done_ns as i64 + RECORD_NS;
        let begin = end - (stall.took_ns - usual_ns.min(stall.took_ns)) as i64 - RECORD_NS;
        if end > from && begin < to {
            parts.push((begin.max(from), end.min(to)));
            steps.push((stall.step, stall.took_ns));
        }
    }
    parts.sort_unstable();
    let (mut stalled, mut covered) = (0, from);
    for (begin, end) in parts {
        stalled += (end - begin.max(covered)).max(0);
        covered = covered.max(end);
    }
    let longest = |step: Step| {
        let of_step = steps.iter().filter(|(s, _)| *s == step);
        of_step
            .map(|(_, took)| *took)
            .max()
            .map(|took| (step, took))
    };
    (stalled, Step::ALL.into_iter().filter_map(longest).collect())
}

fn add_results(
    report: &mut Report,
    bounds: &[Bound],
    (runs, kept): (&[Run], &Kept),
    late: &[Late],
) {
    let title = "Longest latency and its bound on a port of 1 Gbit/s that three streams share, us";
    let head = "priority, message size | wire's part of the bound | CPU's part of the bound | bound | longest latency | bound / longest latency | \
longest latency while a load uses all CPUs | messages | messages later than the bound | late messages that no violated assumption explains";
    let mut table = Table::new(title, head);
    for (at, (priority, bytes, _)) in STREAMS.into_iter().enumerate() {
        let us = |ns: u64| ns as f64 / 1000.0;
        let bound = us(bounds[at].longest_ns());
        let latencies = |arm: usize, counts: &dyn Fn(usize) -> bool| {
            let runs = runs.iter().filter(|r| r.arm == arm && counts(r.round));
            let all = runs.flat_map(|r| r.outcome.of(at as u32).map(Sample::transfer_us));
            all.collect::<Vec<f64>>()
        };
        let quiet = latencies(0, &|round| kept.shown().contains(&round));
        let longest = over_blocks(&quiet, |taken| taken.quantile(1.0));
        let loaded = latencies(1, &|_| true);
        let samples = loaded.len() + latencies(0, &|_| true).len();
        let of_stream = late.iter().filter(|l| l.stream == at);
        let unexplained = of_stream.clone().filter(|l| !l.is_explained).count();
        let counts = [samples, of_stream.count(), unexplained];
        let mut row = vec![format!("{priority}, {}", name_of(bytes))];
        row.extend([bounds[at].wire_ns, bounds[at].cpu_ns].map(|ns| number(us(ns))));
        row.extend([bound, longest.value, bound / longest.value].map(number));
        row.push(number(loaded.iter().copied().fold(0.0, f64::max)));
        row.extend(counts.map(|n| n.to_string()));
        table.row(row);
        let name = |name: &str| format!("bound.priority{priority}.{name}");
        report.value(name("bound"), bound, "us");
        report.value(name("bound_wire"), us(bounds[at].wire_ns), "us");
        report
            .figure(Figure::estimated(name("longest"), longest, "us").samples(quiet.len() as u64));
        let ends = (bound / longest.high, bound / longest.low);
        let wide = Estimate::within(bound / longest.value, ends);
        report.figure(Figure::estimated(name("bound_over_longest"), wide, "1").at_most(2.0));
        report.value(name("later"), counts[1] as f64, "messages");
        let unexplained = Figure::exact(name("later_unexplained"), counts[2] as f64, "messages");
        report.figure(unexplained.samples(samples as u64).at_most(0.0));
    }
    report.tables.push(table);
    let Cpu { wake_ns, stall_ns } = Cpu::default();
    report.note(
        "bound: a message's bound is the computed longest time from when the sender has the complete message until the receiver can read it. The column 'longest latency' shows the runs in which no load was added to the CPUs",
    );
    report.note(format!(
        "bound: the bounds assume that a step of a link's thread takes at most {} us, that stalls (longer steps) add up to at most {} us, and that senders wake up at most {} us after their period (jitter)",
        wake_ns / 1000,
        stall_ns / 1000,
        usual_jitter_ns() / 1000,
    ));
    report.note(format!(
        "bound: the bounds assume that the kernels and the virtual wire add at most {} us, and that links are not encrypted",
        WAY_NS / 1000,
    ));
    report.note(
        "bound: if a message is later than its bound, onbeat computes a second bound for this message. The second bound assumes the largest measured jitter, and adds the time by which recorded stalls were longer than assumed. If the message's latency is within the second bound, the violated assumptions explain why the message was late",
    );
}

fn add_late(report: &mut Report, late: &[Late]) {
    let title = "The messages that exceeded their latency bounds most, and the stalls that their links recorded, us";
    let head = "priority, message size | latency | latency beyond the bound | sum of stalls | longest stall of each step | run | violated assumptions explain the latency (yes or NO)";
    let mut table = Table::new(title, head);
    let mut shown: Vec<&Late> = late.iter().collect();
    shown.sort_by_key(|l| (l.is_explained, -l.beyond_ns));
    for late in shown.into_iter().take(MOST_SHOWN) {
        let (priority, bytes, _) = STREAMS[late.stream];
        let us = |ns: i64| number(ns as f64 / 1000.0);
        let steps = late.steps.iter();
        let steps = steps.map(|(step, took)| format!("{} {}", step.name(), us(*took as i64)));
        table.row([
            format!("{priority}, {}", name_of(bytes)),
            us(late.latency_ns),
            us(late.beyond_ns),
            us(late.stalled_ns),
            steps.collect::<Vec<_>>().join(", "),
            ARMS[late.arm].into(),
            String::from(if late.is_explained { "yes" } else { "NO" }),
        ]);
    }
    if !late.is_empty() {
        report.tables.push(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(stream: usize, woken_ns: i64, latency_ns: i64) -> Sample {
        let intended_ns = 100_000_000;
        let sent_ns = intended_ns + woken_ns;
        Sample {
            stream: stream as u32,
            number: 0,
            intended_ns,
            sent_ns,
            received_ns: sent_ns + latency_ns,
            finished_ns: 0,
        }
    }

    fn late(samples: Vec<Sample>, stall: Stall) -> Late {
        let outcome = Outcome {
            samples,
            stalls: Some(vec![stall]),
            ..Outcome::default()
        };
        let (round, arm) = (0, 0);
        let run = Run {
            round,
            arm,
            outcome,
        };
        let bounds = bounds(usual_jitter_ns()).unwrap();
        let mut late = late_of(&run, &bounds).unwrap();
        assert_eq!(late.len(), 1);
        assert_eq!(late[0].beyond_ns, 2_000_000);
        late.remove(0)
    }

    fn stall(stalled_ns: u64, done_ns: u64) -> Stall {
        Stall {
            step: Step::Read,
            took_ns: stalled_ns + Cpu::default().wake_ns,
            done_ns,
        }
    }

    fn bound_ns(stream: usize, jitter_ns: u64) -> i64 {
        bounds(jitter_ns).unwrap()[stream].longest_ns() as i64
    }

    #[test]
    fn stalls_explain_a_late_message_only_if_they_exceed_the_assumption_by_its_delay() {
        let latency_ns = bound_ns(0, usual_jitter_ns()) + 2_000_000;
        let is_explained = |stalled_ns: u64, done_ns| {
            let samples = vec![sample(0, 0, latency_ns)];
            late(samples, stall(stalled_ns, done_ns)).is_explained
        };
        let during = 104_000_000;
        // 1 ms is assumed, and the message was 2 ms late.
        assert!(is_explained(3_000_000, during));
        assert!(!is_explained(2_900_000, during) && !is_explained(0, during));
        // A stall long before the message, and one after it.
        assert!(!is_explained(3_000_000, during - 10_000_000));
        assert!(!is_explained(3_000_000, during + 10_000_000));
    }

    #[test]
    fn a_late_sender_explains_latencies_up_to_the_bound_with_its_jitter() {
        let latency_ns = bound_ns(1, usual_jitter_ns()) + 2_000_000;
        let is_explained = |urgent_woken_ns: u64| {
            let urgent = sample(0, urgent_woken_ns as i64, 1_000_000);
            late(vec![sample(1, 0, latency_ns), urgent], stall(0, 0)).is_explained
        };
        let (too_early, late_enough) = (9_000_000, 10_000_000);
        assert!(bound_ns(1, too_early) < latency_ns && latency_ns <= bound_ns(1, late_enough));
        assert!(!is_explained(too_early) && is_explained(late_enough));
    }

    #[test]
    fn stalls_at_the_same_time_count_once() {
        let stall = |step, done_ns, took_ns| Stall {
            step,
            took_ns,
            done_ns,
        };
        let ms = 1_000_000;
        let stalls = [
            stall(Step::Read, 10 * ms, 2 * ms + 100_000),
            stall(Step::Post, 9 * ms, 3 * ms + 100_000),
            stall(Step::Post, 40 * ms, 500_000),
            stall(Step::Hear, 5 * ms, 4 * ms + 100_000),
        ];
        let window = (4 * ms as i64, 30 * ms as i64);
        let (stalled, steps) = stalled(stalls.iter(), window);
        // From 4 to 5 and from 6 to 10 ms.
        assert!((stalled - 5_000_000).abs() <= 3 * RECORD_NS, "{stalled}");
        let expected = [
            (Step::Post, 3_100_000),
            (Step::Hear, 4_100_000),
            (Step::Read, 2_100_000),
        ];
        assert_eq!(steps, expected);
    }
}
