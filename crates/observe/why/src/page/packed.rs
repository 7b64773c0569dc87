//! The data of the page: each name once, each cause once, and two numbers per stretch.

use super::Page;
use crate::kind::Kind;
use crate::overview::Overview;
use crate::stretch::{Culprit, During, Execution, Stretch};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

/// The number that stands for a missing name or a missing kind.
const NONE: i64 = -1;

#[derive(Serialize)]
struct KindText {
    /// The kind, with the same name as in `--json` and in the style sheet.
    key: Kind,
    text: &'static str,
    letter: char,
}

/// The data of a page as its script reads it. Times are in ns since the start of the recording.
#[derive(Serialize)]
pub(super) struct Packed {
    /// The start of the recording in ms since 1970.
    start_ms: f64,
    limit_ns: u64,
    longest_ns: u64,
    left_out: u64,
    at_ns: Option<u64>,
    kinds: Vec<KindText>,
    names: Vec<String>,
    /// The rows of the page's message flow, as indices into `names`.
    places: Vec<usize>,
    /// For each cause, seven numbers: the kind, the row, the text, the culprit if it has a thread, the
    /// kind and the text of the culprit's state, and the CPU. The row is an index into `places`. Each
    /// text is an index into `names`.
    causes: Vec<[i64; 7]>,
    /// For each execution, three numbers: the start, the latency and the number of stretches.
    /// Executions are sorted by start.
    executions: Vec<u64>,
    /// For each stretch, two numbers: the index of its cause and its length. The order is that of
    /// the executions.
    stretches: Vec<u64>,
    overview: Bins,
}

#[derive(Serialize)]
struct Bins {
    width_ns: u64,
    bins: Vec<[u64; 4]>,
}

impl Bins {
    fn new(overview: &Overview, start: u64) -> Bins {
        let bins = overview.bins.iter();
        Bins {
            width_ns: overview.width_ns,
            bins: bins
                .map(|b| {
                    let since = b.start_ns.saturating_sub(start);
                    [since, b.count, b.min_ns, b.max_ns]
                })
                .collect(),
        }
    }
}

#[derive(Default)]
struct Numbers {
    names: Vec<String>,
    by_name: FxHashMap<String, usize>,
}

impl Numbers {
    fn of(&mut self, name: String) -> usize {
        if let Some(&number) = self.by_name.get(&name) {
            return number;
        }
        self.names.push(name.clone());
        self.by_name.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }
}

/// The cause of a stretch: its kind, the id of the callback or synchroniser to which it belongs,
/// the culprit, the culprit's state, the reason why the kind is unknown, and the CPU.
type Key<'a> = (
    Kind,
    &'a str,
    Option<&'a Culprit>,
    Option<&'a During>,
    Option<crate::kind::Reason>,
    Option<u16>,
);

impl Packed {
    pub(super) fn new(page: &Page) -> Packed {
        let e = page.explanation;
        let mut sorted: Vec<&Execution> = e.executions.iter().collect();
        sorted.sort_by_key(|e| (e.start_ns, e.latency_ns));
        let places = places(page.callbacks, &sorted);
        let mut numbers = Numbers::default();
        let rows: Vec<usize> = places.iter().map(|p| numbers.of(p.to_string())).collect();
        let row_of: FxHashMap<&str, usize> = places.iter().copied().zip(0..).collect();
        let mut known: FxHashMap<Key, usize> = FxHashMap::default();
        let mut causes = Vec::new();
        let (mut executions, mut stretches) = (Vec::new(), Vec::new());
        for execution in sorted {
            let since = execution.start_ns.saturating_sub(page.start_monotonic_ns);
            let count = execution.stretches.len() as u64;
            executions.extend([since, execution.latency_ns, count]);
            for s in &execution.stretches {
                let key = (
                    s.kind,
                    s.place.as_str(),
                    s.by.as_ref(),
                    s.during.as_ref(),
                    s.reason,
                    s.cpu,
                );
                let number = *known.entry(key).or_insert_with(|| {
                    let row = row_of.get(s.place.as_str()).copied().unwrap_or(0);
                    causes.push(cause(s, row, &mut numbers));
                    causes.len() - 1
                });
                stretches.extend([number as u64, s.ns]);
            }
        }
        let kinds = Kind::ALL.iter().map(|&key| KindText {
            key,
            text: key.text(),
            letter: key.letter(),
        });
        Packed {
            start_ms: page.start_realtime_ns as f64 / 1e6,
            limit_ns: e.limit_ns,
            longest_ns: e.longest_ns,
            left_out: e.count.saturating_sub(e.executions.len() as u64),
            at_ns: page
                .at_ns
                .map(|at| at.saturating_sub(page.start_monotonic_ns)),
            kinds: kinds.collect(),
            names: numbers.names,
            places: rows,
            causes,
            executions,
            stretches,
            overview: Bins::new(&e.overview, page.start_monotonic_ns),
        }
    }
}

fn cause(stretch: &Stretch, row: usize, numbers: &mut Numbers) -> [i64; 7] {
    let number = |kind: Kind| Kind::ALL.iter().position(|&k| k == kind);
    let or_none = |n: Option<usize>| n.map_or(NONE, |n| n as i64);
    let during = stretch.during.as_ref();
    // A call or a socket has no thread, which the page could show in a lane.
    let has_thread = |by: &&Culprit| !matches!(by, Culprit::Call(_) | Culprit::Socket(_));
    let by = stretch.by.as_ref().filter(has_thread);
    let by = by.map(|by| numbers.of(by.text()));
    [
        or_none(number(stretch.kind)),
        row as i64,
        numbers.of(stretch.text()) as i64,
        or_none(by),
        or_none(during.and_then(|d| number(d.kind))),
        or_none(during.map(|d| numbers.of(d.text()))),
        stretch.cpu.map_or(NONE, i64::from),
    ]
}

/// Returns the rows of the page's message flow: ids of callbacks and synchronisers, from top to
/// bottom. The chain's callbacks come in their order. Another id gets a row below the id that comes
/// before it in an execution. Ids without a stretch get no row.
fn places<'a>(callbacks: &'a [String], executions: &[&'a Execution]) -> Vec<&'a str> {
    let mut places: Vec<&str> = Vec::new();
    let mut known: FxHashSet<&str> = FxHashSet::default();
    for callback in callbacks {
        if known.insert(callback) {
            places.push(callback);
        }
    }
    let mut used: FxHashSet<&str> = FxHashSet::default();
    for execution in executions {
        let mut before = None;
        for share in execution.stretches.chunk_by(|a, b| a.place == b.place) {
            let place = share[0].place.as_str();
            if known.insert(place) {
                let at = before.and_then(|b| places.iter().position(|p| *p == b));
                places.insert(at.map_or(0, |at| at + 1), place);
            }
            used.insert(place);
            before = Some(place);
        }
    }
    places.retain(|p| used.contains(p) || executions.is_empty());
    places
}
