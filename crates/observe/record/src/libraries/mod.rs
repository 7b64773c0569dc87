//! Attaches probes to libraries and programs: to each file once, whatever processes and containers
//! map it.

mod budget;
mod files;
mod listeners;

pub use files::installations;

use crate::elf::{has_section, Function, Malformed, Symbols};
use crate::kernel::{Kernel, Uprobe, UprobeLink};
use crate::names::file_name;
use crate::patience::Patience;
use crate::placement::{entry, place, Place, Placement};
use crate::privilege;
use crate::probes::{
    Distribution, Library, Probe, FLOW_COUNTER, FLOW_NOTE, PROBES, SYNC_APPROXIMATE, SYNC_MEMBER,
    SYNC_PREFIX,
};
use budget::Budget;
use listeners::Listeners;
use onbeat_proc::foreign::Opened;
use onbeat_proc::maps::{mapped_files, mapped_files_in, Mapped, MappedFile};
use onbeat_proc::reader::{Reader, Silent, ANSWER_MAX};
use onbeat_trace::manifest::ProbeInfo;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The dynamic linker calls this when its list of libraries has changed.
const LOADER_STATE: &str = "_dl_debug_state";
/// The head of that list.
const LOADER_LIST: &str = "_r_debug";

/// Files of which something is remembered that can be found out anew.
const CACHED_MAX: usize = 1 << 14;

/// How probes are placed within a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlacementPolicy {
    /// Where it is cheapest.
    #[default]
    Cheapest,
    /// At the first instruction, for comparison.
    Entry,
}

/// Every probe in user space.
pub struct Libraries {
    policy: PlacementPolicy,
    /// Files that were probed, by device and inode, and as what (`None`: a program's own). Whoever has
    /// namespaces can give any file another name: it stays new as what it is.
    done: HashSet<((u64, u64), Option<Library>)>,
    /// Distributions of the tracing libraries.
    distributions: HashMap<(u64, u64), Tracing>,
    /// Probe N has the number N + 1.
    probes: Vec<Attached>,
    /// Dynamic linkers that were probed.
    loaders: HashSet<(u64, u64)>,
    /// Files that were searched for onbeat-flow, and whether they contain it.
    flow: HashMap<(u64, u64), bool>,
    budget: Budget,
    patience: Patience,
    listeners: Listeners,
}

/// What a tracing library says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tracing {
    distribution: Distribution,
    /// The user whose file it is.
    owner: u32,
}

impl Tracing {
    /// The distribution by which a file of `owner` is probed: root may say it of all files, others
    /// of their own. Else whoever maps another user's library first decides how it is probed.
    fn of(all: &[Tracing], owner: u32) -> Option<Distribution> {
        let believed = all.iter().filter(|t| t.owner == 0 || t.owner == owner);
        believed.map(|t| t.distribution).max()
    }
}

/// A probe that is attached, or could not be.
struct Attached {
    info: ProbeInfo,
    /// Detaches when dropped.
    link: Option<UprobeLink>,
}

/// Where a probe belongs, and what is missing without it.
struct Site<'a> {
    /// The event, as manifests name it.
    name: &'a str,
    file: &'a MappedFile,
    symbol: &'a str,
    /// From the function's start.
    offset: u64,
    /// As manifests name it.
    placement: &'a str,
    consequence: &'a str,
}

impl<'a> Site<'a> {
    /// A row of the table, at a function's first instruction.
    fn at_entry(row: &'a Probe, file: &'a MappedFile, symbol: &'a str) -> Site<'a> {
        Site {
            name: row.name,
            file,
            symbol,
            offset: 0,
            placement: Placement::Stepped.name(),
            consequence: row.consequence,
        }
    }

    /// The same site at another place in the function.
    fn at(self, place: Place) -> Site<'a> {
        Site {
            offset: place.offset,
            placement: place.placement.name(),
            ..self
        }
    }

    /// As manifests list it; `error`: why it is not attached.
    fn info(&self, error: Option<String>) -> ProbeInfo {
        ProbeInfo {
            name: self.name.into(),
            library: self.file.path.clone(),
            symbol: self.symbol.into(),
            offset: self.offset,
            placement: self.placement.into(),
            hits: 0,
            attached: error.is_none(),
            consequence: error.is_some().then(|| self.consequence.into()),
            error,
        }
    }
}

