//! ROS 2 endpoints of onbeat: the shaper and the throttler (thesis, sections 4.3.2 and 4.5.1), and
//! what is needed to put them into the way of a topic. The only crate that knows rcl, which it
//! loads at run time: one binary for every ROS 2.

pub mod config;
pub mod diagnostics;
pub mod environment;
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
