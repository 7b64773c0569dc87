//! Attaches and detaches uprobes so that a SIGKILL of the recorder cannot cut the kernel short.
//!
//! The kernel puts breakpoints into programs, and takes them out, for the process that asked for
//! it. If that process is killed meanwhile, the kernel stops half-way. The breakpoint then stays in
//! every program that has it, and the kernel keeps the probe for ever, with a copy of the
//! instruction below it. A later probe at the same place gets that copy. If the library was
//! replaced meanwhile, the program executes an instruction of the old one, and crashes
//! (docs/decisions.md).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The stack size of a process that works for the recorder. libbpf puts some paths on the stack.
const STACK_BYTES: usize = 512 << 10;

const HOLDERS_MAX: usize = 12;

struct Call<F, T> {
    work: Option<F>,
    result: Option<T>,
}

thread_local! {
    static IS_SHIELDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` in a process that shares memory and descriptors with this one, and waits for the end
/// of `work`. A SIGKILL of this process does not reach the other process. Returns `None` if the
/// other process was killed, or `work` panicked.
///
/// A nested call runs its work directly. On a busy machine each new process waits for its turn, so
/// many pieces of work should share one process.
pub fn shielded<T>(work: impl FnOnce() -> T) -> Option<T> {
    if IS_SHIELDED.get() {
        return Some(work());
    }
    let mut call = Call {
        work: Some(work),
        result: None,
    };
    IS_SHIELDED.set(true);
    let pid = start(&mut call);
    IS_SHIELDED.set(false);
    if pid > 0 {
        reap(pid);
    } else if let Some(work) = call.work.take() {
        // No process can be started, so the work runs unshielded.
        call.result = Some(work());
    }
    call.result
}

fn start<F: FnOnce() -> T, T>(call: &mut Call<F, T>) -> libc::pid_t {
    extern "C" fn run<F: FnOnce() -> T, T>(call: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer is the parent's `call`. The parent sleeps and does not use it.
        let call = unsafe { &mut *call.cast::<Call<F, T>>() };
        if let Some(work) = call.work.take() {
            call.result = catch_unwind(AssertUnwindSafe(work)).ok();
        }
        0
    }
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    // The process has no exit signal: code that waits for its own children does not see it.
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_VFORK;
    // SAFETY: the new process has a stack of its own, whose end is aligned. It shares memory, as
    // after vfork(): this thread sleeps until it has ended, and the stack and `call` live as long.
    // If this process is killed instead, the memory lives as long as the new one.
    unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity());
        let call = std::ptr::from_mut(call).cast();
        libc::clone(run::<F, T>, top.cast(), flags, call)
    }
}

fn reap(pid: libc::pid_t) {
    loop {
        // SAFETY: the call is a plain system call on a child of this process.
        let waited = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
        if waited >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
        {
            return;
        }
    }
}

/// Detaches all probes of these links, and returns when the kernel has detached them.
///
/// Helper processes become the last processes that have the links open, and then end. The kernel
/// cleans up after a process that ends, whatever signals arrive, even if all processes are killed
/// at once.
pub fn detach(links: Vec<impl AsFd>) {
    if links.is_empty() {
        return;
    }
    let holders = hold(&links);
    // This process is not the last to close the links, unless no other process could be started.
    shielded(|| drop(links));
    if let Ok((go, pids)) = holders {
        drop(go);
        pids.into_iter().for_each(reap);
    }
}

/// Starts processes that keep the links open until the returned end of a pipe is closed. Each
/// process has a part of the links and no other descriptor of this process.
fn hold(links: &[impl AsFd]) -> std::io::Result<(File, Vec<libc::pid_t>)> {
    let (wait, go) = pipe()?;
    let (mut all_ready, ready) = pipe()?;
    // The lists are made here, because a child must not allocate.
    let open = descriptors()?;
    let shares = links.chunks(links.len().div_ceil(HOLDERS_MAX));
    let closed: Vec<Vec<RawFd>> = shares
        .map(|share| {
            let kept = share.iter().map(|link| link.as_fd().as_raw_fd());
            let kept: BTreeSet<RawFd> = kept.chain([wait.as_raw_fd(), ready.as_raw_fd()]).collect();
            open.difference(&kept).copied().collect()
        })
        .collect();
    let mut pids = Vec::new();
    for closed in &closed {
        // SAFETY: the child makes system calls only, and ends without running any destructor.
        match unsafe { libc::fork() } {
            0 => be_holder(closed, wait.as_raw_fd(), ready.as_raw_fd()),
            pid if pid > 0 => pids.push(pid),
            _ => break,
        }
    }
    drop(ready);
    // The read ends at the end of the file: every child then holds only its own share.
    let _ = all_ready.read(&mut [0]);
    Ok((go, pids))
}

fn be_holder(closed: &[RawFd], wait: RawFd, ready: RawFd) -> ! {
    // SAFETY: these are plain system calls. The descriptors are this process's own copies, and none
    // of the recorder's code runs any more.
    unsafe {
        // These signals end the recorder, which waits for this process.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"onbeat-detach".as_ptr());
        for &fd in closed {
            libc::close(fd);
        }
        libc::close(ready);
        let mut byte = 0u8;
        while libc::read(wait, std::ptr::from_mut(&mut byte).cast(), 1) > 0 {}
        libc::_exit(0)
    }
}

fn pipe() -> std::io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors, and the files made from them own both.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

fn descriptors() -> std::io::Result<BTreeSet<RawFd>> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let numbers = entries.flatten().map(|e| e.file_name());
    Ok(numbers.filter_map(|n| n.to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    #[test]
    fn shielded_work_returns_its_result_and_shares_memory_and_files() {
        let mut words = vec!["a".to_owned()];
        let file = shielded(|| {
            words.push("b".repeat(100_000));
            File::open("/proc/self/stat").map(|file| (file, std::process::id()))
        });
        let (file, pid) = file.expect("a result").expect("a file");
        assert_eq!((words.len(), words[1].len()), (2, 100_000));
        assert!(file.metadata().is_ok(), "the descriptor is open here");
        assert_ne!(pid, std::process::id());
    }

    #[test]
    fn shielded_work_within_shielded_work_runs_in_the_same_process() {
        let own = std::process::id();
        let both = shielded(|| (std::process::id(), shielded(std::process::id)));
        let (outer, inner) = both.expect("a result");
        assert!(
            outer != own && inner == Some(outer),
            "{own} {outer} {inner:?}"
        );
        assert_ne!(
            shielded(std::process::id),
            Some(own),
            "afterwards as before"
        );
    }

    #[test]
    fn shielded_work_that_panics_has_no_result() {
        assert_eq!(
            shielded(|| -> u32 { std::panic::resume_unwind(Box::new(1)) }),
            None
        );
    }

    #[test]
    fn shielded_work_goes_on_when_its_parent_is_killed() {
        let (mut done, mut tell) = pipe().expect("a pipe");
        let (mut begun, mut begin) = pipe().expect("a pipe");
        // SAFETY: the child makes system calls and ends. It does not use its memory allocator.
        let maker = unsafe { libc::fork() };
        if maker == 0 {
            shielded(|| {
                let _ = begin.write(&[1]);
                std::thread::sleep(Duration::from_millis(300));
                tell.write(&[7]).ok()
            });
            // SAFETY: the call ends the child without running the test's destructors.
            unsafe { libc::_exit(0) }
        }
        drop(tell);
        assert_eq!(begun.read(&mut [0]).ok(), Some(1));
        // SAFETY: the call is a plain system call on a child of this process.
        unsafe { libc::kill(maker, libc::SIGKILL) };
        reap(maker);
        let mut byte = [0];
        assert_eq!((done.read(&mut byte).ok(), byte), (Some(1), [7]));
    }
}
