//! Chooses a backend from the offers of two ends, and notes what each end lacks for a faster one.
//! Pure: the same function runs at both ends, over the same two offers.

use std::fmt;

/// A backend between two ends: TCP, RDMA or shared memory. Later variants are faster.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Tcp,
    Verbs,
    Shm,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Tcp => "TCP",
            Way::Verbs => "RDMA",
            Way::Shm => "shared memory",
        })
    }
}

/// The reason why an end cannot offer a backend to its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The program was built without the feature `verbs`.
    Feature = 1,
    /// No RDMA device of the end's machine has the connection's address.
    Device,
    /// The application provides its own memory, which the other process cannot see.
    OwnMemory,
    /// Other processes may not inspect the process of the end, for example because that process was
    /// started with more rights than its user has.
    Hidden,
    /// The user, namespaces or capabilities of the two processes differ.
    Apart,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Feature => "the program was built without the feature `verbs`",
            Lack::Device => "no RDMA device has the connection's address",
            Lack::OwnMemory => "the application provides its own memory",
            Lack::Hidden => {
                "other processes are not allowed to inspect the process, so it cannot share memory"
            }
            Lack::Apart => "the two processes differ in user, namespaces or capabilities",
        })
    }
}

/// The end that lacks a backend.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Listening,
    Connecting,
    Both,
}

/// A faster backend that the ends do not use, because one or both of them lack it.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    pub way: Way,
    pub end: End,
    pub lack: Lack,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            End::Listening => "the listening end",
            End::Connecting => "the connecting end",
            End::Both => "the two ends",
        };
        write!(f, "no {} ({end}: {})", self.way, self.lack)
    }
}

/// The result of the choice between two ends.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub way: Way,
    /// The faster backends that the ends do not use, each with the end that lacks it. Shared memory
    /// is left out if the ends are on different machines. RDMA is left out if neither end has it.
    pub passed: Vec<Passed>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "over {}", self.way)?;
        self.passed.iter().try_for_each(|p| write!(f, "; {p}"))
    }
}

/// The properties of a process that must be equal at both ends so that they can share memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The id of the machine's current boot.
    pub boot: [u8; 16],
    /// The effective user id of the process.
    pub user: u32,
    /// The inodes of the pid, network and user namespaces, in this order.
    pub namespaces: [u64; 3],
    /// The permitted capabilities of the process (capabilities(7)), one bit for each.
    pub capabilities: u64,
}

/// The backends that one end offers to the other.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    pub place: Place,
    /// The reason why the end cannot share memory. `None` if it can.
    pub no_shm: Option<Lack>,
    /// The reason why the end cannot use RDMA. `None` if it can.
    pub no_verbs: Option<Lack>,
    /// Is true if the end refuses the link when [`Choice::passed`] is not empty.
    pub refuses: bool,
}

const VERSION: u8 = 1;
const OFFER_BYTES: usize = 1 + 16 + 4 + 3 * 8 + 8 + 3;

fn lack(code: u8) -> Option<Option<Lack>> {
    Some(match code {
        0 => None,
        1 => Some(Lack::Feature),
        2 => Some(Lack::Device),
        3 => Some(Lack::OwnMemory),
        4 => Some(Lack::Hidden),
        _ => return None,
    })
}

impl Offer {
    /// Returns the bytes in which the offer is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let code = |lack: Option<Lack>| lack.map_or(0, |lack| lack as u8);
        let mut bytes = Vec::with_capacity(OFFER_BYTES);
        bytes.push(VERSION);
        bytes.extend(self.place.boot);
        bytes.extend(self.place.user.to_le_bytes());
        for inode in self.place.namespaces {
            bytes.extend(inode.to_le_bytes());
        }
        bytes.extend(self.place.capabilities.to_le_bytes());
        bytes.extend([
            code(self.no_shm),
            code(self.no_verbs),
            u8::from(self.refuses),
        ]);
        bytes
    }

    /// Reads a peer's offer. Returns `None` if the bytes are not an offer.
    pub fn parse(bytes: &[u8]) -> Option<Offer> {
        let bytes: &[u8; OFFER_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let refuses = match bytes[OFFER_BYTES - 1] {
            0 => false,
            1 => true,
            _ => return None,
        };
        if bytes[0] != VERSION {
            return None;
        }
        Some(Offer {
            place: Place {
                boot: bytes[1..17].try_into().ok()?,
                user: u32::from_le_bytes(bytes[17..21].try_into().ok()?),
                namespaces: [word(21)?, word(29)?, word(37)?],
                capabilities: word(45)?,
            },
            no_shm: lack(bytes[OFFER_BYTES - 3])?,
            no_verbs: lack(bytes[OFFER_BYTES - 2])?,
            refuses,
        })
    }
}

