//! Capabilities of this process: dropped at the start, later reduced to the least.
//!
//! | wanted | function |
//! |---|---|
//! | a command that needs no rights | [`give_up`] |
//! | a command that needs some rights later | [`limit_to`] at the start, then [`raise`], then [`keep`] |
//! | a child with no more rights than its user | [`give_up_in_child`] |
//! | a child that enters a container | [`give_up_all_in_child`] |
//! | access to a file that the user names | [`as_caller`] |
//! | an environment that is not trusted | [`forget_environment`] |
//!
//! Capabilities belong to threads. Call these functions before the process starts other threads,
//! which inherit them.

pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use std::io;

/// The capabilities that a command of onbeat keeps if root runs it. Root needs them to read a
/// user's trace. Dropping them would gain little, because root could still overwrite every file
/// that root owns.
const FILES_OF_ROOT: [Capability; 2] = [
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
];

/// Returns whether this program has rights that its caller does not have (file capabilities).
/// onbeat must then not trust environment variables that name a file, a library or a program.
pub fn is_elevated() -> bool {
    // SAFETY: the call only reads a value that the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns whether this program runs as another user or group than its caller, because of a
/// set-user-id or set-group-id bit. No command of onbeat supports such a bit.
pub fn is_between_users() -> bool {
    // SAFETY: these calls cannot fail and take no pointers.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

/// Returns whether this program runs with root's user id.
pub fn is_root() -> bool {
    // SAFETY: the call cannot fail and takes no pointers.
    unsafe { libc::geteuid() == 0 }
}

/// Gives up every capability for good, in every set. Programs that are executed later do not get
/// any back. If root runs this program, the program keeps root's access to files and the
/// capabilities in `roots`.
///
/// # Errors
///
/// Fails if some capabilities could not be given up.
pub fn give_up(roots: &[Capability]) -> io::Result<()> {
    let mut keep = files_of_root();
    if !keep.is_empty() {
        keep.extend(roots);
    }
    // This step comes first because it needs a capability itself. Without that capability the
    // bounding set has nothing to limit and stays.
    if has(Capability::CAP_SETPCAP) {
        for capability in caps::all().difference(&keep) {
            let _ = caps::drop(None, CapSet::Bounding, *capability);
        }
    }
    set(&keep, &keep)?;
    // SAFETY: the call changes a flag of this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let left = read(CapSet::Permitted);
    match left.is_subset(&keep) {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "the process still has capabilities that it should have given up: {left:?}"
        ))),
    }
}

/// Gives up every capability except `later`, and deactivates the capabilities in `later`. Until
/// [`raise`], this process has no more rights than its user. Programs that its children execute
/// inherit none.
///
/// # Errors
///
/// Fails if some capabilities could not be given up.
pub fn limit_to(later: &[Capability]) -> io::Result<()> {
    let files = files_of_root();
    let permitted = later.iter().copied().chain(files.iter().copied()).collect();
    set(&permitted, &files)
}

/// Activates the capabilities that [`limit_to`] deactivated.
pub fn raise() {
    // A process may always activate a capability that it is permitted.
    let _ = caps::set(None, CapSet::Effective, &read(CapSet::Permitted));
}

/// Gives up every capability except `wanted`, for good. Returns the capabilities that this process
/// still has.
pub fn keep(wanted: impl IntoIterator<Item = Capability>) -> Vec<Capability> {
    let permitted = read(CapSet::Permitted);
    let keep: CapsHashSet = wanted
        .into_iter()
        .filter(|c| permitted.contains(c))
        .collect();
    // A process may always lower its own sets. If this fails all the same, it only keeps more.
    let _ = set(&keep, &keep);
    let mut left: Vec<Capability> = keep.into_iter().collect();
    left.sort_by_key(Capability::index);
    left
}

/// Runs `attempt` while the capabilities in `unused` are inactive.
pub fn without<T>(unused: &[Capability], attempt: impl FnOnce() -> T) -> T {
    let before = read(CapSet::Effective);
    let lowered = before
        .iter()
        .copied()
        .filter(|c| !unused.contains(c))
        .collect();
    let is_lowered = caps::set(None, CapSet::Effective, &lowered).is_ok();
    let result = attempt();
    if is_lowered {
        // The capabilities are still permitted, so raising them again cannot fail.
        let _ = caps::set(None, CapSet::Effective, &before);
    }
    result
}

/// Runs `attempt` with the file access of the user who called an elevated program. If root runs the
/// program, root's access is kept.
pub fn as_caller<T>(attempt: impl FnOnce() -> T) -> T {
    if is_elevated() {
        let all: Vec<Capability> = caps::all().into_iter().collect();
        without(&all, attempt)
    } else {
        attempt()
    }
}

