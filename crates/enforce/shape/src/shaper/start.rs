//! Starts the shaper's process beside the application's process, in the same container.

use super::config::{configuration, Ros};
use super::{pipe, Carrier, OutputState, Reports, Shaper, ShaperError};
use onbeat_plan::Plan;
use onbeat_rights::Capability;
use onbeat_ros::companion::{
    own_environment, spawn, Beside, CompanionError, Limits, Priority, Word,
};
use onbeat_ros::config::Config;
use onbeat_ros::environment::Environment;
use onbeat_ros::page::PageWriter;
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;

impl Shaper {
    /// Starts the shaper for a plan's outputs and inputs beside the application's process `pid`.
    /// `seen_ns` is a time at which this process ran (CLOCK_MONOTONIC). The shaper passes all
    /// messages on at once until [`Shaper::shape`]. `lineage` is the table of lineage, if there is
    /// one.
    pub(super) fn start(
        plan: &Plan,
        program: &Path,
        (pid, seen_ns): (u32, u64),
        lineage: Option<RawFd>,
    ) -> Result<Shaper, ShaperError> {
        let beside = Beside::of(pid, seen_ns).ok_or(CompanionError::User(pid))?;
        let Environment {
            variables,
            rcl,
            folders,
        } = own_environment(&beside)?;
        let page = PageWriter::new().map_err(CompanionError::Start)?;
        page.set_pass_through(true);
        let (read, write) = pipe().map_err(CompanionError::Start)?;
        let ros = Ros { rcl, folders };
        let (mut config, outputs) =
            configuration(plan, beside.as_fd(), ros, (page.fd(), &write), lineage);
        let priority = priority(&mut config, &beside);
        let text = serde_json::to_vec(&config).map_err(|e| CompanionError::Start(e.into()))?;
        let inherited = [
            Some(page.fd().as_raw_fd()),
            Some(write.as_raw_fd()),
            Some(beside.as_fd().as_raw_fd()),
            lineage,
        ];
        let limits = Limits {
            inherited,
            priority,
        };
        let (process, stdin) = spawn((program, Word::Shaper), variables, &beside, limits)?;
        drop(write);
        if let Some(mut stdin) = stdin {
            stdin.write_all(&text).map_err(CompanionError::Start)?;
        }
        let state = |output| OutputState {
            output,
            is_ready: false,
            arrivals: VecDeque::new(),
        };
        Ok(Shaper {
            carrier: Carrier::Process { process, beside },
            page: Arc::new(page),
            reports: Reports::new(read),
            outputs: outputs.into_iter().map(state).collect(),
            settling: false,
        })
    }
}

fn highest_priority(config: &Config) -> u8 {
    let outputs = config.outputs.iter().map(|output| output.place.as_ref());
    let places = outputs.chain([config.middleware.as_ref()]).flatten();
    places.filter_map(|place| place.priority).max().unwrap_or(0)
}

/// Returns how the shaper's threads get their priorities if the shaper runs beside the
/// application's process `beside`. If the threads inherit their priority, they must not set another
/// one. The call then removes the priorities from `config`.
fn priority(config: &mut Config, beside: &Beside) -> Priority {
    let highest = highest_priority(config);
    let keeps_rights = beside.container.is_empty() && beside.user.uid == 0;
    if keeps_rights || highest == 0 || !onbeat_rights::is_root() || may_allow(highest) {
        return Priority::Allowed(highest);
    }
    let outputs = config.outputs.iter_mut().map(|o| o.place.as_mut());
    let places = outputs.chain([config.middleware.as_mut()]).flatten();
    places.for_each(|place| place.priority = None);
    Priority::Inherited(highest)
}

fn may_allow(priority: u8) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio);
    onbeat_rights::has(Capability::CAP_SYS_RESOURCE)
        || limit.maximum.is_none_or(|most| most >= priority.into())
}
