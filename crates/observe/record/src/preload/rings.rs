//! Reads the rings of all processes that loaded the preloaded library. It trusts nothing in them.

use super::file::{self, Fault, Head, Ring};
use super::mailbox::{Mailbox, Report};
use super::Place;
use crate::records::KIND_COUNT;
use onbeat_files::{Directory, Meta};
use onbeat_proc::namespace::Namespace;
use onbeat_proc::Stat;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const CHECK_EVERY: Duration = Duration::from_millis(500);
/// The largest number of messages from processes without rings that the recorder reads at a time.
/// `REFUSED_MAX` limits how many of these processes it remembers.
const MESSAGES_AT_ONCE: usize = 64;
const REFUSED_MAX: usize = 1 << 12;

/// The records that the recorded processes could not write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    /// The number of lost records by record name. Losses of the BPF programs use the same names.
    pub by_kind: Vec<(&'static str, u64)>,
    /// The processes whose records are missing in whole or in part, with the reasons.
    pub refused: Vec<Refused>,
}

/// A process whose records are missing in whole or in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The id of the process, as seen in the process's own PID namespace.
    pub pid: u32,
    /// The reason why the records are missing, as one line for the user.
    pub reason: String,
}

/// A reader of the rings in one [`Place`].
#[derive(Debug)]
pub struct Rings {
    directory: Directory,
    mailbox: Option<Mailbox>,
    owner: u32,
    ring_bytes: u64,
    namespace: u64,
    files: BTreeMap<OsString, ProcessFile>,
    /// The file at which the last call of [`Rings::poll`] stopped at its limit. The next call
    /// begins after this file.
    last: OsString,
    lost: Vec<u64>,
    refused: BTreeMap<OsString, Refused>,
    reports_beyond_max: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct ProcessFile {
    file: File,
    head: Option<Head>,
    rings: Vec<Ring>,
    start_ticks: Option<u64>,
    looked: Instant,
}

impl Rings {
    /// Opens a reader for the rings in `place`. The reader has the directory open until it is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Fails if the directory does not exist.
    pub fn open(place: &Place) -> io::Result<Rings> {
        let directory = Directory::open(place.rings())?;
        Ok(Rings {
            owner: directory.meta()?.uid,
            directory,
            mailbox: place.mailbox(),
            ring_bytes: place.ring_bytes(),
            namespace: Namespace::Pid.of(std::process::id()).map_or(0, |n| n.1),
            files: BTreeMap::new(),
            last: OsString::new(),
            lost: vec![0; KIND_COUNT],
            refused: BTreeMap::new(),
            reports_beyond_max: 0,
            buffer: Vec::new(),
        })
    }

    /// Passes at most `limit` new complete records to `each`. Returns true if more records may
    /// wait.
    ///
    /// The records of one thread are in order. The records of different threads are not. Never
    /// blocks. A process can make this call expensive only by writing many records.
    pub fn poll(&mut self, limit: usize, each: &mut dyn FnMut(&[u8])) -> bool {
        self.find_new();
        self.receive();
        let behind = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let names = self.files.range(behind).map(|(name, _)| name);
        let mut order: Vec<OsString> = names.cloned().collect();
        order.extend(self.files.keys().take_while(|n| **n <= self.last).cloned());
        let mut left = limit;
        for name in order {
            let all = self.poll_file(&name, &mut left, each);
            if !all && left == 0 {
                self.last = name;
                return true;
            }
        }
        false
    }

    /// Returns the losses so far by kind, and the processes that could not write their rings. The
    /// call is cheap, and counts never decrease.
    pub fn losses(&self) -> Losses {
        let mut lost = self.lost.clone();
        for head in self.files.values().filter_map(|s| s.head.as_ref()) {
            add(&mut lost, &head.lost);
        }
        let more = (self.reports_beyond_max > 0).then(|| Refused {
            pid: 0,
            reason: format!(
                "the process's calls are not recorded; {} more processes reported that their calls are not recorded",
                self.reports_beyond_max
            ),
        });
        Losses {
            by_kind: file::named(&lost),
            refused: self.refused.values().cloned().chain(more).collect(),
        }
    }

    /// Returns the name of the function that a record's probe number stands for, or `None` for an
    /// unknown number.
    pub fn function(number: u16) -> Option<&'static str> {
        let index = usize::from(number).checked_sub(1)?;
        FUNCTIONS.get(index).map(String::as_str)
    }

