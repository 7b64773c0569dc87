//! Chooses the statuses of the next message. A message has limited room, so a system with many
//! requirements needs several messages for all of them. Pure.

use onbeat_ros::diagnostics::{fitting, DiagnosticStatus};
use std::collections::VecDeque;
use std::time::Duration;

/// The time within which each status is published once, unless there are too many statuses.
const ROUND: Duration = Duration::from_secs(1);

/// The shortest time between two messages of diagnostics. With many statuses, a round over all of
/// them therefore takes longer than [`ROUND`].
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The largest number of statuses that are considered for one message. No message has room for more
/// statuses.
const LOOKED_AT: usize = 64;

#[derive(Debug, Default)]
pub struct Pages {
    statuses: Vec<DiagnosticStatus>,
    /// The indices of the statuses whose level has changed since they were last published.
    changed: VecDeque<usize>,
    /// The index of the status that is published next in the round over all statuses.
    next: usize,
    latest: usize,
}

impl Pages {
    /// Replaces the statuses. Returns whether a status is new or its level has changed.
    pub fn set(&mut self, statuses: Vec<DiagnosticStatus>) -> bool {
        let is_same = |at: usize, new: &DiagnosticStatus| {
            let old = self.statuses.get(at);
            old.is_some_and(|old| old.level == new.level && old.name == new.name)
        };
        let new = statuses.iter().enumerate();
        let changed: Vec<usize> = new
            .filter(|(at, s)| !is_same(*at, s))
            .map(|(at, _)| at)
            .collect();
        self.changed.retain(|&at| at < statuses.len());
        for &at in &changed {
            if !self.changed.contains(&at) {
                self.changed.push_back(at);
            }
        }
        self.statuses = statuses;
        !changed.is_empty()
    }

    /// Returns the statuses of the next message: first those whose level has changed, then the next
    /// ones of the round over all statuses.
    pub fn next(&mut self) -> Vec<DiagnosticStatus> {
        let count = self.statuses.len();
        let begin = self.next.min(count);
        let round = (begin..count).chain(0..begin);
        let others = round.filter(|at| !self.changed.contains(at));
        let order = self.changed.iter().copied().chain(others);
        let order: Vec<usize> = order.take(LOOKED_AT).collect();
        let mut page: Vec<DiagnosticStatus> =
            order.iter().map(|&at| self.statuses[at].clone()).collect();
        page.truncate(fitting(&page));
        let of_changed = self.changed.len().min(page.len());
        self.changed.drain(..of_changed);
        if let Some(&last) = order[..page.len()].iter().skip(of_changed).next_back() {
            self.next = (last + 1) % count;
        }
        self.latest = page.len();
        page
    }

    pub fn interval(&self) -> Duration {
        let pages = self.statuses.len().div_ceil(self.latest.max(1));
        let pages = u32::try_from(pages.max(1)).unwrap_or(u32::MAX);
        (ROUND / pages).max(INTERVAL_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_ros::diagnostics::Level;
    use std::collections::BTreeSet;

    fn statuses(count: usize) -> Vec<DiagnosticStatus> {
        let one = |at: usize| DiagnosticStatus {
            name: format!("{at}"),
            ..DiagnosticStatus::default()
        };
        (0..count).map(one).collect()
    }

    fn names(page: &[DiagnosticStatus]) -> Vec<usize> {
        page.iter().map(|s| s.name.parse().unwrap()).collect()
    }

    #[test]
    fn every_status_is_published_once_in_a_round_and_a_change_at_once() {
        let mut pages = Pages::default();
        assert!(pages.next().is_empty());
        assert!(pages.set(statuses(100)));
        let mut seen = BTreeSet::new();
        while seen.len() < 100 {
            let page = names(&pages.next());
            assert!(page.len() > 9 || seen.len() + page.len() == 100, "{page:?}");
            seen.extend(page);
        }
        assert!(!pages.set(statuses(100)), "nothing has changed");
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.extend(names(&pages.next()));
        }
        let unique: BTreeSet<usize> = seen.iter().copied().collect();
        assert_eq!(unique.len(), 100, "{seen:?}");
        assert_eq!(pages.interval(), ROUND / 4);
        let mut changed = statuses(100);
        changed[77].level = Level::Error;
        changed[5].level = Level::Error;
        assert!(pages.set(changed));
        let page = pages.next();
        assert_eq!(names(&page)[..2], [5, 77]);
        assert_eq!(page.iter().filter(|s| s.level == Level::Error).count(), 2);
        assert_eq!(page.len(), 32);
        // Fewer requirements after a reload.
        pages.set(statuses(3));
        assert_eq!(pages.next().len(), 3);
        assert_eq!(pages.interval(), ROUND);
        pages.set(Vec::new());
        assert!(pages.next().is_empty());
    }
}
