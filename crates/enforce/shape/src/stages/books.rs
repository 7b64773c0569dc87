//! Counts executions separately for each plan of a session. An execution counts under the plan of
//! its release. Pure.

use crate::judge::{judge, Behind, Delivery, Judgement, Measured, Verdict};
use crate::observe::{Execution, Fate};
use crate::report::EarlierPlan;
use onbeat_plan::Plan;
use std::collections::VecDeque;
use std::sync::Arc;

const MAX_PLANS: usize = 64;

pub(crate) struct Book {
    plan: Arc<Plan>,
    number: u64,
    /// The time of the first release (CLOCK_MONOTONIC) that belongs to this plan.
    from_ns: u64,
    executions: u64,
    late: u64,
    discarded: u64,
    followed: Option<(Plan, Behind)>,
}

impl Book {
    fn new(plan: Arc<Plan>, number: u64, from_ns: u64) -> Book {
        Book {
            number,
            from_ns,
            executions: 0,
            late: 0,
            discarded: 0,
            followed: None,
            plan,
        }
    }
}

pub(crate) struct Books {
    books: VecDeque<Book>,
    forgotten: usize,
}

impl Books {
    pub(crate) fn new(plan: Arc<Plan>, number: u64) -> Books {
        Books {
            books: VecDeque::from([Book::new(plan, number, 0)]),
            forgotten: 0,
        }
    }

    pub(crate) fn begin(
        &mut self,
        (plan, number): (Arc<Plan>, u64),
        from_ns: u64,
        followed: Option<(Plan, Behind)>,
    ) {
        if let Some(last) = self.books.back_mut() {
            last.followed = followed;
        }
        if self.books.len() == MAX_PLANS {
            self.books.pop_front();
            self.forgotten += 1;
        }
        self.books.push_back(Book::new(plan, number, from_ns));
    }

    pub(crate) fn last(&self) -> &Book {
        &self.books[self.books.len() - 1]
    }

    fn at(&self, start_ns: u64) -> usize {
        // The release decides, and the first callback starts near its release.
        let at_ns = start_ns.saturating_add(self.last().plan.cycle_ms.0 / 2);
        self.books
            .iter()
            .rposition(|b| b.from_ns <= at_ns)
            .unwrap_or(0)
    }

    pub(crate) fn add(&mut self, execution: &Execution) {
        let at = self.at(execution.start_ns);
        let book = &mut self.books[at];
        book.executions += 1;
        book.late += u64::from(execution.late);
        book.discarded += u64::from(execution.fate == Fate::Discarded);
    }

    pub(crate) fn of_last(&self, judgements: &[Judgement]) -> Vec<Judgement> {
        self.of(self.books.len() - 1, judgements)
    }

    fn of(&self, at: usize, judgements: &[Judgement]) -> Vec<Judgement> {
        let here = judgements
            .iter()
            .filter(|j| self.at(j.execution.start_ns) == at);
        here.copied().collect()
    }

    /// Returns the counts of the earlier plans. If `judgements` are given, also returns the
    /// verdicts on these plans. `deliveries` has, for each plan of the session, the cycles with and
    /// without an output by chain.
    pub(crate) fn earlier(
        &self,
        deliveries: &[Vec<Delivery>],
        judgements: Option<&[Judgement]>,
    ) -> Vec<EarlierPlan> {
        let cycles = |at: usize| {
            deliveries
                .get(self.forgotten + at)
                .map_or(&[][..], Vec::as_slice)
        };
        let earlier = self.books.iter().enumerate().take(self.books.len() - 1);
        earlier
            .map(|(at, book)| EarlierPlan {
                number: book.number,
                strategy: book.plan.strategy.clone(),
                executions: book.executions,
                late: book.late,
                discarded: book.discarded,
                without: cycles(at).iter().map(|d| d.without).max().unwrap_or(0),
                verdict: judgements.map_or_else(Verdict::default, |all| {
                    let followed = book.followed.as_ref();
                    let measured = Measured {
                        judgements: &self.of(at, all),
                        deliveries: cycles(at),
                        behind: followed.map(|f| f.1),
                        ..Measured::default()
                    };
                    judge(followed.map_or(&book.plan, |f| &f.0), measured)
                }),
            })
            .collect()
    }
}
