//! Lets a recorder find and watch a program: a counter of its probes, and a note in the program's
//! file.

use std::ffi::CString;
use std::sync::atomic::{AtomicU16, Ordering};

macro_rules! probe {
    ($(#[$doc:meta])* $name:ident($first:ident $(, $second:ident)?) = $number:literal) => {
        $(#[$doc])*
        #[no_mangle]
        #[inline(never)]
        pub extern "C" fn $name($first: u64 $(, $second: u64)?) {
            // The number makes the functions differ: equal ones would be merged into one.
            // SAFETY: the first instructions do nothing, and the last one writes a register that is
            // declared as output. Naming the arguments keeps them in the registers of the calling
            // convention.
            #[cfg_attr(miri, allow(unused_unsafe))]
            unsafe {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                std::arch::asm!(
                    concat!(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00; nop; mov eax, ", $number),
                    in("rdi") $first, $(in("rsi") $second,)? out("rax") _,
                    options(nostack, preserves_flags)
                );
                #[cfg(all(target_arch = "aarch64", not(miri)))]
                std::arch::asm!(
                    concat!("nop; mov w9, #", $number),
                    in("x0") $first, $(in("x1") $second,)? out("x9") _,
                    options(nostack, preserves_flags)
                );
            }
            #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
            std::hint::black_box(($number, $first, $($second)?));
        }
    };
}
pub(crate) use probe;

/// The number of probes on the functions that `probe!` makes. While a recorder runs, the kernel
/// counts them here (a uprobe's reference counter, like the semaphores of SystemTap's markers).
/// Without a recorder, the program does not call the functions.
#[no_mangle]
#[allow(non_upper_case_globals)]
#[cfg_attr(target_os = "linux", link_section = ".probes")]
pub static onbeat_flow_watched: Counter = Counter {
    probes: AtomicU16::new(0),
    _rest: [0; PAGE_BYTES - 2],
};

/// A counter that is alone on its page of the file.
///
/// The kernel searches the counter by its offset in the file and takes the first writable mapping
/// of that offset. A page where one segment ends and the next begins is mapped twice, and until the
/// program is relocated both mappings are writable. The kernel would then count in the copy that
/// the program does not read.
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
#[derive(Debug)]
pub struct Counter {
    probes: AtomicU16,
    _rest: [u8; PAGE_BYTES - 2],
}

/// The largest page size in bytes that kernels of this architecture use.
const PAGE_BYTES: usize = if cfg!(target_arch = "aarch64") {
    65536
} else {
    4096
};

#[inline]
pub(crate) fn is_watched() -> bool {
    onbeat_flow_watched.probes.load(Ordering::Relaxed) != 0
}

/// An ELF note without contents, which marks programs that contain the probe functions of this
/// crate. A recorder therefore need not read the symbols of every running program.
#[used]
#[cfg_attr(target_os = "linux", link_section = ".note.onbeat")]
static NOTE: [u32; 5] = [
    7,
    0,
    1,
    u32::from_le_bytes(*b"onbe"),
    u32::from_le_bytes(*b"at\0\0"),
];

/// Keeps the linker from discarding the note in programs that use an executor or a named channel.
pub(crate) fn keep_note() {
    std::hint::black_box(&NOTE);
}

const NAME_BYTES: usize = 200;

pub(crate) fn c_string(name: &str) -> CString {
    let mut bytes: Vec<u8> = name.bytes().filter(|&b| b != 0).collect();
    if bytes.len() > NAME_BYTES {
        let mut end = NAME_BYTES;
        while end > 0 && bytes[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        bytes.truncate(end);
    }
    CString::new(bytes).unwrap_or_default()
}

pub(crate) fn address<T: ?Sized>(at: &T) -> u64 {
    std::ptr::from_ref(at).cast::<u8>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no file")]
    fn the_counter_of_probes_is_mapped_once() {
        let at = address(&onbeat_flow_watched);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        // Each entry: first address, end, offset in the file, name of the file.
        let files: Vec<(u64, u64, u64, &str)> = maps
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split_ascii_whitespace().collect();
                let (first, end) = fields[0].split_once('-')?;
                Some((
                    number(first),
                    number(end),
                    number(fields[2]),
                    *fields.get(5)?,
                ))
            })
            .collect();
        let own = files
            .iter()
            .find(|f| (f.0..f.1).contains(&at))
            .expect("its mapping");
        let offset = own.2 + at - own.0;
        // Backtraces of other tests map the whole file too, at other addresses.
        let near = |address: u64| address.abs_diff(own.0) < 1 << 28;
        let contains = |f: &&(u64, u64, u64, &str)| {
            f.3 == own.3 && near(f.0) && (f.2..f.2 + f.1 - f.0).contains(&offset)
        };
        assert_eq!(files.iter().filter(contains).count(), 1, "{maps}");
        assert_eq!(at as usize % PAGE_BYTES, 0);
    }

    #[test]
    fn any_name_becomes_a_short_zero_terminated_string() {
        assert_eq!(c_string("a\0b").as_bytes(), b"ab");
        let long = c_string(&"ü".repeat(150));
        assert_eq!(long.as_bytes().len(), 200);
        assert_eq!(long.to_str().map(|t| t.chars().count()), Ok(100));
        assert!(c_string(&("x".to_owned() + &"ü".repeat(150)))
            .to_str()
            .is_ok());
    }
}