/// What a process was found to use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Distribution, from its libtracetools.
    pub distribution: Option<Distribution>,
    /// Middleware library's name without `lib` and `.so`; that of the DDS, without ROS 2.
    pub rmw: Option<String>,
    /// It uses DDS without ROS 2.
    pub plain_dds: bool,
    /// New probes that were attached for it.
    pub attached: usize,
    /// Path of its libtracetools, which names the installation.
    pub path: Option<String>,
}

impl Drop for Libraries {
    fn drop(&mut self) {
        let links = self.probes.drain(..).filter_map(|probe| probe.link);
        UprobeLink::detach(links.chain(self.listeners.links()));
    }
}

impl Libraries {
    /// No probes yet.
    pub fn new(policy: PlacementPolicy) -> Libraries {
        Libraries {
            policy,
            done: HashSet::new(),
            distributions: HashMap::new(),
            probes: Vec::new(),
            loaders: HashSet::new(),
            flow: HashMap::new(),
            budget: Budget::default(),
            patience: Patience::default(),
            listeners: Listeners::default(),
        }
    }

    /// The number of the next probe; 0 means none.
    fn next_number(&self) -> u32 {
        self.probes.len() as u32 + 1
    }

    /// Keeps a probe with the next number. Returns 1 if it is attached.
    fn keep(&mut self, site: Site<'_>, attached: Result<UprobeLink, String>) -> usize {
        let (link, error) = match attached {
            Ok(link) => (Some(link), None),
            Err(error) => (None, Some(error)),
        };
        let is_attached = link.is_some();
        self.budget.count();
        let info = site.info(error);
        self.probes.push(Attached { info, link });
        usize::from(is_attached)
    }

    /// What was not probed, and why, a sentence each. Names in them are untrusted.
    pub fn left_out(&self) -> Vec<String> {
        let mut left_out = self.budget.left_out();
        left_out.extend(self.patience.left_out());
        left_out
    }

    /// Reads something of a process, if it answers and its user has not used up what one may cost.
    pub fn ask<T>(
        &mut self,
        pid: u32,
        work: impl FnOnce(&mut Reader) -> Result<T, Silent>,
    ) -> Option<T> {
        self.patience.ask(pid, work)
    }

    /// What `files` makes of the table of mappings of a process.
    fn mapped(
        &mut self,
        pid: u32,
        files: impl FnOnce(u32, &[u8]) -> Mapped<MappedFile>,
    ) -> Mapped<MappedFile> {
        let mapped = self.ask(pid, |reader| {
            let maps = reader.file(&format!("/proc/{pid}/maps"), 0, ANSWER_MAX)?;
            Ok(files(pid, &maps.unwrap_or_default()))
        });
        mapped.unwrap_or_default()
    }

    /// Opens a file of the process that is visited, and reads something of it.
    fn read<T>(
        &mut self,
        file: &MappedFile,
        work: impl FnOnce(&Opened) -> T,
    ) -> Result<(T, Opened), String> {
        let read = || {
            let opened = file.open().map_err(|e| e.to_string())?;
            Ok((work(&opened), opened))
        };
        match self.budget.visited() {
            Some(pid) => self
                .ask(pid, |_| Ok(read()))
                .unwrap_or(Err("its user's processes took too long".into())),
            None => read(),
        }
    }

    /// Every probe with its hits so far.
    pub fn report(&self, kernel: &Kernel) -> Vec<ProbeInfo> {
        let numbered = (1..).zip(&self.probes);
        numbered
            .map(|(number, probe)| ProbeInfo {
                hits: kernel.hits(number),
                ..probe.info.clone()
            })
            .collect()
    }
}

/// Dynamic linkers.
impl Libraries {
    /// Probes the dynamic linkers that these processes use, so that libraries are seen as they are
    /// loaded.
    pub fn watch_loaders(&mut self, kernel: &Kernel, pids: &[u32]) {
        for &pid in pids {
            self.budget.visit(Some(pid));
            for file in self
                .mapped(pid, |pid, maps| {
                    mapped_files_in(pid, maps, files::is_loader)
                })
                .files
            {
                self.watch_loader(kernel, &file);
            }
        }
    }

