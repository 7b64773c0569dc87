//! How many files the recorder may have open: each probe takes two, for as long as it records.

use std::sync::OnceLock;

/// Descriptors of a probe: the kernel's event, and the link of the program to it.
const OF_PROBE: u64 = 2;

/// The limit that this process was started with.
static BEFORE: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises this process's limit as far as it may.
pub fn raise() {
    if let Some(limit) = limit() {
        let before = BEFORE.get_or_init(|| limit);
        set(libc::rlimit {
            rlim_cur: before.rlim_max,
            ..*before
        });
    }
}

/// Sets the limit of a child that is about to execute a program to what it would be without us:
/// with a larger one, programs that use `select` fail. Does not allocate.
pub fn restore_in_child() {
    if let Some(before) = BEFORE.get() {
        set(*before);
    }
}

/// Probes for which there is room, and for as many files of other kinds.
pub fn room_for_probes() -> usize {
    let most = limit().map_or(1024, |limit| limit.rlim_cur);
    usize::try_from(most / OF_PROBE / 2).unwrap_or(usize::MAX)
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: there is room for what is asked for.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0).then_some(limit)
}

fn set(limit: libc::rlimit) {
    // If it is refused, the limit is as it was before.
    // SAFETY: the limit lives while the call lasts.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}
