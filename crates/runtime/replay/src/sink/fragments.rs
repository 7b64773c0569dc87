//! Puts datagrams together that were captured as IP fragments.

use etherparse::{Ipv6ExtensionSlice, LaxIpPayloadSlice, LaxNetSlice};

const DATAGRAMS: usize = 16;
const LONGEST: usize = 65_535;
const UNIT: usize = 8;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    source: [u8; 16],
    destination: [u8; 16],
    id: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Fragment<'p> {
    key: Key,
    at: usize,
    more: bool,
    data: &'p [u8],
}

impl<'p> Fragment<'p> {
    /// Returns the fragment that a captured IP packet contains. Returns `None` for unfragmented
    /// packets, for protocols other than UDP, and for fragments that the capture cut off.
    pub(super) fn of(packet: &LaxNetSlice<'p>) -> Option<Fragment<'p>> {
        let fragment = match packet {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                let wide = |address: [u8; 4]| {
                    let mut wide = [0; 16];
                    wide[..4].copy_from_slice(&address);
                    wide
                };
                Fragment {
                    key: Key {
                        source: wide(header.source()),
                        destination: wide(header.destination()),
                        id: header.identification().into(),
                    },
                    at: header.fragments_offset().byte_offset().into(),
                    more: header.more_fragments(),
                    data: whole(ip.payload())?,
                }
            }
            LaxNetSlice::Ipv6(ip) => {
                let header = ip.header();
                let mut extensions = ip.extensions().clone().into_iter();
                let part = extensions.find_map(|extension| match extension {
                    Ipv6ExtensionSlice::Fragment(part) => Some(part),
                    _ => None,
                })?;
                Fragment {
                    key: Key {
                        source: header.source(),
                        destination: header.destination(),
                        id: part.identification(),
                    },
                    at: part.fragment_offset().byte_offset().into(),
                    more: part.more_fragments(),
                    data: whole(ip.payload())?,
                }
            }
            LaxNetSlice::Arp(_) => return None,
        };
        let units = !fragment.more || fragment.data.len() % UNIT == 0;
        let end = fragment.at + fragment.data.len();
        (units && !fragment.data.is_empty() && end <= LONGEST).then_some(fragment)
    }
}

fn whole<'p>(payload: &LaxIpPayloadSlice<'p>) -> Option<&'p [u8]> {
    let fits = payload.fragmented && !payload.incomplete && payload.ip_number.0 == UDP;
    fits.then_some(payload.payload)
}

struct Datagram {
    key: Option<Key>,
    bytes: Box<[u8]>,
    came: Box<[u64]>,
    units: usize,
    length: Option<usize>,
    parts: u32,
    /// The number of the datagram's latest fragment, counted over all fragments of the sink. The
    /// datagram with the smallest number has waited longest.
    touched: u64,
}

impl Datagram {
    fn new() -> Datagram {
        Datagram {
            key: None,
            bytes: vec![0; LONGEST].into(),
            came: vec![0; LONGEST.div_ceil(UNIT).div_ceil(64)].into(),
            units: 0,
            length: None,
            parts: 0,
            touched: 0,
        }
    }

    fn begin(&mut self, key: Key) {
        self.key = Some(key);
        self.came.fill(0);
        (self.units, self.length, self.parts) = (0, None, 0);
    }

    fn units(fragment: &Fragment<'_>) -> std::ops::Range<usize> {
        fragment.at / UNIT..(fragment.at + fragment.data.len()).div_ceil(UNIT)
    }

    fn has(&self, unit: usize) -> bool {
        self.came[unit / 64] >> (unit % 64) & 1 != 0
    }

    fn has_any(&self, fragment: &Fragment<'_>) -> bool {
        Self::units(fragment).any(|unit| self.has(unit))
    }

    fn holds(&self, fragment: &Fragment<'_>) -> bool {
        self.bytes[fragment.at..][..fragment.data.len()] == *fragment.data
            && Self::units(fragment).all(|unit| self.has(unit))
    }