    fn find_new(&mut self) {
        for name in self.directory.names().unwrap_or_default() {
            if self.files.contains_key(&name) || self.refused.contains_key(&name) {
                continue;
            }
            if let Some((pid, reason)) = refusal_in_name(&name) {
                self.refuse(&name, pid, reason);
                continue;
            }
            match self.open_file(&name) {
                Ok(file) => {
                    let source = ProcessFile {
                        file,
                        head: None,
                        rings: Vec::new(),
                        start_ticks: None,
                        looked: Instant::now(),
                    };
                    self.files.insert(name, source);
                }
                // Other errors are ignored: the file is tried again, unless it was removed because
                // another thread's file took its place.
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    self.refuse(&name, pid_of(&name), e.to_string());
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    let reason = "the process's events were read late or not at all, because too many files are open. Raise the recorder's limit (ulimit -Hn)";
                    self.refuse(OsStr::new("crowded"), 0, reason.into());
                }
                Err(_) => {}
            }
        }
    }

    fn receive(&mut self) {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(report) = self.mailbox.as_ref().and_then(Mailbox::receive) else {
                return;
            };
            let name = OsString::from(format!("report.{}", report.pid));
            if self.refused.len() < REFUSED_MAX || self.refused.contains_key(&name) {
                self.refuse(&name, report.pid, without_rings(report));
            } else {
                self.reports_beyond_max += 1;
            }
        }
    }

    /// Opens a file in the rings' directory, if it belongs to the user of the recorded programs.
    /// The recorder must not write to files of other users.
    fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let file = self.directory.open_in_place(name)?;
        let meta = Meta::of(&file)?;
        if meta.is_file && meta.uid == self.owner {
            return Ok(file);
        }
        let reason = "something in the ring directory is not a regular file of the recorded user";
        Err(io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    fn refuse(&mut self, name: &OsStr, pid: u32, reason: String) {
        self.refused.insert(name.into(), Refused { pid, reason });
    }

    fn poll_file(&mut self, name: &OsStr, left: &mut usize, each: &mut dyn FnMut(&[u8])) -> bool {
        let Some(source) = self.files.get_mut(name) else {
            return true;
        };
        // This comes before the reading, so that the process's last records are still read below.
        let has_ended = source.has_ended(self.namespace);
        let read = source.read(self.ring_bytes, left, &mut self.buffer, each);
        let all = match read {
            Ok(all) => all,
            Err(fault) => {
                let pid = source.head.as_ref().map_or(pid_of(name), |head| head.pid);
                let reason = match fault {
                    Fault::Short => {
                        "the file of the process's ring buffers was cut short: the process's later records are missing"
                    }
                    Fault::Wrong => {
                        "the process has written invalid data: the process's later records are missing"
                    }
                };
                self.refuse(name, pid, reason.into());
                self.forget(name);
                return true;
            }
        };
        if all && has_ended {
            let _ = self.directory.remove(name);
            self.forget(name);
        }
        all
    }

    fn forget(&mut self, name: &OsStr) {
        if let Some(head) = self.files.remove(name).and_then(|source| source.head) {
            add(&mut self.lost, &head.lost);
        }
    }
}

impl ProcessFile {
    fn read(
        &mut self,
        ring_bytes: u64,
        left: &mut usize,
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let Some(head) = Head::read(&self.file)? else {
            return Ok(true);
        };
        if head.ring_bytes != ring_bytes {
            return Err(Fault::Wrong);
        }
        if self.head.is_none() {
            self.start_ticks = Stat::of(head.pid).map(|stat| stat.start_ticks);
        }
        self.rings
            .resize(head.rings.max(self.rings.len()), Ring::default());
        self.head = Some(head);
        let written = file::written(&self.file, self.rings.len(), &self.rings)?;
        let mut all = true;
        let mut fault = None;
        for (index, (ring, written)) in self.rings.iter_mut().zip(written).enumerate() {
            match ring.read((&self.file, index, ring_bytes), written, left, buffer, each) {
                Ok(passed) => all &= passed,
                Err(found) => fault = Some(found),
            }
        }
        fault.map_or(Ok(all), Err)
    }

    /// Returns whether the process is known to have ended. Returns false if the process is not in
    /// the PID namespace `namespace`, or if the last check was less than [`CHECK_EVERY`] ago.
    fn has_ended(&mut self, namespace: u64) -> bool {
        let Some(head) = self.head.as_ref().filter(|h| h.namespace == namespace) else {
            return false;
        };
        if self.looked.elapsed() < CHECK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        let stat = Stat::of(head.pid).filter(|stat| !stat.has_ended());
        stat.is_none_or(|stat| Some(stat.start_ticks) != self.start_ticks)
    }
}

