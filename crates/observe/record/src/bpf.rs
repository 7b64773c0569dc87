//! The thinnest layer over the kernel: loads the BPF programs, attaches them, reads their maps.

use crate::decode::{decode, Decoded};
use crate::records::{Head, ID_COUNT, KIND_COUNT, PROCESS_LATE, PROCESS_MARKED};
use libbpf_rs::btf::types::{DataSec, Struct, Var};
use libbpf_rs::btf::Btf;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
    UprobeOpts,
};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use thiserror::Error;

/// Bytes aligned as ELF readers want them.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// The compiled programs.
static PROGRAMS: &[u8] = {
    static OBJECT: &Aligned<[u8]> =
        &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/onbeat.bpf.o")));
    &OBJECT.0
};

/// Why the programs could not be loaded.
#[derive(Debug, Error)]
pub enum KernelLoadError {
    /// The kernel has no type information.
    #[error("this kernel has no /sys/kernel/btf/vmlinux: onbeat needs Linux 5.8 or newer built with CONFIG_DEBUG_INFO_BTF")]
    NoBtf,
    /// The kernel refused.
    #[error("the kernel refused the probes: {0}: onbeat needs Linux 5.8 or newer and the right to load BPF programs")]
    Load(String),
    /// The flag map could not be mapped.
    #[error("cannot map the table of observed processes: {0}")]
    Map(std::io::Error),
}

/// What is fixed when the programs are loaded.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// Observe every ROS 2 process, not only the marked ones.
    pub observe_all: bool,
    /// Stop marked processes when they load a library, until [`crate::recorder`] continues them.
    pub stop_on_load: bool,
    /// Size of the ring buffer; a power of two of pages.
    pub buffer_bytes: u32,
}

/// Abilities that differ between kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `bpf_get_attach_cookie` (5.15): hits are counted per probe.
    pub cookie: bool,
    /// The current task can be looked at (5.11).
    pub current_task: bool,
    /// Storage that belongs to a task, also for probes in programs (5.13).
    pub task_storage: bool,
    /// A task knows how long it was ready (5.14 with CONFIG_SCHED_INFO).
    pub delays: bool,
    /// `sched_switch` passes the previous state (5.18).
    pub switch_state: bool,
    /// 5-byte nops are turned into calls (6.18).
    pub fast_nop: bool,
}

impl Features {
    /// By the kernel's release, e.g. `6.18.44-custom`.
    pub fn of_release(release: &str) -> Features {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(|n| n.parse().unwrap_or(0u32));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Features {
            cookie: version >= (5, 15),
            current_task: version >= (5, 11),
            task_storage: version >= (5, 13),
            delays: version >= (5, 14),
            switch_state: version >= (5, 18),
            fast_nop: version >= (6, 18) && cfg!(target_arch = "x86_64"),
        }
    }
}

/// The loaded programs and their maps.
pub struct Kernel {
    object: Object,
    ring: RingBuffer<'static>,
    decoded: Rc<RefCell<Vec<Decoded>>>,
    /// Records by the number of the probe that made them.
    recorded: Rc<RefCell<Vec<u64>>>,
    lost: MapHandle,
    hits: MapHandle,
    distance: MapHandle,
    flags: FlagTable,
    /// What this kernel can do.
    pub features: Features,
}

/// The `processes` map, mapped: one byte per process id.
struct FlagTable {
    address: *mut u8,
}

impl FlagTable {
    fn map(map: &impl MapCore) -> std::io::Result<FlagTable> {
        // SAFETY: a fresh shared mapping of a map that was created with BPF_F_MMAPABLE and holds
        // exactly ID_COUNT bytes.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ID_COUNT,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(FlagTable {
            address: address.cast(),
        })
    }

    fn update(&self, id: u32, change: impl Fn(u8) -> u8) {
        if (id as usize) < ID_COUNT {
            // SAFETY: in bounds of the mapping; the kernel writes single bytes of it too, so the
            // access is volatile.
            unsafe {
                let flags = self.address.add(id as usize);
                flags.write_volatile(change(flags.read_volatile()));
            }
        }
    }
}

