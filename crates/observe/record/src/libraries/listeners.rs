//! Probes the functions that a plain DDS calls in an application's listeners when new data arrive.
//!
//! Each function is probed in its own process only, so that no user can have another user's
//! functions probed.

use super::{owner_of, Attached, Libraries, Site};
use crate::elf::{begins_function, code_at, Symbols};
use crate::kernel::{Kernel, Uprobe, UprobeLink};
use crate::placement::{entry, Placement};
use onbeat_proc::foreign::Opened;
use onbeat_proc::maps::{mapped_files_in, MappedFile};
use onbeat_proc::reader::ANSWER_MAX;
use std::collections::{HashMap, HashSet};

const LISTENER_CONSEQUENCE: &str =
    "the model shows a DDS listener without probes as a loop that polls for messages";

const FUNCTIONS_PER_PROCESS_MAX: usize = 256;

/// The largest number of files of one user in which onbeat probes the functions of listeners. A
/// file stays counted after its probes are detached.
const FILES_PER_USER_MAX: usize = 64;
/// Symbols that only the C library, its loader and the unwinder export. A probe at the return of a
/// function of these libraries would break the function: `setjmp` stores the return address, and
/// `dlopen` reads its caller's address.
const C_LIBRARY_SYMBOLS: [&str; 3] = [
    "__libc_start_main",
    "_rtld_global",
    "_Unwind_RaiseException",
];

#[derive(Default)]
struct ProcessProbes {
    known: HashSet<u64>,
    links: Vec<UprobeLink>,
    counted_for: Option<u32>,
}

