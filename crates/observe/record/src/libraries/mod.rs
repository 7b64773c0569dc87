//! Attaches probes to libraries and programs. Each file is probed once, whatever processes and
//! containers map it.

mod budget;
mod files;
mod listeners;
mod unseen;

pub use files::installations;

use crate::elf::{has_section, Function, Malformed, Symbols};
use crate::kernel::{filesystem, Kernel, Uprobe, UprobeLink};
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
use unseen::Unseen;

const LOADER_STATE: &str = "_dl_debug_state";
const LOADER_LIST: &str = "_r_debug";

/// The number of files above which a cache of facts about files is emptied. The facts are then
/// determined again.
const CACHED_MAX: usize = 1 << 14;

/// The rule by which a probe is placed within a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlacementPolicy {
    /// Probes the instruction at which a hit costs least.
    #[default]
    Cheapest,
    /// Probes the function's first instruction. Only the benchmark uses it.
    Entry,
}

pub struct Libraries {
    policy: PlacementPolicy,
    /// The probed files, by device and inode, and the library that each file was probed as (`None`:
    /// a program's own file). A user with namespaces can mount a file under another name. onbeat
    /// then probes the file once for each library that the names stand for.
    done: HashSet<((u64, u64), Option<Library>)>,
    /// The ROS 2 distribution and the owner of each tracing library, by the file's device and
    /// inode.
    distributions: HashMap<(u64, u64), Tracing>,
    probes: Vec<Attached>,
    loaders: HashSet<(u64, u64)>,
    flow: HashMap<(u64, u64), bool>,
    budget: Budget,
    patience: Patience,
    listeners: Listeners,
    unseen: Unseen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tracing {
    distribution: Distribution,
    owner: u32,
}

impl Tracing {
    /// Returns the distribution whose probes fit a file of the user `owner`. Root's tracing
    /// libraries decide for all files, other users' libraries only for their owners' files. Without
    /// this rule, a user could load a tracing library first and decide how another user's files are
    /// probed.
    fn of(all: &[Tracing], owner: u32) -> Option<Distribution> {
        let believed = all.iter().filter(|t| t.owner == 0 || t.owner == owner);
        believed.map(|t| t.distribution).max()
    }
}

struct Attached {
    info: ProbeInfo,
    link: Option<UprobeLink>,
}

struct Site<'a> {
    name: &'a str,
    file: &'a MappedFile,
    symbol: &'a str,
    offset: u64,
    placement: &'a str,
    consequence: &'a str,
}

impl<'a> Site<'a> {
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

    fn at(self, place: Place) -> Site<'a> {
        Site {
            offset: place.offset,
            placement: place.placement.name(),
            ..self
        }
    }

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

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    pub distribution: Option<Distribution>,
    /// The name of the process's middleware library without `lib` and `.so`. In a process without
    /// ROS 2, this is the name of the DDS library.
    pub rmw: Option<String>,
    pub plain_dds: bool,
    pub attached: usize,
    /// The path of the process's libtracetools, which shows its installation of ROS 2.
    pub path: Option<String>,
}

impl Drop for Libraries {
    fn drop(&mut self) {
        let links = self.probes.drain(..).filter_map(|probe| probe.link);
        UprobeLink::detach(links.chain(self.listeners.take_links()));
    }
}

impl Libraries {
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
            unseen: Unseen::default(),
        }
    }

    fn next_number(&self) -> u32 {
        self.probes.len() as u32 + 1
    }

    /// Stores a probe under the next number. Returns 1 if the probe is attached, otherwise 0.
    fn keep(&mut self, site: Site<'_>, attached: Result<UprobeLink, String>) -> usize {
        let (link, error) = match attached {
            Ok(link) => (Some(link), None),
            Err(error) => (None, Some(error)),
        };
        let is_attached = link.is_some();
        self.budget.count_probe();
        let info = site.info(error);
        self.probes.push(Attached { info, link });
        usize::from(is_attached)
    }

    /// Returns a sentence for each file or process that was not probed, with the reason. Names in
    /// the sentences are untrusted.
    pub fn left_out(&self) -> Vec<String> {
        let mut left_out = self.budget.left_out();
        left_out.extend(self.patience.left_out());
        left_out
    }

    /// Runs `work`, which reads from a process. Returns `None` if the process does not answer, or
    /// if its user has reached a limit.
    pub fn ask<T>(
        &mut self,
        pid: u32,
        work: impl FnOnce(&mut Reader) -> Result<T, Silent>,
    ) -> Option<T> {
        self.patience.ask(pid, work)
    }

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
            Some(pid) => self.ask(pid, |_| Ok(read())).unwrap_or(Err(
                "the process that uses the file does not answer, or onbeat has spent too much CPU time on reading the processes of this user".into(),
            )),
            None => read(),
        }
    }

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

