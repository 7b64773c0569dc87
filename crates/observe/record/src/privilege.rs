//! The privileges that recording needs, and when it gives them up.
//!
//! 1. From its first instruction to [`use_permitted`], the command has its user's rights.
//! 2. Until the kernel has its programs, it has [`AT_START`].
//! 3. From then on, before it opens any file of another process, it has [`KEPT`].

use onbeat_rights::{has, Capability};
use thiserror::Error;

/// The process lacks a privilege that recording needs. The message names the privilege.
#[derive(Debug, Error)]
#[error(
    "recording needs {missing}. Run onbeat with sudo, or allow recording permanently: sudo setcap {grant}+ep {program}"
)]
pub struct MissingPrivilege {
    missing: String,
    grant: &'static str,
    program: String,
}

/// The capabilities that a recorder may use at its start. Root uses the last four capabilities in
/// the list to start a command as the user behind sudo, and to give that user the trace.
pub const AT_START: &[Capability] = &[
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_SYS_RESOURCE,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_KILL,
    Capability::CAP_CHOWN,
    Capability::CAP_FOWNER,
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
];

/// The capabilities that the recorder keeps while it records. Processes that start later load
/// libraries, which the recorder must also be able to read and probe.
const KEPT: [Capability; 6] = [
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_KILL,
    Capability::CAP_CHOWN,
];

/// The capabilities that the recorder keeps until the command runs, because the command may run as
/// another user.
const TO_START_COMMAND: [Capability; 2] = [Capability::CAP_SETUID, Capability::CAP_SETGID];

/// The only capability that the guard of a command needs: it resumes processes.
const GUARD_NEEDS: [Capability; 1] = [Capability::CAP_KILL];

const GRANT: &str = "cap_bpf,cap_perfmon,cap_sys_admin,cap_sys_ptrace,cap_dac_read_search,cap_kill";

/// Runs `attempt` without CAP_SYS_ADMIN. Kernels from 6.15 on, and older kernels with the same
/// patch, require that capability for uprobes. For other kernels CAP_PERFMON is enough.
pub fn without_admin<T>(attempt: impl FnOnce() -> T) -> T {
    onbeat_rights::without(&[Capability::CAP_SYS_ADMIN], attempt)
}

/// Raises all permitted capabilities. Fails if this process may not load the BPF programs or attach
/// the probes.
pub fn use_permitted() -> Result<(), MissingPrivilege> {
    onbeat_rights::raise();
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

/// The work that the recorder still has to do. This work decides which capabilities the recorder
/// keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The kernel requires CAP_SYS_ADMIN for uprobes, so the recorder keeps this capability.
    pub admin: bool,
    pub command: bool,
}

pub fn drop_unneeded(needs: Needs) {
    let permitted = onbeat_rights::permitted();
    // Kernels before 5.8 and some containers permit BPF by CAP_SYS_ADMIN alone.
    let has_bpf =
        permitted.contains(&Capability::CAP_BPF) && permitted.contains(&Capability::CAP_PERFMON);
    let admin = (needs.admin || !has_bpf).then_some(Capability::CAP_SYS_ADMIN);
    let command = TO_START_COMMAND.into_iter().filter(|_| needs.command);
    onbeat_rights::keep(KEPT.into_iter().chain(admin).chain(command));
}

/// The capabilities that root keeps to record without BPF for the user behind sudo. With them, root
/// reads the user's rings and processes, ends the command, and gives the user the trace.
const FOR_USER: [Capability; 5] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_KILL,
];

/// Gives up every capability that a recorder without BPF does not need. An ordinary user's recorder
/// keeps none. If `command` is true, root must still start a command as the user behind sudo.
pub fn drop_without_kernel(command: bool) {
    let command = TO_START_COMMAND.into_iter().filter(|_| command);
    let wanted = FOR_USER.into_iter().chain(command);
    onbeat_rights::keep(wanted.filter(|_| onbeat_rights::is_root()));
}

pub fn drop_in_guard() {
    onbeat_rights::keep(GUARD_NEEDS);
}