/// Gives up every capability of a child that is about to execute a user's program. Children of root
/// keep root's rights. Does not allocate unless it fails.
///
/// # Errors
///
/// Fails if the capabilities could not be given up.
pub fn give_up_in_child() -> io::Result<()> {
    // SAFETY: the call cannot fail and takes no pointers.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    give_up_all_in_child()
}

/// Gives up every capability of a child for good, even if the child runs as root. Programs that the
/// child executes do not get any back. Does not allocate unless it fails.
///
/// # Errors
///
/// Fails if the capabilities could not be given up.
pub fn give_up_all_in_child() -> io::Result<()> {
    // SAFETY: the call changes a flag of this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    caps::clear(None, CapSet::Ambient)
        .and_then(|()| caps::clear(None, CapSet::Permitted))
        .and_then(|()| caps::clear(None, CapSet::Inheritable))
        .map_err(|_| io::Error::from_raw_os_error(libc::EPERM))
}

/// The environment variables that an elevated program still trusts. They only change how the
/// program prints.
const TRUSTED_VARIABLES: [&str; 5] = ["TERM", "COLUMNS", "LINES", "NO_COLOR", "LANG"];

/// Removes all environment variables of an elevated program except those that only change how it
/// prints. The program's caller has set the variables, so they are not trusted. Must be called
/// while the process has only one thread.
pub fn forget_environment() {
    if is_elevated() {
        std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| !TRUSTED_VARIABLES.iter().any(|trusted| name == trusted))
            .for_each(|name| std::env::remove_var(name));
    }
}

/// Returns whether a capability is active in this thread.
pub fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// Returns the capabilities that this thread may activate.
pub fn permitted() -> Vec<Capability> {
    let mut permitted: Vec<Capability> = read(CapSet::Permitted).into_iter().collect();
    permitted.sort_by_key(Capability::index);
    permitted
}

fn read(set: CapSet) -> CapsHashSet {
    caps::read(None, set).unwrap_or_default()
}

fn files_of_root() -> CapsHashSet {
    // SAFETY: the call cannot fail and takes no pointers.
    match unsafe { libc::geteuid() } {
        0 => FILES_OF_ROOT.into_iter().collect(),
        _ => CapsHashSet::new(),
    }
}

/// Sets the permitted and the effective capabilities of this thread, except those that are not
/// permitted now. Programs that children execute inherit no capability.
fn set(permitted: &CapsHashSet, effective: &CapsHashSet) -> io::Result<()> {
    let had = read(CapSet::Permitted);
    let of_ours = |set: &CapsHashSet| set.intersection(&had).copied().collect::<CapsHashSet>();
    // Kernels before 4.3 have no ambient set, so this may fail.
    let _ = caps::clear(None, CapSet::Ambient);
    caps::clear(None, CapSet::Inheritable)
        .and_then(|()| caps::set(None, CapSet::Effective, &of_ours(effective)))
        .and_then(|()| caps::set(None, CapSet::Permitted, &of_ours(permitted)))
        .map_err(|e| io::Error::other(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(test).join().expect("it does not panic")
    }

    #[test]
    fn capabilities_set_aside_are_active_only_after_raise() {
        use Capability::{CAP_KILL, CAP_SYS_ADMIN};
        apart(|| {
            let had_kill = read(CapSet::Permitted).contains(&CAP_KILL);
            limit_to(&[CAP_KILL]).expect("a process may lower its sets");
            assert!(!has(CAP_KILL) && !has(CAP_SYS_ADMIN));
            assert!(read(CapSet::Inheritable).is_empty() && read(CapSet::Ambient).is_empty());
            raise();
            assert_eq!(has(CAP_KILL), had_kill);
            assert!(!permitted().contains(&CAP_SYS_ADMIN));
            without(&[CAP_KILL], || assert!(!has(CAP_KILL)));
            assert_eq!(has(CAP_KILL), had_kill);
            assert!(keep([]).is_empty() && permitted().is_empty());
        });
    }

    #[test]
    fn given_up_capabilities_do_not_come_back() {
        apart(|| {
            give_up(&[]).expect("a process may lower its sets");
            raise();
            assert!(read(CapSet::Permitted).is_subset(&files_of_root()));
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("our own");
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        });
    }

    #[test]
    fn the_tests_have_no_more_rights_than_their_user() {
        assert!(!is_elevated());
        assert_eq!(
            as_caller(|| read(CapSet::Effective)),
            read(CapSet::Effective)
        );
    }
}