impl Drop for FlagTable {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, used no more.
        unsafe { libc::munmap(self.address.cast(), ID_COUNT) };
    }
}

/// Writes the programs' settings into the image of their read-only data. Where each one lies
/// is told by the object file's symbol table.
fn settings(image: &mut [u8], values: &[(&str, u64)]) -> Result<(), String> {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(PROGRAMS)
        .map_err(|e| e.to_string())?;
    let section = file.section_by_name(".rodata").ok_or("no .rodata")?.index();
    for (name, value) in values {
        let symbol = file
            .symbols()
            .find(|s| s.name() == Ok(name) && s.section_index() == Some(section))
            .ok_or_else(|| format!("no setting {name}"))?;
        let (at, size) = (symbol.address() as usize, symbol.size() as usize);
        let target = image
            .get_mut(at..at + size)
            .ok_or("settings out of range")?;
        target.copy_from_slice(&value.to_le_bytes()[..size]);
    }
    Ok(())
}

/// Does this kernel's struct have that member?
fn has_member(structure: &str, member: &str) -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| {
        btf.type_by_name::<Struct<'_>>(structure)
            .is_some_and(|s| s.iter().any(|m| m.name.is_some_and(|n| n == member)))
    })
}

/// How far behind a CPU's run queue the kernel keeps what a KVM host says of stolen time; `None`
/// for a kernel without either.
fn steal_distance() -> Option<i64> {
    let btf = Btf::from_vmlinux().ok()?;
    let variables: DataSec<'_> = btf.type_by_name(".data..percpu")?;
    let offset = |wanted: &str| {
        variables.iter().find_map(|v| {
            let variable: Var<'_> = btf.type_by_id(v.ty)?;
            (variable.name()? == wanted).then_some(i64::from(v.offset))
        })
    };
    Some(offset("steal_time")? - offset("runqueues")?)
}

