//! The options that limit `record` and `shape` to some of the running processes.

use onbeat_record::{Limits, DOMAIN_MAX};
use std::path::PathBuf;

/// The limits on the processes that onbeat observes. Several limits select the processes that meet
/// all of them.
#[derive(clap::Args)]
pub struct LimitArgs {
    /// Select only processes that were started with this ROS_DOMAIN_ID (0 if it was not set)
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(0..=i64::from(DOMAIN_MAX)), conflicts_with_all = ["command", "pid"])]
    pub domain: Option<u32>,
    /// Select only processes in this cgroup (a directory in /sys/fs/cgroup) or below it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "pid"])]
    pub cgroup: Option<PathBuf>,
    /// Select only processes in the same container (pid namespace) as the process with this id
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "pid"])]
    pub container: Option<u32>,
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits {
            domain: self.domain,
            cgroup: self.cgroup.clone(),
            container: self.container,
        }
    }
}
