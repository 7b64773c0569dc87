//! Loads the BPF programs into the kernel, attaches them, and reads their maps.

mod attachment;
mod features;
pub mod filesystem;
mod flags;
mod lineage;
mod ring;
mod settings;
mod shield;
mod sockets;
mod suspended;
mod types;
mod waits;

pub use features::Features;
pub use lineage::{Join, Lineage, Root};
pub use sockets::Sockets;
pub use suspended::Suspended;
pub use types::{Types, TypesError};
pub use waits::WaitTable;

use crate::decode::Decoded;
use crate::records::{KIND_COUNT, PROCESS_LATE, PROCESS_MARKED, PROCESS_OUTSIDE, PROCESS_ROS};
use attachment::Attachment;
use flags::FlagTable;
use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject,
    ProgramAttachType, ProgramInput,
};
use onbeat_time::clock::thread_cpu_ns;
use ring::Ring;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use thiserror::Error;

const MOST_BYTES: usize = 4 << 20;

static PROGRAMS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    unpacked(include_bytes!(concat!(
        env!("OUT_DIR"),
        "/onbeat.bpf.o.zst"
    )))
});

static RAW_PROGRAMS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    unpacked(include_bytes!(concat!(
        env!("OUT_DIR"),
        "/onbeat-raw.bpf.o.zst"
    )))
});

/// Unpacks an object file to an aligned address, as readers of ELF require. If the program's file
/// is damaged, the result is empty, and loading the result fails.
fn unpacked(object: &[u8]) -> Vec<u8> {
    zstd::bulk::decompress(object, MOST_BYTES).unwrap_or_default()
}