impl Kernel {
    /// Loads the programs; nothing is attached yet.
    pub fn load(options: LoadOptions, release: &str) -> Result<Kernel, KernelLoadError> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(KernelLoadError::NoBtf);
        }
        let mut features = Features::of_release(release);
        features.delays &= has_member("sched_info", "last_queued");
        let refused = |e: libbpf_rs::Error| KernelLoadError::Load(format!("{e:#}"));
        // libbpf's errors come back as values; its whole log is for whoever asks for it.
        fn print_log(_: libbpf_rs::PrintLevel, text: String) {
            eprint!("{text}");
        }
        let logged = std::env::var_os("ONBEAT_BPF_LOG").is_some();
        libbpf_rs::set_print(logged.then_some((libbpf_rs::PrintLevel::Debug, print_log)));
        let mut open = ObjectBuilder::default()
            .name("onbeat")
            .map_err(refused)?
            .open_memory(PROGRAMS)
            .map_err(refused)?;
        let steal_distance = (features.current_task && crate::proc::is_virtual_machine())
            .then(steal_distance)
            .flatten();
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == "ring" {
                map.set_max_entries(options.buffer_bytes).map_err(refused)?;
            } else if name == "observed_tasks" {
                map.set_autocreate(features.task_storage).map_err(refused)?;
            } else if name.ends_with(".rodata") {
                let image = map
                    .initial_value_mut()
                    .ok_or_else(|| KernelLoadError::Load("no settings".into()))?;
                settings(
                    image,
                    &[
                        ("observe_all", options.observe_all.into()),
                        ("stop_on_load", options.stop_on_load.into()),
                        ("switch_has_state", features.switch_state.into()),
                        ("have_cookie", features.cookie.into()),
                        ("wakeup_bytes", u64::from(options.buffer_bytes / 4)),
                        ("have_storage", features.task_storage.into()),
                        ("have_delays", features.delays.into()),
                        ("have_steal", steal_distance.is_some().into()),
                        ("steal_distance", steal_distance.unwrap_or(0) as u64),
                        ("own_tgid", std::process::id().into()),
                    ],
                )
                .map_err(KernelLoadError::Load)?;
            }
        }
        let object = open.load().map_err(refused)?;
        let map = |name: &str| {
            object
                .maps()
                .find(|m| m.name() == name)
                .ok_or_else(|| KernelLoadError::Load(format!("no map {name}")))
                .and_then(|m| MapHandle::try_from(&m).map_err(refused))
        };
        let flags = FlagTable::map(&map("processes")?).map_err(KernelLoadError::Map)?;
        let (lost, hits, distance) = (map("lost")?, map("hits")?, map("r_debug_distance")?);
        let decoded = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&decoded);
        let recorded = Rc::new(RefCell::new(Vec::<u64>::new()));
        let counts = Rc::clone(&recorded);
        let ring_map = map("ring")?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&ring_map, move |record| {
                if let Some(probe) = Head::read(record).map(|h| h.probe).filter(|&p| p != 0) {
                    let (probe, mut counts) = (usize::from(probe), counts.borrow_mut());
                    if counts.len() <= probe {
                        counts.resize(probe + 1, 0);
                    }
                    counts[probe] += 1;
                }
                sink.borrow_mut().extend(decode(record));
                0
            })
            .map_err(refused)?;
        let ring = builder.build().map_err(refused)?;
        Ok(Kernel {
            ring,
            decoded,
            recorded,
            lost,
            hits,
            distance,
            flags,
            object,
            features,
        })
    }

    /// Attaches one of the programs on the kernel's own tracepoints.
    pub fn attach_tracepoint(&self, program: &str) -> Result<Link, String> {
        self.program(program)?
            .attach()
            .map_err(|e| format!("{e:#}"))
    }

    /// Attaches a program to an offset in a file, for every process that maps it.
    /// `cookie` numbers the probe.
    pub fn attach_uprobe(
        &self,
        program: &str,
        file: &Path,
        file_offset: u64,
        at_return: bool,
        cookie: u32,
    ) -> Result<Link, String> {
        self.attach_counted_uprobe(program, file, file_offset, at_return, cookie, 0)
    }

    /// The same, counted by the kernel in a variable that lies in the file at `counter_offset` (0:
    /// there is none).
    pub fn attach_counted_uprobe(
        &self,
        program: &str,
        file: &Path,
        file_offset: u64,
        at_return: bool,
        cookie: u32,
        counter_offset: u64,
    ) -> Result<Link, String> {
        let options = UprobeOpts {
            cookie: if self.features.cookie {
                cookie.into()
            } else {
                0
            },
            retprobe: at_return,
            ref_ctr_offset: counter_offset as usize,
            ..UprobeOpts::default()
        };
        let offset = usize::try_from(file_offset).map_err(|e| e.to_string())?;
        self.program(program)?
            .attach_uprobe_with_opts(-1, file, offset, options)
            .map_err(|e| format!("{e:#}"))
    }

    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, String> {
        self.object
            .progs_mut()
            .find(|p| p.name() == name)
            .ok_or_else(|| format!("no program {name}"))
    }

    /// Observes a process and its future children.
    pub fn mark(&self, pid: u32) {
        self.flags.update(pid, |flags| flags | PROCESS_MARKED as u8);
    }

    /// Takes [`Kernel::mark`] back.
    pub fn unmark(&self, pid: u32) {
        self.flags
            .update(pid, |flags| flags & !(PROCESS_MARKED as u8));
    }

    /// Says that a process made endpoints before its probes were in place, so that their names
    /// are recovered as they are used. To be called before probes are attached for it.
    pub fn mark_late(&self, pid: u32) {
        self.flags.update(pid, |flags| flags | PROCESS_LATE as u8);
    }

    /// Tells the loader probe numbered `cookie` how far `_r_debug` lies from it.
    pub fn set_r_debug_distance(&self, cookie: u32, distance: i64) -> Result<(), String> {
        self.distance
            .update(
                &cookie.to_ne_bytes(),
                &distance.to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(|e| e.to_string())
    }

    /// Moves every record that is ready to `out`, waiting up to `timeout` for the first. Returns
    /// early on a signal.
    pub fn poll(&self, timeout: Duration, out: &mut Vec<Decoded>) {
        // An interrupted wait is no error: the caller looks at its signals next.
        let _ = self.ring.poll_raw(timeout);
        let _ = self.ring.consume_raw();
        out.append(&mut self.decoded.borrow_mut());
    }

    /// Records lost so far, `[kind][cpu]`.
    pub fn lost(&self) -> Vec<Vec<u64>> {
        counters(&self.lost, KIND_COUNT as u32)
    }

    /// Hits so far of the probe numbered `cookie` that were not lost.
    pub fn hits(&self, cookie: u32) -> u64 {
        let recorded = self.recorded.borrow().get(cookie as usize).copied();
        counter(&self.hits, cookie).iter().sum::<u64>() + recorded.unwrap_or(0)
    }
}

