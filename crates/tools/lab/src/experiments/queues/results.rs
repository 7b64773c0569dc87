//! Stores all measurements, compares arms, and writes the CSV files.

use super::arms::{index, ARMS};
use super::cell::{Measured, Setting};
use crate::frame::rng::Rng;
use crate::frame::{Context, Estimate, Kept, Result};
use crate::measure::stats::{bootstrap, mean, median, over_rounds, RESAMPLES};
use std::collections::BTreeSet;

pub(super) struct Row {
    pub(super) setting: usize,
    pub(super) arm: usize,
    pub(super) round: usize,
    pub(super) measured: Measured,
}

pub(super) struct QueueResults {
    pub(super) settings: Vec<Setting>,
    pub(super) rows: Vec<Row>,
    pub(super) kept: Vec<Kept>,
}

#[derive(Clone, Copy)]
pub(super) struct Kpi {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) of: fn(&Measured) -> f64,
}

const fn kpi(name: &'static str, title: &'static str, of: fn(&Measured) -> f64) -> Kpi {
    Kpi { name, title, of }
}

pub(super) const CPU: Kpi = kpi("cpu", "CPU, % of a core", |m| m.cpu);
/// The CPU time per processed message. With this figure, arms that lose different numbers of
/// messages can be compared, because a lost message needs no processing.
pub(super) const CPU_PER_MESSAGE: Kpi = kpi(
    "cpu_per_message",
    "CPU time per processed message, us",
    |m| {
        let processed: usize = m.streams.iter().map(|s| s.processed).sum();
        m.cpu_s * 1e6 / processed.max(1) as f64
    },
);
pub(super) const RAM: Kpi = kpi("ram", "RAM, MB", |m| m.rss_mb);
pub(super) const DELAY: Kpi = kpi("delay", "mean delay, ms", |m| m.delay_us() / 1e3);
pub(super) const JITTER: Kpi = kpi("jitter", "jitter, ms", Measured::jitter_ms);
pub(super) const CYCLES: Kpi = kpi(
    "cycles",
    "spread of cycles (longest minus shortest time between outputs), ms",
    Measured::cycles_ms,
);
pub(super) const LOSS: Kpi = kpi("loss", "data loss, %", Measured::loss);

pub(super) const KPIS: [Kpi; 6] = [CPU, RAM, DELAY, JITTER, CYCLES, LOSS];

impl QueueResults {
    pub(super) fn setting(&self, scenario: &str, kind: &str, streams: usize) -> Option<usize> {
        self.settings
            .iter()
            .position(|s| s.scenario == scenario && s.kind.name == kind && s.streams() == streams)
    }

    pub(super) fn counts(&self, scenario: &str, kind: &str) -> Vec<usize> {
        let of = |s: &&Setting| s.scenario == scenario && s.kind.name == kind;
        self.settings
            .iter()
            .filter(of)
            .map(Setting::streams)
            .collect()
    }

    pub(super) fn groups(&self) -> Vec<(&'static str, &'static str)> {
        let mut groups: Vec<_> = self
            .settings
            .iter()
            .map(|s| (s.scenario, s.kind.name))
            .collect();
        groups.dedup();
        groups
    }

    pub(super) fn of(&self, arm: &str, setting: usize) -> impl Iterator<Item = &Row> {
        let arm = index(arm);
        self.rows
            .iter()
            .filter(move |r| r.setting == setting && r.arm == arm)
    }

    pub(super) fn counts_round(&self, setting: usize, round: usize) -> bool {
        self.kept[setting].counted().contains(&round)
    }

