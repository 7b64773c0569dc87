//! The list of all experiments. Only `main` uses it.

use crate::experiments as all;
use crate::frame::{Experiment, LabError, Result};

pub const EXPERIMENTS: &[Experiment] = &[
    all::tracing::EXPERIMENT,
    all::model::EXPERIMENT,
    all::fleet::EXPERIMENT,
    all::parking::EXPERIMENT,
    all::transport::EXPERIMENT,
    all::latency::EXPERIMENT,
    all::queues::EXPERIMENT,
    all::planner::EXPERIMENT,
    all::shaping::EXPERIMENT,
    all::link::EXPERIMENT,
    all::replay::EXPERIMENT,
    all::inhibition::EXPERIMENT,
];

pub fn find(name: &str) -> Result<&'static Experiment> {
    let found = EXPERIMENTS.iter().find(|e| e.name == name);
    found.ok_or_else(|| LabError::Unknown(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_experiments_are_refused_and_names_are_unique() {
        assert!(matches!(find("nonsense"), Err(LabError::Unknown(_))));
        for (i, e) in EXPERIMENTS.iter().enumerate() {
            assert!(
                EXPERIMENTS[..i].iter().all(|o| o.name != e.name),
                "{}",
                e.name
            );
            assert!(!e.about.contains('\n'));
        }
    }
}
