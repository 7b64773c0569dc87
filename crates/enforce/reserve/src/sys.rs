//! The system calls, each as thin as can be, each checked.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;

/// How the kernel schedules a thread, so that it can be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scheduling {
    /// With SCHED_RESET_ON_FORK where that is set.
    pub(crate) policy: i32,
    pub(crate) priority: i32,
    /// Which the kernel keeps with the thread through all policies.
    pub(crate) nice: i32,
    /// Flags, runtime, deadline, period: of SCHED_DEADLINE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<[u64; 4]>,
}

impl Scheduling {
    /// Round-robin. What the thread forks is a normal thread.
    pub(crate) fn round_robin(priority: u8) -> Scheduling {
        Scheduling::of(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, priority)
    }

    pub(crate) fn fifo(priority: u8) -> Scheduling {
        Scheduling::of(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
    }

    pub(crate) fn other() -> Scheduling {
        Scheduling::of(libc::SCHED_OTHER, 0)
    }

    fn of(policy: i32, priority: u8) -> Scheduling {
        Scheduling {
            policy,
            priority: priority.into(),
            nice: 0,
            deadline: None,
        }
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn empty_attr() -> libc::sched_attr {
    // SAFETY: plain numbers, for which zero is a value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    attr.size = 48; // the first version: later fields stay as they are
    attr
}

/// How thread `tid` is scheduled; 0 is the calling one.
pub(crate) fn scheduling(tid: u32) -> io::Result<Scheduling> {
    // SAFETY: the parameters live while the calls last.
    unsafe {
        let policy = check(libc::sched_getscheduler(tid as libc::pid_t))?;
        let mut parameters: libc::sched_param = std::mem::zeroed();
        check(libc::sched_getparam(tid as libc::pid_t, &mut parameters))?;
        let mut deadline = None;
        if policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_DEADLINE {
            let mut attr = empty_attr();
            check_long(libc::syscall(
                libc::SYS_sched_getattr,
                tid,
                &mut attr,
                48u32,
                0u32,
            ))?;
            let flags = attr.sched_flags;
            let [runtime, deadline_ns] = [attr.sched_runtime, attr.sched_deadline];
            deadline = Some([flags, runtime, deadline_ns, attr.sched_period]);
        }
        Ok(Scheduling {
            policy,
            priority: parameters.sched_priority,
            nice: libc::getpriority(libc::PRIO_PROCESS, tid),
            deadline,
        })
    }
}

/// Schedules thread `tid` so, except for its nice value, which stays what it is.
pub(crate) fn schedule(tid: u32, wanted: &Scheduling) -> io::Result<()> {
    if let Some([flags, runtime, deadline, period]) = wanted.deadline {
        let mut attr = empty_attr();
        attr.sched_policy = libc::SCHED_DEADLINE as u32;
        attr.sched_flags = flags;
        attr.sched_runtime = runtime;
        attr.sched_deadline = deadline;
        attr.sched_period = period;
        // SAFETY: the attributes live while the call lasts, and are as large as they say.
        return check_long(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attr, 0u32) })
            .map(drop);
    }
    let parameters = libc::sched_param {
        sched_priority: wanted.priority,
    };
    // SAFETY: the parameters live while the call lasts.
    check(unsafe { libc::sched_setscheduler(tid as libc::pid_t, wanted.policy, &parameters) })
        .map(drop)
}

/// Gives thread `tid` its nice value.
pub(crate) fn set_nice(tid: u32, nice: i32) -> io::Result<()> {
    // SAFETY: plain system call.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, nice) }).map(drop)
}

/// Words of a set of CPUs: room for 8192.
const CPU_WORDS: usize = 128;

/// The CPUs that thread `tid` may use; 0 is the calling one.
pub(crate) fn affinity(tid: u32) -> io::Result<Vec<u16>> {
    let mut words = [0u64; CPU_WORDS];
    // SAFETY: the set is as large as is said, and any bits make one.
    check(unsafe {
        libc::sched_getaffinity(
            tid as libc::pid_t,
            std::mem::size_of_val(&words),
            words.as_mut_ptr().cast(),
        )
    })?;
    let cpus = 0..(CPU_WORDS * 64) as u16;
    Ok(cpus
        .filter(|&c| words[usize::from(c) / 64] >> (c % 64) & 1 == 1)
        .collect())
}

/// Lets thread `tid` use these CPUs only.
pub(crate) fn set_affinity(tid: u32, cpus: &[u16]) -> io::Result<()> {
    let mut words = [0u64; CPU_WORDS];
    for &cpu in cpus {
        let word = words
            .get_mut(usize::from(cpu) / 64)
            .ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (cpu % 64);
    }
    // SAFETY: the set is as large as is said.
    check(unsafe {
        libc::sched_setaffinity(
            tid as libc::pid_t,
            std::mem::size_of_val(&words),
            words.as_ptr().cast(),
        )
    })
    .map(drop)
}

/// Id of the calling thread.
pub(crate) fn gettid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::gettid() as u32 }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time lives while the call lasts; both clocks exist on every kernel.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC. Real-time safe.
pub(crate) fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The kernel's ticks since the machine started, in which it tells when a process was.
pub(crate) fn ticks() -> u64 {
    // SAFETY: asks for a constant.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    clock(libc::CLOCK_BOOTTIME) / (1_000_000_000 / per_second)
}