#[derive(Default)]
pub(super) struct Listeners {
    processes: HashMap<u32, ProcessProbes>,
    /// The number that stands for a probe in records, by file and BPF program. All functions of a
    /// file that are probed with the same BPF program share one number.
    numbers: HashMap<((u64, u64), &'static str), u32>,
    files: HashMap<Option<u32>, HashSet<(u64, u64)>>,
}

impl Listeners {
    pub(super) fn take_links(&mut self) -> Vec<UprobeLink> {
        let processes = self.processes.drain();
        processes.flat_map(|(_, of)| of.links).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CodePlace {
    path: String,
    offset: u64,
}

impl CodePlace {
    fn of(maps: &[u8], address: u64) -> Option<CodePlace> {
        let text = String::from_utf8_lossy(maps);
        text.lines().find_map(|line| {
            let mut words = line.splitn(6, ' ');
            let (from, to) = words.next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            let (from, to) = (number(from)?, number(to)?);
            let is_code = words.next()?.contains('x');
            let offset = number(words.next()?)?;
            let path = words.last()?.trim_start();
            let is_there = is_code && path.starts_with('/') && (from..to).contains(&address);
            is_there.then(|| CodePlace {
                path: path.to_owned(),
                offset: offset + (address - from),
            })
        })
    }
}

impl Libraries {
    /// Probes the function of a listener in its process, unless the function is probed already.
    /// Returns the number of attached probes.
    pub fn visit_listener(
        &mut self,
        kernel: &Kernel,
        pid: u32,
        function: u64,
        fast: bool,
    ) -> usize {
        self.budget.visit(Some(pid));
        let of = self.listeners.processes.entry(pid).or_default();
        if of.known.contains(&function) {
            return 0;
        }
        if of.known.len() >= FUNCTIONS_PER_PROCESS_MAX {
            self.budget.leave_out(format!(
                "process {pid} has more than {FUNCTIONS_PER_PROCESS_MAX} listener functions, so {LISTENER_CONSEQUENCE}"
            ));
            return 0;
        }
        if !self.budget.has_room(0) {
            return 0;
        }
        let links = self.probe_listener(kernel, pid, function, fast);
        let links = links.unwrap_or_else(|why| {
            let sentence = format!("process {pid}: {why}. Therefore, {LISTENER_CONSEQUENCE}");
            self.budget.leave_out(sentence);
            vec![]
        });
        let attached = links.len();
        (0..attached).for_each(|_| self.budget.count_probe());
        let of = self.listeners.processes.entry(pid).or_default();
        of.known.insert(function);
        of.links.extend(links);
        of.counted_for = self.budget.user();
        attached
    }

    fn probe_listener(
        &mut self,
        kernel: &Kernel,
        pid: u32,
        function: u64,
        fast: bool,
    ) -> Result<Vec<UprobeLink>, String> {
        let (place, file) = self.place_of(pid, function)?;
        self.count_file_once(&file)?;
        let look = |opened: &Opened| {
            let code = code_at(opened, place.offset);
            (owner_of(opened), may_be_probed(opened, place.offset), code)
        };
        let ((owner, is_function, code), opened) = self.read(&file, look).map_err(|e| {
            format!("the file that contains a listener's function cannot be read: {e}")
        })?;
        // A probe stays with the process when it executes another program, even one with root's
        // rights. There the probe must do little harm: at the start of a function it changes the
        // return address while the function runs. A user's own file is not part of such a program.
        // Root's files can be, so root has no exception.
        let own = |user: onbeat_proc::User| user.uid != 0 && owner == Some(user.uid);
        if !is_function && !onbeat_proc::user(pid).is_some_and(own) {
            return Err(format!(
                "the address of a listener's function is not the start of a function of {} that onbeat may probe",
                file.path
            ));
        }
        let (machine, code) = code.ok_or(format!(
            "a listener's function is not in an ELF file: {}",
            file.path
        ))?;
        // The offset skips nops that the kernel would turn into calls.
        let offset = place.offset + entry(machine, &code, kernel.features.fast_nop).offset;
        let begin = match fast {
            true => "on_fast_callback",
            false => "on_cyclone_callback",
        };
        let path = opened.path();
        let mut attach = |program: &'static str, at_return: bool| {
            let probe = Uprobe {
                program,
                file: &path,
                offset,
                at_return,
                number: self.listener_number(&file, program),
                counter_offset: 0,
                pid,
            };
            let link = kernel.attach_uprobe(&probe);
            self.list_listener(&file, program, at_return, link.as_ref().err());
            link.map_err(|e| format!("a listener's function cannot be probed: {e}"))
        };
        // The return is probed first. A call in between is then not seen, instead of seeming never
        // to end.
        let returned = attach("on_dds_callback_return", true)?;
        let entered = attach(begin, false)?;
        Ok(vec![returned, entered])
    }

    fn count_file_once(&mut self, file: &MappedFile) -> Result<(), String> {
        let user = self.budget.user();
        if self
            .listeners
            .files
            .values()
            .any(|files| files.contains(&file.id))
        {
            return Ok(());
        }
        let files = self.listeners.files.entry(user).or_default();
        if files.len() >= FILES_PER_USER_MAX {
            return Err(format!(
                "a listener's function is in a file that onbeat did not examine, because onbeat examines at most {FILES_PER_USER_MAX} files of a user"
            ));
        }
        files.insert(file.id);
        self.budget.count_file();
        Ok(())
    }

    fn place_of(&mut self, pid: u32, function: u64) -> Result<(CodePlace, MappedFile), String> {
        let found = self.ask(pid, |reader| {
            let maps = reader.file(&format!("/proc/{pid}/maps"), 0, ANSWER_MAX)?;
            let maps = maps.unwrap_or_default();
            let place = CodePlace::of(&maps, function);
            Ok(place.map(|place| {
                let files = mapped_files_in(pid, &maps, |path| path == place.path);
                (place, files.files)
            }))
        });
        let found = found
            .ok_or("a listener's function was not examined, because the process does not answer")?;
        let (place, mut files) =
            found.ok_or("the address of a listener's function is in no file that is mapped")?;
        match files.is_empty() {
            true => Err(format!(
                "a listener's function is in a file that does not exist: {}",
                place.path
            )),
            false => Ok((place, files.swap_remove(0))),
        }
    }

    fn listener_number(&self, file: &MappedFile, program: &'static str) -> u32 {
        let known = self.listeners.numbers.get(&(file.id, program));
        known.copied().unwrap_or(self.next_number())
    }

    fn list_listener(
        &mut self,
        file: &MappedFile,
        program: &'static str,
        at_return: bool,
        error: Option<&String>,
    ) {
        if let Some(number) = self.listeners.numbers.get(&(file.id, program)) {
            let listed = self.probes.get_mut(*number as usize - 1);
            if let Some(listed) = listed.filter(|_| error.is_none()) {
                (
                    listed.info.attached,
                    listed.info.error,
                    listed.info.consequence,
                ) = (true, None, None);
            }
            return;
        }
        let number = self.next_number();
        self.listeners.numbers.insert((file.id, program), number);
        let site = Site {
            name: "on_data_available",
            file,
            symbol: "on_data_available",
            offset: 0,
            placement: match at_return {
                true => "uretprobe",
                false => Placement::Stepped.name(),
            },
            consequence: LISTENER_CONSEQUENCE,
        };
        let info = site.info(error.cloned());
        self.probes.push(Attached { info, link: None });
    }

    pub fn forget_listeners(&mut self, pid: u32) {
        let Some(of) = self.listeners.processes.remove(&pid) else {
            return;
        };
        self.budget.give_back(of.counted_for, of.links.len());
        UprobeLink::detach(of.links);
    }
}

/// Returns whether a probe at `offset` in the file is safe in every program that has mapped the
/// file. A function must begin there, and a probe must not disturb the function.
fn may_be_probed(opened: &Opened, offset: u64) -> bool {
    let of_c = Symbols::of(opened, false, |name| C_LIBRARY_SYMBOLS.contains(&name));
    begins_function(opened, offset) && of_c.is_ok_and(|symbols| symbols.iter().next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_are_not_probed() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| line.split(' ').next_back());
        let libc = libc.clone().find(|path| path.contains("libc.so")).unwrap();
        let opened = onbeat_proc::foreign::Reach::Here(libc.into())
            .open()
            .unwrap();
        let symbols = Symbols::of(&opened, false, |name| name == "printf").unwrap();
        let printf = symbols.get("printf").unwrap().file_offset;
        assert!(begins_function(&opened, printf) && !may_be_probed(&opened, printf));
        let own = onbeat_proc::foreign::Reach::Here("/proc/self/exe".into())
            .open()
            .unwrap();
        let symbols = Symbols::of(&own, true, |name| name.contains("may_be_probed")).unwrap();
        let at = symbols.iter().next().unwrap().1.file_offset;
        assert!(may_be_probed(&own, at) && !may_be_probed(&own, at + 1));
    }

