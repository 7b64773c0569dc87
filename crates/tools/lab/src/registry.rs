//! Every experiment there is. Only `main` asks; no experiment and no helper does.

use crate::experiments;
use crate::frame::{Experiment, LabError};

/// Every experiment there is, in the order they are listed.
pub fn registry() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(experiments::tracing::Tracing),
        Box::new(experiments::model::ModelSpeed),
        Box::new(experiments::fleet::Fleet),
        Box::new(experiments::parking::Parking),
        Box::new(experiments::transport::Transport),
        Box::new(experiments::latency::Latency),
        Box::new(experiments::queues::Queues),
        Box::new(experiments::planner::Planner),
        Box::new(experiments::shaping::Shaping),
        Box::new(experiments::link::Link),
        Box::new(experiments::replay::Replay),
        Box::new(experiments::inhibition::Inhibition),
    ]
}

/// The experiment of a name.
pub fn find(name: &str) -> Result<Box<dyn Experiment>, LabError> {
    registry()
        .into_iter()
        .find(|e| e.name() == name)
        .ok_or_else(|| LabError::Unknown(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_experiments_are_refused_and_names_are_unique() {
        assert!(matches!(find("nonsense"), Err(LabError::Unknown(_))));
        let all = registry();
        for e in &all {
            assert_eq!(
                all.iter().filter(|o| o.name() == e.name()).count(),
                1,
                "{}",
                e.name()
            );
            assert!(!e.about().contains('\n'));
        }
    }
}
