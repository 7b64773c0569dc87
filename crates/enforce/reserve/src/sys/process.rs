//! System calls to fork, detach, watch and end the guard process.

use super::{check, check_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub(crate) fn pidfd_of_self() -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, and only the returned value owns it.
    unsafe {
        let fd = check_long(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0u32))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

pub(crate) fn pidfd_of_thread(tid: u32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: the descriptor is new, and only the returned value owns it.
    unsafe {
        let fd = check_long(libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Opens a descriptor of a process. The descriptor still refers to this process after another
/// process has got the same id.
pub(crate) fn pidfd_of(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, and only the returned value owns it.
    unsafe {
        let fd = check_long(libc::syscall(
            libc::SYS_pidfd_open,
            pid as libc::pid_t,
            0u32,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

pub(crate) fn signal(process: &OwnedFd, signal: libc::c_int) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    let fd = process.as_raw_fd();
    // SAFETY: the null pointer means that no information accompanies the signal.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0u32) };
    match check_long(sent) {
        Err(e) if e.raw_os_error() != Some(libc::ESRCH) => Err(e),
        _ => Ok(()),
    }
}

/// Waits until a child process that was asked to end has ended. A stopped child is continued, and a
/// child that does not end within `limit` is killed.
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
/// thread may have locked. It may allocate, because libc handles its own locks.
pub(crate) fn fork(child: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: the child runs only `child`, and ends without destructors.
    match check(unsafe { libc::fork() })? {
        0 => {
            child();
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

fn reap(pid: libc::pid_t) {
    // SAFETY: a null status is allowed.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

pub(crate) fn is_running(pid: libc::pid_t) -> bool {
    // SAFETY: zero is a valid value of the struct. The call does not remove the child.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, flags) == 0 && info.si_pid() == 0
    }
}

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

/// Detaches the calling process: gives it its own session and another name, ignores the usual
/// signals, and closes all descriptors except `keep`. The first three descriptors become /dev/null.
pub(crate) fn detach(name: &std::ffi::CStr, keep: &[RawFd]) {
    // SAFETY: the process does not use the closed descriptors, and all pointers live during the
    // calls.
    unsafe {
        libc::setsid();
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_IGN);
        }
        // The owner's signal mask must not apply to the guard.
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

fn rename(name: &std::ffi::CStr) {
    // SAFETY: the name lives during the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let Some((begin, end)) = command_line() else {
        return;
    };
    let length = name.count_bytes().min((end - begin).saturating_sub(1));
    // SAFETY: the kernel reports that the arguments lie there, and this forked process does not
    // read them. The last byte stays 0, so that the kernel reads no further.
    unsafe {
        std::ptr::write_bytes(begin as *mut u8, 0, end - begin);
        std::ptr::copy_nonoverlapping(name.as_ptr().cast(), begin as *mut u8, length);
    }
}

/// Returns the start and end address of this process's command-line arguments, or `None` if the
/// kernel does not report them.
fn command_line() -> Option<(usize, usize)> {
    let text = std::fs::read("/proc/self/stat").ok()?;
    let text = String::from_utf8_lossy(&text);
    let behind_name = text.get(text.rfind(')')? + 1..)?;
    // Fields 48 and 49 of proc(5). The first field behind the name is the third.
    let mut fields = behind_name.split_ascii_whitespace().skip(48 - 3);
    let begin: usize = fields.next()?.parse().ok()?;
    let end: usize = fields.next()?.parse().ok()?;
    (begin > 0 && begin < end).then_some((begin, end))
}

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
            // SAFETY: the process does not use these descriptors.
            unsafe { libc::close(fd) };
        }
    }
}