    #[test]
    fn the_number_of_probed_files_of_one_user_is_limited() {
        let mut libraries = Libraries::new(Default::default());
        let dir = tempfile::tempdir().unwrap();
        let file = |n: usize| {
            let path = dir.path().join(n.to_string());
            std::fs::write(&path, "x").unwrap();
            let reach = onbeat_proc::foreign::Reach::Here(path.clone());
            MappedFile::at(path.display().to_string(), reach).unwrap()
        };
        let files: Vec<MappedFile> = (0..FILES_PER_USER_MAX + 1).map(file).collect();
        let (last, first) = files.split_last().unwrap();
        for _ in 0..2 {
            first
                .iter()
                .for_each(|f| libraries.count_file_once(f).unwrap());
        }
        assert!(libraries.count_file_once(last).is_err());
    }

    #[test]
    fn an_address_is_found_in_the_file_whose_code_is_mapped_there() {
        let maps = b"\
55d0000-55d1000 r--p 00000000 fe:00 123 /opt/my robot/app
55d1000-55d3000 r-xp 00001000 fe:00 123                        /opt/my robot/app
7f00000-7f01000 rwxp 00000000 00:00 0
";
        let place = |offset| CodePlace {
            path: "/opt/my robot/app".into(),
            offset,
        };
        assert_eq!(CodePlace::of(maps, 0x55d1010), Some(place(0x1010)));
        assert_eq!(CodePlace::of(maps, 0x55d0010), None);
        assert_eq!(CodePlace::of(maps, 0x55d3000), None);
        // Code that was generated at run time lies in no file.
        assert_eq!(CodePlace::of(maps, 0x7f00010), None);
        assert_eq!(CodePlace::of(b"garbage\n", 1), None);
    }
}
