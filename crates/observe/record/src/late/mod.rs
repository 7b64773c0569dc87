//! Late attach: finds the names of endpoints and nodes that were created before the recording.
//!
//! An rcl handle points to a private struct of unknown layout. This struct contains a pointer to
//! the public rmw struct, which onbeat recognises by its shape:
//!
//! - a pointer to the middleware's identifier, which is a known text,
//! - a pointer to private data,
//! - a pointer to the topic or service name, which is a text that starts with a slash.
//!
//! [`owners`] finds the nodes of endpoints, [`processes`] decides when a search is due, and
//! [`timers`] reads the period and clock of a timer.

mod memory;
mod owners;
mod processes;
mod timers;

pub use memory::{Memory, ProcessMemory};
pub use processes::LateProcesses;
pub use timers::{read_timer, Now};

use crate::decode::WaitSet;
use onbeat_trace::{EndpointKind, EventKind};
use std::collections::BTreeSet;

const RCL_STRUCT_WORDS: u64 = 128;

/// Finds the rmw handle and the name behind an rcl handle. rcl's handles have the form `rcl_X_t {
/// rcl_X_impl_t * impl }`.
fn find_rmw(memory: &impl Memory, rcl: u64) -> Option<(u64, String)> {
    let private = memory.word(rcl).filter(|&p| p != 0)?;
    for index in 0..RCL_STRUCT_WORDS {
        // Any number may stand where a pointer is expected.
        let Some(candidate) = memory.word(private.wrapping_add(index * 8)) else {
            break;
        };
        if candidate < 4096 || candidate % 8 != 0 {
            continue;
        }
        let words = [candidate, candidate.wrapping_add(16)].map(|at| memory.word(at));
        let [Some(identifier), Some(name)] = words else {
            continue;
        };
        if identifier < 4096 || name < 4096 {
            continue;
        }
        if !memory
            .text(identifier)
            .is_some_and(|t| t.starts_with("rmw_"))
        {
            continue;
        }
        if let Some(name) = memory.text(name).filter(|t| t.starts_with('/')) {
            return Some((candidate, name));
        }
    }
    None
}

/// Explores a wait set. Returns the events of its endpoints and timers, and of the nodes that its
/// parameter services name. Also returns the number of handles that could not be resolved.
pub fn explore(memory: &impl Memory, set: &WaitSet) -> (Vec<EventKind>, usize) {
    let mut events = Vec::new();
    let mut nodes = BTreeSet::new();
    let mut unresolved = 0;
    let lists = [
        (EndpointKind::Subscription, &set.subscriptions),
        (EndpointKind::Client, &set.clients),
        (EndpointKind::Service, &set.services),
    ];
    for (endpoint, handles) in lists {
        for &rcl in handles {
            match find_rmw(memory, rcl) {
                Some((rmw, name)) => {
                    if let (EndpointKind::Service, Some(node)) =
                        (endpoint, name.strip_suffix("/get_parameters"))
                    {
                        nodes.insert(node.to_owned());
                    }
                    events.push(EventKind::EndpointFound {
                        endpoint,
                        rcl,
                        rmw,
                        name: name.into(),
                    });
                }
                None => unresolved += 1,
            }
        }
    }
    events.extend(
        set.timers
            .iter()
            .map(|&timer| EventKind::TimerFound { timer }),
    );
    let named = nodes.into_iter().map(|name| EventKind::NodeFound {
        node: 0,
        name: name.into(),
    });
    // Nodes come first, so that a reader knows them before their endpoints.
    (named.chain(events).collect(), unresolved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    pub(super) struct Image(Vec<u8>);

    impl Memory for Image {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let Some(at) = address.checked_sub(4096).map(|a| a as usize) else {
                return false;
            };
            match self.0.get(at..at.saturating_add(buffer.len())) {
                Some(bytes) => {
                    buffer.copy_from_slice(bytes);
                    true
                }
                None => false,
            }
        }

        fn regions(&self) -> Vec<Range<u64>> {
            let whole = 4096..4096 + self.0.len() as u64;
            Vec::from([whole])
        }
    }

    impl Image {
        pub(super) fn new() -> Image {
            Image(vec![0; 64 * 1024])
        }
        pub(super) fn put(&mut self, address: u64, bytes: &[u8]) {
            self.0[address as usize - 4096..][..bytes.len()].copy_from_slice(bytes);
        }
        pub(super) fn word_at(&mut self, address: u64, value: u64) {
            self.put(address, &value.to_le_bytes());
        }
    }

    #[test]
    fn node_names_are_found_behind_private_structs_of_any_layout() {
        for depth in [0u64, 3, 77] {
            let mut image = Image::new();
            let (rcl, private, rmw) = (5000u64 / 8 * 8, 8192u64, 16384u64);
            image.word_at(rcl, private);
            // A decoy: a small number where a pointer is expected.
            image.word_at(private + 78 * 8, 17);
            image.word_at(private + depth * 8, rmw);
            image.word_at(rmw, 20000);
            image.word_at(rmw + 8, 1);
            image.word_at(rmw + 16, 21000);
            image.put(20000, b"rmw_fastrtps_cpp\0");
            image.put(21000, b"/drive/planner/get_parameters\0");
            let set = WaitSet {
                pid: 1,
                tid: 1,
                time_ns: 0,
                subscriptions: vec![],
                timers: vec![9],
                clients: vec![],
                services: vec![rcl, 0xdead_0000],
            };
            let (events, unresolved) = explore(&image, &set);
            assert_eq!(
                events,
                [
                    EventKind::NodeFound {
                        node: 0,
                        name: "/drive/planner".into()
                    },
                    EventKind::EndpointFound {
                        endpoint: EndpointKind::Service,
                        rcl,
                        rmw,
                        name: "/drive/planner/get_parameters".into()
                    },
                    EventKind::TimerFound { timer: 9 },
                ]
            );
            assert_eq!(unresolved, 1);
        }
    }
}
