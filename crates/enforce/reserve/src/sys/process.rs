//! Processes: the guard is forked, detached, watched and waited for.

use super::{check, check_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A descriptor that becomes readable when this process has ended.
pub(crate) fn pidfd_of_self() -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, and owned by what is made from it.
    unsafe {
        let fd = check_long(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0u32))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// A descriptor of a thread; Linux 6.9 has them.
pub(crate) fn pidfd_of_thread(tid: u32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: the descriptor is new, and owned by what is made from it.
    unsafe {
        let fd = check_long(libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// A descriptor of a process: it stays that process's, whoever gets its id.
pub(crate) fn pidfd_of(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, and owned by what is made from it.
    unsafe {
        let fd = check_long(libc::syscall(
            libc::SYS_pidfd_open,
            pid as libc::pid_t,
            0u32,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Sends a signal to the process of a descriptor. One that has ended is no error.
pub(crate) fn signal(process: &OwnedFd, signal: libc::c_int) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    let fd = process.as_raw_fd();
    // SAFETY: no information is given beside the signal.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0u32) };
    match check_long(sent) {
        Err(e) if e.raw_os_error() != Some(libc::ESRCH) => Err(e),
        _ => Ok(()),
    }
}

/// Waits for the end of a child that was told to end; continues it if it is stopped, and kills it
/// after `limit`.
pub(crate) fn end(pid: libc::pid_t, limit: Duration) {
    let begin = Instant::now();
    while is_running(pid) {
        let last = begin.elapsed() > limit;
        // SAFETY: a child that was not waited for keeps its id.
        unsafe { libc::kill(pid, if last { libc::SIGKILL } else { libc::SIGCONT }) };
        if last {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    reap(pid);
}

/// Runs `child` in a new process and returns its id. `child` must not touch anything that another
/// thread may have locked. It may allocate: libc handles its own locks.
pub(crate) fn fork(child: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: the child runs nothing but `child`, and ends without destructors.
    match check(unsafe { libc::fork() })? {
        0 => {
            child();
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

/// Waits for the end of a child. Does nothing if there is no such child any more.
fn reap(pid: libc::pid_t) {
    // SAFETY: a null status is allowed.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Whether a child of this process still runs.
pub(crate) fn is_running(pid: libc::pid_t) -> bool {
    // SAFETY: zero is a value of it; looks, and leaves the child to be waited for.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, flags) == 0 && info.si_pid() == 0
    }
}

/// Signals that the guard ignores.
const IGNORED: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGTSTP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Detaches the calling process: it gets a session of its own and another name, ignores the usual
/// signals, and closes all descriptors but `keep` (the first three become /dev/null).
pub(crate) fn seclude(name: &std::ffi::CStr, keep: &[RawFd]) {
    // SAFETY: plain system calls; the process uses none of the descriptors that are closed.
    unsafe {
        libc::setsid();
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_IGN);
        }
        // The owner's signal mask does not apply to the guard.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::chdir(c"/".as_ptr());
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
    }
    rename(name);
    close_all_but(keep);
}

/// Gives the calling process another name, and in place of its command line that name too.
fn rename(name: &std::ffi::CStr) {
    // SAFETY: the name lives while the call lasts.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let Some((begin, end)) = command_line() else {
        return;
    };
    let length = name.count_bytes().min((end - begin).saturating_sub(1));
    // SAFETY: the kernel says that the arguments lie there, and nobody in this forked process reads
    // them. The last byte is 0, so that the kernel looks no further.
    unsafe {
        std::ptr::write_bytes(begin as *mut u8, 0, end - begin);
        std::ptr::copy_nonoverlapping(name.as_ptr().cast(), begin as *mut u8, length);
    }
}

/// Where in this process's memory its arguments are. `None` if the kernel does not say.
fn command_line() -> Option<(usize, usize)> {
    let text = std::fs::read("/proc/self/stat").ok()?;
    let text = String::from_utf8_lossy(&text);
    let behind_name = text.get(text.rfind(')')? + 1..)?;
    // Fields 48 and 49 of proc(5); the first one behind the name is the third.
    let mut fields = behind_name.split_ascii_whitespace().skip(48 - 3);
    let begin: usize = fields.next()?.parse().ok()?;
    let end: usize = fields.next()?.parse().ok()?;
    (begin > 0 && begin < end).then_some((begin, end))
}

/// Closes all descriptors but the first three and `keep`.
fn close_all_but(keep: &[RawFd]) {
    let Ok(dir) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<RawFd> = dir
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open {
        if fd > 2 && !keep.contains(&fd) {
            // SAFETY: the process uses none of these.
            unsafe { libc::close(fd) };
        }
    }
}
