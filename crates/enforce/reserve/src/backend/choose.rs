//! Chooses the kernel mechanism that keeps threads from running.

use super::cgroup::{V1, V2};
use super::{Backend, GateError, Witness};
use crate::options::{Choice, Options};
use crate::server::RunningServer;
use onbeat_proc::cgroup;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Chooses the mechanism that the options ask for and creates a gate for each gated server. `name`
/// becomes the name of the gates' cgroups.
///
/// Version 1 is tried before version 2, because it can gate single threads of a process without
/// changing the process's cgroup. If neither can be used, the error gives the reasons.
pub(crate) fn choose(
    options: &Options,
    name: &str,
    servers: &[RunningServer],
    witness: &dyn Witness,
) -> Result<Arc<dyn Backend>, String> {
    let mounts = cgroup::freezers(&options.mount_table)
        .map_err(|e| format!("cannot read {}: {e}", options.mount_table.display()))?;
    let mut reasons = Vec::new();
    let mut candidates: Vec<Box<dyn Backend>> = Vec::new();
    if options.backend != Choice::CgroupV2 {
        match mounts.0 {
            Some(mount) => candidates.push(Box::new(V1::new(mount, name, servers.len()))),
            None => reasons.push("the freezer of cgroup v1 is not mounted".into()),
        }
    }
    if options.backend != Choice::CgroupV1 {
        match mounts.1 {
            Some(mount) => candidates.push(Box::new(V2::new(mount, name, servers.len()))),
            None => reasons.push("cgroup v2 is not mounted".into()),
        }
    }
    for mut candidate in candidates {
        match create_gates(&mut *candidate, servers, witness) {
            Ok(()) => return Ok(candidate.into()),
            Err(e) => reasons.push(e.to_string()),
        }
    }
    if !servers.iter().any(|s| s.is_gated) {
        return Ok(Arc::new(NoGates));
    }
    Err(reasons.join("; "))
}

fn create_gates(
    backend: &mut dyn Backend,
    servers: &[RunningServer],
    witness: &dyn Witness,
) -> Result<(), GateError> {
    for (i, server) in servers.iter().enumerate().filter(|(_, s)| s.is_gated) {
        backend.create(i, &label(i, &server.name), witness)?;
    }
    Ok(())
}

fn label(index: usize, name: &str) -> String {
    let fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name
        .chars()
        .take(64)
        .map(|c| if fit(c) { c } else { '_' })
        .collect();
    format!("{index}-{name}")
}

struct NoGates;

impl Backend for NoGates {
    fn name(&self) -> &'static str {
        "none needed"
    }
    fn create(&mut self, _: usize, _: &str, _: &dyn Witness) -> Result<(), GateError> {
        Ok(())
    }
    fn open(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn close(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn home(&self, _: u32) -> Result<Option<PathBuf>, GateError> {
        Ok(None)
    }
    fn inside(&self) -> Vec<u32> {
        Vec::new()
    }
    fn way_out(&self, _: u32) -> Option<PathBuf> {
        None
    }
    fn add(&self, _: usize, _: u32, _: &dyn Witness) -> Result<(), GateError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_name_contains_no_slash_or_control_character_of_the_server_name() {
        assert_eq!(label(3, "gamma-1.b"), "3-gamma-1.b");
        assert_eq!(label(0, "../a\n/é"), "0-.._a___");
        assert_eq!(label(0, &"x".repeat(500)).len(), 66);
    }
}
