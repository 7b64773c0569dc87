//! Shows `onbeat record` which items were sent or received, at which end of which link.
//!
//! A *link* carries items: it is a channel that has a name, or a connection between two machines.
//! Both ends of a link use the same number for it. So a recorder can match item 7 that one process
//! has sent with item 7 that another one receives.

use crate::watch::{self, address, c_string, probe};
use std::ffi::CString;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// The identity of a link, the same at both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkId {
    /// A number that no other link has. It is random, or is computed from the link's session or
    /// from the inode of its memory.
    pub number: u64,
    /// The name of the link in models. It begins with `/`, like the name of a topic.
    pub name: Arc<str>,
}

impl LinkId {
    /// Creates the identity from a number and the name of the link's channel or address.
    pub fn new(number: u64, name: &str) -> LinkId {
        LinkId {
            number,
            name: format!("/{}", name.trim_start_matches('/')).into(),
        }
    }

    pub(crate) fn within_process(name: &str) -> LinkId {
        let random = std::collections::hash_map::RandomState::new();
        LinkId::new(random.build_hasher().finish(), name)
    }
}

/// The data that a recorder reads about an end of a link. `name` is the address of a
/// zero-terminated string.
#[repr(C)]
#[derive(Debug)]
struct EndRecord {
    link: u64,
    name: u64,
    /// The largest number of items that can wait at this end. A further item replaces the oldest of
    /// them.
    depth: u64,
    /// 1 if items are sent here, 0 if they are received.
    sends: u64,
}

probe! {
    /// Marks the creation of an end of a link. `end` is the address of its `EndRecord`. An earlier
    /// end at the same address no longer exists.
    onbeat_link_init(end) = 5
}
probe! {
    /// Marks that `end` no longer exists.
    onbeat_link_fini(end) = 6
}
probe! {
    /// Marks that the item of this number is sent at `end`.
    onbeat_link_send(end, number) = 7
}
probe! {
    /// Marks that the item of this number was received at `end`.
    onbeat_link_receive(end, number) = 8
}

/// An end of a link that a recorder can see. The default is an end that no recorder sees.
///
/// Real-time safe: an event costs one relaxed atomic load. While a recorder runs, it also costs a
/// call of an empty function. After creation it never allocates or locks.
#[derive(Debug, Default)]
pub struct EndEvents(Option<End>);

#[derive(Debug)]
struct End {
    /// Boxed because its address is the end's handle and must not change.
    record: Box<EndRecord>,
    _name: CString,
}

impl EndEvents {
    /// Creates an end where items are sent into `link`. At most `depth` items can wait there. A
    /// further item replaces the oldest of them.
    pub fn sending(link: &LinkId, depth: usize) -> EndEvents {
        EndEvents::new(link, depth, true)
    }

    /// Creates an end where items are received from `link`. At most `depth` items can wait there. A
    /// further item replaces the oldest of them.
    pub fn receiving(link: &LinkId, depth: usize) -> EndEvents {
        EndEvents::new(link, depth, false)
    }

    fn new(link: &LinkId, depth: usize, sends: bool) -> EndEvents {
        watch::keep_note();
        let name = c_string(&link.name);
        let record = Box::new(EndRecord {
            link: link.number,
            name: name.as_ptr() as u64,
            depth: depth as u64,
            sends: sends.into(),
        });
        onbeat_link_init(address(&*record));
        let _name = name;
        EndEvents(Some(End { record, _name }))
    }

    /// Reports to recorders that the item with this number is sent. Call this before anybody can
    /// receive the item.
    #[inline]
    pub fn sent(&self, number: u64) {
        if let Some(end) = self.0.as_ref().filter(|_| watch::is_watched()) {
            onbeat_link_send(address(&*end.record), number);
        }
    }

    /// Reports to recorders that the item with this number was received. Call this before the item
    /// is used.
    #[inline]
    pub fn received(&self, number: u64) {
        if let Some(end) = self.0.as_ref().filter(|_| watch::is_watched()) {
            onbeat_link_receive(address(&*end.record), number);
        }
    }
}

impl Drop for EndEvents {
    fn drop(&mut self) {
        if let Some(end) = self.0.as_ref().filter(|_| watch::is_watched()) {
            onbeat_link_fini(address(&*end.record));
        }
    }
}