    fn watch_loader(&mut self, kernel: &Kernel, file: &MappedFile) {
        let is_known = self.loaders.contains(&file.id);
        if is_known || !self.budget.has_room(self.loaders.len()) {
            return;
        }
        self.loaders.insert(file.id);
        let attached = self.attach_loader(kernel, file);
        let site = Site {
            name: "library_loaded",
            file,
            symbol: LOADER_STATE,
            offset: 0,
            placement: Placement::Stepped.name(),
            consequence:
                "processes that load ROS 2 later are found only by their hits in libraries \
                          known already",
        };
        self.keep(site, attached);
    }

    /// Probes a dynamic linker at its first instruction: the program reads the instruction pointer.
    fn attach_loader(&mut self, kernel: &Kernel, file: &MappedFile) -> Result<UprobeLink, String> {
        let number = self.next_number();
        let wanted = |name: &str| name == LOADER_STATE || name == LOADER_LIST;
        let read = self.read(file, |opened| Symbols::of(opened, false, wanted));
        let (symbols, opened) = read.map_err(|e| format!("{}: {e}", file.path))?;
        let symbols = symbols.map_err(|e| format!("{}: {e}", file.path))?;
        let (Some(state), Some(list)) = (symbols.get(LOADER_STATE), symbols.get(LOADER_LIST))
        else {
            return Err(format!("{} exports no {LOADER_STATE}", file.path));
        };
        let first = first_place(kernel, &symbols, state);
        let offset = state.file_offset + first;
        let key = match kernel.features.cookie {
            true => number,
            false => (offset & 0xfff) as u32,
        };
        kernel.set_r_debug_distance(key, list.address as i64 - (state.address + first) as i64)?;
        kernel.attach_uprobe(&Uprobe {
            program: "on_dl_state",
            file: &opened.path(),
            offset,
            at_return: false,
            number,
            counter_offset: 0,
            pid: 0,
        })
    }

    /// Whether this kernel wants CAP_SYS_ADMIN for uprobes. Tries it.
    pub fn needs_admin(kernel: &Kernel) -> bool {
        let own = mapped_files(std::process::id(), |path| {
            file_name(path).starts_with("ld-")
        });
        let Some(Ok(file)) = own.files.first().map(MappedFile::open) else {
            return true;
        };
        let symbols = Symbols::of(&file, false, |n| n == LOADER_STATE).ok();
        let place = |symbols: Symbols| {
            let state = symbols.get(LOADER_STATE)?;
            Some(state.file_offset + first_place(kernel, &symbols, state))
        };
        let Some(offset) = symbols.and_then(place) else {
            return true;
        };
        let probe = Uprobe {
            program: "on_rcl_init",
            file: &file.path(),
            offset,
            at_return: false,
            number: 0,
            counter_offset: 0,
            pid: 0,
        };
        privilege::without_admin(|| kernel.attach_uprobe(&probe).is_err())
    }
}

/// From a function's start to its first instruction that may be probed.
fn first_place(kernel: &Kernel, symbols: &Symbols, function: &Function) -> u64 {
    entry(symbols.machine, &function.code, kernel.features.fast_nop).offset
}

/// Visits: which files of a process need probes.
impl Libraries {
    /// Whether the process has mapped a tracing library, or without ROS 2 a DDS (one without probes
    /// yet, for `unprobed`).
    pub fn is_traceable(&mut self, pid: u32, unprobed: bool) -> bool {
        let mapped = self.mapped(pid, |pid, maps| mapped_files_in(pid, maps, files::is_known));
        self.budget.leave_out_of(pid, mapped.left_out);
        let tells: fn(&str) -> bool = match files::are_of_ros(&mapped.files) {
            true => files::is_tracing,
            false => files::is_known,
        };
        let mut telling = mapped.files.iter().filter(|file| tells(&file.path));
        telling.any(|file| {
            let library = Library::of_path(&file.path);
            !unprobed || !self.done.contains(&(file.id, library))
        })
    }

    /// Whether the process runs executors of onbeat-flow (without probes yet, for `unprobed`).
    pub fn has_flow(&mut self, pid: u32, unprobed: bool) -> bool {
        self.budget.visit(Some(pid));
        let mapped = self.mapped(pid, files::own_files);
        mapped
            .files
            .iter()
            .any(|file| self.is_flow(file) && !(unprobed && self.done.contains(&(file.id, None))))
    }

