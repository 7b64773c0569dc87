//! Puts probes into libraries: each file once, whatever processes and containers map it.

use crate::bpf::Kernel;
use crate::elf::{has_section, Symbols};
use crate::placement::{entry, place, Place, Placement};
use crate::privilege;
use crate::probes::{
    Distribution, Library, Probe, FLOW_COUNTER, FLOW_NOTE, PROBES, SYNC_MEMBER, SYNC_PREFIX,
};
use crate::proc::{self, MappedFile};
use libbpf_rs::Link;
use onbeat_trace::manifest::ProbeInfo;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// How probes are placed within a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlacementPolicy {
    /// Where it is cheapest.
    #[default]
    Cheapest,
    /// At the first instruction, for comparison.
    Entry,
}

/// What came of one probe.
struct Attached {
    info: ProbeInfo,
    cookie: u32,
    /// Detaches when dropped.
    _link: Option<Link>,
}

/// Every probe in user space, by the file it sits in.
pub struct Libraries {
    policy: PlacementPolicy,
    done: HashSet<(u64, u64)>,
    distributions: HashMap<(u64, u64), Distribution>,
    probes: Vec<Attached>,
    loaders: HashSet<(u64, u64)>,
    /// Files that were looked at for onbeat-flow, and whether they hold it.
    flow: HashMap<(u64, u64), bool>,
}

/// What a process was found to use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Distribution, from its libtracetools.
    pub distribution: Option<Distribution>,
    /// Middleware library's name without `lib` and `.so`.
    pub rmw: Option<String>,
    /// New probes were attached for it.
    pub attached: usize,
    /// Path of the ROS 2 libraries, to tell installations apart.
    pub path: Option<String>,
}

/// Programs and libraries that never hold template instances of message_filters.
fn is_system_file(path: &str) -> bool {
    let name = proc::file_name(path);
    path.starts_with("/usr/lib/")
        || path.starts_with("/lib")
        || name.starts_with("python")
        || name.contains("__rosidl_")
}

