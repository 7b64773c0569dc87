//! Judges bands that followed the load. Pure.

use super::{ms, Verdict};
use onbeat_plan::schema::Promises;

/// The figures of latency bands that followed the load.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behind {
    pub moves: u64,
    /// The jitter of outputs within moving bands, in ns. It is half of the range from p0.5 to p99.5
    /// of the outputs' delays. A delay is the time from the start of a slot to the departure of an
    /// output that waited for this slot.
    pub jitter_ns: u64,
}

impl Behind {
    pub(super) fn judge(self, promises: &Promises, verdict: &mut Verdict) {
        verdict.measured("moves of the latency bands".into(), "", self.moves as f64);
        let (jitter, promised) = (self.jitter_ns, promises.jitter_ms.0);
        let name = "jitter relative to the slot's start, p0.5 to p99.5".to_owned();
        verdict.promised(name, "ms", ms(promised), ms(jitter), jitter <= promised);
    }
}
