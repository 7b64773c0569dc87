//! The functions that listeners of plain DDS have for new data: each is probed in its own process
//! alone, so that nobody can have another one's functions probed.

use super::{owner_of, Libraries, Site};
use crate::kernel::{Kernel, Uprobe};
use crate::placement::Placement;
use onbeat_proc::maps::mapped_files_in;
use onbeat_proc::reader::ANSWER_MAX;
use std::collections::HashSet;

/// Functions that are probed in one process. Large systems have some hundred.
const OF_PROCESS_MAX: usize = 256;

/// The functions that were probed, by process.
pub(super) type Listeners = std::collections::HashMap<u32, HashSet<u64>>;

/// A place in a file that a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CodePlace {
    path: String,
    offset: u64,
}

impl CodePlace {
    /// The place of an address, from the text of the process's table of mappings.
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
    /// Probes the function of a listener in its process, once. Returns how many probes it attached.
    pub fn visit_listener(
        &mut self,
        kernel: &Kernel,
        pid: u32,
        function: u64,
        fast: bool,
    ) -> usize {
        self.budget.visit(Some(pid));
        let known = self.listeners.entry(pid).or_default();
        if known.len() >= OF_PROCESS_MAX || !known.insert(function) {
            return 0;
        }
        if !self.budget.has_room(0) {
            return 0;
        }
        let found = self.ask(pid, |reader| {
            let maps = reader.file(&format!("/proc/{pid}/maps"), 0, ANSWER_MAX)?;
            let maps = maps.unwrap_or_default();
            let place = CodePlace::of(&maps, function);
            Ok(place.map(|place| {
                let files = mapped_files_in(pid, &maps, |path| path == place.path);
                (place, files.files)
            }))
        });
        let Some((place, files)) = found.flatten() else {
            return 0;
        };
        let Some(file) = files.first() else {
            return 0;
        };
        let Ok((Some(_), opened)) = self.read(file, owner_of) else {
            return 0;
        };
        let mut attached = 0;
        let entry = match fast {
            true => "on_fast_callback",
            false => "on_cyclone_callback",
        };
        for (program, at_return) in [(entry, false), ("on_dds_callback_return", true)] {
            let link = kernel.attach_uprobe(&Uprobe {
                program,
                file: &opened.path(),
                offset: place.offset,
                at_return,
                number: self.next_number(),
                counter_offset: 0,
                pid,
            });
            let site = Site {
                name: "on_data_available",
                file,
                symbol: "on_data_available",
                offset: 0,
                placement: match at_return {
                    true => "uretprobe",
                    false => Placement::Stepped.name(),
                },
                consequence: "callbacks of listeners are taken for loops that take samples",
            };
            attached += self.keep(site, link);
        }
        attached
    }

    /// A process has ended: its id may be used again.
    pub fn forget_listeners(&mut self, pid: u32) {
        self.listeners.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_the_code_that_is_mapped_there() {
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
        // Code that was made at run time lies in no file.
        assert_eq!(CodePlace::of(maps, 0x7f00010), None);
        assert_eq!(CodePlace::of(b"garbage\n", 1), None);
    }
}