impl Libraries {
    /// Probes the dynamic linkers of these processes, so that onbeat sees libraries when they are
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
                "a process that loads ROS 2 after onbeat has examined it is found only when it \
                 hits a probe in a library that onbeat already knows",
        };
        self.keep(site, attached);
    }

    /// Probes a dynamic linker at its first instruction, because the BPF program reads the
    /// instruction pointer.
    fn attach_loader(&mut self, kernel: &Kernel, file: &MappedFile) -> Result<UprobeLink, String> {
        let number = self.next_number();
        let wanted = |name: &str| name == LOADER_STATE || name == LOADER_LIST;
        let read = self.read(file, |opened| Symbols::of(opened, false, wanted));
        let (symbols, opened) = read.map_err(|e| format!("{}: {e}", file.path))?;
        let symbols = symbols.map_err(|e| format!("{}: {e}", file.path))?;
        let (Some(state), Some(list)) = (symbols.get(LOADER_STATE), symbols.get(LOADER_LIST))
        else {
            return Err(format!(
                "{} does not export {LOADER_STATE}, or does not export {LOADER_LIST}",
                file.path
            ));
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

    /// Returns why the kernel cannot probe an installation of ROS 2, if the reason is the
    /// installation's file system. Tries a probe at offset 0 of the tracing library's file, where
    /// no program executes an instruction.
    pub fn refusal(kernel: &Kernel) -> Option<String> {
        let files = installations()
            .into_iter()
            .flat_map(|directory| files::known_files_in(&directory).files);
        let mut tracing = files.filter(|file| files::is_tracing(&file.path));
        tracing.find_map(|file| {
            let opened = file.open().ok()?;
            let probe = Uprobe {
                program: "on_rcl_init",
                file: &opened.path(),
                offset: 0,
                at_return: false,
                number: 0,
                counter_offset: 0,
                pid: 0,
            };
            let error = kernel.attach_uprobe(&probe).err()?;
            filesystem::is_refused(&error).then(|| format!("{}: {error}", file.path))
        })
    }

    /// Attaches a probe to find out whether this kernel requires CAP_SYS_ADMIN for uprobes.
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

fn first_place(kernel: &Kernel, symbols: &Symbols, function: &Function) -> u64 {
    entry(symbols.machine, &function.code, kernel.features.fast_nop).offset
}

impl Libraries {
    /// Returns the files of a process that the probe table names. Also notes the libraries of
    /// middlewares that onbeat does not record.
    fn known(&mut self, pid: u32) -> Mapped<MappedFile> {
        let is_either = |path: &str| files::is_known(path) || unseen::is_unseen(path);
        let mut mapped = self.mapped(pid, |pid, maps| mapped_files_in(pid, maps, is_either));
        if files::any_of_ros(&mapped.files) {
            self.unseen.note(pid, &mapped.files);
        }
        mapped.files.retain(|file| files::is_known(&file.path));
        mapped
    }

    pub fn unseen(&self) -> Vec<String> {
        self.unseen.sentences()
    }

    /// Returns whether the process has mapped a tracing library or, without ROS 2, a DDS library.
    /// If `unprobed` is set, only libraries without probes count.
    pub fn is_traceable(&mut self, pid: u32, unprobed: bool) -> bool {
        let mapped = self.known(pid);
        self.budget.leave_out_of(pid, mapped.left_out);
        let tells: fn(&str) -> bool = match files::any_of_ros(&mapped.files) {
            true => files::is_tracing,
            false => files::is_known,
        };
        let mut telling = mapped.files.iter().filter(|file| tells(&file.path));
        telling.any(|file| {
            let library = Library::of_path(&file.path);
            !unprobed || !self.done.contains(&(file.id, library))
        })
    }

    /// Returns whether the process has mapped a file with executors of onbeat-flow. If `unprobed`
    /// is set, only files without probes count.
    pub fn has_flow(&mut self, pid: u32, unprobed: bool) -> bool {
        self.budget.visit(Some(pid));
        let mapped = self.mapped(pid, files::own_files);
        mapped
            .files
            .iter()
            .any(|file| self.is_flow(file) && !(unprobed && self.done.contains(&(file.id, None))))
    }

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

    pub fn visit(&mut self, kernel: &Kernel, pid: u32) -> Found {
        let mut found = self.visit_ros(kernel, pid);
        found.attached += self.visit_own(kernel, pid);
        found
    }

    /// Probes the ROS 2 libraries of a process. In a process that is not suspended, these files are
    /// more urgent than its other files.
    pub fn visit_ros(&mut self, kernel: &Kernel, pid: u32) -> Found {
        self.budget.visit(Some(pid));
        let mapped = self.known(pid);
        self.budget.leave_out_of(pid, mapped.left_out);
        if files::any_of_ros(&mapped.files) {
            // The mark comes before the first probe of a DDS can be hit in the process.
            kernel.mark_ros(pid);
        }
        self.visit_files(kernel, &mapped.files)
    }

    pub fn visit_installation(&mut self, kernel: &Kernel, directory: &Path) -> Found {
        self.budget.visit(None);
        self.visit_files(kernel, &files::known_files_in(directory).files)
    }

    pub fn identify(&mut self, pid: u32) -> Found {
        self.budget.visit(Some(pid));
        let mapped = self.known(pid);
        self.identify_files(&mapped.files).0
    }

    fn identify_files(&mut self, files: &[MappedFile]) -> (Found, Vec<Tracing>) {
        let mut found = Found::default();
        // The tracing library shows the distribution. The rows of the other libraries depend on it.
        let mut tracing = Vec::new();
        for file in files.iter().filter(|f| files::is_tracing(&f.path)) {
            tracing.extend(self.tracing(file));
            found.path = Some(file.path.clone());
        }
        found.distribution = tracing.iter().map(|t| t.distribution).max();
        let of_ros = files::any_of_ros(files);
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
                // The rows of a DDS are the same for all distributions.
                if found.plain_dds && self.is_new(file, Some(library)) {
                    let any = Distribution::Kilted;
                    found.attached += self.probe_library(kernel, file, library, any);
                }
                continue;
            }
            // Without libtracetools, the file waits for a later visit. The library may come in the
            // same load, or be compiled out.
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
                let reason = "the ROS distribution of this library is unknown, because the only libtracetools that was found with it belongs to another user";
                self.budget.leave_out(format!("{}: {reason}", file.path));
                continue;
            };
            if self.is_new(file, Some(library)) {
                found.attached += self.probe_library(kernel, file, library, distribution);
            }
        }
        found
    }

    /// Returns whether a file was not probed yet and may be probed. If so, the file counts as
    /// probed from now on.
    fn is_new(&mut self, file: &MappedFile, library: Option<Library>) -> bool {
        let key = (file.id, library);
        let is_new = !self.done.contains(&key) && self.budget.has_room(self.done.len());
        if is_new {
            self.done.insert(key);
            self.budget.count_file();
        }
        is_new
    }

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

    /// Probes the program of a process and its own libraries. The program and the libraries may
    /// contain executors of onbeat-flow and input callbacks of synchronisers (message_filters),
    /// which are compiled into the user's code.
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
                // The rows of onbeat-flow are the same for all distributions.
                let any = Distribution::Kilted;
                attached += self.probe_library(kernel, &file, Library::Flow, any);
            }
            attached += self.probe_synchronisers(kernel, &file);
        }
        attached
    }
}

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
        // A program does not export its functions, so the full symbol table is searched.
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
                // The program has its symbols, but does not use this function.
                return 0;
            }
            let reason = match row.library {
                Library::Flow => format!("{} was stripped and has no symbols", file.path),
                _ => format!("{} does not export the function to probe", file.path),
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

    fn place(&self, kernel: &Kernel, symbols: &Symbols, function: &Function) -> Place {
        let place_by_policy = match self.policy {
            PlacementPolicy::Cheapest => place,
            PlacementPolicy::Entry => entry,
        };
        place_by_policy(symbols.machine, &function.code, kernel.features.fast_nop)
    }

    fn probe_synchronisers(&mut self, kernel: &Kernel, file: &MappedFile) -> usize {
        let wanted = |name: &str| name.starts_with(SYNC_PREFIX) && name.contains(SYNC_MEMBER);
        // The file is not part of ROS 2, so onbeat does not report that it cannot be read.
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

fn owner_of(opened: &Opened) -> Option<u32> {
    opened.file().metadata().ok().map(|meta| meta.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_proc::foreign::Reach;

    #[test]
    fn a_library_that_was_first_seen_under_another_path_is_still_probed() {
        let mut libraries = Libraries::new(PlacementPolicy::Cheapest);
        let named = |path: &str| {
            let program = Reach::Program(std::process::id());
            MappedFile::at(path.into(), program).expect("this program")
        };
        // A user with namespaces can mount a file at any path.
        assert!(libraries.is_new(&named("/home/x/mine.so"), None));
        assert!(!libraries.is_new(&named("/home/x/mine.so"), None));
        let real = named("/opt/robot/librcl.so");
        assert!(libraries.is_new(&real, Some(Library::Rcl)));
        assert!(!libraries.is_new(&real, Some(Library::Rcl)));
    }

    #[test]
    fn a_users_tracing_library_sets_the_distribution_only_for_that_users_files() {
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