    fn add(&mut self, fragment: &Fragment<'_>) {
        self.bytes[fragment.at..][..fragment.data.len()].copy_from_slice(fragment.data);
        for unit in Self::units(fragment) {
            self.came[unit / 64] |= 1 << (unit % 64);
            self.units += 1;
        }
        self.parts += 1;
        if !fragment.more {
            self.length = Some(fragment.at + fragment.data.len());
        }
    }

    fn whole(&self) -> Option<&[u8]> {
        let length = self.length?;
        let units = length.div_ceil(UNIT);
        let has_all = units == self.units && (0..units).all(|unit| self.has(unit));
        has_all.then(|| &self.bytes[..length])
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined<'f> {
    Waits,
    Whole {
        payload: &'f [u8],
        port: u16,
        parts: u32,
    },
    /// The fragment is not usable: it repeats an earlier fragment, or the datagram, once complete,
    /// contradicts its own header.
    Useless,
}

/// The incomplete datagrams of a sink. All memory is allocated when the value is created.
pub(super) struct Fragments {
    datagrams: Vec<Datagram>,
    count: u64,
    whole: Option<usize>,
}

impl Fragments {
    pub(super) fn new() -> Fragments {
        Fragments {
            datagrams: (0..DATAGRAMS).map(|_| Datagram::new()).collect(),
            count: 0,
            whole: None,
        }
    }

    /// Removes the complete datagram that [`Fragments::join`] returned last. The caller calls this
    /// when the datagram was sent or can never be sent. Real-time safe.
    pub(super) fn sent(&mut self) {
        if let Some(at) = self.whole.take() {
            (self.datagrams[at].key, self.datagrams[at].touched) = (None, 0);
        }
    }

