//! Lays out logical execution time (thesis, section 4.5.3): outputs leave when a later cycle
//! begins.

use super::{millionths, slot, Layout, Maker};
use crate::error::PlanError;
use crate::schema::{Band, Ms, Promises};
use crate::scope::Publication;
use std::collections::{BTreeMap, BTreeSet};

impl<'m> Maker<'_, 'm> {
    pub(super) fn let_per_callback(&self) -> Result<Layout<'m>, PlanError> {
        let (mut held, mut cycles) = (BTreeSet::new(), Vec::new());
        for chain in &self.scope.chains {
            let publications = self.scope.publications(chain)?;
            cycles.push(publications.len() as u64);
            held.extend(publications);
        }
        let length = self.slot_ns(held.len())?;
        let left = self
            .scope
            .cycle_ns
            .saturating_sub(self.input_delay_ns + length);
        // In every cycle each callback runs once, on the input of the cycle's start.
        let mut need: BTreeMap<u16, u64> = BTreeMap::new();
        for part in &self.scope.parts {
            let sum = need.entry(part.cpu).or_default();
            *sum = sum.saturating_add(part.worst_ns());
        }
        for other in &self.scope.others {
            let sum = need.entry(other.cpu).or_default();
            *sum = sum.saturating_add(other.in_cycle_ns(self.scope.cycle_ns));
        }
        for (cpu, need) in need {
            self.fits(
                &format!("all executions of one cycle on CPU {cpu} together"),
                need,
                left,
            )?;
        }
        Ok(self.let_layout(held.into_iter().collect(), length, &cycles))
    }

    pub(super) fn let_per_chain(&self) -> Result<Layout<'m>, PlanError> {
        let held = self.last_publications()?;
        let length = self.slot_ns(held.len())?;
        let chain = self.chain_slot();
        let need = chain.1 .0.saturating_add(length);
        self.fits(
            "the chain's worst-case latency, the time buffer after it and the output's slot together",
            need,
            self.scope.cycle_ns,
        )?;
        Ok(self.let_layout(held, length, &vec![1; self.scope.chains.len()]))
    }

    /// Plans one output slot of `length` ns at the start of the cycle for the outputs `held`, and
    /// lets the chains run in the whole cycle. The output of each chain leaves a number of cycles
    /// after its input: its entry in `cycles`.
    fn let_layout(&self, held: Vec<Publication<'m>>, length: u64, cycles: &[u64]) -> Layout<'m> {
        let (start, end) = (self.input_delay_ns, self.input_delay_ns + length);
        // The chain has the whole cycle, so its first callback starts at its release. The outputs
        // precede it in their slot.
        let mut servers = self.latency_servers(vec![slot(0, self.scope.cycle_ns)]);
        servers.push(self.output_server(vec![slot(start, end)]));
        let mut of: BTreeMap<u64, usize> = BTreeMap::new();
        for &count in cycles {
            *of.entry(count).or_default() += 1;
        }
        let band = |(&count, &chains): (&u64, &usize)| {
            let before = self.scope.cycle_ns.saturating_mul(count);
            Band {
                latency_ms: slot(before + start, before + end),
                share: millionths(chains as f64 / cycles.len() as f64),
            }
        };
        let bands: Vec<Band> = of.iter().map(band).collect();
        let ends = of
            .iter()
            .map(|(count, chains)| *count as f64 * *chains as f64);
        let mean = ends.sum::<f64>() / cycles.len().max(1) as f64;
        let average = (mean * self.scope.cycle_ns as f64).round() as u64;
        Layout {
            servers,
            held,
            promises: Promises {
                average_ms: Ms(average.saturating_add(end)),
                worst_ms: bands.last().map_or(Ms(end), |b| b.latency_ms.1),
                jitter_ms: Ms((length + self.late_ns) / 2),
                bands,
                ..Promises::default()
            },
            output_ns: length,
        }
    }
}
