//! Counts how callbacks outside of chains ran on the plan's threads, before shaping and during it.
//! Pure.

use super::is_synchroniser;
use onbeat_plan::Plan;

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    runs: u64,
    busy_ns: u64,
    longest_ns: u64,
    span: Option<(u64, u64)>,
}

impl Tally {
    fn add(&mut self, start_ns: u64, end_ns: u64) {
        let took_ns = end_ns.saturating_sub(start_ns);
        self.runs += 1;
        self.busy_ns = self.busy_ns.saturating_add(took_ns);
        self.longest_ns = self.longest_ns.max(took_ns);
        let (first, last) = self.span.unwrap_or((start_ns, end_ns));
        self.span = Some((first.min(start_ns), last.max(end_ns)));
    }

    fn figures(&self) -> Option<String> {
        let (first, last) = self.span?;
        let seconds = last.saturating_sub(first) as f64 / 1e9;
        (seconds > 0.0).then(|| {
            format!(
                "{:.1} runs per second, busy {:.1} % of the time, mean run {:.1} ms, longest {:.1} ms",
                self.runs as f64 / seconds,
                self.busy_ns as f64 / 1e7 / seconds,
                self.busy_ns as f64 / 1e6 / self.runs as f64,
                self.longest_ns as f64 / 1e6,
            )
        })
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Others {
    is_other: Vec<bool>,
    unshaped: Tally,
    shaped: Tally,
}

impl Others {
    pub(crate) fn new(plan: &Plan, callbacks: &[String]) -> Others {
        let in_chain = |id: &String| plan.chains.iter().any(|c| c.callbacks.contains(id));
        let is_other = |id: &String| !plan.requires(id) && !in_chain(id) && !is_synchroniser(id);
        Others {
            is_other: callbacks.iter().map(is_other).collect(),
            ..Others::default()
        }
    }

    pub(crate) fn ran(&mut self, callback: usize, (start_ns, end_ns): (u64, u64), shaped: bool) {
        if self.is_other.get(callback) == Some(&true) {
            let tally = match shaped {
                true => &mut self.shaped,
                false => &mut self.unshaped,
            };
            tally.add(start_ns, end_ns);
        }
    }

    pub(crate) fn sentence(&self) -> Option<String> {
        let shaped = self.shaped.figures()?;
        let count = self.is_other.iter().filter(|&&is| is).count();
        let before = match self.unshaped.figures() {
            Some(unshaped) => format!(" Before shaping: {unshaped}."),
            None => String::new(),
        };
        Some(format!(
            "Callbacks that share the plan's threads but belong to no chain ({count}): {shaped}.{before}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn callbacks_outside_of_chains_are_counted_before_and_during_shaping() {
        let text = include_bytes!("../../../plan/tests/golden/plan.yaml");
        let mut plan = onbeat_plan::file::read(text).expect("a plan");
        let first = plan.origin.clone();
        let callbacks = vec![first, "/log:timer(10ms)".to_owned()];
        plan.servers[1].callbacks.push(callbacks[1].clone());
        assert_eq!(Others::new(&plan, &callbacks).sentence(), None);
        plan.callbacks.push(onbeat_plan::schema::CallbackRule {
            id: callbacks[1].clone(),
            required: false,
        });
        let mut others = Others::new(&plan, &callbacks);
        for i in 0..100 {
            let at = i * 10 * MS;
            others.ran(1, (at, at + MS), false);
            others.ran(0, (at, at + 9 * MS), true);
            if i % 2 == 0 {
                let at = 2_000 * MS + at;
                others.ran(1, (at, at + 2 * MS + i / 98 * MS), true);
            }
        }
        let said = others.sentence().expect("a sentence");
        assert_eq!(
            said,
            "Callbacks that share the plan's threads but belong to no chain (1): 50.9 runs per second, busy 10.3 % of the time, \
             mean run 2.0 ms, longest 3.0 ms. Before shaping: 100.9 runs per second, busy 10.1 % of the time, \
             mean run 1.0 ms, longest 1.0 ms."
        );
    }
}
