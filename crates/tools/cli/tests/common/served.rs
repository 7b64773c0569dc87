//! A FUSE file system with one file, which stops answering on request.
//!
//! The server is a child that holds only the device and ends by itself. The file system ends with
//! it, so nobody waits forever.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The name of the only file in the file system that the test serves. The recorder recognises ROS 2
/// processes by this name.
pub const NAME: &str = "libtracetools.so";
const BYTES: u64 = 1 << 16;

/// The name of a file in the directory above the mount. While this file exists, the server of the
/// test's file system does not answer.
pub const SILENT: &str = "silent";
const LIFE_S: u32 = 600;

/// Mounts the file system of the test on a directory, in a new mount namespace, and serves it. The
/// calling process must have only one thread.
pub fn mount(on: &Path) {
    let mut device = File::options();
    let device = device.read(true).write(true).open("/dev/fuse");
    let device = device.expect("the kernel has FUSE");
    let silent = on.with_file_name(SILENT);
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let text = |text: &str| std::ffi::CString::new(text).expect("no zero in it");
    let (on, options) = (text(on.to_str().expect("a name")), text(&options));
    // SAFETY: plain system calls with texts that end with a zero.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
        let (none, root) = (std::ptr::null(), text("/"));
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let made = libc::mount(none, root.as_ptr(), none, private, none.cast());
        assert_eq!(made, 0);
        let kind = text("fuse");
        let data = options.as_ptr().cast();
        assert_eq!(
            libc::mount(kind.as_ptr(), on.as_ptr(), kind.as_ptr(), 0, data),
            0
        );
    }
    // SAFETY: the process has only one thread, so the child may run any code.
    unsafe {
        if libc::fork() == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::alarm(LIFE_S);
            serve(device, &silent);
            libc::_exit(0);
        }
    }
}

fn serve(mut device: File, silent: &Path) {
    let mut request = vec![0; 1 << 20];
    while let Ok(length) = device.read(&mut request) {
        while silent.exists() {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().expect("eight"));
        let opcode = u32::from_le_bytes(request[4..8].try_into().expect("four"));
        let (unique, node) = (word(8), word(16));
        let answer = match opcode {
            // FORGET has no answer.
            2 => continue,
            // LOOKUP: the entry is valid for no time, so the kernel asks again each time.
            1 if request[40..length].starts_with(NAME.as_bytes()) => {
                [&2u64.to_le_bytes()[..], &[0; 32], &attributes(2)].concat()
            }
            1 => Vec::new(),
            3 => [&[0; 16][..], &attributes(node)].concat(),
            14 | 27 => vec![0; 16],
            15 => {
                let length = u32::from_le_bytes(request[56..60].try_into().expect("four"));
                vec![b'x'; length as usize]
            }
            17 => vec![0; 80],
            26 => {
                let mut out = [0; 64];
                out[0] = 7;
                out[4] = 31;
                out[21] = 16; // bytes of a write, in pieces of 256
                out.to_vec()
            }
            _ => Vec::new(),
        };
        let error: i32 = match (opcode, answer.is_empty()) {
            (1, true) => -libc::ENOENT,
            // RELEASE and RELEASEDIR succeed. FLUSH does not: after its failure the kernel does not
            // ask at each close.
            (18 | 29, true) => 0,
            (_, true) => -libc::ENOSYS,
            _ => 0,
        };
        let length = (16 + answer.len()) as u32;
        let head = [&length.to_le_bytes()[..], &error.to_le_bytes()].concat();
        let _ = device.write_all(&[&head, &unique.to_le_bytes()[..], &answer].concat());
    }
}

fn attributes(node: u64) -> Vec<u8> {
    let size = if node == 1 { 0 } else { BYTES };
    let mode: u32 = if node == 1 { 0o40755 } else { 0o100755 };
    let times = [0; 36];
    let rest = [mode, 1, 0, 0, 0, 4096, 0].map(u32::to_le_bytes).concat();
    [
        &node.to_le_bytes()[..],
        &size.to_le_bytes(),
        &(size / 512).to_le_bytes(),
        &times,
        &rest,
    ]
    .concat()
}
