//! Finds the processes of the sockets at which the kernel drops datagrams.

use super::{leave_out, Features, Types};
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, OpenObject};
use onbeat_time::clock::monotonic_ns;

pub(super) const MAP: &str = "droppers";
pub(super) const EACH_SOCKET: &str = "on_each_socket";
const ON_DROP: &str = "on_udp_drop";

/// The tracepoint of `ON_DROP` in the kernel's type information.
const TRACEPOINT: &str = "btf_trace_udp_fail_queue_rcv_skb";

/// The shortest time between two searches through the open files of all processes.
const SEARCH_NS: u64 = 100_000_000;

/// For this time, the kernel does not report the drops at a socket of a process that is not observed.
const IGNORED_NS: u64 = 5_000_000_000;

/// The places of the fields of `struct dropper`.
const INODE: usize = 0;
const IGNORED_UNTIL: usize = 16;
const OWNER: usize = 28;
const DROPPER_BYTES: usize = 32;

pub struct Sockets {
    droppers: MapHandle,
    /// The program that looks through the open files.
    link: Link,
    searched_ns: u64,
}

/// Leaves out the programs that this kernel cannot load.
pub(super) fn prepare(open: &mut OpenObject, features: Features, types: &Types) {
    let btf = types.btf();
    let has_tracepoint =
        || btf.is_some_and(|btf| btf.type_by_name::<Typedef<'_>>(TRACEPOINT).is_some());
    if !features.socket_of_file || !has_tracepoint() {
        leave_out(open, ON_DROP);
        leave_out(open, EACH_SOCKET);
    }
}

impl Sockets {
    /// Returns `None` if the map is not the one that this program expects.
    pub(super) fn new(droppers: MapHandle, link: Link) -> Option<Sockets> {
        let fits = droppers.value_size() as usize == DROPPER_BYTES;
        fits.then_some(Sockets {
            droppers,
            link,
            searched_ns: 0,
        })
    }

    /// Returns the observed process that has a socket. `socket` and `inode` are those of a record. If
    /// there is none, the kernel stops reporting this socket for some seconds, and all others that
    /// have no observed process.
    pub fn owner(&mut self, socket: u64, inode: u64) -> Option<u32> {
        let dropper = self.dropper(socket, inode)?;
        if owner_of(&dropper).is_some() {
            return owner_of(&dropper);
        }
        let now = monotonic_ns();
        // In the meantime the record is left out. The next one of this socket finds the process.
        if now.saturating_sub(self.searched_ns) < SEARCH_NS {
            return None;
        }
        self.searched_ns = now;
        let mut files = Iter::new(&self.link).ok()?;
        std::io::copy(&mut files, &mut std::io::sink()).ok()?;
        self.ignore_foreign(now.saturating_add(IGNORED_NS));
        owner_of(&self.dropper(socket, inode)?)
    }

    /// Has the kernel ignore all sockets without an observed process until a time.
    fn ignore_foreign(&self, until_ns: u64) {
        for key in self.droppers.keys() {
            let Ok(Some(mut dropper)) = self.droppers.lookup(&key, MapFlags::ANY) else {
                continue;
            };
            if owner_of(&dropper).is_none() && dropper.len() == DROPPER_BYTES {
                let until = until_ns.to_ne_bytes();
                dropper[IGNORED_UNTIL..IGNORED_UNTIL + 8].copy_from_slice(&until);
                // A socket that the kernel has forgotten needs no update.
                let _ = self.droppers.update(&key, &dropper, MapFlags::EXIST);
            }
        }
    }

    /// Returns the entry of a socket, unless another socket has its place.
    fn dropper(&self, socket: u64, inode: u64) -> Option<Vec<u8>> {
        let key = socket.to_ne_bytes();
        let dropper = self.droppers.lookup(&key, MapFlags::ANY).ok()??;
        (dropper.get(INODE..INODE + 8)? == inode.to_ne_bytes()).then_some(dropper)
    }
}

fn owner_of(dropper: &[u8]) -> Option<u32> {
    let bytes = dropper.get(OWNER..OWNER + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes)).filter(|owner| *owner != 0)
}
