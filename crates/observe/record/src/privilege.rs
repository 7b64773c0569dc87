//! Checks the privileges that recording needs, and gives up those that it needs no longer.

use caps::{CapSet, Capability};
use thiserror::Error;

/// The privilege to record is missing.
#[derive(Debug, Error)]
#[error(
    "recording needs {missing}: run it with sudo, or allow it once: sudo setcap {grant}+ep {program}"
)]
pub struct MissingPrivilege {
    missing: String,
    grant: &'static str,
    program: String,
}

/// Kept once everything is attached: processes that start later bring libraries that have to be
/// read and probed too.
const KEPT: [Capability; 6] = [
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_KILL,
    Capability::CAP_CHOWN,
];

const GRANT: &str = "cap_bpf,cap_perfmon,cap_sys_admin,cap_sys_ptrace,cap_dac_read_search,cap_kill";

/// Runs `attempt` without CAP_SYS_ADMIN: newer kernels (6.15, and older ones with the fix) want
/// it for uprobes; CAP_PERFMON is enough for older ones.
pub fn without_admin<T>(attempt: impl FnOnce() -> T) -> T {
    let had = caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap_or(false);
    let lowered = had && caps::drop(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).is_ok();
    let result = attempt();
    if lowered {
        // It is still permitted, so raising it again cannot fail.
        let _ = caps::raise(None, CapSet::Effective, Capability::CAP_SYS_ADMIN);
    }
    result
}

/// Checks that this process may load and attach the probes.
pub fn check() -> Result<(), MissingPrivilege> {
    let has = |c| caps::has_cap(None, CapSet::Effective, c).unwrap_or(false);
    if has(Capability::CAP_SYS_ADMIN) {
        return Ok(());
    }
    let missing: Vec<String> = [Capability::CAP_BPF, Capability::CAP_PERFMON]
        .into_iter()
        .filter(|&c| !has(c))
        .map(|c| c.to_string())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let program =
        std::env::current_exe().map_or_else(|_| "onbeat".into(), |p| p.display().to_string());
    Err(MissingPrivilege {
        missing: missing.join(" and "),
        grant: GRANT,
        program,
    })
}

/// Gives up every capability that a running recorder does not need. `admin`: uprobes need
/// CAP_SYS_ADMIN on this kernel. Returns the names of what is left.
pub fn drop_unneeded(admin: bool) -> Vec<String> {
    let permitted = caps::read(None, CapSet::Permitted).unwrap_or_default();
    // A kernel before 5.8 or a container may have given us only CAP_SYS_ADMIN for BPF.
    let has_bpf =
        permitted.contains(&Capability::CAP_BPF) && permitted.contains(&Capability::CAP_PERFMON);
    if !has_bpf {
        return permitted.iter().map(ToString::to_string).collect();
    }
    let kept = KEPT
        .into_iter()
        .chain(admin.then_some(Capability::CAP_SYS_ADMIN));
    let keep: caps::CapsHashSet = kept.filter(|c| permitted.contains(c)).collect();
    // A process may always lower its own sets. If it fails all the same, we only keep more.
    let _ = caps::clear(None, CapSet::Inheritable);
    let _ = caps::set(None, CapSet::Effective, &keep);
    let _ = caps::set(None, CapSet::Permitted, &keep);
    let mut names: Vec<String> = keep.iter().map(ToString::to_string).collect();
    names.sort();
    names
}
