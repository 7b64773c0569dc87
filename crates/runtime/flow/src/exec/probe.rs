//! Functions that do nothing, for `onbeat record` to look at: a task begins, ends, hands something
//! over.
//!
//! They stand where the calls of `libtracetools.so` stand in ROS 2. Each begins with a 5-byte nop,
//! where a probe costs the least (and on kernels before 6.18 at the short nop behind it), and is called
//! only while [`onbeat_flow_watched`] says that somebody looks. A recorder that comes late finds the
//! names behind the arguments, so these are addresses of structs that stay where they are.
//!
//! A task is shown as a ROS 2 node of its own in the namespace of its executor: with a timer, and a
//! subscription for each task (or feed) that it gets something from. What it brings is its topic.

use std::ffi::CString;
use std::sync::atomic::{AtomicU16, Ordering};

/// What a recorder reads of a task. Addresses are of texts that end with a zero; numbers so that the
/// struct may go to another thread.
#[repr(C)]
#[derive(Debug)]
struct TaskRecord {
    name: u64,
    executor: u64,
    topic: u64,
    period_ns: u64,
}

/// What a recorder reads of what makes a task run.
#[repr(C)]
#[derive(Debug)]
struct CallbackRecord {
    task: u64,
    /// Topic that it gets something from; 0: it is time that makes the task run.
    source: u64,
    /// 1: the task waits for others besides.
    joined: u64,
}

macro_rules! probe {
    ($(#[$doc:meta])* $name:ident($first:ident $(, $second:ident)?) = $number:literal) => {
        $(#[$doc])*
        #[no_mangle]
        #[inline(never)]
        pub extern "C" fn $name($first: u64 $(, $second: u64)?) {
            // The number makes the functions differ: equal ones would be merged into one.
            // SAFETY: the first instructions do nothing, the last one writes a register that is named.
            // The arguments stand where the calling convention has put them; naming them keeps them
            // there.
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

probe! {
    /// `callback` (a `CallbackRecord`) was made: what stood at this address before is gone.
    onbeat_flow_task_init(callback) = 1
}
probe! {
    /// A task begins, made to run by `callback`. `sequence`: number of the item that it takes.
    onbeat_flow_task_start(callback, sequence) = 2
}
probe! {
    /// The task that `callback` made run ends.
    onbeat_flow_task_end(callback) = 3
}
probe! {
    /// `task` (a `TaskRecord`) hands over its item with this number.
    onbeat_flow_publish(task, sequence) = 4
}

/// Probes on the functions above: whoever places one has the kernel count it here (the reference
/// counter of a uprobe, as the semaphores of SystemTap's markers have it), so that nobody is called
/// while nobody looks.
#[no_mangle]
#[allow(non_upper_case_globals)]
#[cfg_attr(target_os = "linux", link_section = ".probes")]
pub static onbeat_flow_watched: Counter = Counter {
    probes: AtomicU16::new(0),
    _rest: [0; PAGE_BYTES - 2],
};

/// A counter that has the file's page to itself.
///
/// The kernel looks for the counter by its place in the file and takes the first writable mapping
/// of that place. The page in which the linker lets one segment end and the next begin is mapped
/// twice, and until the program is relocated both can be written: the kernel would then count in
/// the copy that nobody reads.
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
#[derive(Debug)]
pub struct Counter {
    probes: AtomicU16,
    _rest: [u8; PAGE_BYTES - 2],
}

/// Largest page that the machine's kernels are built with.
const PAGE_BYTES: usize = if cfg!(target_arch = "aarch64") {
    65536
} else {
    4096
};

/// Does anybody look?
#[inline]
pub(crate) fn is_watched() -> bool {
    onbeat_flow_watched.probes.load(Ordering::Relaxed) != 0
}

/// Marks programs that hold the functions above, so that a recorder need not read the symbols of
/// every program that runs. A note as in the ELF specification, without contents.
#[used]
#[cfg_attr(target_os = "linux", link_section = ".note.onbeat")]
static NOTE: [u32; 5] = [
    7,
    0,
    1,
    u32::from_le_bytes(*b"onbe"),
    u32::from_le_bytes(*b"at\0\0"),
];

/// Keeps the mark with whatever uses an executor.
pub(crate) fn mark() {
    std::hint::black_box(&NOTE);
}

/// Longest text that is shown, as the recorder's records have it.
const NAME_BYTES: usize = 200;

fn text(name: &str) -> CString {
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

fn address<T: ?Sized>(at: &T) -> u64 {
    std::ptr::from_ref(at).cast::<u8>() as u64
}

/// What makes a task run, as a recorder sees it.
#[derive(Debug)]
pub(crate) struct Callback {
    record: Box<CallbackRecord>,
    /// What the record points to.
    _source: Option<CString>,
}

impl Callback {
    pub(crate) fn handle(&self) -> u64 {
        address(&*self.record)
    }
}

/// A task as a recorder sees it.
#[derive(Debug)]
pub(crate) struct Traced {
    record: Box<TaskRecord>,
    /// What the record points to.
    _texts: [CString; 3],
    time: Callback,
}

/// The topic that stands for what a task brings.
pub(crate) fn topic(executor: &str, task: &str) -> String {
    format!("/{executor}/{task}")
}

impl Traced {
    pub(crate) fn new(executor: &str, name: &str, period_ns: u64) -> Traced {
        mark();
        let texts = [text(name), text(executor), text(&topic(executor, name))];
        let [name, executor, topic] = [0, 1, 2].map(|i: usize| texts[i].as_ptr() as u64);
        let record = Box::new(TaskRecord {
            name,
            executor,
            topic,
            period_ns,
        });
        let time = callback(&record, None, false);
        Traced {
            record,
            _texts: texts,
            time,
        }
    }

    /// Time as what makes it run.
    pub(crate) fn time(&self) -> u64 {
        self.time.handle()
    }

    /// An item of that topic as what makes it run, with others besides if it is `joined`.
    pub(crate) fn source(&self, topic: &str, joined: bool) -> Callback {
        callback(&self.record, Some(text(topic)), joined)
    }

    /// The task itself.
    pub(crate) fn task(&self) -> u64 {
        address(&*self.record)
    }
}

fn callback(task: &TaskRecord, source: Option<CString>, joined: bool) -> Callback {
    let record = Box::new(CallbackRecord {
        task: address(task),
        source: source.as_ref().map_or(0, |s| s.as_ptr() as u64),
        joined: joined.into(),
    });
    onbeat_flow_task_init(address(&*record));
    Callback {
        record,
        _source: source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no file that is mapped")]
    fn the_counter_is_mapped_once() {
        let at = address(&onbeat_flow_watched);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        // First and last address, offset in the file, file.
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
        // Backtraces of other tests map the whole file too, somewhere else.
        let near = |address: u64| address.abs_diff(own.0) < 1 << 28;
        let holds = |f: &&(u64, u64, u64, &str)| {
            f.3 == own.3 && near(f.0) && (f.2..f.2 + f.1 - f.0).contains(&offset)
        };
        assert_eq!(files.iter().filter(holds).count(), 1, "{maps}");
        assert_eq!(at as usize % PAGE_BYTES, 0);
    }

    #[test]
    fn names_of_any_kind_become_texts_that_end() {
        assert_eq!(text("a\0b").as_bytes(), b"ab");
        let long = text(&"ü".repeat(150));
        assert_eq!(long.as_bytes().len(), 200);
        assert_eq!(long.to_str().map(|t| t.chars().count()), Ok(100));
        assert!(text(&("x".to_owned() + &"ü".repeat(150))).to_str().is_ok());
    }
}
