//! Reports the state of a running session and the result at its end.

use super::Session;
use crate::error::ShapeError;
use crate::follow::Following;
use crate::judge::{judge, knows_unshaped, Measured};
use crate::observe::Execution;
use crate::report::{Live, Summary};
use crate::stages::{Stage, Stopped, StoppedBy};

impl Session<'_> {
    pub(super) fn live(&mut self) -> Live {
        let mut live = Live {
            notes: self.notes.take_new(),
            ..Live::default()
        };
        let Some((course, _)) = self.stage.course_mut() else {
            live.missing = self.application.missing();
            return live;
        };
        live.shaping = Some(course.elapsed());
        live.executions = course.results.count();
        live.judgements = course.results.take_new();
        live.jitter_ns = course.results.recent_jitter_ns(Execution::latency_ns);
        let knows = self
            .plan
            .chains
            .iter()
            .all(|c| knows_unshaped(self.plan, c));
        live.unshaped_jitter_ns =
            knows.then(|| course.results.recent_jitter_ns(Execution::unshaped_ns));
        let without = course.deliveries.counts().iter().map(|d| d.without);
        live.without = without.max().unwrap_or(0);
        live.late = course.results.late();
        live.dropped = course.results.dropped();
        if let Some(last) = live.judgements.last() {
            live.cycle = course.phase.phase().cycle(last.execution.start_ns).0;
        }
        if let Stage::Shaping(shaping) = &self.stage {
            live.dispatcher_p99_ns = shaping.stats().lateness.quantile_ns(0.99);
        }
        live
    }

    pub(super) fn end(mut self) -> (Summary, Option<ShapeError>) {
        self.stop();
        self.supervisor.end();
        let mut summary = Summary {
            notes: self.notes.into_all(),
            ..Summary::default()
        };
        let Stage::Stopped(Stopped {
            shaped: Some(shaped),
            at_ns,
            by,
        }) = self.stage
        else {
            return (summary, self.error);
        };
        summary.notes.extend(self.application.others.sentence());
        let shaped = *shaped;
        let mut course = shaped.course;
        let has_ended = !self.options.application.command.is_empty();
        let plan = self.plans.given();
        course.finish(plan, (at_ns, has_ended), self.options.duration);
        let forgotten = course.results.forgotten();
        let (counts, lasted) = (course.results.counts().to_vec(), course.shaped(at_ns));
        summary.judgements = std::mem::take(&mut course.results).into_kept();
        if forgotten > 0 {
            summary.notes.push(format!(
                "The figures cover the last {} executions. {forgotten} earlier executions are not kept.",
                summary.judgements.len()
            ));
        }
        if self.lost_reports > 0 {
            summary.notes.push(format!(
                "{} reports of the shaper were lost. The outputs in these reports count as not delivered.",
                self.lost_reports
            ));
        }
        let earlier = course.earlier(Some(&summary.judgements));
        let following = self.plans.following.as_ref();
        let promised = following.map(|f| f.promised(plan));
        let mut verdict = judge(
            promised.as_ref().unwrap_or(plan),
            Measured {
                behind: following.map(|f| f.behind()),
                judgements: &course.books.of_last(&summary.judgements),
                deliveries: &course.deliveries_of_last(),
                // Counters of the whole run. With several plans, the counts are taken from the
                // judgements of the last.
                counts: if earlier.is_empty() { &counts } else { &[] },
                outside_ns: course.isolation.outside_ns(),
            },
        );
        let cut = matches!(by, StoppedBy::Overshoot | StoppedBy::Guard);
        if let Some(asked) = self.options.duration.filter(|_| cut) {
            verdict.cut_short(lasted, asked);
        }
        if !self.plan.inputs.is_empty() {
            verdict.add_count("slips of inputs", course.inputs.slips());
        }
        if let Some((settled, stopped)) = shaped.usage {
            verdict.add_shares(stopped.shares_since(&settled));
        }
        summary.verdict = verdict;
        summary.earlier = earlier;
        summary.adapted = self.plans.following.map(Following::into_adapted);
        summary.placed = shaped.placed;
        summary.late = self.flight.into_late();
        summary.stats = Some(shaped.stats);
        (summary, self.error)
    }
}
