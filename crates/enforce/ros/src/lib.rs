//! The ROS 2 endpoints of onbeat: the shaper and the throttler (thesis, sections 4.3.2 and 4.5.1),
//! and the remapping of topics to them. This is the only crate that calls rcl. It loads rcl at run
//! time, so one binary works with every ROS 2 release.

pub mod companion;
pub mod config;
pub mod diagnostics;
pub mod environment;
pub mod inside;
pub mod lineage;
mod notifier;
pub mod overlay;
pub mod page;
mod process;
pub mod queue;
pub mod rcl;
pub mod remap;
pub mod report;
pub mod schedule;
mod sequence;
pub mod shaper;
