//! Explains why the kernel refuses a probe in a file.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Names of file systems, by the number that `statfs` returns for them (linux/magic.h, and the
/// sources of these file systems).
const NAMES: &[(u32, &str)] = &[
    (0x6573_5546, "FUSE"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "NFS"),
    (0x0102_1997, "9p"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0xf15f, "ecryptfs"),
    (0x6175_6673, "aufs"),
    (0x2fc1_2fc1, "ZFS"),
    (0x7371_7368, "squashfs"),
    (0x786f_4256, "vboxsf"),
];

const IO_ERROR: &str = "Input/output error";

const CANNOT: &str = "The kernel cannot probe files of this file system";

pub fn is_refused(error: &str) -> bool {
    error.contains(CANNOT)
}

/// Adds the name of the file system to the error with which the kernel refused a probe, if this
/// file system does not allow probes. On such a file system the kernel returns only EIO, because it
/// cannot read the file's pages by itself.
pub fn explained(error: String, file: &File) -> String {
    if !error.contains(IO_ERROR) && !error.contains("os error 5)") {
        return error;
    }
    refused(&error, magic(file))
}

fn refused(error: &str, magic: Option<u32>) -> String {
    let named = NAMES.iter().find(|(number, _)| Some(*number) == magic);
    let name = match (named, magic) {
        (Some((_, name)), _) => (*name).to_owned(),
        (None, Some(number)) => format!("type {number:#x}"),
        (None, None) => "unknown type".to_owned(),
    };
    format!("{error}. {CANNOT} ({name}). Copy the installation to another file system, or record with --preload")
}

fn magic(file: &File) -> Option<u32> {
    // SAFETY: all fields of the struct are integers, so zeroes are a valid value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the kernel writes only to `found`.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) };
    (result == 0).then_some(found.f_type as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_of_a_probe_names_the_file_system() {
        let error = std::io::Error::from_raw_os_error(libc::EIO).to_string();
        let said = refused(&error, Some(0x6573_5546));
        assert!(said.contains("this file system (FUSE)"), "{said}");
        assert!(refused(&error, Some(0x1234)).contains("(type 0x1234)"));
        let file = File::open("/proc/self/status").expect("procfs");
        let said = explained(error.clone(), &file);
        assert!(said.contains("(type 0x9fa0)"), "{said}");
        assert!(is_refused(&said) && !is_refused(&error));
    }

    #[test]
    fn errors_of_a_probe_that_are_not_io_errors_stay_unchanged() {
        let error = std::io::Error::from_raw_os_error(libc::EPERM).to_string();
        let file = File::open("/proc/self/status").expect("procfs");
        assert_eq!(explained(error.clone(), &file), error);
    }
}
