//! Publishes a session's status as ROS 2 diagnostics.
//!
//! | module | task |
//! |---|---|
//! | here | passes the latest status to the thread that publishes |
//! | `message` | converts a status to statuses of `diagnostic_msgs`; pure |

mod message;

use super::Board;
use message::{Moment, Reporter};
use onbeat_ros::diagnostics::{DiagnosticStatus, Diagnostics, Source};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Starts the thread that publishes diagnostics. The thread does not run on `cpus`. `program` is
/// the path of this program.
pub(crate) fn start(
    board: Arc<Board>,
    program: PathBuf,
    cpus: &[u16],
) -> std::io::Result<Diagnostics> {
    let post = Arc::clone(board.post());
    let source = OfBoard {
        board,
        reporter: Reporter::new(onbeat_proc::system::hostname()),
        began: Instant::now(),
    };
    Diagnostics::start(Box::new(source), post, program, cpus, || {})
}

struct OfBoard {
    board: Arc<Board>,
    reporter: Reporter,
    began: Instant,
}

impl Source for OfBoard {
    fn will(&mut self) -> Vec<DiagnosticStatus> {
        self.reporter.will(&self.board.status().plan.chains)
    }

    fn report(&mut self) -> (u32, Vec<DiagnosticStatus>) {
        let (status, age) = self.board.published();
        let now = self.began.elapsed();
        self.reporter.report(&status, Moment { now, age })
    }

    fn published(&mut self, number: u32) {
        self.reporter.published(number);
    }

    fn forget_sent(&mut self) {
        self.reporter.forget_sent();
    }

    fn is_confirmed(&self) -> bool {
        self.reporter.is_confirmed()
    }
}
