//! The limit of open files: the recorder raises it, because each probe keeps two files open.

use std::sync::OnceLock;

/// The number of file descriptors that one probe needs: one for the kernel's event, and one for the
/// link that attaches the program to the event.
const PER_PROBE: u64 = 2;

static LIMIT_AT_START: OnceLock<libc::rlimit> = OnceLock::new();

pub fn raise() {
    if let Some(limit) = limit() {
        let at_start = LIMIT_AT_START.get_or_init(|| limit);
        set(libc::rlimit {
            rlim_cur: at_start.rlim_max,
            ..*at_start
        });
    }
}

/// Restores the limit of open files that onbeat was started with, in a child that is about to
/// execute a program. With a larger limit, programs that use `select` fail. Does not allocate.
pub fn restore_in_child() {
    if let Some(limit) = LIMIT_AT_START.get() {
        set(*limit);
    }
}

/// Returns how many probes fit into half of the limit of open files. The other half is for the
/// recorder's other files.
pub fn room_for_probes() -> usize {
    let most = limit().map_or(1024, |limit| limit.rlim_cur);
    usize::try_from(most / PER_PROBE / 2).unwrap_or(usize::MAX)
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for writes during the call.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0).then_some(limit)
}

fn set(limit: libc::rlimit) {
    // A refused call leaves the limit as it was.
    // SAFETY: `limit` is valid for reads during the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}