    /// Adds a fragment to its datagram. If too many datagrams are incomplete, drops the one that
    /// has waited longest. The caller repeats the call with the last fragment until the complete
    /// datagram was sent, and then calls [`Fragments::sent`]. Real-time safe.
    pub(super) fn join(&mut self, fragment: &Fragment<'_>) -> Joined<'_> {
        self.count += 1;
        let known = self
            .datagrams
            .iter()
            .position(|d| d.key == Some(fragment.key));
        let oldest = || (0..DATAGRAMS).min_by_key(|&i| self.datagrams[i].touched);
        let Some(at) = known.or_else(oldest) else {
            return Joined::Useless;
        };
        let again = known.is_some() && self.whole == known;
        let datagram = &mut self.datagrams[at];
        if known.is_some() && !again && datagram.holds(fragment) {
            return Joined::Useless;
        }
        // A sender uses its numbers again: fragments that contradict one another belong to another
        // datagram.
        if known.is_none() || (!again && datagram.has_any(fragment)) {
            datagram.begin(fragment.key);
        }
        if !again {
            datagram.touched = self.count;
            datagram.add(fragment);
        }
        let Some(bytes) = datagram.whole() else {
            return Joined::Waits;
        };
        self.whole = Some(at);
        let parts = datagram.parts;
        let stated = |length: &[u8; 2]| usize::from(u16::from_be_bytes(*length));
        let stated = bytes.get(4..).and_then(|b| b.first_chunk()).map(stated);
        if bytes.len() < UDP_HEADER || stated != Some(bytes.len()) {
            self.sent();
            return Joined::Useless;
        }
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        Joined::Whole {
            port,
            payload: &self.datagrams[at].bytes[UDP_HEADER..stated.unwrap_or(UDP_HEADER)],
            parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(id: u32) -> Key {
        Key {
            source: [1; 16],
            destination: [2; 16],
            id,
        }
    }

    fn datagram(length: usize, seed: u8) -> Vec<u8> {
        let mut bytes = vec![0, 7, 0, 8, 0, 0, 0, 0];
        bytes.extend((0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)));
        let whole = bytes.len() as u16;
        bytes[4..6].copy_from_slice(&whole.to_be_bytes());
        bytes
    }

    fn cut(id: u32, bytes: &[u8], size: usize) -> Vec<Fragment<'_>> {
        let last = bytes.len().div_ceil(size) - 1;
        let parts = bytes.chunks(size).enumerate();
        parts
            .map(|(i, data)| Fragment {
                key: key(id),
                at: i * size,
                more: i != last,
                data,
            })
            .collect()
    }

    proptest! {
        #[test]
        fn a_datagram_is_completed_by_fragments_in_any_order(
            lengths in prop::collection::vec(1usize..30_000, 1..DATAGRAMS),
            size in 1usize..200,
            order in any::<u64>(),
        ) {
            let datagrams: Vec<_> = lengths.iter().enumerate().map(|(i, &l)| datagram(l, i as u8)).collect();
            let mut parts: Vec<_> = datagrams.iter().enumerate()
                .flat_map(|(i, bytes)| cut(i as u32, bytes, size * UNIT)).collect();
            let mut state = order | 1;
            for i in (1..parts.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                parts.swap(i, (state >> 33) as usize % (i + 1));
            }
            let mut fragments = Fragments::new();
            let mut found = vec![None; datagrams.len()];
            let mut count = 0;
            for part in &parts {
                if let Joined::Whole { payload, parts, .. } = fragments.join(part) {
                    found[part.key.id as usize] = Some(payload.to_vec());
                    count += parts as usize;
                    fragments.sent();
                }
            }
            prop_assert_eq!(count, parts.len());
            for (bytes, found) in datagrams.iter().zip(found) {
                prop_assert_eq!(Some(&bytes[8..]), found.as_deref());
            }
        }
    }

    #[test]
    fn a_repeated_ip_fragment_is_ignored_and_a_reused_id_begins_a_datagram() {
        let (old, new) = (datagram(30, 1), datagram(30, 2));
        let (old, new) = (cut(5, &old, 16), cut(5, &new, 16));
        let mut fragments = Fragments::new();
        assert_eq!(fragments.join(&old[0]), Joined::Waits);
        assert_eq!(fragments.join(&old[0]), Joined::Useless);
        // Its second fragment is missing, and the number comes again.
        assert_eq!(fragments.join(&new[0]), Joined::Waits);
        assert_eq!(fragments.join(&new[2]), Joined::Waits);
        for _ in 0..2 {
            // The socket was busy, so the last fragment comes again.
            let whole = fragments.join(&new[1]);
            assert!(matches!(whole, Joined::Whole { parts: 3, .. }));
        }
        fragments.sent();
        assert_eq!(fragments.join(&new[1]), Joined::Waits);
    }

    #[test]
    fn a_datagram_that_contradicts_its_header_is_dropped() {
        let (mut wrong, right) = (datagram(30, 1), datagram(30, 2));
        wrong[5] += 1;
        let (wrong, right) = (cut(5, &wrong, 16), cut(5, &right, 16));
        let mut fragments = Fragments::new();
        let joined = wrong.iter().map(|f| fragments.join(f) == Joined::Useless);
        assert_eq!(joined.collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(fragments.join(&right[0]), Joined::Waits);
        assert_eq!(fragments.join(&right[1]), Joined::Waits);
        let whole = fragments.join(&right[2]);
        assert!(matches!(whole, Joined::Whole { parts: 3, .. }));
    }

    #[test]
    fn fragments_beyond_the_datagrams_end_do_not_replace_missing_ones() {
        let mut fragments = Fragments::new();
        let data = [0; 8];
        let part = |at, more| Fragment {
            key: key(1),
            at,
            more,
            data: &data,
        };
        // Two of two units have come, but the second lies behind the last fragment.
        assert_eq!(fragments.join(&part(24, true)), Joined::Waits);
        assert_eq!(fragments.join(&part(8, false)), Joined::Waits);
    }

    #[test]
    fn the_datagram_that_has_waited_longest_is_dropped() {
        let all: Vec<_> = (0..=DATAGRAMS as u8).map(|i| datagram(20, i)).collect();
        let all: Vec<_> = all
            .iter()
            .zip(0..)
            .map(|(bytes, id)| cut(id, bytes, 16))
            .collect();
        let mut fragments = Fragments::new();
        for parts in &all {
            assert_eq!(fragments.join(&parts[0]), Joined::Waits);
        }
        assert_eq!(fragments.join(&all[0][1]), Joined::Waits);
        assert!(matches!(
            fragments.join(&all[2][1]),
            Joined::Whole { parts: 2, .. }
        ));
    }
}