    /// Whether a file contains onbeat-flow's executors.
    fn is_flow(&mut self, file: &MappedFile) -> bool {
        if let Some(&known) = self.flow.get(&file.id) {
            return known;
        }
        let read = self.read(file, |opened| has_section(opened, FLOW_NOTE));
        let is_flow = read.is_ok_and(|(has, _)| has);
        if self.flow.len() >= CACHED_MAX {
            self.flow.clear();
        }
        self.flow.insert(file.id, is_flow);
        is_flow
    }

    /// Probes what is new in all that a process has mapped.
    pub fn visit(&mut self, kernel: &Kernel, pid: u32) -> Found {
        let mut found = self.visit_ros(kernel, pid);
        found.attached += self.visit_own(kernel, pid);
        found
    }

    /// Probes the ROS 2 libraries of a process: the urgent part of a visit when the process runs on
    /// meanwhile.
    pub fn visit_ros(&mut self, kernel: &Kernel, pid: u32) -> Found {
        self.budget.visit(Some(pid));
        let mapped = self.mapped(pid, |pid, maps| mapped_files_in(pid, maps, files::is_known));
        self.budget.leave_out_of(pid, mapped.left_out);
        if files::are_of_ros(&mapped.files) {
            // Before the first probe of a DDS can hit there.
            kernel.mark_ros(pid);
        }
        self.visit_files(kernel, &mapped.files)
    }

    /// Probes an installation of ROS 2 before any process loads it: `directory` is its `lib`.
    pub fn visit_installation(&mut self, kernel: &Kernel, directory: &Path) -> Found {
        self.budget.visit(None);
        self.visit_files(kernel, &files::known_files_in(directory).files)
    }

    /// What a process uses, without any probe.
    pub fn identify(&mut self, pid: u32) -> Found {
        self.budget.visit(Some(pid));
        let mapped = self.mapped(pid, |pid, maps| mapped_files_in(pid, maps, files::is_known));
        self.identify_files(&mapped.files).0
    }

    /// What the files say, and what each tracing library among them does.
    fn identify_files(&mut self, files: &[MappedFile]) -> (Found, Vec<Tracing>) {
        let mut found = Found::default();
        // The tracing library says which distribution this is; the others' rows depend on that.
        let mut tracing = Vec::new();
        for file in files.iter().filter(|f| files::is_tracing(&f.path)) {
            tracing.extend(self.tracing(file));
            found.path = Some(file.path.clone());
        }
        found.distribution = tracing.iter().map(|t| t.distribution).max();
        let of_ros = files::are_of_ros(files);
        for file in files {
            let library = Library::of_path(&file.path);
            let is_dds = !of_ros && library.is_some_and(Library::is_dds);
            found.plain_dds |= is_dds;
            if library == Some(Library::Rmw) || is_dds {
                let name = file_name(&file.path).trim_start_matches("lib");
                found.rmw = Some(name.split(".so").next().unwrap_or("").to_owned());
            }
        }
        (found, tracing)
    }

    fn visit_files(&mut self, kernel: &Kernel, files: &[MappedFile]) -> Found {
        let (mut found, tracing) = self.identify_files(files);
        for file in files {
            let Some(library) = Library::of_path(&file.path) else {
                continue;
            };
            if library.is_dds() {
                // Its rows are the same for all distributions.
                if found.plain_dds && self.is_new(file, Some(library)) {
                    let any = Distribution::Kilted;
                    found.attached += self.probe_library(kernel, file, library, any);
                }
                continue;
            }
            // No libtracetools yet: it may come in the same load, or be compiled out. Wait.
            let Some(distribution) = found.distribution else {
                continue;
            };
            if self.done.contains(&(file.id, Some(library))) {
                continue;
            }
            let owner = self.read(file, owner_of);
            let distribution = match owner.ok().and_then(|(owner, _)| owner) {
                Some(owner) => Tracing::of(&tracing, owner),
                None => Some(distribution),
            };
            let Some(distribution) = distribution else {
                let reason = "only a libtracetools of another user says what it is";
                self.budget.leave_out(format!("{}: {reason}", file.path));
                continue;
            };
            if self.is_new(file, Some(library)) {
                found.attached += self.probe_library(kernel, file, library, distribution);
            }
        }
        found
    }

    /// Whether a file was not probed yet and may be; it counts as probed from now on.
    fn is_new(&mut self, file: &MappedFile, library: Option<Library>) -> bool {
        let key = (file.id, library);
        let is_new = !self.done.contains(&key) && self.budget.has_room(self.done.len());
        if is_new {
            self.done.insert(key);
            self.budget.count_file();
        }
        is_new
    }

