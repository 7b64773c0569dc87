//! The privileges that recording needs, and which of them when.
//!
//! 1. From its first instruction to [`use_permitted`] the command has its user's rights.
//! 2. Until the kernel has its programs: [`AT_START`].
//! 3. From then on, before any file of another process is opened: [`KEPT`].

use onbeat_rights::{has, Capability};
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

/// All that a recorder may use at its start: what follows, and for root the rights to start a
/// command as the user behind sudo and to give that user the trace.
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

/// Kept while it records: processes that start later bring libraries that have to be read and
/// probed too.
const KEPT: [Capability; 6] = [
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_KILL,
    Capability::CAP_CHOWN,
];

/// Kept until the command runs: it becomes another user's.
const TO_START_COMMAND: [Capability; 2] = [Capability::CAP_SETUID, Capability::CAP_SETGID];

/// All that the guard of a command needs: it continues processes.
const OF_GUARD: [Capability; 1] = [Capability::CAP_KILL];

const GRANT: &str = "cap_bpf,cap_perfmon,cap_sys_admin,cap_sys_ptrace,cap_dac_read_search,cap_kill";

/// Runs `attempt` without CAP_SYS_ADMIN: newer kernels (6.15, and older ones with the fix) want
/// it for uprobes; CAP_PERFMON is enough for older ones.
pub fn without_admin<T>(attempt: impl FnOnce() -> T) -> T {
    onbeat_rights::without(&[Capability::CAP_SYS_ADMIN], attempt)
}

/// Uses what this process is permitted, and checks that it may load and attach the probes.
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

/// What a recorder still does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Uprobes need CAP_SYS_ADMIN on this kernel.
    pub admin: bool,
    /// A command is still to be started.
    pub command: bool,
}

/// Gives up every capability that the recorder does not need any more.
pub fn drop_unneeded(needs: Needs) {
    let permitted = onbeat_rights::permitted();
    // A kernel before 5.8 or a container may have given us only CAP_SYS_ADMIN for BPF.
    let has_bpf =
        permitted.contains(&Capability::CAP_BPF) && permitted.contains(&Capability::CAP_PERFMON);
    let admin = (needs.admin || !has_bpf).then_some(Capability::CAP_SYS_ADMIN);
    let command = TO_START_COMMAND.into_iter().filter(|_| needs.command);
    onbeat_rights::keep(KEPT.into_iter().chain(admin).chain(command));
}

/// What root keeps where it records without BPF for the user behind sudo: whose rings and processes it
/// reads, whose command it ends, and who gets the trace.
const FOR_USER: [Capability; 5] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_KILL,
];

/// Gives up every capability that a recorder without BPF does not need: an ordinary user's, all of them.
/// `command`: root is still to start one as the user behind sudo.
pub fn drop_without_kernel(command: bool) {
    let command = TO_START_COMMAND.into_iter().filter(|_| command);
    let wanted = FOR_USER.into_iter().chain(command);
    onbeat_rights::keep(wanted.filter(|_| onbeat_rights::is_root()));
}

/// Gives up what the guard of a command does not need.
pub fn drop_in_guard() {
    onbeat_rights::keep(OF_GUARD);
}
