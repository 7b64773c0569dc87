//! Makes tables and pictures of recorded runs: threads that were ready without a CPU, and locks
//! that they held.

use super::course::{overlap_ns, State, Stretch, Thread};
use super::Recorded;
use crate::experiments::inhibition::measures::Pattern;
use crate::experiments::inhibition::programs::Middleware;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::stats::median;
use crate::plot::{timeline, Row};
use std::collections::BTreeMap;
use std::ops::Range;

/// A wait for a lock counts if it takes at least this time, in ns. If a wait is shorter, the lock's
/// owner was about to release the lock.
const LOCK_MIN_NS: u64 = 1_000_000;
const LOCKS_SHOWN_PER_MIDDLEWARE: usize = 6;
const MARGIN_NS: u64 = 15_000_000;
const THREADS_SHOWN: usize = 5;

const LEGEND: [&str; 4] = [
    "runs",
    "ready, no CPU",
    "ready, no CPU, and holds the lock",
    "waits for the lock",
];

struct LockWait<'a> {
    recorded: &'a Recorded,
    process: &'static str,
    span: Range<u64>,
    /// The process id and the thread id of the lock's owner. The owner can belong to another
    /// process than the waiting thread, because the lock may be in shared memory.
    owner: Option<(u32, u32)>,
}
#[derive(Default)]
pub struct Judged {
    ready: Option<Table>,
    locks: Option<Table>,
}

impl Recorded {
    fn pids(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        self.run.identity.processes.iter().copied()
    }

    fn most_inhibited(&self) -> Option<(String, Range<u64>)> {
        let children = self.pids().flat_map(|(process, pid)| {
            let of_process = self
                .threads_of(pid)
                .filter(move |((_, tid), _)| *tid != pid);
            of_process.map(move |(&(_, tid), thread)| (process, pid, tid, thread))
        });
        let ready = children.flat_map(|(process, pid, tid, thread)| {
            let its = thread.stretches.iter().filter(|s| s.state == State::Ready);
            its.map(move |Stretch { span, .. }| (process, pid, tid, span))
        });
        let (process, pid, tid, span) = ready.max_by_key(|(.., span)| span.end - span.start)?;
        Some((
            format!("{process}: {}", self.name_of(pid, tid)),
            span.clone(),
        ))
    }

    fn threads_of(&self, pid: u32) -> impl Iterator<Item = (&(u32, u32), &Thread)> {
        self.course.threads.range((pid, 0)..=(pid, u32::MAX))
    }

    fn name_of(&self, pid: u32, tid: u32) -> String {
        let all = &self.course.threads;
        let name = |tid| all.get(&(pid, tid)).map(|t: &Thread| t.name.as_str());
        match (tid == pid, name(tid)) {
            (true, _) => "main".into(),
            (_, None) => "?".into(),
            (_, Some(own)) if name(pid) != Some(own) => own.into(),
            _ => {
                let unnamed = self
                    .threads_of(pid)
                    .filter(|(_, t)| Some(&*t.name) == name(pid));
                format!(
                    "unnamed {}",
                    unnamed.take_while(|(id, _)| id.1 != tid).count()
                )
            }
        }
    }

    fn inhibitor_share(&self, within: &Range<u64>) -> f64 {
        let had = self
            .run
            .identity
            .inhibitor
            .map_or(0, |tid| self.course.on_core(tid, within));
        100.0 * had as f64 / (within.end - within.start).max(1) as f64
    }

    fn holder(&self, pid: u32, tid: u32) -> Option<(u32, u32)> {
        let others = self.pids().map(|(_, other)| other);
        let mut pids = [pid].into_iter().chain(others);
        let pid = pids.find(|pid| self.course.threads.contains_key(&(*pid, tid)))?;
        Some((pid, tid))
    }

