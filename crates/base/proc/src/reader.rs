//! A child process that reads the memory of other processes and their files in `/proc`.
//!
//! A user may serve a file system (FUSE), map its files anywhere, and never answer. A process that
//! touches such a page waits for that user's program and cannot be killed until the program ends.
//! onbeat therefore reads through a child. If the child gets no answer, onbeat abandons it and
//! starts another.

use crate::Stat;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The largest answer that the child process of a [`Reader`] can give, in bytes. The reader reads a
/// table of mappings up to this limit.
pub const ANSWER_MAX: usize = 24 << 20;
const PATH_MAX: usize = 256;

/// The error of a read by a [`Reader`]: the reader's child process did not answer in time. The
/// reader no longer uses this child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silent;

/// Reads memory and files of other processes through a child process, because such a read may never
/// return. The child is started at the first read, with the rights that this process has at that
/// time.
#[derive(Debug)]
pub struct Reader {
    patience: Duration,
    child: Option<Child>,
}

#[derive(Debug)]
struct Child {
    pid: libc::pid_t,
    socket: OwnedFd,
    area: Area,
}

/// The memory that this process shares with the child. This process writes a path into it, and the
/// child then writes its answer.
#[derive(Debug)]
struct Area(NonNull<u8>);

// SAFETY: this value alone owns the memory. Bytes that another process writes into it are only
// copied.
unsafe impl Send for Area {}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Request {
    memory_of: u64,
    at: u64,
    length: u64,
}

impl Reader {
    /// Creates a reader. If its child gives no answer for `patience` (ten times as long if the
    /// child is running or waits for a CPU), the reader no longer uses this child.
    pub fn new(patience: Duration) -> Reader {
        Reader {
            patience,
            child: None,
        }
    }

    /// Fills `buffer` from a process's memory, beginning at `address`. Returns false if that memory
    /// cannot be read.
    pub fn memory(&mut self, pid: u32, address: u64, buffer: &mut [u8]) -> Result<bool, Silent> {
        let request = Request {
            memory_of: pid.into(),
            at: address,
            length: buffer.len() as u64,
        };
        let read = self.ask(&request, "", |area, length| {
            let is_whole = length == buffer.len() as i64;
            if is_whole {
                area.copy_to(buffer);
            }
            is_whole
        });
        Ok(read?.unwrap_or(false))
    }

    /// Reads up to `most` bytes of a file in `/proc`, beginning at offset `at`. The inner result is
    /// an error if the file does not exist or may not be read.
    pub fn file(
        &mut self,
        path: &str,
        at: u64,
        most: usize,
    ) -> Result<io::Result<Vec<u8>>, Silent> {
        let request = Request {
            memory_of: 0,
            at,
            length: most.min(ANSWER_MAX) as u64,
        };
        let read = self.ask(&request, path, |area, length| {
            match usize::try_from(length) {
                Ok(length) => {
                    let mut bytes = vec![0; length.min(ANSWER_MAX)];
                    area.copy_to(&mut bytes);
                    Ok(bytes)
                }
                Err(_) => Err(io::Error::from_raw_os_error(-length as i32)),
            }
        });
        Ok(read?.and_then(|bytes| bytes))
    }

    /// Sends a request to the child, and calls `take` with the shared memory and the length of the
    /// child's answer. After an error in the child, a negative error number takes the place of the
    /// length.
    fn ask<T>(
        &mut self,
        request: &Request,
        path: &str,
        take: impl FnOnce(&Area, i64) -> T,
    ) -> Result<io::Result<T>, Silent> {
        if path.len() >= PATH_MAX || request.length > ANSWER_MAX as u64 {
            return Ok(Err(io::ErrorKind::InvalidInput.into()));
        }
        let child = match self.child.take().map_or_else(Child::start, Ok) {
            Ok(child) => child,
            Err(e) => return Ok(Err(e)),
        };
        child.area.write_path(path);
        let length = child.ask(request, self.patience)?;
        let taken = take(&child.area, length);
        // Only a child that has answered is kept.
        self.child = Some(child);
        Ok(Ok(taken))
    }
}

impl Child {
    fn start() -> io::Result<Child> {
        let area = Area::new()?;
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: `ends` has room for two descriptors, and nothing else owns them.
        let (ours, theirs) = unsafe {
            if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        let parent = std::process::id();
        // SAFETY: the child only makes system calls on its own memory and on the area, which is
        // safe while the parent has other threads.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => serve(theirs.as_raw_fd(), area.0.as_ptr(), parent),
            pid => Ok(Child {
                pid,
                socket: ours,
                area,
            }),
        }
    }

