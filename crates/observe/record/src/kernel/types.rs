//! The kernel's type information (BTF): from /sys, or from a file that the user names.
//!
//! A kernel without BTF in /sys cannot load programs whose arguments have its types. onbeat then
//! loads other programs, which read each field by an offset from the user's file.

use libbpf_rs::btf::Btf;
use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

const KERNEL: &str = "/sys/kernel/btf/vmlinux";
/// The largest accepted file of type information. A kernel's type information has 3 to 10 MB.
const BYTES_MAX: u64 = 64 << 20;
const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum TypesError {
    #[error(
        "cannot read the type information {path}: {source}. Give --btf a file that you can read."
    )]
    Unreadable { path: PathBuf, source: Error },
    #[error("the type information {0} must be a regular file that belongs to root and that only root can write. Copy it: sudo install -m 644 {0} /etc/onbeat.btf")]
    NotRoots(PathBuf),
    #[error("{path} is not type information of a kernel: {why}. Give --btf a file of bare BTF, for example from: objcopy --dump-section .BTF=FILE vmlinux")]
    Format { path: PathBuf, why: &'static str },
    #[error("the type information {0} does not describe the running kernel. Give --btf the file of exactly this kernel (uname -r).")]
    OtherKernel(PathBuf),
}

/// The type information that describes the running kernel's structs: the kernel's own, or a file of
/// the user.
pub struct Types(Option<Given>);

struct Given {
    path: PathBuf,
    copy: File,
}

impl Types {
    /// Opens the file of type information that the user named. Without a file, the kernel's own
    /// type information is used. The caller must have only the user's rights, so that onbeat reads
    /// no file for a user who may not read it.
    pub fn open(file: Option<&Path>) -> Result<Types, TypesError> {
        file.map(Given::read).transpose().map(Types)
    }

    pub(super) fn exist(&self) -> bool {
        self.0.is_some() || Path::new(KERNEL).exists()
    }

    pub(super) fn given(&self) -> Option<PathBuf> {
        let given = self.0.as_ref()?;
        Some(format!("/proc/self/fd/{}", given.copy.as_raw_fd()).into())
    }

    pub(super) fn other_kernel(&self) -> TypesError {
        let path = self.0.as_ref().map(|given| given.path.clone());
        TypesError::OtherKernel(path.unwrap_or_else(|| KERNEL.into()))
    }

    pub(super) fn btf(&self) -> Option<Btf<'static>> {
        match self.given() {
            Some(path) => Btf::from_path(path).ok(),
            None => Btf::from_vmlinux().ok(),
        }
    }
}

impl Given {
    fn read(path: &Path) -> Result<Given, TypesError> {
        let unreadable = |source| TypesError::Unreadable {
            path: path.into(),
            source,
        };
        // A FIFO or a device must not make onbeat wait.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() || metadata.uid() != 0 || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(TypesError::NotRoots(path.into()));
        }
        let mut bytes = Vec::new();
        let mut limited = file.take(BYTES_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(unreadable)?;
        check(&bytes).map_err(|why| TypesError::Format {
            path: path.into(),
            why,
        })?;
        Ok(Given {
            path: path.into(),
            copy: in_memory(&bytes).map_err(unreadable)?,
        })
    }
}

/// Checks the size, the header and the positions of the sections of a BTF file. Returns the first
/// fault.
fn check(bytes: &[u8]) -> Result<(), &'static str> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err("the file has more than 64 MiB");
    }
    if bytes.starts_with(b"\x7fELF") {
        return Err("the file is an ELF file, not bare BTF");
    }
    let Some(header) = bytes.get(..HEADER) else {
        return Err("the file is too short");
    };
    let magic = u16::from_ne_bytes([header[0], header[1]]);
    if magic == MAGIC.swap_bytes() {
        return Err("the file is for a processor with the other byte order");
    }
    if magic != MAGIC || header[2] != 1 {
        return Err("the file does not begin like BTF");
    }
    let word = |at: usize| {
        let bytes: [u8; 4] = header[at..at + 4].try_into().unwrap_or_default();
        u64::from(u32::from_ne_bytes(bytes))
    };
    let (length, rest) = (word(4), bytes.len() as u64);
    let is_inside = |at: usize| length + word(at) + word(at + 4) <= rest;
    // The types begin at byte 8 of the header, the strings at byte 16.
    if length < HEADER as u64 || !is_inside(8) || !is_inside(16) || word(12) == 0 {
        return Err("the file is cut off");
    }
    Ok(())
}

fn in_memory(bytes: &[u8]) -> Result<File, Error> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { libc::memfd_create(c"onbeat-btf".as_ptr(), flags) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: the call only changes the file behind this descriptor.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } {
        0 => Ok(file),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn header(types: u32, strings: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [HEADER as u32, 0, types, types, strings] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(vec![0; (types + strings) as usize]);
        bytes
    }

    #[test]
    fn only_complete_btf_data_in_this_machines_byte_order_is_accepted() {
        assert_eq!(check(&header(12, 4)), Ok(()));
        let cut = &header(12, 4)[..30];
        assert_eq!(check(cut), Err("the file is cut off"));
        assert_eq!(check(&header(0, 4)), Err("the file is cut off"));
        assert_eq!(
            check(b"\x7fELF and more"),
            Err("the file is an ELF file, not bare BTF")
        );
        assert_eq!(check(b"short"), Err("the file is too short"));
        assert_eq!(check(&[b'x'; 100]), Err("the file does not begin like BTF"));
        let mut swapped = header(12, 4);
        swapped.swap(0, 1);
        assert!(check(&swapped).is_err_and(|why| why.contains("byte order")));
        let mut beyond = header(12, 4);
        beyond[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(check(&beyond), Err("the file is cut off"));
    }

    #[test]
    fn a_btf_file_that_other_users_can_change_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("types");
        std::fs::write(&path, header(12, 4)).expect("a file");
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("it is ours");
        };
        let is_roots = std::fs::metadata(&path).expect("a file").uid() == 0;
        mode(0o644);
        assert_eq!(Types::open(Some(&path)).is_ok(), is_roots);
        mode(0o664);
        let refused = Types::open(Some(&path)).err().expect("it is refused");
        assert!(refused.to_string().contains("only root can write"));
        let refused = Types::open(Some(dir.path())).err().expect("no file");
        assert!(refused.to_string().contains("regular file"), "{refused}");
        let missing = Types::open(Some(&dir.path().join("no"))).err();
        assert!(matches!(missing, Some(TypesError::Unreadable { .. })));
    }

    #[test]
    fn the_copy_of_a_btf_file_cannot_be_changed() {
        let mut copy = in_memory(b"abc").expect("memory");
        assert!(copy.write_all(b"d").is_err());
        assert!(copy.set_len(1).is_err());
    }
}