    /// What a tracing library says; `None` if it cannot be read.
    fn tracing(&mut self, file: &MappedFile) -> Option<Tracing> {
        if let Some(&known) = self.distributions.get(&file.id) {
            return Some(known);
        }
        let wanted = |name: &str| name.starts_with("ros_trace_");
        let read = self.read(file, move |opened| Symbols::of(opened, false, wanted));
        let (symbols, opened) = read.ok()?;
        let (symbols, owner) = (symbols.ok()?, owner_of(&opened)?);
        if self.distributions.len() >= CACHED_MAX {
            self.distributions.clear();
        }
        let distribution = Distribution::of_tracetools(|name| symbols.get(name).is_some());
        let tracing = Tracing {
            distribution,
            owner,
        };
        self.distributions.insert(file.id, tracing);
        Some(tracing)
    }

    /// Probes the program of a process and its own libraries: executors of onbeat-flow, and the
    /// inputs of message_filters' synchronisers, which are compiled into the user's code.
    pub fn visit_own(&mut self, kernel: &Kernel, pid: u32) -> usize {
        let mut attached = 0;
        self.budget.visit(Some(pid));
        let mapped = self.mapped(pid, files::own_files);
        self.budget.leave_out_of(pid, mapped.left_out);
        for file in mapped.files {
            if !self.is_new(&file, None) {
                continue;
            }
            if self.is_flow(&file) {
                // Its rows are the same for all distributions.
                let any = Distribution::Kilted;
                attached += self.probe_library(kernel, &file, Library::Flow, any);
            }
            attached += self.probe_synchronisers(kernel, &file);
        }
        attached
    }
}

/// Attaching: the rows of the table in one file. Each function returns how many probes it attached.
impl Libraries {
    fn probe_library(
        &mut self,
        kernel: &Kernel,
        file: &MappedFile,
        library: Library,
        distribution: Distribution,
    ) -> usize {
        let rows: Vec<&Probe> = PROBES
            .iter()
            .filter(|p| p.library == library && p.applies_to(distribution))
            .collect();
        let wanted = rows.iter().flat_map(|p| p.symbols).copied();
        let wanted: HashSet<&'static str> = wanted.chain([FLOW_COUNTER]).collect();
        // A program does not export its functions: search its full symbol table.
        let local = library == Library::Flow;
        let read = self.read(file, move |opened| {
            Symbols::of(opened, local, |name| wanted.contains(name))
        });
        match read.and_then(|(symbols, opened)| Ok((symbols.map_err(|e| e.to_string())?, opened))) {
            Ok((symbols, opened)) => {
                let probe = |row| self.probe_row(kernel, (file, &opened), &symbols, row);
                let attached = kernel.attaching(|| rows.into_iter().map(probe).sum());
                attached.unwrap_or(0)
            }
            Err(error) => {
                for row in rows {
                    let site = Site::at_entry(row, file, row.symbols[0]);
                    self.keep(site, Err(format!("cannot read {}: {error}", file.path)));
                }
                0
            }
        }
    }

    /// Probes the functions of one row: all that exist, or the first.
    fn probe_row(
        &mut self,
        kernel: &Kernel,
        (file, opened): (&MappedFile, &Opened),
        symbols: &Symbols,
        row: &Probe,
    ) -> usize {
        let mut functions = row
            .symbols
            .iter()
            .filter_map(|&symbol| Some((symbol, symbols.get(symbol)?)))
            .take(if row.all { usize::MAX } else { 1 })
            .peekable();
        if functions.peek().is_none() {
            if row.library == Library::Flow && symbols.get(FLOW_COUNTER).is_some() {
                // The program has its symbols, and does not use this function.
                return 0;
            }
            let reason = match row.library {
                Library::Flow => format!("{} was stripped of its symbols", file.path),
                _ => format!("{} does not export it", file.path),
            };
            return self.keep(Site::at_entry(row, file, row.symbols[0]), Err(reason));
        }
        let mut attached = 0;
        for (symbol, function) in functions {
            let at = self.place(kernel, symbols, function);
            let counter = symbols.get(FLOW_COUNTER);
            let link = kernel.attach_uprobe(&Uprobe {
                program: row.program,
                file: &opened.path(),
                offset: function.file_offset + at.offset,
                at_return: false,
                number: self.next_number(),
                counter_offset: counter.map_or(0, |variable| variable.file_offset),
                pid: 0,
            });
            attached += self.keep(Site::at_entry(row, file, symbol).at(at), link);
            if let Some(program) = row.return_program {
                let first = first_place(kernel, symbols, function);
                let link = kernel.attach_uprobe(&Uprobe {
                    program,
                    file: &opened.path(),
                    offset: function.file_offset + first,
                    at_return: true,
                    number: self.next_number(),
                    counter_offset: 0,
                    pid: 0,
                });
                let site = Site {
                    placement: "uretprobe",
                    ..Site::at_entry(row, file, symbol)
                };
                attached += self.keep(site, link);
            }
        }
        attached
    }

