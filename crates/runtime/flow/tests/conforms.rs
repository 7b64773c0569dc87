//! The conformance suite within a process.

mod conformance;

use onbeat_flow::InProcess;

conformance::conforms!(InProcess::new());
