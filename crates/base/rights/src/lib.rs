//! Capabilities of this process: given up at the start, kept to the least after.
//!
//! | wanted | where |
//! |---|---|
//! | a command that needs no rights | [`give_up`] |
//! | a command that needs some, later | [`limit_to`] at the start, then [`raise`], then [`keep`] |
//! | a child that is to be no more than its user | [`give_up_in_child`] |
//! | a child that enters a container | [`give_up_all_in_child`] |
//! | a file that the user names | [`as_caller`] |
//! | an environment that may not be believed | [`forget_environment`] |
//!
//! Capabilities belong to threads: call these before there are others, which inherit them.

pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use std::io;

/// What root keeps in every command: its files are everybody's. Without these, root could not read
/// a user's trace, but could still overwrite every file of its own.
const FILES_OF_ROOT: [Capability; 2] = [
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
];

/// Whether this program has rights that its caller does not have (file capabilities): then
/// nothing in the environment that names a file, a library or a program is to be believed.
pub fn is_elevated() -> bool {
    // SAFETY: asks for a value that the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether this program acts for another user or group than its caller: a set-user-id or set-group-id
/// bit of its file. No command of onbeat is meant for that.
pub fn is_between_users() -> bool {
    // SAFETY: these cannot fail.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

/// Whether this program runs as root.
pub fn is_root() -> bool {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Gives up every capability for good, in every set; no program that is executed from now on gets
/// any back. Root keeps its access to files, and `roots`.
///
/// # Errors
///
/// If some could not be given up.
pub fn give_up(roots: &[Capability]) -> io::Result<()> {
    let mut keep = files_of_root();
    if !keep.is_empty() {
        keep.extend(roots);
    }
    // First: this itself wants a capability. Without it the set stays, and has nothing to bound.
    if has(Capability::CAP_SETPCAP) {
        for capability in caps::all().difference(&keep) {
            let _ = caps::drop(None, CapSet::Bounding, *capability);
        }
    }
    set(&keep, &keep)?;
    // SAFETY: changes a flag of this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let left = read(CapSet::Permitted);
    match left.is_subset(&keep) {
        true => Ok(()),
        false => Err(io::Error::other(format!("{left:?} are left"))),
    }
}

/// Gives up every capability but `later`, and sets these aside: until [`raise`], this process has
/// no more rights than its user. Children that execute a program inherit none.
///
/// # Errors
///
/// If some could not be given up.
pub fn limit_to(later: &[Capability]) -> io::Result<()> {
    let files = files_of_root();
    let permitted = later.iter().copied().chain(files.iter().copied()).collect();
    set(&permitted, &files)
}

/// Uses what [`limit_to`] set aside.
pub fn raise() {
    // A process may always use what it is permitted.
    let _ = caps::set(None, CapSet::Effective, &read(CapSet::Permitted));
}

/// Gives up every capability but these, for good. Returns what is left.
pub fn keep(wanted: impl IntoIterator<Item = Capability>) -> Vec<Capability> {
    let permitted = read(CapSet::Permitted);
    let keep: CapsHashSet = wanted
        .into_iter()
        .filter(|c| permitted.contains(c))
        .collect();
    // A process may always lower its own sets. If it fails all the same, we only keep more.
    let _ = set(&keep, &keep);
    let mut left: Vec<Capability> = keep.into_iter().collect();
    left.sort_by_key(Capability::index);
    left
}

/// Runs `attempt` without using some capabilities.
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
        // They are still permitted, so raising them again cannot fail.
        let _ = caps::set(None, CapSet::Effective, &before);
    }
    result
}

/// Runs `attempt` with the rights that the caller of an elevated program has itself, where files
/// are concerned. Root's are its own.
pub fn as_caller<T>(attempt: impl FnOnce() -> T) -> T {
    if is_elevated() {
        let all: Vec<Capability> = caps::all().into_iter().collect();
        without(&all, attempt)
    } else {
        attempt()
    }
}

/// Gives up every capability of a child that is about to execute another user's program or our
/// user's. Root's own children stay root's. Does not allocate unless it fails.
///
/// # Errors
///
/// If they could not be given up.
pub fn give_up_in_child() -> io::Result<()> {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    give_up_all_in_child()
}

/// Gives up every capability of a child, root's too, for good: no program that it executes gets any
/// back. Does not allocate unless it fails.
///
/// # Errors
///
/// If they could not be given up.
pub fn give_up_all_in_child() -> io::Result<()> {
    // SAFETY: changes a flag of this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    caps::clear(None, CapSet::Ambient)
        .and_then(|()| caps::clear(None, CapSet::Permitted))
        .and_then(|()| caps::clear(None, CapSet::Inheritable))
        .map_err(|_| io::Error::from_raw_os_error(libc::EPERM))
}

/// Variables that an elevated program still believes: they change how it prints.
const BELIEVED: [&str; 5] = ["TERM", "COLUMNS", "LINES", "NO_COLOR", "LANG"];

/// Removes what the caller of an elevated program has put into its environment. To be called while
/// there is one thread.
pub fn forget_environment() {
    if is_elevated() {
        std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| !BELIEVED.iter().any(|believed| name == believed))
            .for_each(|name| std::env::remove_var(name));
    }
}

/// Whether this process uses a capability.
pub fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// What this process could use.
pub fn permitted() -> Vec<Capability> {
    let mut permitted: Vec<Capability> = read(CapSet::Permitted).into_iter().collect();
    permitted.sort_by_key(Capability::index);
    permitted
}

fn read(set: CapSet) -> CapsHashSet {
    caps::read(None, set).unwrap_or_default()
}

fn files_of_root() -> CapsHashSet {
    // SAFETY: cannot fail.
    match unsafe { libc::geteuid() } {
        0 => FILES_OF_ROOT.into_iter().collect(),
        _ => CapsHashSet::new(),
    }
}

/// Sets what this process may use and uses, as far as it may now; what children inherit is nothing.
fn set(permitted: &CapsHashSet, effective: &CapsHashSet) -> io::Result<()> {
    let had = read(CapSet::Permitted);
    let of_ours = |set: &CapsHashSet| set.intersection(&had).copied().collect::<CapsHashSet>();
    // Kernels before 4.3 have no ambient set: none is inherited.
    let _ = caps::clear(None, CapSet::Ambient);
    caps::clear(None, CapSet::Inheritable)
        .and_then(|()| caps::set(None, CapSet::Effective, &of_ours(effective)))
        .and_then(|()| caps::set(None, CapSet::Permitted, &of_ours(permitted)))
        .map_err(|e| io::Error::other(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` in a thread of its own, whose capabilities are nobody else's.
    fn apart<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(test).join().expect("it does not panic")
    }

    #[test]
    fn what_is_set_aside_is_used_only_when_it_is_raised() {
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
    fn what_was_given_up_does_not_come_back() {
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