    fn ask(&self, request: &Request, patience: Duration) -> Result<i64, Silent> {
        let size = std::mem::size_of::<Request>();
        let socket = self.socket.as_raw_fd();
        let request = std::ptr::from_ref(request).cast();
        // SAFETY: the pointer and size describe the request.
        let sent = unsafe { libc::send(socket, request, size, libc::MSG_NOSIGNAL) };
        // A child that has ended is replaced at the next request.
        let gone = -i64::from(libc::EIO);
        if sent != size as isize {
            return Ok(gone);
        }
        let begin = Instant::now();
        let mut answer = 0i64;
        loop {
            let left = patience.saturating_sub(begin.elapsed());
            let mut poll = libc::pollfd {
                fd: socket,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: the pointer refers to one valid entry.
            let ready = unsafe { libc::poll(&mut poll, 1, left.as_millis() as i32 + 1) };
            if ready > 0 {
                let bytes = std::ptr::from_mut(&mut answer).cast();
                // SAFETY: `answer` has room for the 8 bytes.
                let received = unsafe { libc::recv(socket, bytes, 8, 0) };
                return Ok(if received == 8 { answer } else { gone });
            }
            // On a busy machine the child may not have had a CPU yet.
            let runs = || Stat::of(self.pid as u32).is_some_and(|stat| stat.state == 'R');
            let elapsed = begin.elapsed();
            if elapsed > patience && (!runs() || elapsed > 10 * patience) {
                return Err(Silent);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child that waits for another program ends only with that program, so this does not wait
        // for it.
        // SAFETY: the system calls affect only our own child.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            let mut status = 0;
            for _ in 0..100 {
                if libc::waitpid(self.pid, &mut status, libc::WNOHANG) != 0 {
                    return;
                }
                libc::usleep(100);
            }
        }
    }
}

fn serve(socket: libc::c_int, area: *mut u8, parent: u32) -> ! {
    // SAFETY: the process has one thread and only makes system calls.
    //
    // `setsid` keeps the terminal's signals away from the child. Closing the descriptors prevents
    // an abandoned child from holding the parent's probes or output open.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"onbeat-reader".as_ptr());
        if libc::getppid() as u32 != parent || (0..3).any(|fd| libc::dup2(socket, fd) != fd) {
            libc::_exit(1);
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
    }
    let mut request = Request {
        memory_of: 0,
        at: 0,
        length: 0,
    };
    let size = std::mem::size_of::<Request>();
    loop {
        // SAFETY: `request` has room for a request, and the area has room for an answer of `length`
        // bytes.
        unsafe {
            if libc::recv(0, std::ptr::from_mut(&mut request).cast(), size, 0) != size as isize {
                libc::_exit(0);
            }
            let answer = area.add(PATH_MAX).cast::<libc::c_void>();
            let length = match request.memory_of {
                0 => read_file(area.cast(), &request, answer),
                _ => read_memory(&request, answer),
            };
            libc::send(0, std::ptr::from_ref(&length).cast(), 8, libc::MSG_NOSIGNAL);
        }
    }
}

fn read_memory(request: &Request, answer: *mut libc::c_void) -> i64 {
    let length = request.length as usize;
    let local = libc::iovec {
        iov_base: answer,
        iov_len: length,
    };
    let remote = libc::iovec {
        iov_base: request.at as *mut libc::c_void,
        iov_len: length,
    };
    let pid = request.memory_of as libc::pid_t;
    // SAFETY: `local` describes the place for the answer, and the kernel checks the remote side.
    unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) as i64 }
}

fn read_file(path: *const libc::c_char, request: &Request, answer: *mut libc::c_void) -> i64 {
    // SAFETY: the pointer refers to this thread's error number.
    let error = || -i64::from(unsafe { *libc::__errno_location() });
    // SAFETY: `path` ends with a zero byte.
    let file = unsafe { libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return error();
    }
    let (mut done, length) = (0, request.length as usize);
    let result = loop {
        let at = (request.at as usize + done) as libc::off_t;
        // SAFETY: the place has room for `length` bytes.
        match unsafe { libc::pread(file, answer.add(done), length - done, at) } {
            0 => break done as i64,
            n if n < 0 => break error(),
            n => done += n as usize,
        }
    };
    // SAFETY: the descriptor is our own.
    unsafe { libc::close(file) };
    result
}

impl Area {
    const BYTES: usize = PATH_MAX + ANSWER_MAX;

    fn new() -> io::Result<Area> {
        // SAFETY: the call makes a new mapping. Only its pages that are written take memory.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Area::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(place.cast()) {
            Some(bytes) if place != libc::MAP_FAILED => Ok(Area(bytes)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn write_path(&self, path: &str) {
        // SAFETY: the path is shorter than its place, and zeros fill the rest.
        unsafe {
            self.0.as_ptr().write_bytes(0, PATH_MAX);
            self.0
                .as_ptr()
                .copy_from_nonoverlapping(path.as_ptr(), path.len());
        }
    }

    fn copy_to(&self, buffer: &mut [u8]) {
        let length = buffer.len().min(ANSWER_MAX);
        // SAFETY: both sides have at least `length` bytes.
        unsafe {
            let answer = self.0.as_ptr().add(PATH_MAX);
            buffer.as_mut_ptr().copy_from_nonoverlapping(answer, length);
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: only this value refers to the mapping.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Area::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_files_of_a_process_are_read_through_the_child_process() {
        let mut reader = Reader::new(Duration::from_secs(60));
        let (own, text) = (std::process::id(), b"some bytes".to_vec());
        let mut read = vec![0; text.len()];
        let at = text.as_ptr() as u64;
        assert_eq!(reader.memory(own, at, &mut read), Ok(true));
        assert_eq!(read, text);
        assert_eq!(reader.memory(own, 8, &mut read), Ok(false));
        let mut bytes = |at, most| {
            let read = reader.file(&format!("/proc/{own}/cmdline"), at, most);
            read.expect("it answers").expect("it is there")
        };
        let whole = bytes(0, 4096);
        assert_eq!(whole, std::fs::read("/proc/self/cmdline").expect("ours"));
        assert_eq!(bytes(2, 3), whole[2..5]);
        let gone = reader.file("/proc/self/no-such-file", 0, 10);
        let gone = gone.expect("it answers").unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        assert!(reader
            .file(&"x".repeat(PATH_MAX), 0, 1)
            .expect("ours")
            .is_err());
    }

    #[test]
    fn a_child_that_does_not_answer_is_abandoned() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("made");
        let mut reader = Reader::new(Duration::from_millis(50));
        let path = fifo.to_str().expect("a name");
        assert!(matches!(reader.file(path, 0, 1), Err(Silent)));
        let read = reader.file("/proc/self/stat", 0, 4096);
        assert!(!read
            .expect("another answers")
            .expect("it is there")
            .is_empty());
    }
}
