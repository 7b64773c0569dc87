//! Which privileges recording needs, and giving up the rest.

use caps::{CapSet, Capability};
use thiserror::Error;

/// The privilege to record is missing.
#[derive(Debug, Error)]
#[error("recording needs {missing}: run it with sudo, or allow it once: sudo setcap {grant}+ep {program}")]
pub struct MissingPrivilege {
    missing: String,
    grant: &'static str,
    program: String,
}

/// What the recorder keeps once everything is attached: processes that start later bring
/// libraries that have to be read and probed too.
const KEPT: [Capability; 6] = [
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_KILL,
    Capability::CAP_CHOWN,
];

const GRANT: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_kill";

/// Can this process load and attach the probes?
pub fn check() -> Result<(), MissingPrivilege> {
    let has = |c| caps::has_cap(None, CapSet::Effective, c).unwrap_or(false);
    if has(Capability::CAP_SYS_ADMIN) {
        return Ok(());
    }
    let missing: Vec<String> =
        [Capability::CAP_BPF, Capability::CAP_PERFMON].into_iter().filter(|&c| !has(c)).map(|c| c.to_string()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().map_or_else(|_| "onbeat".into(), |p| p.display().to_string());
    Err(MissingPrivilege { missing: missing.join(" and "), grant: GRANT, program })
}

/// Gives up every capability but those that a running recorder still needs. Returns the names of
/// what is left.
pub fn drop_unneeded() -> Vec<String> {
    let permitted = caps::read(None, CapSet::Permitted).unwrap_or_default();
    // A kernel before 5.8 or a container may have given us only CAP_SYS_ADMIN for BPF.
    let has_bpf = permitted.contains(&Capability::CAP_BPF) && permitted.contains(&Capability::CAP_PERFMON);
    if !has_bpf {
        return permitted.iter().map(ToString::to_string).collect();
    }
    let keep: caps::CapsHashSet = KEPT.into_iter().filter(|c| permitted.contains(c)).collect();
    // Lowering one's own sets is always allowed; if it fails all the same we only keep more.
    let _ = caps::clear(None, CapSet::Inheritable);
    let _ = caps::set(None, CapSet::Effective, &keep);
    let _ = caps::set(None, CapSet::Permitted, &keep);
    let mut names: Vec<String> = keep.iter().map(ToString::to_string).collect();
    names.sort();
    names
}