    fn lock_waits(&self) -> Vec<LockWait<'_>> {
        let of_main = |(process, pid): (&'static str, u32)| {
            let main = self.course.threads.get(&(pid, pid));
            let stretches = main.map_or(&[][..], |m| &m.stretches);
            stretches.iter().filter_map(move |s| match s.state {
                State::Lock(owner) if s.span.end - s.span.start >= LOCK_MIN_NS => Some(LockWait {
                    recorded: self,
                    process,
                    span: s.span.clone(),
                    owner: self.holder(pid, owner),
                }),
                _ => None,
            })
        };
        self.pids().flat_map(of_main).collect()
    }
}

fn ms(ns: u64) -> String {
    number(ns as f64 / 1e6)
}

impl LockWait<'_> {
    fn length(&self) -> u64 {
        self.span.end - self.span.start
    }

    fn owner(&self) -> Option<&Thread> {
        self.recorded.course.threads.get(&self.owner?)
    }

    fn owner_name(&self) -> String {
        let Some((pid, tid)) = self.owner else {
            return "?".into();
        };
        let process = self.recorded.pids().find(|(_, p)| *p == pid);
        let name = self.recorded.name_of(pid, tid);
        process.map_or(name.clone(), |(process, _)| format!("{process}: {name}"))
    }

    fn row(&self, middleware: Middleware) -> [String; 10] {
        let held = |is: fn(State) -> bool| {
            self.owner()
                .map_or("?".into(), |t| ms(t.time_in(&self.span, is)))
        };
        let m = &self.recorded.run.measures;
        [
            middleware.name().into(),
            format!(
                "{}, run {}",
                self.recorded.condition.name(),
                self.recorded.round + 1
            ),
            m.pattern().name().into(),
            format!("{}: main", self.process),
            ms(self.length()),
            self.owner_name(),
            held(|s| s == State::Runs),
            held(|s| s == State::Ready),
            number(self.recorded.inhibitor_share(&self.span)),
            number(m.gap_max() / 1000.0),
        ]
    }
}

impl Judged {
    pub fn add(
        &mut self,
        context: &mut Context,
        report: &mut Report,
        middleware: Middleware,
        recorded: &[Recorded],
    ) -> Result<()> {
        self.add_ready(report, middleware, recorded);
        let mut waits: Vec<LockWait<'_>> = recorded.iter().flat_map(Recorded::lock_waits).collect();
        waits.sort_by_key(|w| std::cmp::Reverse(w.length()));
        let name = |what: &str| format!("cause.{}.{what}", middleware.part());
        report.figure(Figure::exact(name("lock_waits"), waits.len() as f64, "1"));
        let longest = waits.first().map_or(0, LockWait::length);
        report.value(name("lock_wait_max"), longest as f64 / 1e6, "ms");
        let head = "middleware | run | pattern | waiting thread | wait, ms | lock held by | holder ran, ms | \
holder ready without a CPU, ms | share of the wait with the inhibitor on the core, % | M4 (between wake-ups) max, ms";
        let title =
            "The longest times for which a main thread slept until it got a lock (1 ms or longer)";
        let table = self.locks.get_or_insert_with(|| Table::new(title, head));
        for wait in waits.iter().take(LOCKS_SHOWN_PER_MIDDLEWARE) {
            table.row(wait.row(middleware));
        }
        picture(context, middleware, recorded, waits.first())
    }

    fn add_ready(&mut self, report: &mut Report, middleware: Middleware, recorded: &[Recorded]) {
        let head =
            "middleware | condition | pattern | runs | thread that was ready without a CPU for the longest time | \
its longest time without a CPU: median of the runs, ms | max, ms | share of this time with the inhibitor on the core, %";
        let title = "The middleware's threads that were ready but had no CPU, by the pattern of the inhibitor's effect on a run";
        let table = self.ready.get_or_insert_with(|| Table::new(title, head));
        let mut groups: BTreeMap<(String, Pattern), Vec<&Recorded>> = BTreeMap::new();
        for one in recorded {
            let key = (one.condition.name(), one.run.measures.pattern());
            groups.entry(key).or_default().push(one);
        }
        for ((condition, pattern), runs) in groups {
            let found: Vec<_> = runs
                .iter()
                .filter_map(|r| Some((*r, r.most_inhibited()?)))
                .collect();
            let lengths: Vec<f64> = found
                .iter()
                .map(|(_, (_, span))| (span.end - span.start) as f64 / 1e6)
                .collect();
            let shares: Vec<f64> = found
                .iter()
                .map(|(r, (_, span))| r.inhibitor_share(span))
                .collect();
            let mut names: Vec<String> = found.iter().map(|(_, (name, _))| name.clone()).collect();
            names.sort();
            names.dedup();
            table.row([
                middleware.name().to_owned(),
                condition.clone(),
                pattern.name().to_owned(),
                runs.len().to_string(),
                names.join(", "),
                number(median(&lengths)),
                number(lengths.iter().copied().fold(0.0, f64::max)),
                number(median(&shares)),
            ]);
        }
        let late = recorded
            .iter()
            .filter(|r| r.run.measures.pattern() != Pattern::None);
        let figure = format!("cause.{}.runs_with_effect", middleware.part());
        report.figure(Figure::new(figure, late.count() as f64, "1").samples(recorded.len() as u64));
    }