const TYPES_CHECK: &str = "on_types_check";

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum KernelLoadError {
    #[error("this kernel has no type information (/sys/kernel/btf/vmlinux). Give a file with type information: onbeat record --btf FILE, or record with --preload. onbeat needs Linux 5.8 or newer")]
    NoBtf,
    #[error(transparent)]
    Types(#[from] TypesError),
    #[error("the kernel refused the probes: {0}. onbeat needs Linux 5.8 or newer and the right to load BPF programs")]
    Load(String),
    #[error("cannot map the table of observed processes: {0}")]
    Map(std::io::Error),
}

impl From<libbpf_rs::Error> for KernelLoadError {
    fn from(error: libbpf_rs::Error) -> KernelLoadError {
        let said = format!("{error:#}");
        match error.kind() {
            // libbpf does not find a type, or the kernel has none.
            ErrorKind::NotFound => KernelLoadError::Load(format!("{said}. If the kernel lacks type information, give a file with type information: onbeat record --btf FILE")),
            _ => KernelLoadError::Load(said),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    pub observe_all: bool,
    /// Whether the BPF programs suspend observed processes that load a library, until the recorder
    /// resumes them.
    pub stop_on_load: bool,
    pub all_threads: bool,
    pub lineage: bool,
    /// The size of the ring buffer in bytes: a power of two of pages.
    pub buffer_bytes: u32,
}

pub struct Kernel {
    object: Object,
    ring: Ring,
    lost: MapHandle,
    hits: MapHandle,
    distance: MapHandle,
    flags: Rc<FlagTable>,
    threads: FlagTable,
    waits: Option<Arc<WaitTable>>,
    lineage: Option<Arc<Lineage>>,
    suspended: Suspended,
    pub features: Features,
    has_given_types: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Uprobe<'a> {
    pub program: &'a str,
    pub file: &'a Path,
    pub offset: u64,
    pub at_return: bool,
    pub number: u32,
    /// The offset in the file of a variable in which the kernel counts the attached probes that
    /// name this variable. 0 if the file has no such variable.
    pub counter_offset: u64,
    pub pid: u32,
}

pub struct UprobeLink(Option<Attachment>);

impl UprobeLink {
    /// Detaches many uprobes at once. This is faster than one after the other, because most of the
    /// time is waiting for the kernel.
    pub fn detach(links: impl IntoIterator<Item = UprobeLink>) {
        let links = links.into_iter().filter_map(|mut link| link.0.take());
        shield::detach(links.collect());
    }
}

impl Drop for UprobeLink {
    fn drop(&mut self) {
        shield::detach(self.0.take().into_iter().collect());
    }
}

impl Kernel {
    /// Loads the programs without attaching them. `release` is the kernel's release, such as
    /// `6.18.44`.
    pub fn load(
        options: LoadOptions,
        release: &str,
        types: &Types,
    ) -> Result<Kernel, KernelLoadError> {
        if !types.exist() {
            return Err(KernelLoadError::NoBtf);
        }
        let features = Features::of_this_kernel(release, types);
        set_log();
        let mut builder = ObjectBuilder::default();
        builder.name("onbeat")?;
        let programs: &[u8] = match types.given() {
            Some(path) => {
                builder.btf_custom_path(path)?;
                &RAW_PROGRAMS
            }
            None => &PROGRAMS,
        };
        let mut open = builder.open_memory(programs)?;
        prepare(&mut open, programs, options, features, types)?;
        if features.uprobe_link {
            prepare_links(&mut open);
        }
        if !options.all_threads {
            leave_out(&mut open, EACH_THREAD);
        }
        sockets::prepare(&mut open, features, types);
        let object = open.load()?;
        if types.given().is_some() {
            check_types(&object, types)?;
        }
        let map = |name: &str| -> Result<MapHandle, KernelLoadError> {
            let found = object.maps().find(|m| m.name() == name);
            let found = found.ok_or_else(|| KernelLoadError::Load(format!("no map {name}")))?;
            Ok(MapHandle::try_from(&found)?)
        };
        let waits = features.task_registers.then(|| {
            let table = WaitTable::map(&map("threads")?).map_err(KernelLoadError::Map)?;
            Ok::<_, KernelLoadError>(Arc::new(table))
        });
        let table = |name: &str| -> Result<FlagTable, KernelLoadError> {
            FlagTable::map(&map(name)?).map_err(KernelLoadError::Map)
        };
        let lineage = match options.lineage {
            true => Lineage::new(map("roots")?, map("lineage")?).ok(),
            false => None,
        };
        let flags = Rc::new(table("processes")?);
        Ok(Kernel {
            suspended: Suspended::new(Rc::clone(&flags), table("suspended")?),
            flags,
            threads: table("threads")?,
            waits: waits.transpose()?,
            lineage: lineage.map(Arc::new),
            ring: Ring::new(&map("ring")?)?,
            lost: map("lost")?,
            hits: map("hits")?,
            distance: map("r_debug_distance")?,
            object,
            features,
            has_given_types: types.given().is_some(),
        })
    }

    pub fn attach_tracepoint(&self, program: &str) -> Result<Link, String> {
        self.program(program)?
            .attach()
            .map_err(|e| format!("{e:#}"))
    }

    pub fn attach_threads(&self) -> Result<Link, String> {
        if self.has_given_types {
            return Err("this probe needs the kernel's own type information".into());
        }
        self.attach_tracepoint(EACH_THREAD)
    }

    /// Returns the sockets at which the kernel drops datagrams.
    pub fn sockets(&self) -> Option<Sockets> {
        let map = self.object.maps().find(|m| m.name() == sockets::MAP)?;
        let link = self.attach_tracepoint(sockets::EACH_SOCKET).ok()?;
        Sockets::new(MapHandle::try_from(&map).ok()?, link)
    }

    /// Records the scheduler events of all threads of the processes that the recorder has seen so
    /// far. `link` is the attached program that [`Kernel::attach_threads`] returned.
    pub fn observe_threads(&self, link: &Link) -> std::io::Result<()> {
        let error = |e: libbpf_rs::Error| std::io::Error::other(format!("{e:#}"));
        let mut threads = libbpf_rs::Iter::new(link).map_err(error)?;
        std::io::copy(&mut threads, &mut std::io::sink()).map(drop)
    }

    /// Runs `work`, which attaches many uprobes, in one process that survives a SIGKILL of the
    /// recorder. One such process for all uprobes costs less than one for each. Returns `None` if
    /// the work was interrupted.
    pub fn attaching<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        shield::shielded(work)
    }

    /// Attaches a program to a place in a file. If a SIGKILL ends the recorder during the call, no
    /// half-attached probe remains.
    pub fn attach_uprobe(&self, probe: &Uprobe<'_>) -> Result<UprobeLink, String> {
        let link = shield::shielded(|| self.attach_unshielded(probe));
        let killed = || Err("the process that attached the probe was killed".to_owned());
        let explained = |error| match std::fs::File::open(probe.file) {
            Ok(file) => filesystem::explained(error, &file),
            Err(_) => error,
        };
        link.unwrap_or_else(killed)
            .map_err(explained)
            .map(|link| UprobeLink(Some(link)))
    }

    fn attach_unshielded(&self, probe: &Uprobe<'_>) -> Result<Attachment, String> {
        let program = self.program(probe.program)?;
        match self.features.uprobe_link {
            true => Attachment::link(&program, probe),
            false => Attachment::event(&program, probe, self.features.cookie),
        }
    }

    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, String> {
        self.object
            .progs_mut()
            .find(|p| p.name() == name)
            .ok_or_else(|| format!("no program {name}"))
    }

    pub fn lacks(&self) -> Option<String> {
        let lacks = "The kernel has no type information of its own (--btf). onbeat therefore does not record for which mutex a thread sleeps.";
        self.has_given_types.then(|| lacks.into())
    }

    pub fn mark(&self, pid: u32) {
        self.flags.update(pid, |flags| flags | PROCESS_MARKED as u8);
    }

    pub fn unmark(&self, pid: u32) {
        self.flags
            .update(pid, |flags| flags & !(PROCESS_MARKED as u8));
    }

    /// Stops recording a process, until the process executes another program.
    pub fn leave_alone(&self, pid: u32) {
        self.flags.update(pid, |_| PROCESS_OUTSIDE as u8);
        for tid in onbeat_proc::threads(pid) {
            self.threads.clear(tid);
        }
    }

    /// Returns the table of threads that wait for work, or `None` if this kernel cannot report
    /// waiting threads.
    pub fn waits(&self) -> Option<Arc<WaitTable>> {
        self.waits.clone()
    }

    /// Returns the maps that show when the execution behind an item began, or `None` if lineage is
    /// not recorded.
    pub fn lineage(&self) -> Option<Arc<Lineage>> {
        self.lineage.clone()
    }

    pub fn suspended(&self) -> &Suspended {
        &self.suspended
    }

    /// Marks a process that made endpoints before its probes were in place. The endpoints' names
    /// are then recovered when the endpoints are used. Must be called before probes are attached
    /// for the process.
    pub fn mark_late(&self, pid: u32) {
        self.flags.update(pid, |flags| flags | PROCESS_LATE as u8);
    }

    /// Marks a process that uses ROS 2. The BPF programs then ignore the process's calls of DDS,
    /// because its middleware makes these calls, not the application.
    pub fn mark_ros(&self, pid: u32) {
        self.flags.update(pid, |flags| flags | PROCESS_ROS as u8);
    }

    /// Sets the distance in bytes from the probe of a dynamic linker to the linker's `_r_debug`.
    /// `key` is the probe's number or, on a kernel without cookies, the probe's offset in its page.
    pub fn set_r_debug_distance(&self, key: u32, distance: i64) -> Result<(), String> {
        self.distance
            .update(&key.to_ne_bytes(), &distance.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| e.to_string())
    }

    /// Moves the available records to `out`, and waits up to `timeout` for the first. Returns early
    /// on a signal. Returns true if more records may still wait.
    pub fn poll(&self, timeout: Duration, out: &mut Vec<Decoded>) -> bool {
        self.ring.poll(timeout, out)
    }

    pub fn lost(&self) -> Vec<Vec<u64>> {
        let kinds = 0..KIND_COUNT as u32;
        kinds.map(|kind| counter(&self.lost, kind)).collect()
    }

    pub fn hits(&self, number: u32) -> u64 {
        counter(&self.hits, number).iter().sum::<u64>() + self.ring.records_of(number)
    }
}

/// Prints libbpf's log if the user asks for it with ONBEAT_BPF_LOG. Errors are returned as values,
/// with or without this log.
fn set_log() {
    fn print(_: libbpf_rs::PrintLevel, text: String) {
        eprint!("{text}");
    }
    let is_wanted = std::env::var_os("ONBEAT_BPF_LOG").is_some();
    libbpf_rs::set_print(is_wanted.then_some((libbpf_rs::PrintLevel::Debug, print)));
}

const EACH_THREAD: &str = "on_each_thread";

/// The names of the maps that get a minimal size if lineage is not requested.
const LINEAGE_MAPS: [&str; 4] = ["roots", "bearers", "ring_lineage", "lineage"];

fn prepare(
    open: &mut OpenObject,
    programs: &[u8],
    options: LoadOptions,
    features: Features,
    types: &Types,
) -> Result<(), KernelLoadError> {
    let may_steal = features.current_task && onbeat_proc::system::is_virtual_machine();
    let btf = types.btf();
    let steal_distance = btf.as_ref().filter(|_| may_steal);
    let steal_distance = steal_distance.and_then(features::steal_distance);
    let context_distance = btf.as_ref().and_then(features::context_distance);
    let settings = [
        ("observe_all", options.observe_all.into()),
        ("stop_on_load", options.stop_on_load.into()),
        ("switch_has_state", features.switch_state.into()),
        ("have_cookie", features.cookie.into()),
        ("wakeup_bytes", u64::from(options.buffer_bytes / 4)),
        ("have_storage", features.task_storage.into()),
        ("have_delays", features.delays.into()),
        ("have_regs", features.task_registers.into()),
        ("have_steal", steal_distance.is_some().into()),
        ("steal_distance", steal_distance.unwrap_or(0) as u64),
        ("all_threads", options.all_threads.into()),
        ("have_lineage", options.lineage.into()),
        ("have_context", context_distance.is_some().into()),
        ("context_distance", context_distance.unwrap_or(0) as u64),
        ("own_tgid", std::process::id().into()),
    ];
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "ring" {
            map.set_max_entries(options.buffer_bytes)?;
        } else if !options.lineage && LINEAGE_MAPS.contains(&name.as_str()) {
            map.set_max_entries(1)?;
        } else if name == "observed_tasks" {
            map.set_autocreate(features.task_storage)?;
        } else if name.ends_with(".rodata") {
            let image = map.initial_value_mut();
            let image = image.ok_or_else(|| KernelLoadError::Load("no settings".into()))?;
            settings::write(programs, image, &settings).map_err(KernelLoadError::Load)?;
        }
    }
    Ok(())
}

fn leave_out(open: &mut OpenObject, name: &str) {
    for mut program in open.progs_mut() {
        if program.name() == name {
            program.set_autoload(false);
        }
    }
}

const SUM_AGE: Duration = Duration::from_millis(100);

/// Checks that the user's type information (BTF) fits the running kernel, by reading fields of this
/// process. Kernels before 5.10 cannot run the check.
fn check_types(object: &Object, types: &Types) -> Result<(), KernelLoadError> {
    let mut programs = object.progs_mut();
    let check = programs.find(|p| p.name() == TYPES_CHECK);
    let before = Duration::from_nanos(thread_cpu_ns());
    let Some(Ok(result)) = check.map(|program| program.test_run(ProgramInput::default())) else {
        return Ok(());
    };
    let (sum, after) = (
        Duration::from_micros(result.return_value.into()),
        Duration::from_nanos(thread_cpu_ns()),
    );
    match !sum.is_zero() && sum <= after && sum + SUM_AGE >= before {
        true => Ok(()),
        false => Err(types.other_kernel().into()),
    }
}

fn prepare_links(open: &mut OpenObject) {
    for mut program in open.progs_mut() {
        if program.section() == "uprobe" {
            program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
        }
    }
}

fn counter(map: &MapHandle, key: u32) -> Vec<u64> {
    let value = |bytes: &Vec<u8>| {
        let bytes = bytes.get(..8);
        bytes.map_or(0, |b| {
            u64::from_ne_bytes(b.try_into().expect("eight bytes"))
        })
    };
    match map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY) {
        Ok(Some(values)) => values.iter().map(value).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    #[test]
    fn every_bpf_program_of_the_probe_table_is_in_the_bpf_object() {
        let file =
            object::read::elf::ElfFile64::<object::Endianness>::parse(PROGRAMS.as_slice()).unwrap();
        let has = |name: &str| file.symbols().any(|s| s.name() == Ok(name));
        for probe in crate::probes::PROBES {
            assert!(has(probe.program), "{}", probe.program);
            assert!(
                probe.return_program.is_none_or(has),
                "{:?}",
                probe.return_program
            );
        }
        for row in crate::probes::KERNEL_PROBES {
            assert!(has(row.program), "{}", row.program);
        }
    }

    #[test]
    fn every_bpf_program_of_the_bpf_object_is_attached_somewhere() {
        let file =
            object::read::elf::ElfFile64::<object::Endianness>::parse(PROGRAMS.as_slice()).unwrap();
        let rows = crate::probes::PROBES.iter();
        let mut used: Vec<&str> = rows
            .flat_map(|row| [Some(row.program), row.return_program])
            .flatten()
            .collect();
        used.extend(crate::probes::KERNEL_PROBES.iter().map(|row| row.program));
        used.extend(["on_dl_state", "on_sync_input", "on_sync_approximate"]);
        used.extend([
            "on_cyclone_callback",
            "on_fast_callback",
            "on_dds_callback_return",
        ]);
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
    /// The numbers of kernel helpers whose arguments or results have BTF types: task_storage_get,
    /// task_storage_delete, get_current_task_btf, task_pt_regs (include/uapi/linux/bpf.h).
    const TYPED_HELPERS: [i32; 4] = [156, 157, 158, 175];

    fn calls_typed_helper(programs: &[u8]) -> bool {
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(programs).unwrap();
        let mut sections = file
            .sections()
            .filter(|s| s.kind() == object::SectionKind::Text);
        sections.any(|section| {
            let code = section.data().unwrap();
            code.chunks_exact(8).any(|instruction| {
                let number = i32::from_le_bytes(instruction[4..].try_into().unwrap());
                // A call of a helper has no source register.
                instruction[..2] == [0x85, 0] && TYPED_HELPERS.contains(&number)
            })
        })
    }

    #[test]
    fn the_bpf_programs_for_kernels_without_btf_need_no_btf() {
        let names = |programs: &[u8]| -> Vec<String> {
            let file = object::read::elf::ElfFile64::<object::Endianness>::parse(programs).unwrap();
            file.sections()
                .map(|s| s.name().unwrap().to_owned())
                .collect()
        };
        let raw = names(&RAW_PROGRAMS);
        assert!(
            !raw.iter()
                .any(|s| s.starts_with("tp_btf") || s.starts_with("iter")),
            "{raw:?}"
        );
        for section in names(&PROGRAMS).iter().filter(|s| s.starts_with("tp_btf/")) {
            let same = section.replace("tp_btf/", "raw_tp/");
            assert!(raw.contains(&same), "{same}");
        }
        assert!(!calls_typed_helper(&RAW_PROGRAMS) && calls_typed_helper(&PROGRAMS));
    }
}