fn lacking(listening: Option<Lack>, connecting: Option<Lack>) -> Option<(End, Lack)> {
    match (listening, connecting) {
        (None, None) => None,
        (Some(lack), None) => Some((End::Listening, lack)),
        (None, Some(lack)) => Some((End::Connecting, lack)),
        (Some(lack), Some(_)) => Some((End::Both, lack)),
    }
}

/// Chooses the fastest backend that both ends can use, and names the faster ones that they lack.
pub fn choose(listening: &Offer, connecting: &Offer) -> Choice {
    let mut passed = Vec::new();
    let mut pass = |way, (end, lack)| passed.push(Passed { way, end, lack });
    // Nobody expects shared memory between machines.
    if listening.place.boot == connecting.place.boot {
        let is_apart = listening.place != connecting.place;
        let apart = is_apart.then_some((End::Both, Lack::Apart));
        match lacking(listening.no_shm, connecting.no_shm).or(apart) {
            None => {
                return Choice {
                    way: Way::Shm,
                    passed,
                }
            }
            Some(who) => pass(Way::Shm, who),
        }
    }
    let way = match lacking(listening.no_verbs, connecting.no_verbs) {
        None => Way::Verbs,
        // A backend that neither end has is not reported.
        Some((End::Both, _)) => Way::Tcp,
        Some(who) => {
            pass(Way::Verbs, who);
            Way::Tcp
        }
    };
    Choice { way, passed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: Place = Place {
        boot: [1; 16],
        user: 1000,
        namespaces: [1, 2, 3],
        capabilities: 0,
    };
    const ALL: Offer = Offer {
        place: HERE,
        no_shm: None,
        no_verbs: None,
        refuses: false,
    };

    fn elsewhere(offer: Offer) -> Offer {
        let place = Place {
            boot: [2; 16],
            ..HERE
        };
        Offer { place, ..offer }
    }

    fn without(lack: Lack) -> Offer {
        Offer {
            no_verbs: Some(lack),
            ..ALL
        }
    }

    #[test]
    fn the_fastest_common_backend_is_chosen_and_missing_faster_ones_are_explained() {
        assert_eq!(choose(&ALL, &ALL).to_string(), "over shared memory");
        assert_eq!(choose(&ALL, &elsewhere(ALL)).to_string(), "over RDMA");
        let deviceless = elsewhere(without(Lack::Device));
        assert_eq!(
            choose(&ALL, &deviceless).to_string(),
            "over TCP; no RDMA (the connecting end: no RDMA device has the connection's address)"
        );
        assert_eq!(
            choose(&without(Lack::Feature), &elsewhere(ALL)).to_string(),
            "over TCP; no RDMA (the listening end: the program was built without the feature `verbs`)"
        );
        // Neither end has RDMA, so nothing is passed over.
        assert_eq!(choose(&without(Lack::Feature), &deviceless).passed, []);
        let own_memory = Offer {
            no_shm: Some(Lack::OwnMemory),
            ..ALL
        };
        assert_eq!(
            choose(&own_memory, &ALL).to_string(),
            "over RDMA; no shared memory (the listening end: the application provides its own memory)"
        );
    }

    #[test]
    fn processes_that_cannot_find_each_other_do_not_use_shared_memory() {
        for place in [
            Place { user: 0, ..HERE },
            Place {
                capabilities: 1 << 23,
                ..HERE
            },
            Place {
                namespaces: [9, 2, 3],
                ..HERE
            },
            Place {
                namespaces: [1, 9, 3],
                ..HERE
            },
            Place {
                namespaces: [1, 2, 9],
                ..HERE
            },
        ] {
            let choice = choose(&ALL, &Offer { place, ..ALL });
            assert_eq!(choice.way, Way::Verbs, "{place:?}");
            assert_eq!(choice.passed[0].lack, Lack::Apart);
        }
    }

    proptest! {
        #[test]
        fn an_offer_of_backends_is_read_as_it_was_written(
            boot: [u8; 16], user: u32, namespaces: [u64; 3], capabilities: u64,
            codes in [0u8..5, 0u8..5], refuses: bool
        ) {
            let offer = Offer {
                place: Place { boot, user, namespaces, capabilities },
                no_shm: lack(codes[0]).unwrap(),
                no_verbs: lack(codes[1]).unwrap(),
                refuses,
            };
            prop_assert_eq!(Offer::parse(&offer.bytes()), Some(offer));
            prop_assert_eq!(Offer::parse(&offer.bytes()[1..]), None);
        }
    }
}