    pub fn add_tables(self, report: &mut Report) {
        report
            .tables
            .extend(self.ready.into_iter().chain(self.locks));
    }
}

fn picture(
    context: &mut Context,
    middleware: Middleware,
    recorded: &[Recorded],
    lock: Option<&LockWait<'_>>,
) -> Result<()> {
    let (of, span, owner, title) = match lock {
        Some(wait) => {
            let title = format!(
                "{}: {}'s main thread waits for a lock of {}",
                middleware.part(),
                wait.process,
                wait.owner_name()
            );
            (wait.recorded, wait.span.clone(), wait.owner, title)
        }
        None => {
            let longest = recorded
                .iter()
                .filter_map(|r| Some((r, r.most_inhibited()?)));
            let longest = longest.max_by_key(|(_, (_, span))| span.end - span.start);
            let Some((of, (thread, span))) = longest else {
                return Ok(());
            };
            let title = format!("{}: {thread} is ready and has no CPU", middleware.part());
            (of, span, None, title)
        }
    };
    let shown = span.start.saturating_sub(MARGIN_NS)..span.end + MARGIN_NS;
    let to_ms = |ns: u64| (ns as f64 - span.start as f64) / 1e6;
    let mut rows: Vec<Row> = Vec::new();
    for (process, pid) in of.pids() {
        for (tid, thread) in threads_to_show(of, pid, &shown) {
            let who = of.name_of(pid, tid);
            let bars = thread.stretches.iter().filter_map(|s| {
                let state = match s.state {
                    State::Runs => 0,
                    State::Ready if owner == Some((pid, tid)) && overlap_ns(&s.span, &span) > 0 => {
                        2
                    }
                    State::Ready => 1,
                    State::Lock(_) => 3,
                    State::Sleeps => return None,
                };
                Some((to_ms(s.span.start), to_ms(s.span.end), state))
            });
            rows.push((format!("{process}: {who}"), bars.collect()));
        }
    }
    let inhibitor = of.run.identity.inhibitor.unwrap_or(0);
    let bars = of.course.spans_on_core(inhibitor, &shown);
    let bars = bars.map(|s| (to_ms(s.start), to_ms(s.end), 0)).collect();
    rows.push(("inhibitor".into(), bars));
    let range = (to_ms(shown.start), to_ms(shown.end));
    let svg = timeline(&title, "ms", &LEGEND, &rows, range)?;
    context.plot(&format!("{}-cause.svg", middleware.part()), &svg)
}

fn threads_to_show<'a>(of: &'a Recorded, pid: u32, shown: &Range<u64>) -> Vec<(u32, &'a Thread)> {
    let did = |t: &Thread| t.time_in(shown, |s| s != State::Sleeps);
    let mut threads: Vec<(u32, &Thread)> = of
        .threads_of(pid)
        .map(|((_, tid), thread)| (*tid, thread))
        .filter(|(tid, thread)| *tid == pid || did(thread) > 0)
        .collect();
    threads.sort_by_key(|(tid, thread)| (*tid != pid, std::cmp::Reverse(did(thread))));
    threads.truncate(1 + THREADS_SHOWN);
    threads
}
