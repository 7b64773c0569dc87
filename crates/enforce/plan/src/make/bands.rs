//! Lays out the strategies that hold outputs back until a latency band (Definitions 4.3.2 to
//! 4.3.4).

use super::{millionths, round_up, slot, Layout, Maker};
use crate::bands::{self, Constraints, Samples};
use crate::error::PlanError;
use crate::profile::{Profile, CONFIDENCE};
use crate::request::Strategy;
use crate::schema::{Band, Cost, Miss, Ms, Promises, Slot};

impl<'m> Maker<'_, 'm> {
    pub(super) fn bands(&self) -> Result<Layout<'m>, PlanError> {
        let held = self.last_publications()?;
        let length = self.slot_ns(held.len())?;
        let (last, miss) = self.last_slot()?;
        let end = self.start_ns.saturating_add(last).saturating_add(length);
        self.fits(
            "the chain's worst-case latency, the time buffer after it and the output's slot together",
            end,
            self.scope.cycle_ns,
        )?;
        // Executions longer than the limit count as if they just reached the last slot.
        let samples = Samples::of(&self.scope.latency).capped(last);
        let limits = Constraints {
            slot_ns: length,
            epsilon_ns: last - samples.worst_ns(),
            liveliness_ns: self.request.outputs.liveliness_ns,
        };
        let mut cost = None;
        let ends = match self.request.strategy {
            Strategy::RandomBands { bands, seed } => bands::random(&samples, bands, &limits, seed)?,
            Strategy::AutoBands => {
                let knee = bands::knee(&samples, &limits)?;
                bands::optimal(&samples, knee, &limits)?
            }
            Strategy::Average(above) => {
                let found = self
                    .profile()?
                    .fewest(above, last, &limits, self.start_ns)?;
                cost = Some(Cost {
                    asked: above,
                    measured: millionths(found.above),
                    bound: millionths(found.bound),
                });
                bands::optimal(&samples, found.bands, &limits)?
            }
            Strategy::Bands(count) => bands::optimal(&samples, count, &limits)?,
            _ => bands::optimal(&samples, 1, &limits)?,
        };
        let at = |x: u64| x + self.start_ns;
        let slots: Vec<Slot> = ends.iter().map(|&x| slot(at(x - length), at(x))).collect();
        let shares = bands::shares(&samples, &ends);
        let band = |(&latency_ms, share): (&Slot, f64)| Band {
            latency_ms,
            // Executions that are left out are in no band.
            share: millionths(share.clamp(0.0, 1.0) * (1.0 - self.scope.slowest.share())),
        };
        let promises = Promises {
            average_ms: Ms(at(bands::average_ns(&samples, &ends).round() as u64)),
            worst_ms: Ms(end),
            // Latency counts from the first callback's start.
            jitter_ms: Ms((length + self.late_ns) / 2),
            bands: slots.iter().zip(shares).map(band).collect(),
            liveliness_ms: self.request.outputs.liveliness_ns.map(Ms),
            miss,
            left_out: self.left_out(),
            cost,
            ..Promises::default()
        };
        // An execution that takes longer than the last slot still gets its time, if it was
        // measured.
        let longest = last
            .max(self.last_end_ns())
            .max(self.scope.slowest.latency_ns.1)
            .saturating_add(self.start_ns)
            .saturating_add(self.request.outputs.room_ns);
        let mut servers = match self.runs_others() {
            // The other callbacks may not wait for a slot. The outputs are held back all the same.
            true => self.latency_servers(vec![slot(0, self.scope.cycle_ns)]),
            false => self.latency_servers_within(slot(0, longest.min(self.scope.cycle_ns))),
        };
        servers.push(self.output_server(slots));
        Ok(Layout {
            servers,
            held,
            promises,
            output_ns: length,
        })
    }

    /// Returns the start of the last slot in ns, without `start_ns`, and the promised miss rate. If
    /// no miss rate is requested, the slot begins one buffer after the measured worst case.
    /// Otherwise it begins at the upper confidence limit of the latency. Both starts include the
    /// delays by other callbacks, `added_ns` and `late_ns`.
    fn last_slot(&self) -> Result<(u64, Option<Miss>), PlanError> {
        let Some(rate) = self.request.outputs.miss else {
            let last = self.with_epsilon(self.last_end_ns());
            return Ok((last, self.miss_of_left_out(last)));
        };
        let limit = self.profile()?.limit(rate)?;
        let last = round_up(limit.ns.saturating_add(self.added_ns + self.late_ns));
        let miss = Miss {
            rate,
            confidence: CONFIDENCE,
            limit_ms: Ms(limit.ns.saturating_add(self.start_ns)),
            starts: limit.starts as u64,
            executions: limit.executions,
            independent: limit.independent,
            shape: limit.shape.map(millionths),
        };
        Ok((last, Some(miss)))
    }

    fn profile(&self) -> Result<Profile, PlanError> {
        Ok(Profile::of_chains(
            &self.scope.chains,
            &self.scope.model.runs,
        )?)
    }
}
