//! The options by which `record` and `shape` are limited to a part of what runs.

use onbeat_record::{Limits, DOMAIN_MAX};
use std::path::PathBuf;

/// Limits. Several together: only what is within all of them.
#[derive(clap::Args)]
pub struct LimitArgs {
    /// Only processes that were started with this ROS_DOMAIN_ID (without one: 0)
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(0..=i64::from(DOMAIN_MAX)), conflicts_with_all = ["command", "pid"])]
    pub domain: Option<u32>,
    /// Only processes in this cgroup (a directory in /sys/fs/cgroup) or below it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "pid"])]
    pub cgroup: Option<PathBuf>,
    /// Only processes in the container (the pid namespace) of this process
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "pid"])]
    pub container: Option<u32>,
}

impl LimitArgs {
    /// As the recorder takes them.
    pub fn limits(&self) -> Limits {
        Limits {
            domain: self.domain,
            cgroup: self.cgroup.clone(),
            container: self.container,
        }
    }
}
