//! The data that the BPF programs and their owner exchange, byte by byte as in `bpf/maps.h`.

use crate::sys::SharedWords;
use crate::table::{Table, Walk};
use libbpf_rs::MapHandle;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub(super) const MAX_SERVERS: usize = 128;
pub(super) const MAX_CPUS: usize = 128;
pub(super) const MAX_EVENTS: usize = 256;
pub(super) const MAX_OF_CPU: usize = 32;
const BUCKETS: usize = 320;
const HISTOGRAM: usize = BUCKETS + 2;

pub(super) struct Control {
    words: SharedWords<6>,
}

impl Control {
    pub(super) fn new(
        map: &MapHandle,
        cycle_ns: u64,
        origin_ns: u64,
        is_soft: bool,
    ) -> io::Result<Control> {
        let words = SharedWords::of(map.as_fd())?;
        for (word, value) in [cycle_ns, origin_ns, 0, is_soft.into(), 0, 0]
            .iter()
            .enumerate()
        {
            words[word].store(*value, SeqCst);
        }
        Ok(Control { words })
    }

    pub(super) fn origin_ns(&self) -> &AtomicU64 {
        &self.words[1]
    }

    /// Returns the shared word that names the table of the next round: the table's number + 1, or 0
    /// to keep the current table.
    pub(super) fn next_table(&self) -> &AtomicU64 {
        &self.words[4]
    }

    pub(super) fn exit_kind(&self) -> &AtomicU64 {
        &self.words[5]
    }
}

pub(super) fn first_round(table: &Table, origin_ns: u64, now_ns: u64) -> u64 {
    let mut open = vec![false; table.servers()];
    let walk = Walk::new(table, origin_ns, now_ns, &mut open);
    // If all events of the round have passed, the walk is already in the next round.
    match walk.base_ns() > now_ns {
        true => walk.base_ns() - table.cycle_ns(),
        false => walk.base_ns(),
    }
}

pub(super) fn table(table: &Table, on_cpu: impl Fn(usize) -> bool) -> Vec<u8> {
    let events: Vec<_> = table.events().iter().filter(|e| on_cpu(e.server)).collect();
    let mut bytes = Vec::new();
    bytes.extend(table.gap_ns().to_ne_bytes());
    bytes.extend((events.len() as u64).to_ne_bytes());
    for event in &events {
        bytes.extend(event.offset_ns.to_ne_bytes());
        bytes.extend((event.server as u32).to_ne_bytes());
        bytes.extend(u32::from(event.open).to_ne_bytes());
    }
    bytes.resize(16 + 16 * MAX_EVENTS, 0);
    let mut open = [0; MAX_SERVERS];
    let mut begins = vec![true; table.servers()];
    table.open_before(0, &mut begins);
    for (byte, is_open) in open.iter_mut().zip(begins) {
        *byte = is_open.into();
    }
    bytes.extend(open);
    bytes
}

pub(super) fn server(cpu: u16, priority: u8, is_gated: bool) -> Vec<u8> {
    // The server is closed until the first timer opens it.
    let words = [cpu.into(), priority.into(), is_gated.into(), 0u32];
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    bytes.resize(16 + 3 * 8, 0);
    bytes
}

pub(super) fn order(servers: &[u32]) -> Vec<u8> {
    let count = [servers.len() as u32];
    let words = count.iter().chain(servers);
    let mut bytes: Vec<u8> = words.flat_map(|w| w.to_ne_bytes()).collect();
    bytes.resize(4 * (1 + MAX_OF_CPU), 0);
    bytes
}

/// Returns the first bytes of the BPF programs' structs `rounds` and `cpu`. The first round has the
/// number 1 and begins at `base_ns`.
pub(super) fn begin(base_ns: u64) -> ([u8; 80], [u8; 56]) {
    let (mut rounds, mut cpu) = ([0; 80], [0; 56]);
    rounds[8..16].copy_from_slice(&1u64.to_ne_bytes());
    rounds[40..48].copy_from_slice(&base_ns.to_ne_bytes());
    cpu[16..24].copy_from_slice(&1u64.to_ne_bytes());
    cpu[24..32].copy_from_slice(&base_ns.to_ne_bytes());
    (rounds, cpu)
}

pub(super) fn table_of_cpu(cpu: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(cpu.get(32..36)?.try_into().ok()?))
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ends {
    pub(super) ends: u64,
    pub(super) working: u64,
    pub(super) strays: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) rounds: u64,
    pub(super) swaps: u64,
    pub(super) behind_ns: i64,
    pub(super) servers: Vec<Ends>,
    /// The distributions of three times: by how much events were late, how long gates took to open,
    /// and how long they took to close. Each has its sum, maximum and buckets.
    pub(super) histograms: [Vec<u64>; 3],
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |b: &[u8]| u64::from_ne_bytes(b.try_into().expect("eight bytes"));
    bytes.chunks_exact(8).map(word).collect()
}

impl Counted {
    pub(super) fn of(rounds: &[u8], servers: &[Vec<u8>], counters: &[Vec<u8>]) -> Counted {
        let mut counted = Counted::default();
        if let [first, number, skipped, behind, ..] = words(rounds)[..] {
            // The first word contains the spin lock, then the number of swaps.
            let halves = first.to_ne_bytes();
            let swaps = u32::from_ne_bytes([halves[4], halves[5], halves[6], halves[7]]);
            counted.swaps = swaps.into();
            counted.rounds = number.saturating_sub(1) + skipped;
            counted.behind_ns = behind as i64;
        }
        counted.servers = servers.iter().map(|bytes| ends(bytes)).collect();
        counted.histograms = [0, 1, 2].map(|which| {
            let mut all = vec![0; HISTOGRAM];
            for one in counters.iter().map(|bytes| words(bytes)) {
                let Some(part) = one.get(which * HISTOGRAM..(which + 1) * HISTOGRAM) else {
                    continue;
                };
                all[0] += part[0];
                all[1] = all[1].max(part[1]);
                all[2..]
                    .iter_mut()
                    .zip(&part[2..])
                    .for_each(|(a, p)| *a += p);
            }
            all
        });
        counted
    }
}

fn ends(server: &[u8]) -> Ends {
    match words(server)[..] {
        [_, _, ends, working, strays] => Ends {
            ends,
            working,
            strays,
        },
        _ => Ends::default(),
    }
}
