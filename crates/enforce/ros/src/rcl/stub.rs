//! Creates a shared library of empty symbols in memory.
//!
//! Some builds of ROS 2 link librcl with its Python type support. Its data symbols exist only in a
//! Python process, but the linker needs them to load librcl. So this library provides 64 zero bytes
//! for each. Functions are looked up only when they are called, which does not happen here.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const EHDR: usize = 64;
const PHDR: usize = 56;
const SYM: usize = 24;
const OBJECT_BYTES: usize = 64;
/// The largest page size of the supported processors, in bytes.
const ALIGN: u64 = 0x1_0000;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Returns the bytes of a library that only exports `names`: ELF-64, little endian, System V ABI,
/// one loaded segment.
fn image(names: &[&str]) -> Vec<u8> {
    let count = names.len() + 1;
    let mut strings = b"\0onbeat-symbols\0".to_vec();
    let offsets: Vec<usize> = names
        .iter()
        .map(|name| {
            let at = strings.len();
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
            at
        })
        .collect();
    let symtab = EHDR + 3 * PHDR;
    let hash = symtab + count * SYM;
    let strtab = hash + 4 * (3 + count);
    let dynamic = (strtab + strings.len()).next_multiple_of(8);
    let entries: [(u64, usize); 7] = [
        (4, hash),           // DT_HASH
        (5, strtab),         // DT_STRTAB
        (6, symtab),         // DT_SYMTAB
        (10, strings.len()), // DT_STRSZ
        (11, SYM),           // DT_SYMENT
        (14, 1),             // DT_SONAME
        (0, 0),
    ];
    let objects = dynamic + 16 * entries.len();
    let size = objects + names.len() * OBJECT_BYTES;

    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |out: &mut Vec<u8>, v: u16| out.extend_from_slice(&v.to_le_bytes());
    let word = |out: &mut Vec<u8>, v: u32| out.extend_from_slice(&v.to_le_bytes());
    let long = |out: &mut Vec<u8>, v: u64| out.extend_from_slice(&v.to_le_bytes());
    half(&mut out, 3); // ET_DYN
    half(&mut out, MACHINE);
    word(&mut out, 1);
    long(&mut out, 0);
    long(&mut out, EHDR as u64);
    long(&mut out, 0);
    word(&mut out, 0);
    for v in [EHDR, PHDR, 3, 64, 0, 0] {
        half(&mut out, v as u16);
    }
    // PT_LOAD, PT_DYNAMIC, and PT_GNU_STACK. Without the last one the linker would make stacks
    // executable.
    let segments = [
        (1, 0, size, ALIGN),
        (2, dynamic, 16 * entries.len(), 8),
        (0x6474_e551, 0, 0, 16),
    ];
    for (kind, offset, bytes, align) in segments {
        word(&mut out, kind);
        word(&mut out, 6); // readable and writable
        for v in [offset, offset, offset, bytes, bytes] {
            long(&mut out, v as u64);
        }
        long(&mut out, align);
    }
    out.resize(symtab + SYM, 0);
    for (i, at) in offsets.iter().enumerate() {
        word(&mut out, *at as u32);
        out.extend_from_slice(&[0x11, 0]); // global object
        half(&mut out, 1); // defined
        long(&mut out, (objects + i * OBJECT_BYTES) as u64);
        long(&mut out, OBJECT_BYTES as u64);
    }
    // One bucket, whose chain contains all symbols.
    for v in [1, count as u32, u32::from(count > 1)] {
        word(&mut out, v);
    }
    word(&mut out, 0);
    for i in 1..count {
        word(&mut out, if i + 1 < count { i as u32 + 1 } else { 0 });
    }
    out.extend_from_slice(&strings);
    out.resize(dynamic, 0);
    for (tag, value) in entries {
        long(&mut out, tag);
        long(&mut out, value as u64);
    }
    out.resize(size, 0);
    out
}

/// Returns a descriptor of a library that only exports `names`. The library exists until the
/// descriptor is closed. [`path`] gives the path from which it can be loaded.
pub(super) fn library(names: &[&str]) -> io::Result<OwnedFd> {
    // SAFETY: the name is a constant, and no other code owns the new descriptor.
    let fd = unsafe {
        let fd = libc::memfd_create(c"onbeat-symbols".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut file = std::fs::File::from(fd);
    file.write_all(&image(names))?;
    Ok(file.into())
}

pub(super) fn path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use libloading::os::unix::{Library, Symbol, RTLD_LOCAL, RTLD_NOW};

    #[test]
    fn the_dynamic_linker_finds_every_symbol_of_a_stub() {
        let names = ["PyExc_RuntimeError", "_Py_TrueStruct", "x"];
        let fd = library(&names).unwrap();
        // SAFETY: the library has no code.
        let loaded = unsafe { Library::open(Some(path(&fd)), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        let mut seen = std::collections::HashSet::new();
        for name in names {
            // SAFETY: only the address and the bytes of the symbol are used.
            let symbol: Symbol<*const [u8; 64]> = unsafe { loaded.get(name.as_bytes()) }.unwrap();
            // SAFETY: each symbol has 64 bytes.
            assert_eq!(unsafe { **symbol }, [0; 64]);
            assert!(seen.insert(*symbol as usize));
        }
        // SAFETY: the symbol is only looked up, never used.
        assert!(unsafe { loaded.get::<*const u8>(b"y") }.is_err());
    }
}
