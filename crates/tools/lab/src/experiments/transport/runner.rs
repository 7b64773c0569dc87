//! An arm that is started again when it fails.

use super::session::{Place, Session, SessionResults};
use crate::frame::report::Report;
use crate::frame::Context;
use crate::measure::run::Run;
use crate::measure::transport::{Arm, Peers};

/// An arm that can be measured although it hangs from time to time: its processes are started again
/// after a failure. The report notes each failure.
pub struct Runner<'p> {
    peers: &'p Peers,
    arm: Arm,
    place: Place,
    title: String,
    session: Option<Session>,
    failures: u32,
}

const MAX_FAILURES: u32 = 3;

impl<'p> Runner<'p> {
    pub fn new(peers: &'p Peers, arm: Arm, place: Place, title: &str) -> Runner<'p> {
        Runner {
            peers,
            arm,
            place,
            title: title.to_string(),
            session: None,
            failures: 0,
        }
    }

    pub fn run(
        &mut self,
        context: &Context,
        report: &mut Report,
        run: Run,
    ) -> Option<SessionResults> {
        while self.failures < MAX_FAILURES {
            let session = match self.session.take() {
                Some(session) => Ok(session),
                None => Session::start(context, self.peers, &self.arm, self.place),
            };
            let results = session.and_then(|mut session| {
                let results = session.run(run)?;
                self.session = Some(session);
                Ok(results)
            });
            let e = match results {
                Ok(results) => return Some(results),
                Err(e) => e,
            };
            self.failures += 1;
            let what = format!("{} {}", self.arm.name, self.title);
            if self.failures < MAX_FAILURES {
                eprintln!("   {what} failed, trying again: {e}");
                report.note(format!("{what} failed and was started again: {e}"));
            } else {
                eprintln!("   skipped: {what}: {e}");
                report.skip(what, e);
            }
        }
        None
    }

    pub fn end(&mut self) {
        self.session = None;
    }
}