    /// The place of a function's probe.
    fn place(&self, kernel: &Kernel, symbols: &Symbols, function: &Function) -> Place {
        let place_by_policy = match self.policy {
            PlacementPolicy::Cheapest => place,
            PlacementPolicy::Entry => entry,
        };
        place_by_policy(symbols.machine, &function.code, kernel.features.fast_nop)
    }

    fn probe_synchronisers(&mut self, kernel: &Kernel, file: &MappedFile) -> usize {
        let wanted = |name: &str| name.starts_with(SYNC_PREFIX) && name.contains(SYNC_MEMBER);
        // Not ROS 2's own: a file that cannot be read is not reported.
        let read = self.read(file, move |opened| Symbols::of(opened, true, wanted));
        let Ok((symbols, opened)) = read else {
            return 0;
        };
        let symbols = match symbols {
            Ok(symbols) => symbols,
            Err(Malformed::TooLarge(what)) => {
                let reason = Malformed::TooLarge(what);
                self.budget.leave_out(format!("{}: {reason}", file.path));
                return 0;
            }
            Err(_) => return 0,
        };
        let mut attached = 0;
        for (symbol, function) in symbols.iter() {
            if !self.budget.has_room(0) {
                break;
            }
            let at = place(symbols.machine, &function.code, kernel.features.fast_nop);
            let link = kernel.attach_uprobe(&Uprobe {
                program: match symbol.contains(SYNC_APPROXIMATE) {
                    true => "on_sync_approximate",
                    false => "on_sync_input",
                },
                file: &opened.path(),
                offset: function.file_offset + at.offset,
                at_return: false,
                number: self.next_number(),
                counter_offset: 0,
                pid: 0,
            });
            let site = Site {
                name: "message_filters",
                file,
                symbol,
                offset: at.offset,
                placement: at.placement.name(),
                consequence: "AND junctions are found from the data flow only",
            };
            attached += self.keep(site, link);
        }
        attached
    }
}

/// The user whose file it is.
fn owner_of(opened: &Opened) -> Option<u32> {
    opened.file().metadata().ok().map(|meta| meta.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_proc::foreign::Reach;

    #[test]
    fn a_file_that_somebody_calls_by_another_name_is_new_as_what_it_is() {
        let mut libraries = Libraries::new(PlacementPolicy::Cheapest);
        let named = |path: &str| {
            let program = Reach::Program(std::process::id());
            MappedFile::at(path.into(), program).expect("this program")
        };
        // Mounted at a path of one's own, as everybody may who has namespaces.
        assert!(libraries.is_new(&named("/home/x/mine.so"), None));
        assert!(!libraries.is_new(&named("/home/x/mine.so"), None));
        let real = named("/opt/robot/librcl.so");
        assert!(libraries.is_new(&real, Some(Library::Rcl)));
        assert!(!libraries.is_new(&real, Some(Library::Rcl)));
    }

    #[test]
    fn a_user_says_what_libraries_are_of_the_own_alone() {
        let says = |distribution, owner| Tracing {
            distribution,
            owner,
        };
        let (old, new) = (Distribution::Jazzy, Distribution::Kilted);
        assert_eq!(Tracing::of(&[says(new, 1001)], 1001), Some(new));
        assert_eq!(Tracing::of(&[says(new, 1001)], 1000), None);
        assert_eq!(Tracing::of(&[says(new, 1001)], 0), None);
        assert_eq!(Tracing::of(&[says(old, 0)], 1000), Some(old));
        assert_eq!(
            Tracing::of(&[says(old, 0), says(new, 1001)], 1000),
            Some(old)
        );
        assert_eq!(Tracing::of(&[], 0), None);
    }
}
