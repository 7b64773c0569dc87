//! Figures of bands that followed the load. Pure.

use super::{ms, Verdict};
use onbeat_plan::schema::Promises;

/// How bands followed, and how precisely outputs left in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behind {
    /// How often slots moved.
    pub moves: u64,
    /// Half of the range from p0.5 to p99.5 of the times from a slot's begin to the output that waited
    /// for it.
    pub jitter_ns: u64,
}

impl Behind {
    /// The figures.
    pub(super) fn judge(self, promises: &Promises, verdict: &mut Verdict) {
        verdict.measured("bands: times moved".into(), "", self.moves as f64);
        let (jitter, promised) = (self.jitter_ns, promises.jitter_ms.0);
        let name = "jitter behind a slot's begin, p0.5 to p99.5".to_owned();
        verdict.promised(name, "ms", ms(promised), ms(jitter), jitter <= promised);
    }
}
