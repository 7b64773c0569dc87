//! Strategies that hold outputs back until latency bands (Definitions 4.3.2 to 4.3.4).

use super::{millionths, slot, Layout, Maker};
use crate::bands::{self, Constraints, Samples};
use crate::error::PlanError;
use crate::request::Strategy;
use crate::schema::{Band, Ms, Promises, Slot};

impl<'m> Maker<'_, 'm> {
    /// The chain's slot, and behind it or within it the slots in which outputs leave.
    pub(super) fn bands(&self) -> Result<Layout<'m>, PlanError> {
        let held = self.last_publications()?;
        let chain = self.chain_slot();
        let length = self.slot_ns(held.len())?;
        let end = chain.1 .0.saturating_add(length);
        self.fits(
            "the chain's worst case, its buffer and the output's slot",
            end,
            self.scope.cycle_ns,
        )?;
        let samples = Samples::of(&self.scope.latency);
        let limits = Constraints {
            slot_ns: length,
            epsilon_ns: chain.1 .0 - self.start_ns - samples.worst_ns(),
            liveliness_ns: self.request.liveliness_ns,
        };
        let ends = match self.request.strategy {
            Strategy::RandomBands { bands, seed } => bands::random(&samples, bands, &limits, seed)?,
            Strategy::AutoBands => {
                let knee = bands::knee(&samples, &limits)?;
                bands::optimal(&samples, knee, &limits)?
            }
            Strategy::Bands(count) => bands::optimal(&samples, count, &limits)?,
            _ => bands::optimal(&samples, 1, &limits)?,
        };
        let at = |x: u64| x + self.start_ns;
        let slots: Vec<Slot> = ends.iter().map(|&x| slot(at(x - length), at(x))).collect();
        let shares = bands::shares(&samples, &ends);
        let band = |(&latency_ms, share): (&Slot, f64)| Band {
            latency_ms,
            share: millionths(share.clamp(0.0, 1.0)),
        };
        let promises = Promises {
            average_ms: Ms(at(bands::average_ns(&samples, &ends).round() as u64)),
            worst_ms: Ms(end),
            jitter_ms: Ms(length / 2),
            bands: slots.iter().zip(shares).map(band).collect(),
            ..Promises::default()
        };
        let mut servers = self.latency_servers(vec![chain]);
        servers.push(self.output_server(slots));
        Ok(Layout {
            servers,
            held,
            promises,
            output_ns: length,
        })
    }
}
