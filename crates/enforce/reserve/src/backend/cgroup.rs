//! Gates that use the cgroup freezers of version 1 and version 2.

use super::{Backend, GateError, Witness};
use crate::ledger::{Entry, Group};
use crate::sys;
use onbeat_proc::cgroup::{self, Mount};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::Mutex;

/// The largest number of cgroups of one gate. With cgroup version 2, a gate has one cgroup for each
/// cgroup from which the server's threads come.
const GROUPS: usize = 16;
const NONE: RawFd = -1;

const V1_OPEN: &[u8] = b"THAWED";
const V2_OPEN: &[u8] = b"0";

struct Gate {
    label: String,
    /// The file descriptors that the dispatcher writes to. The entry after the last descriptor is
    /// [`NONE`].
    fds: [AtomicI32; GROUPS],
    closed: AtomicBool,
    files: Mutex<Vec<(PathBuf, File)>>,
}

impl Gate {
    fn new(label: &str) -> Gate {
        Gate {
            label: label.into(),
            fds: [const { AtomicI32::new(NONE) }; GROUPS],
            closed: AtomicBool::new(false),
            files: Mutex::default(),
        }
    }

    /// Opens or closes the gate: writes `text` to every cgroup of the gate. Goes on after a failure
    /// and returns the last failure. A cgroup that no longer exists is not a failure, because it
    /// was removed with its container and had no threads.
    fn set(&self, closed: bool, text: &[u8]) -> io::Result<()> {
        self.closed.store(closed, Ordering::SeqCst);
        let mut result = Ok(());
        for slot in &self.fds {
            let fd: RawFd = slot.load(Ordering::SeqCst);
            if fd == NONE {
                break;
            }
            match sys::write_at_start(fd, text) {
                Err(e) if e.raw_os_error() != Some(libc::ENODEV) => result = Err(e),
                _ => {}
            }
        }
        result
    }
}

impl Gate {
    /// Freezes or thaws a new cgroup (version 2), as the gate's other cgroups are at present. The
    /// dispatcher already freezes and thaws the new cgroup together with them. This call applies
    /// the state that the gate already had when the cgroup was added.
    fn catch_up(&self, file: &File, group: &Path) -> Result<(), GateError> {
        loop {
            let closed = self.closed.load(Ordering::SeqCst);
            let text: &[u8] = if closed { b"1" } else { V2_OPEN };
            let path = group.join("cgroup.freeze");
            sys::write_at_start(file.as_raw_fd(), text)
                .map_err(kernel("cannot write to", &path))?;
            if self.closed.load(Ordering::SeqCst) == closed {
                return Ok(());
            }
        }
    }
}

fn kernel(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GateError {
    let path = path.to_path_buf();
    move |source| GateError::Kernel { what, path, source }
}

fn write(path: &Path, text: &str) -> Result<(), GateError> {
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut f| f.write_all(text.as_bytes()));
    written.map_err(kernel("cannot write to", path))
}

fn make_dir(dir: &Path) -> Result<(), GateError> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(kernel("cannot make the cgroup", dir)(e))
        }
        _ => Ok(()),
    }
}

fn open_gate(path: &Path) -> Result<File, GateError> {
    let file = OpenOptions::new().write(true).open(path);
    file.map_err(kernel("cannot open", path))
}

/// The freezer of cgroup version 1. A group `onbeat-.../SERVER` at the root of the hierarchy takes
/// single threads of any process.
///
/// Another group, without threads, stays frozen all the time. The kernel has a switch that is on
/// while any group is frozen (`freezer_active`). Each change of this switch patches kernel code and
/// interrupts all CPUs. Without the extra group, opening the only shut gate would change the switch
/// every time.
pub(crate) struct V1 {
    mount: Mount,
    name: String,
    gates: Vec<Option<Gate>>,
}

/// The name of the cgroup that stays frozen. It cannot be a server's label, because labels begin
/// with a number.
const STAYS_FROZEN: &str = "stays-frozen";

impl V1 {
    pub(crate) fn new(mount: Mount, name: &str, servers: usize) -> V1 {
        V1 {
            mount,
            name: name.into(),
            gates: (0..servers).map(|_| None).collect(),
        }
    }

