//! Counts the records that were lost because the ring buffer was full.

#[derive(Debug, PartialEq, Eq)]
pub struct Loss {
    pub kind: u16,
    pub cpu: u16,
    pub new: u64,
    pub total: u64,
}

#[derive(Debug, Default)]
pub struct Losses(Vec<Vec<u64>>);

impl Losses {
    /// Stores the new totals of lost events, indexed `[kind][cpu]`. Returns the totals that have
    /// grown since the last call.
    pub fn update(&mut self, counts: Vec<Vec<u64>>) -> Vec<Loss> {
        let mut losses = Vec::new();
        for (kind, cpus) in counts.iter().enumerate() {
            for (cpu, &total) in cpus.iter().enumerate() {
                let before = self.0.get(kind).and_then(|c| c.get(cpu)).copied();
                let new = total.saturating_sub(before.unwrap_or(0));
                if new > 0 {
                    losses.push(Loss {
                        kind: kind as u16,
                        cpu: cpu as u16,
                        new,
                        total,
                    });
                }
            }
        }
        self.0 = counts;
        losses
    }

    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_losses_of_events_since_the_last_call_are_reported() {
        let mut losses = Losses::default();
        assert_eq!(losses.update(vec![vec![0, 0], vec![0, 3]]).len(), 1);
        let found = losses.update(vec![vec![0, 0], vec![0, 5]]);
        let expected = Loss {
            kind: 1,
            cpu: 1,
            new: 2,
            total: 5,
        };
        assert_eq!(found, [expected]);
        assert!(losses.update(vec![vec![0, 0], vec![0, 5]]).is_empty());
        assert_eq!(losses.total(), 5);
    }
}