fn counter(map: &MapHandle, key: u32) -> Vec<u64> {
    match map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY) {
        Ok(Some(values)) => values
            .iter()
            .map(|v| {
                v.get(..8).map_or(0, |b| {
                    u64::from_ne_bytes(b.try_into().expect("eight bytes"))
                })
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn counters(map: &MapHandle, count: u32) -> Vec<Vec<u64>> {
    (0..count).map(|key| counter(map, key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_follow_the_release() {
        let f = Features::of_release;
        assert_eq!(
            f("5.8.0-generic"),
            Features {
                cookie: false,
                current_task: false,
                task_storage: false,
                delays: false,
                switch_state: false,
                fast_nop: false
            }
        );
        assert!(f("5.15.0").cookie && !f("5.15.0").switch_state);
        assert!(f("6.1.0-13-amd64").switch_state && !f("6.1.0-13-amd64").fast_nop);
        assert!(f("6.18.44-x").fast_nop || !cfg!(target_arch = "x86_64"));
        assert_eq!(
            f("weird"),
            Features {
                cookie: false,
                current_task: false,
                task_storage: false,
                delays: false,
                switch_state: false,
                fast_nop: false
            }
        );
    }

    #[test]
    fn every_program_of_the_table_is_in_the_object() {
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(PROGRAMS).unwrap();
        let has = |name: &str| file.symbols().any(|s| s.name() == Ok(name));
        for probe in crate::probes::PROBES {
            assert!(has(probe.program), "{}", probe.program);
            assert!(
                probe.return_program.is_none_or(has),
                "{:?}",
                probe.return_program
            );
        }
        for (_, program, _) in crate::probes::KERNEL_PROBES {
            assert!(has(program), "{program}");
        }
    }

    #[test]
    fn every_program_of_the_object_is_attached_by_somebody() {
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(PROGRAMS).unwrap();
        let rows = crate::probes::PROBES.iter();
        let mut used: Vec<&str> = rows
            .flat_map(|row| [Some(row.program), row.return_program])
            .flatten()
            .collect();
        used.extend(crate::probes::KERNEL_PROBES.iter().map(|row| row.1));
        used.extend(["on_dl_state", "on_sync_input"]);
        let mut programs = 0;
        for symbol in file.symbols() {
            let section = symbol.section_index();
            let section = section.and_then(|index| file.section_by_index(index).ok());
            let is_program = section
                .and_then(|s| s.name().ok().map(str::to_owned))
                .is_some_and(|name| name == "uprobe" || name.starts_with("tp_btf/"));
            if is_program && symbol.is_global() {
                let name = symbol.name().unwrap();
                assert!(used.contains(&name), "no row of the table has {name}");
                programs += 1;
            }
        }
        assert!(programs > 50, "{programs}");
    }
}