    /// Records a cgroup in the ledger, then makes the cgroup. The guard needs no descriptor of a
    /// cgroup without threads: the cgroup is removed when the ledger is restored.
    fn make_group(&self, dir: &Path, witness: &dyn Witness) -> Result<(), GateError> {
        let group = Group {
            thaw: Some((dir.join("freezer.state"), "THAWED".into())),
            members: dir.join("tasks"),
            home: self.mount.point.join("tasks"),
            dir: dir.to_path_buf(),
        };
        witness.note(Entry::Group(group)).map_err(GateError::Note)?;
        make_dir(dir)
    }
}

impl Backend for V1 {
    fn name(&self) -> &'static str {
        "cgroup v1 freezer"
    }

    fn create(
        &mut self,
        server: usize,
        label: &str,
        witness: &dyn Witness,
    ) -> Result<(), GateError> {
        let outer = self.mount.point.join(&self.name);
        let inner = outer.join(label);
        if self.gates.iter().all(Option::is_none) {
            let frozen = outer.join(STAYS_FROZEN);
            self.make_group(&outer, witness)?;
            self.make_group(&frozen, witness)?;
            write(&frozen.join("freezer.state"), "FROZEN")?;
        }
        self.make_group(&inner, witness)?;
        let gate = Gate::new(label);
        let file = open_gate(&inner.join("freezer.state"))?;
        witness.watch(&file, V1_OPEN).map_err(GateError::Guard)?;
        gate.fds[0].store(file.as_raw_fd(), Ordering::SeqCst);
        gate.files
            .lock()
            .expect("no thread panics while it holds the lock of the gate's files")
            .push((outer, file));
        self.gates[server] = Some(gate);
        Ok(())
    }

    fn open(&self, server: usize) -> io::Result<()> {
        self.gates[server]
            .as_ref()
            .map_or(Ok(()), |g| g.set(false, V1_OPEN))
    }

    fn close(&self, server: usize) -> io::Result<()> {
        self.gates[server]
            .as_ref()
            .map_or(Ok(()), |g| g.set(true, b"FROZEN"))
    }

    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError> {
        let dir = self.mount.of_thread(tid).map_err(GateError::Where)?;
        Ok(Some(dir.join("tasks")))
    }

    fn inside(&self) -> Vec<u32> {
        let outer = self.mount.point.join(&self.name);
        let gates = self.gates.iter().flatten();
        gates
            .flat_map(|gate| cgroup::ids(&outer.join(&gate.label).join("tasks")))
            .collect()
    }

    fn way_out(&self, tid: u32) -> Option<PathBuf> {
        let dir = self.mount.of_thread(tid).ok()?;
        let is_inside = dir.starts_with(self.mount.point.join(&self.name));
        is_inside.then(|| self.mount.point.join("tasks"))
    }

    fn add(&self, server: usize, tid: u32, _: &dyn Witness) -> Result<(), GateError> {
        let Some(gate) = &self.gates[server] else {
            return Ok(());
        };
        let group = self.mount.point.join(&self.name).join(&gate.label);
        write(&group.join("tasks"), &tid.to_string())
    }
}

/// The freezer of cgroup version 2. A thread can leave its process's cgroup only for threaded
/// cgroups below it. Groups are therefore created below each cgroup that a thread comes from.
pub(crate) struct V2 {
    mount: Mount,
    name: String,
    gates: Vec<Option<Gate>>,
}

impl V2 {
    pub(crate) fn new(mount: Mount, name: &str, servers: usize) -> V2 {
        V2 {
            mount,
            name: name.into(),
            gates: (0..servers).map(|_| None).collect(),
        }
    }
}