    /// Returns the median of a key figure of an arm over the rounds that count, or over all rounds
    /// if none counts. Returns `None` if the arm was not measured.
    pub(super) fn value(&self, arm: &str, setting: Option<usize>, kpi: &Kpi) -> Option<f64> {
        let setting = setting?;
        let shown = self.kept[setting].shown();
        let values: Vec<f64> = self
            .of(arm, setting)
            .filter(|r| shown.contains(&r.round))
            .map(|r| (kpi.of)(&r.measured))
            .collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// Estimates the median of a key figure of an arm over the rounds that count. Returns `None` if
    /// the arm was not measured.
    pub(super) fn estimate(&self, arm: &str, setting: usize, kpi: &Kpi) -> Option<Estimate> {
        let rows: Vec<&Row> = self.of(arm, setting).collect();
        let values: Vec<f64> = rows.iter().map(|r| (kpi.of)(&r.measured)).collect();
        let is_aside = |at: usize| !self.counts_round(setting, rows[at].round);
        let kept = Kept::without(rows.len(), is_aside);
        let estimate = || over_rounds(&kept, &values, &mut Rng::new(1), median);
        (!rows.is_empty()).then(estimate)
    }

    /// Estimates by how much the key figure of arm `b` exceeds that of arm `a`, in %. For each
    /// setting, takes the median of the ratios of all rounds. The estimate is the mean of these
    /// medians. Its interval comes from resampling rounds.
    pub(super) fn added(
        &self,
        a: &str,
        b: &str,
        settings: &[usize],
        kpi: &Kpi,
        rng: &mut Rng,
    ) -> Option<Estimate> {
        // The values of both arms, by setting and round.
        let mut pairs: Vec<Vec<(f64, f64)>> = vec![];
        let mut aside: BTreeSet<usize> = BTreeSet::new();
        for &setting in settings {
            let of_a: Vec<&Row> = self.of(a, setting).collect();
            let mut rounds = vec![];
            for row in self.of(b, setting) {
                if let Some(other) = of_a.iter().find(|r| r.round == row.round) {
                    if !self.counts_round(setting, row.round) {
                        aside.insert(rounds.len());
                    }
                    rounds.push(((kpi.of)(&other.measured), (kpi.of)(&row.measured)));
                }
            }
            if rounds.is_empty() {
                return None;
            }
            pairs.push(rounds);
        }
        let rounds = pairs.iter().map(Vec::len).min()?;
        let added = |pick: &[usize]| {
            let ratio = |of_round: &Vec<(f64, f64)>| {
                let ratios: Vec<f64> = pick
                    .iter()
                    .map(|&i| of_round[i].1 / of_round[i].0)
                    .collect();
                median(&ratios)
            };
            let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
            (mean(&ratios) - 1.0) * 100.0
        };
        let kept = Kept::without(rounds, |i| aside.contains(&i));
        Some(bootstrap(kept, RESAMPLES, rng, added))
    }

    pub(super) fn write(&self, context: &mut Context) -> Result<()> {
        let mut cells = context.raw(
            "cells.csv",
            "cell,scenario,kind,streams,round,arm,complete,cpu_percent,processing_percent,rss_mb,pss_mb,delay_us,jitter_ms,cycles_ms,loss_percent,misplaced,others_percent",
        )?;
        for (i, row) in self.rows.iter().enumerate() {
            let (s, m) = (&self.settings[row.setting], &row.measured);
            cells.line(format_args!(
                "{i},{},{},{},{},{},{},{:.4},{:.4},{:.2},{:.2},{:.3},{:.6},{:.6},{:.4},{},{:.2}",
                s.scenario,
                s.kind.name,
                s.streams(),
                row.round,
                ARMS[row.arm].name,
                m.complete,
                m.cpu,
                m.processing,
                m.rss_mb,
                m.pss_mb,
                m.delay_us(),
                m.jitter_ms(),
                m.cycles_ms(),
                m.loss(),
                m.misplaced(),
                m.others,
            ))?;
        }
        cells.finish()?;
        let mut streams = context.raw(
            "streams.csv",
            "cell,stream,messages,processed,misplaced,delay_us,jitter_ms,cycles_ms,loss_percent",
        )?;
        for (i, row) in self.rows.iter().enumerate() {
            for (k, s) in row.measured.streams.iter().enumerate() {
                streams.line(format_args!(
                    "{i},{k},{},{},{},{:.3},{:.6},{:.6},{:.4}",
                    s.messages,
                    s.processed,
                    s.misplaced,
                    s.delay_us,
                    s.jitter_ms,
                    s.cycles_ms,
                    s.loss
                ))?;
            }
        }
        streams.finish()?;
        // Times in ns after the message was due by the input trace. A message that is not listed
        // was lost.
        let mut packets = context.raw("packets.csv", "cell,stream,sequence,due_ns,sent,in,out")?;
        for (i, row) in self.rows.iter().enumerate() {
            let m = &row.measured;
            let arrivals = &self.settings[row.setting].arrivals;
            for (k, (log, arrivals)) in m.logs.iter().zip(arrivals).enumerate() {
                for r in &log.received {
                    let due = arrivals.due_ns[r.sequence];
                    let after = |ns: i64| ns - m.start_ns - due as i64;
                    packets.line(format_args!(
                        "{i},{k},{},{due},{},{},{}",
                        r.sequence,
                        after(r.sent_ns),
                        after(r.in_ns),
                        after(r.out_ns)
                    ))?;
                }
            }
        }
        packets.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::kpis::StreamKpis;
    use super::*;
    use crate::measure::streams::{Arrivals, RADAR};

    fn row(setting: usize, arm: &str, round: usize, cpu: f64) -> Row {
        let measured = Measured {
            cpu,
            cpu_s: cpu / 40.0,
            processing: 0.5,
            rss_mb: 3.0,
            pss_mb: 2.0,
            streams: vec![StreamKpis {
                messages: 4,
                processed: 2,
                loss: 50.0,
                delay_us: 1500.0,
                ..StreamKpis::default()
            }],
            logs: vec![],
            start_ns: 0,
            others: 0.0,
            killed: 0,
            complete: true,
        };
        Row {
            setting,
            arm: index(arm),
            round,
            measured,
        }
    }

    fn results(rows: Vec<Row>) -> QueueResults {
        let setting = |streams: usize| Setting {
            scenario: "standard",
            kind: RADAR,
            arrivals: vec![Arrivals::default(); streams],
            files: "none".into(),
        };
        QueueResults {
            kept: vec![Kept::from(2); 2],
            settings: vec![setting(1), setting(10)],
            rows,
        }
    }

    #[test]
    fn each_round_and_setting_weighs_the_same_in_comparisons() {
        let o = results(vec![
            row(0, "drop", 0, 1.0),
            row(0, "credit", 0, 1.1),
            row(0, "drop", 1, 3.0),
            row(0, "credit", 1, 3.3),
            row(1, "credit", 0, 13.0),
            row(1, "drop", 0, 10.0),
            // A measurement without a counterpart in its round is not compared.
            row(1, "credit", 1, 1000.0),
        ]);
        let mut rng = Rng::new(1);
        let mut added = |settings: &[usize]| o.added("drop", "credit", settings, &CPU, &mut rng);
        assert!((added(&[0]).unwrap().value - 10.0).abs() < 1e-9);
        assert!((added(&[0, 1]).unwrap().value - 20.0).abs() < 1e-9);
        assert!(added(&[]).is_none());
        assert!(o.added("drop", "swap", &[0], &CPU, &mut rng).is_none());
    }

    #[test]
    fn figures_are_medians_over_rounds_and_looked_up_by_streams() {
        let o = results(vec![row(1, "credit", 0, 2.0), row(1, "credit", 1, 4.0)]);
        let ten = o.setting("standard", "radar", 10);
        assert_eq!(ten, Some(1));
        assert_eq!(o.value("credit", ten, &CPU), Some(3.0));
        assert_eq!(o.value("credit", ten, &DELAY), Some(1.5));
        assert_eq!(o.value("credit", ten, &LOSS), Some(50.0));
        assert_eq!(o.value("drop", ten, &CPU), None);
        assert_eq!(
            o.value("credit", o.setting("bottleneck", "radar", 10), &CPU),
            None
        );
        let per_message = o.value("credit", ten, &CPU_PER_MESSAGE).unwrap();
        assert!((per_message - 37_500.0).abs() < 1e-6);
    }
}
