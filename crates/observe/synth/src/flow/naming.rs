//! Makes the ids of vertices: readable, and equal in every run (see `docs/model-format.md`).

use super::graph::Vertex;
use crate::entities::Entities;
use crate::index::VertexId;
use onbeat_document::dist::Dist;
use onbeat_document::schema::CallbackType;
use std::collections::BTreeMap;

pub(crate) struct Ids<'a> {
    pub(crate) entities: &'a Entities,
    pub(crate) vertices: &'a [Vertex],
}

impl Ids<'_> {
    pub(crate) fn node(&self, v: &Vertex) -> String {
        self.entities.node_id(v.node())
    }

    pub(crate) fn base(&self, v: &Vertex) -> String {
        let node = self.node(v);
        let name = self.entities.names.text(v.looks.name);
        match v.kind() {
            CallbackType::Timer => format!("{node}:timer({})", timer_period(v)),
            CallbackType::Subscription => format!("{node}:subscription({name})"),
            CallbackType::Service => match v.looks.caller {
                Some(caller) => {
                    format!("{node}:service({name})@{}", self.entities.node_id(caller))
                }
                None => format!("{node}:service({name})"),
            },
            CallbackType::Client => format!("{node}:client({name})"),
            CallbackType::Task => format!("{node}:task({name})"),
            CallbackType::Sync => format!("{node}:sync({name})"),
            CallbackType::Thread => format!("{node}:thread({name})"),
        }
    }

    pub(crate) fn provisional(&self, v: VertexId) -> String {
        let vertex = &self.vertices[v.index()];
        with_ordinal(self.base(vertex), vertex.rank.0.number)
    }

    /// Returns the id of each vertex by its number, or `None` for a callback that did not run.
    ///
    /// Vertices with equal ids get ordinals, in the order in which their entities were created.
    /// Entities that did not run count too. If that order is not certain, the ordinals follow the
    /// numbers of the vertices.
    pub(crate) fn all(&self) -> Vec<Option<String>> {
        let mut alike: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (i, v) in self.vertices.iter().enumerate() {
            if v.runs.count > 0 || v.kind() == CallbackType::Sync {
                alike.entry(self.base(v)).or_default().push(i);
            }
        }
        let mut ids = vec![None; self.vertices.len()];
        for (base, mut list) in alike {
            list.sort_by_key(|&i| self.vertices[i].rank);
            let slot = |i: &usize| self.vertices[*i].rank.0;
            let sure = list.iter().all(|i| slot(i).sure);
            let sure = sure && list.windows(2).all(|w| slot(&w[0]) < slot(&w[1]));
            for (n, i) in (0..).zip(list) {
                let before = if sure { slot(&i).number } else { n };
                ids[i] = Some(with_ordinal(base.clone(), before));
            }
        }
        ids
    }
}

fn with_ordinal(base: String, before: u32) -> String {
    match before {
        0 => base,
        n => format!("{base}#{}", n + 1),
    }
}

/// Returns the text for the period in a timer's id: the set period, or else the measured one, or
/// `?` if neither is known.
fn timer_period(v: &Vertex) -> String {
    if let Some(set) = v.looks.period_ns {
        return in_ms(set);
    }
    let measured = v.runs.interarrival();
    match measured.count() {
        0 => "?".into(),
        _ => in_ms(measured_period(&measured)),
    }
}

fn in_ms(ns: u64) -> String {
    let (ms, rest) = (ns / 1_000_000, ns % 1_000_000);
    if rest == 0 {
        return format!("{ms}ms");
    }
    format!("{ms}.{}ms", format!("{rest:06}").trim_end_matches('0'))
}

/// Rounds a measured period so that it is the same in every run. The result has at most three
/// digits before its zeros, and only as many as the scatter of the intervals allows.
fn measured_period(intervals: &Dist) -> u64 {
    let median = intervals.quantile(0.5);
    let scatter = intervals.quantile(0.75) - intervals.quantile(0.25);
    let doubt = scatter as f64 / (intervals.count() as f64).sqrt();
    let doubt = (doubt as u64).max(median / 200);
    let rounded = |unit: u64| (median + unit / 2) / unit * unit;
    let units = (3..7).map(|digit| 10u64.pow((median.max(1).ilog10() + 4).saturating_sub(digit)));
    let near = |&period: &u64| period > 0 && period.abs_diff(median) <= doubt;
    let mut periods = units.map(rounded);
    periods.find(near).unwrap_or(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_show_periods_in_ms_and_ordinals_after_a_number_sign() {
        assert_eq!(in_ms(100_000_000), "100ms");
        assert_eq!(in_ms(33_333_333), "33.333333ms");
        assert_eq!(in_ms(500_000), "0.5ms");
        assert_eq!(with_ordinal("/a:timer(1ms)".into(), 0), "/a:timer(1ms)");
        assert_eq!(with_ordinal("/a:timer(1ms)".into(), 1), "/a:timer(1ms)#2");
    }

    #[test]
    fn a_measured_period_is_rounded_as_far_as_its_scatter_allows() {
        let measured = |intervals: &[u64]| {
            let mut dist = Dist::new();
            intervals.iter().for_each(|&us| dist.record(us * 1000));
            in_ms(measured_period(&dist))
        };
        assert_eq!(measured(&[99_871, 99_900, 100_050]), "100ms");
        assert_eq!(
            measured(&[49_400, 51_300, 48_900, 50_200]),
            "50ms",
            "not 49"
        );
        assert_eq!(
            measured(&[12_601, 12_599, 12_600, 12_600]),
            "12.6ms",
            "not 13"
        );
        assert_eq!(measured(&[33_330, 33_340, 33_333, 33_335]), "33.3ms");
        assert_eq!(measured(&[1_003_000, 999_000, 1_000_100]), "1000ms");
        assert_eq!(measured(&[0, 0]), "0ms");
    }
}