/// CPU time of the calling thread. Real-time safe.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until the instant of CLOCK_MONOTONIC, or until `word` is no longer 0 and was woken. The
/// kernel's timer is the one of clock_nanosleep; but this sleep can be ended. Real-time safe.
pub(crate) fn sleep_until(word: &AtomicU32, until_ns: u64) {
    let until = libc::timespec {
        tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the word and the time live while the call lasts.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            0u32,
            &until,
            std::ptr::null::<u32>(),
            u32::MAX,
        );
    }
}

/// Ends the sleep of who sleeps on the word.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word lives while the call lasts.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}

/// One write(2) at the file's beginning. Real-time safe as far as the file is.
pub(crate) fn write_at_start(fd: RawFd, text: &[u8]) -> io::Result<()> {
    // SAFETY: the text lives while the call lasts; a descriptor that is none makes an error.
    let written = unsafe { libc::pwrite(fd, text.as_ptr().cast(), text.len(), 0) };
    if written == text.len() as isize {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes the file's lock, which lives as long as any process has this descriptor or one made of it.
/// Waits where `wait`; else says whether it was to be had.
pub(crate) fn lock(file: &File, wait: bool) -> io::Result<bool> {
    let how = if wait { 0 } else { libc::LOCK_NB };
    loop {
        // SAFETY: plain system call.
        match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | how) }) {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Keeps what the process has in memory, once it is there. Says whether that is new.
pub(crate) fn lock_memory() -> io::Result<()> {
    // Linux has it since 4.4; without it all of every thread's stack would be filled.
    let flags = libc::MCL_CURRENT | libc::MCL_ONFAULT;
    // SAFETY: only changes how the kernel keeps memory.
    check(unsafe { libc::mlockall(flags) }).map(drop)
}

/// Undoes [`lock_memory`].
pub(crate) fn unlock_memory() {
    // SAFETY: only changes how the kernel keeps memory.
    unsafe { libc::munlockall() };
}

/// A descriptor that is readable once this process has ended.
pub(crate) fn pidfd_of_self() -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, and owned by what is made from it.
    unsafe {
        let fd = check_long(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0u32))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// A pipe: its reading and its writing end.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors; both are owned by the files made from them.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Runs `child` in a process of its own, and gives back that one's id. `child` must not touch what
/// another thread may have locked; memory may be allocated (libc sees to its own locks).
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

/// Waits for the end of a child; nothing where it is none (any more).
pub(crate) fn reap(pid: libc::pid_t) {
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

/// Makes the calling process deaf: a session of its own, the usual signals ignored, no descriptor but
/// `keep` and, for the first three, /dev/null.
pub(crate) fn seclude(name: &std::ffi::CStr, keep: &[RawFd]) {
    // SAFETY: plain system calls; the process uses none of the descriptors that are closed.
    unsafe {
        libc::setsid();
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGPIPE,
            libc::SIGTSTP,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // What the owner had blocked or handled is not the guard's.
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::chdir(c"/".as_ptr());
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
    }
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

/// Waits until one of the two is readable or at its end; whether the first is.
pub(crate) fn wait_for_either(first: RawFd, second: RawFd) -> bool {
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [entry(first), entry(second)];
    loop {
        // SAFETY: the entries live while the call lasts, and are as many as is said.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        if ready > 0 {
            return fds[0].revents != 0;
        }
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return false;
        }
    }
}

/// Id of the user in whose name this process acts.
pub(crate) fn euid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// Number of CPUs that are configured, at least 1.
pub(crate) fn cpus() -> u16 {
    // SAFETY: plain call.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    n.clamp(1, 8192) as u16
}