impl Backend for V2 {
    fn name(&self) -> &'static str {
        "cgroup v2 freezer"
    }

    fn create(&mut self, server: usize, label: &str, _: &dyn Witness) -> Result<(), GateError> {
        // The groups are created when the first thread of each cgroup is added.
        self.gates[server] = Some(Gate::new(label));
        Ok(())
    }

    fn open(&self, server: usize) -> io::Result<()> {
        self.gates[server]
            .as_ref()
            .map_or(Ok(()), |g| g.set(false, V2_OPEN))
    }

    fn close(&self, server: usize) -> io::Result<()> {
        self.gates[server]
            .as_ref()
            .map_or(Ok(()), |g| g.set(true, b"1"))
    }

    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError> {
        let dir = self.mount.of_thread(tid).map_err(GateError::Where)?;
        Ok(Some(dir.join("cgroup.threads")))
    }

    fn inside(&self) -> Vec<u32> {
        let members = |gate: &Gate| {
            let files = gate
                .files
                .lock()
                .expect("no thread panics while it holds the lock of the gate's files");
            let group = |parent: &Path| parent.join(&self.name).join(&gate.label);
            let groups = files.iter().map(|(parent, _)| group(parent));
            let ids = groups.flat_map(|group| cgroup::ids(&group.join("cgroup.threads")));
            ids.collect::<Vec<u32>>()
        };
        self.gates.iter().flatten().flat_map(members).collect()
    }

    fn way_out(&self, tid: u32) -> Option<PathBuf> {
        let dir = self.mount.of_thread(tid).ok()?;
        let is_ours = |d: &&Path| d.file_name() == Some(OsStr::new(&self.name));
        let parent = dir.ancestors().find(is_ours)?.parent()?;
        Some(parent.join("cgroup.threads"))
    }

    fn add(&self, server: usize, tid: u32, witness: &dyn Witness) -> Result<(), GateError> {
        let Some(gate) = &self.gates[server] else {
            return Ok(());
        };
        let parent = self.mount.of_thread(tid).map_err(GateError::Where)?;
        let inner = parent.join(&self.name).join(&gate.label);
        let mut files = gate
            .files
            .lock()
            .expect("no thread panics while it holds the lock of the gate's files");
        let known = files.iter().position(|f| f.0 == parent);
        // A restarted container may have the same cgroup without our groups.
        if known.is_none() || !inner.exists() {
            // The dispatcher notices a removed group only when it moves the gate, and a soft gate
            // may not move for a long time.
            let group = |f: &(PathBuf, File)| f.0.join(&self.name).join(&gate.label);
            let is_gone = |f: &(PathBuf, File)| !group(f).exists();
            let place = known.or_else(|| files.iter().position(is_gone));
            let place = place.unwrap_or(files.len());
            let descriptor = gate.fds.get(place);
            let descriptor = descriptor.ok_or(GateError::TooMany(GROUPS))?;
            let file = self.create_groups(&parent, &gate.label, witness)?;
            match files.get_mut(place) {
                // The descriptor keeps its number, because the dispatcher may be about to write to
                // it.
                Some(old) => {
                    let replaced = sys::replace(&old.1, &file);
                    replaced.map_err(kernel("cannot keep open", &inner))?;
                    old.0 = parent;
                }
                None => files.push((parent, file)),
            }
            let file = &files[place].1;
            descriptor.store(file.as_raw_fd(), Ordering::SeqCst);
            gate.catch_up(file, &inner)?;
        }
        write(&inner.join("cgroup.threads"), &tid.to_string())
    }
}

impl V2 {
    fn create_groups(
        &self,
        parent: &Path,
        label: &str,
        witness: &dyn Witness,
    ) -> Result<File, GateError> {
        let outer = parent.join(&self.name);
        let inner = outer.join(label);
        for (dir, gated) in [(&outer, false), (&inner, true)] {
            let group = Group {
                thaw: gated.then(|| (dir.join("cgroup.freeze"), "0".into())),
                members: dir.join("cgroup.threads"),
                home: parent.join("cgroup.threads"),
                dir: dir.clone(),
            };
            witness.note(Entry::Group(group)).map_err(GateError::Note)?;
            make_dir(dir)?;
            write(&dir.join("cgroup.type"), "threaded")?;
        }
        let file = open_gate(&inner.join("cgroup.freeze"))?;
        witness.watch(&file, V2_OPEN).map_err(GateError::Guard)?;
        Ok(file)
    }
}