/// A process's program and the libraries that are neither the system's nor ROS 2's.
fn own_files(pid: u32) -> Vec<MappedFile> {
    let mut files = proc::mapped_files(pid, |path| {
        proc::file_name(path).contains(".so")
            && !is_system_file(path)
            && Library::of_path(path).is_none()
    });
    files.extend(proc::executable(pid));
    files
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
        }
    }

    /// The number of the next probe; 0 stands for none.
    fn next_cookie(&self) -> u32 {
        self.probes.len() as u32 + 1
    }

    /// Probes the dynamic linkers that running processes use (and this program's own), so that
    /// libraries are seen as they are loaded.
    pub fn watch_loaders(&mut self, kernel: &Kernel, pids: &[u32]) {
        for &pid in pids {
            for file in proc::mapped_files(pid, |path| {
                let name = proc::file_name(path);
                name.starts_with("ld-linux") || name.starts_with("ld-2.")
            }) {
                self.watch_loader(kernel, &file);
            }
        }
    }

    fn watch_loader(&mut self, kernel: &Kernel, file: &MappedFile) {
        const STATE: &str = "_dl_debug_state";
        if !self.loaders.insert(file.id) {
            return;
        }
        let cookie = self.next_cookie();
        let attached = Symbols::read(&file.reachable, false, |n| n == STATE || n == "_r_debug")
            .map_err(|e| e.to_string())
            .and_then(
                |symbols| match (symbols.get(STATE), symbols.get("_r_debug")) {
                    (Some(state), Some(debug)) => {
                        // The program reads its instruction pointer: probe the first instruction.
                        let place = (state.file_offset & 0xfff) as u32;
                        let known_by = if kernel.features.cookie {
                            cookie
                        } else {
                            place
                        };
                        kernel.set_r_debug_distance(
                            known_by,
                            debug.address as i64 - state.address as i64,
                        )?;
                        kernel.attach_uprobe(
                            "on_dl_state",
                            &file.reachable,
                            state.file_offset,
                            false,
                            cookie,
                        )
                    }
                    _ => Err(format!("{} exports no {STATE}", file.path)),
                },
            );
        let consequence = "processes that load ROS 2 later are found only by their hits in libraries known already";
        self.push(
            "library_loaded",
            file,
            STATE,
            Place {
                offset: 0,
                placement: Placement::Stepped,
            },
            cookie,
            attached,
            consequence,
        );
    }

    /// Does this kernel want CAP_SYS_ADMIN for uprobes? Found by trying.
    pub fn needs_admin(kernel: &Kernel) -> bool {
        const STATE: &str = "_dl_debug_state";
        let own = proc::mapped_files(std::process::id(), |path| {
            proc::file_name(path).starts_with("ld-")
        });
        let Some(file) = own.first() else { return true };
        let Ok(symbols) = Symbols::read(&file.reachable, false, |n| n == STATE) else {
            return true;
        };
        let Some(function) = symbols.get(STATE) else {
            return true;
        };
        privilege::without_admin(|| {
            kernel
                .attach_uprobe(
                    "on_rcl_init",
                    &file.reachable,
                    function.file_offset,
                    false,
                    0,
                )
                .is_err()
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn push(
        &mut self,
        name: &str,
        file: &MappedFile,
        symbol: &str,
        place: Place,
        cookie: u32,
        attached: Result<Link, String>,
        consequence: &str,
    ) {
        let (link, error) = match attached {
            Ok(link) => (Some(link), None),
            Err(error) => (None, Some(error)),
        };
        self.probes.push(Attached {
            info: ProbeInfo {
                name: name.into(),
                library: file.path.clone(),
                symbol: symbol.into(),
                offset: place.offset,
                placement: place.placement.name().into(),
                hits: 0,
                attached: link.is_some(),
                consequence: error.is_some().then(|| consequence.into()),
                error,
            },
            cookie,
            _link: link,
        });
    }

    /// Has the process mapped a tracing library (that is not probed yet, with `unprobed`)?
    pub fn is_traceable(&self, pid: u32, unprobed: bool) -> bool {
        let is_tracing = |path: &str| Library::of_path(path) == Some(Library::Tracetools);
        proc::mapped_files(pid, is_tracing)
            .iter()
            .any(|file| !unprobed || !self.done.contains(&file.id))
    }

    /// Does the process run executors of onbeat-flow (that are not probed yet, with `unprobed`)?
    pub fn has_flow(&mut self, pid: u32, unprobed: bool) -> bool {
        own_files(pid)
            .iter()
            .any(|file| self.is_flow(file) && !(unprobed && self.done.contains(&file.id)))
    }

    /// Does a file hold onbeat-flow's executors?
    fn is_flow(&mut self, file: &MappedFile) -> bool {
        let look = || has_section(&file.reachable, FLOW_NOTE);
        *self.flow.entry(file.id).or_insert_with(look)
    }

    /// Looks at what a process has mapped and probes what is new.
    pub fn visit(&mut self, kernel: &Kernel, pid: u32) -> Found {
        let mut found = self.visit_ros(kernel, pid);
        found.attached += self.visit_own(kernel, pid);
        found
    }

    /// Probes the ROS 2 libraries of a process: the part of a visit that is in a hurry when the
    /// process runs on meanwhile.
    pub fn visit_ros(&mut self, kernel: &Kernel, pid: u32) -> Found {
        let files = proc::mapped_files(pid, |path| Library::of_path(path).is_some());
        self.visit_files(kernel, &files)
    }

    /// Probes an installation of ROS 2 before anybody has loaded it: `directory` is its `lib`.
    pub fn visit_installation(&mut self, kernel: &Kernel, directory: &Path) -> Found {
        let files = proc::files_in(directory, |path| Library::of_path(path).is_some());
        self.visit_files(kernel, &files)
    }

    fn visit_files(&mut self, kernel: &Kernel, files: &[MappedFile]) -> Found {
        let mut found = Found::default();
        // The tracing library tells the distribution, which the others' rows depend on.
        for file in files
            .iter()
            .filter(|f| Library::of_path(&f.path) == Some(Library::Tracetools))
        {
            let distribution = match self.distributions.get(&file.id) {
                Some(&known) => Some(known),
                None => Symbols::read(&file.reachable, false, |n| n.starts_with("ros_trace_"))
                    .ok()
                    .map(|symbols| Distribution::of_tracetools(|name| symbols.get(name).is_some())),
            };
            if let Some(distribution) = distribution {
                self.distributions.insert(file.id, distribution);
            }
            found.distribution = found.distribution.max(distribution);
            found.path = Some(file.path.clone());
        }
        for file in files {
            let Some(library) = Library::of_path(&file.path) else {
                continue;
            };
            if library == Library::Rmw {
                let name = proc::file_name(&file.path).trim_start_matches("lib");
                found.rmw = Some(name.split(".so").next().unwrap_or("").to_owned());
            }
            // Without libtracetools yet (it may come in the same load, or be compiled out): wait.
            let Some(distribution) = found.distribution else {
                continue;
            };
            if self.done.insert(file.id) {
                found.attached += self.probe_library(kernel, file, library, distribution);
            }
        }
        found
    }

    /// Probes the program of a process and libraries of its own: executors of onbeat-flow, and the
    /// inputs of message_filters' synchronisers, which are compiled into the users' code.
    pub fn visit_own(&mut self, kernel: &Kernel, pid: u32) -> usize {
        let mut attached = 0;
        for file in own_files(pid) {
            if self.done.contains(&file.id) {
                continue;
            }
            if self.is_flow(&file) {
                // Its rows are the same for all distributions.
                let any = Distribution::Kilted;
                attached += self.probe_library(kernel, &file, Library::Flow, any);
            }
            attached += self.probe_synchronisers(kernel, &file);
            self.done.insert(file.id);
        }
        attached
    }

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
        let wanted: HashSet<&str> = wanted.chain([FLOW_COUNTER]).collect();
        // A program does not export its functions.
        let local = library == Library::Flow;
        let symbols = match Symbols::read(&file.reachable, local, |name| wanted.contains(name)) {
            Ok(symbols) => symbols,
            Err(error) => {
                let error = error.to_string();
                for row in rows {
                    let nowhere = Place {
                        offset: 0,
                        placement: Placement::Stepped,
                    };
                    let cookie = self.next_cookie();
                    self.push(
                        row.name,
                        file,
                        row.symbols[0],
                        nowhere,
                        cookie,
                        Err(error.clone()),
                        row.consequence,
                    );
                }
                return 0;
            }
        };
        let before = self.probes.len();
        let counter_offset = symbols.get(FLOW_COUNTER).map_or(0, |v| v.file_offset);
        for row in rows {
            let mut any = false;
            for &symbol in row.symbols {
                let Some(function) = symbols.get(symbol) else {
                    continue;
                };
                any = true;
                let at = match self.policy {
                    PlacementPolicy::Cheapest => {
                        place(symbols.machine, &function.code, kernel.features.fast_nop)
                    }
                    PlacementPolicy::Entry => {
                        entry(symbols.machine, &function.code, kernel.features.fast_nop)
                    }
                };
                let cookie = self.next_cookie();
                let link = kernel.attach_counted_uprobe(
                    row.program,
                    &file.reachable,
                    function.file_offset + at.offset,
                    false,
                    cookie,
                    counter_offset,
                );
                self.push(row.name, file, symbol, at, cookie, link, row.consequence);
                if let Some(program) = row.return_program {
                    let cookie = self.next_cookie();
                    let link = kernel.attach_uprobe(
                        program,
                        &file.reachable,
                        function.file_offset,
                        true,
                        cookie,
                    );
                    let place = Place {
                        offset: 0,
                        placement: Placement::Stepped,
                    };
                    self.push(row.name, file, symbol, place, cookie, link, row.consequence);
                    if let Some(last) = self.probes.last_mut() {
                        last.info.placement = "uretprobe".into();
                    }
                }
                if !row.all {
                    break;
                }
            }
            if !any {
                let nowhere = Place {
                    offset: 0,
                    placement: Placement::Stepped,
                };
                let missing = Err(match library {
                    Library::Flow => format!("{} was stripped of its symbols", file.path),
                    _ => format!("{} does not export it", file.path),
                });
                let cookie = self.next_cookie();
                self.push(
                    row.name,
                    file,
                    row.symbols[0],
                    nowhere,
                    cookie,
                    missing,
                    row.consequence,
                );
            }
        }
        self.probes[before..]
            .iter()
            .filter(|p| p.info.attached)
            .count()
    }

    fn probe_synchronisers(&mut self, kernel: &Kernel, file: &MappedFile) -> usize {
        let wanted = |name: &str| name.starts_with(SYNC_PREFIX) && name.contains(SYNC_MEMBER);
        // A file that cannot be read holds no probes of ours; it is not the ROS 2 it needs.
        let Ok(symbols) = Symbols::read(&file.reachable, true, wanted) else {
            return 0;
        };
        let mut attached = 0;
        for (symbol, function) in symbols.iter() {
            let at = place(symbols.machine, &function.code, kernel.features.fast_nop);
            let cookie = self.next_cookie();
            let link = kernel.attach_uprobe(
                "on_sync_input",
                &file.reachable,
                function.file_offset + at.offset,
                false,
                cookie,
            );
            attached += usize::from(link.is_ok());
            self.push(
                "message_filters",
                file,
                symbol,
                at,
                cookie,
                link,
                "AND junctions are found from the data flow only",
            );
        }
        attached
    }

    /// Every probe with its hits so far.
    pub fn report(&self, kernel: &Kernel) -> Vec<ProbeInfo> {
        self.probes
            .iter()
            .map(|p| ProbeInfo {
                hits: kernel.hits(p.cookie),
                ..p.info.clone()
            })
            .collect()
    }
}