fn add(sum: &mut [u64], counts: &[u64]) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
}

fn pid_of(name: &OsStr) -> u32 {
    let pid = name.to_str().and_then(|name| name.split('.').next());
    pid.and_then(|pid| pid.parse().ok()).unwrap_or(0)
}

fn without_rings(report: Report) -> String {
    let error = io::Error::from_raw_os_error(report.error);
    match report.calls {
        0 => format!(
            "the process's calls are not recorded, because it could not make its ring buffers: {error}"
        ),
        calls => format!(
            "{calls} calls of the process are not recorded, because it could not make its ring buffers: {error}"
        ),
    }
}

/// Decodes the file name `refused.PID.ERROR`. A process that cannot make the file for its rings
/// makes a file with such a name instead.
fn refusal_in_name(name: &OsStr) -> Option<(u32, String)> {
    let rest = name.to_str()?.strip_prefix("refused.")?;
    let (pid, error) = rest.split_once('.')?;
    let error = io::Error::from_raw_os_error(error.parse().ok()?);
    let reason = format!(
        "the process's calls are not recorded, because it could not make its ring buffers: {error}"
    );
    Some((pid.parse().ok()?, reason))
}

static FUNCTIONS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let lines = super::FUNCTIONS.lines();
    let symbol = |line: &str| {
        let (kind, rest) = line.split_once('(')?;
        let symbol = rest.split([',', ')']).next()?;
        match kind {
            "ENTRY" | "INNER" | "AROUND" => Some(symbol.to_owned()),
            "ASKED" => Some(format!("ros_trace_do_{symbol}")),
            _ => None,
        }
    };
    lines.filter_map(symbol).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::{Library, PROBES};

    fn programs() -> BTreeMap<String, (String, Option<String>, String)> {
        let mut found = BTreeMap::new();
        for line in crate::preload::FUNCTIONS.lines() {
            let Some((kind, rest)) = line.split_once('(') else {
                continue;
            };
            let words: Vec<&str> = rest.trim_end_matches(')').split(", ").collect();
            let text = |at: usize| words[at].to_owned();
            let (symbol, returned, range) = match kind {
                "ENTRY" => (text(0), None, words[2..].join(" ")),
                "INNER" => (text(0), None, "HUMBLE NEVER".to_owned()),
                "ASKED" => (
                    format!("ros_trace_do_{}", words[0]),
                    None,
                    "HUMBLE NEVER".to_owned(),
                ),
                "AROUND" => (text(0), Some(text(2)), words[3..].join(" ")),
                _ => continue,
            };
            let before = found.insert(symbol, (text(1), returned, range));
            assert_eq!(before, None, "{line}");
        }
        found
    }

    #[test]
    fn the_library_replaces_the_functions_of_the_probe_table() {
        let mut programs = programs();
        for probe in PROBES
            .iter()
            .filter(|p| p.library != Library::Flow && !p.library.is_dds())
        {
            for symbol in probe.symbols {
                let (program, returned, range) = programs
                    .remove(*symbol)
                    .unwrap_or_else(|| panic!("functions.h has no {symbol}"));
                assert_eq!(program, probe.program, "{symbol}");
                assert_eq!(returned.as_deref(), probe.return_program, "{symbol}");
                let since = probe.since.name().to_uppercase();
                let until = probe
                    .until
                    .map_or("NEVER".into(), |d| d.name().to_uppercase());
                // Functions with an enabled check exist only in distributions that have them.
                if !symbol.starts_with("ros_trace_do_") {
                    assert_eq!(range, format!("{since} {until}"), "{symbol}");
                }
            }
        }
        assert!(programs.is_empty(), "not in the probe table: {programs:?}");
    }

    #[test]
    fn a_probe_number_gives_the_name_of_its_function() {
        assert_eq!(Rings::function(0), None);
        assert_eq!(Rings::function(1), Some("ros_trace_rcl_init"));
        assert_eq!(Rings::function(8), Some("ros_trace_do_rmw_publisher_init"));
        assert_eq!(Rings::function(u16::MAX), None);
    }

    #[test]
    fn a_process_without_rings_gives_the_reason_in_a_file_name() {
        let (pid, reason) = refusal_in_name(OsStr::new("refused.12.28")).expect("a refusal");
        assert_eq!(pid, 12);
        assert!(reason.contains("No space left"), "{reason}");
        assert_eq!(refusal_in_name(OsStr::new("12.0")), None);
        assert_eq!(pid_of(OsStr::new("12.0")), 12);
        assert_eq!(pid_of(OsStr::new("x")), 0);
    }
}
