//! What `onbeat record` sees of items: which one was sent or received, at which end of which link.
//!
//! A *link* is what an item goes through: a channel that has a name, or a connection between two
//! machines. Both ends of a link know it by one number, so that item 7 that one process has sent is
//! item 7 that another one receives.

use crate::watch::{self, address, c_string, probe};
use std::ffi::CString;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// What both ends of a link know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkId {
    /// A number that no other link has: random, or spread over all bits.
    pub number: u64,
    /// Name of the link in models: that of a topic, beginning with `/`.
    pub name: Arc<str>,
}

impl LinkId {
    /// A link of this number. The name is that of its channel or its address.
    pub fn new(number: u64, name: &str) -> LinkId {
        LinkId {
            number,
            name: format!("/{}", name.trim_start_matches('/')).into(),
        }
    }

    /// A link whose ends are in this process.
    pub(crate) fn within_process(name: &str) -> LinkId {
        let random = std::collections::hash_map::RandomState::new();
        LinkId::new(random.build_hasher().finish(), name)
    }
}

/// What a recorder reads of an end. The name is the address of a zero-terminated string.
#[repr(C)]
#[derive(Debug)]
struct EndRecord {
    link: u64,
    name: u64,
    /// Items that wait before one is replaced.
    depth: u64,
    /// 1: items are sent here; 0: they are received.
    sends: u64,
}

probe! {
    /// `end` (an `EndRecord`) was created: whatever was at this address before is gone.
    onbeat_link_init(end) = 5
}
probe! {
    /// `end` is no more.
    onbeat_link_fini(end) = 6
}
probe! {
    /// The item of this number is sent at `end`.
    onbeat_link_send(end, number) = 7
}
probe! {
    /// The item of this number was received at `end`.
    onbeat_link_receive(end, number) = 8
}

/// An end of a link, as a recorder sees it; the default is one that no recorder sees.
///
/// Real-time: one relaxed load, and a call of an empty function while somebody records. No
/// allocation after it was made, no lock.
#[derive(Debug, Default)]
pub struct EndEvents(Option<End>);

#[derive(Debug)]
struct End {
    /// Boxed: its address is its handle, and must not change.
    record: Box<EndRecord>,
    /// The record refers to it.
    _name: CString,
}

impl EndEvents {
    /// Where items are sent into this link, of which so many wait before one is replaced.
    pub fn sending(link: &LinkId, depth: usize) -> EndEvents {
        EndEvents::new(link, depth, true)
    }

    /// Where items are received from this link.
    pub fn receiving(link: &LinkId, depth: usize) -> EndEvents {
        EndEvents::new(link, depth, false)
    }

    fn new(link: &LinkId, depth: usize, sends: bool) -> EndEvents {
        watch::mark();
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

    /// The item of this number is sent: to be called before anybody can receive it.
    #[inline]
    pub fn sent(&self, number: u64) {
        if let Some(end) = self.0.as_ref().filter(|_| watch::is_watched()) {
            onbeat_link_send(address(&*end.record), number);
        }
    }

    /// The item of this number was received: to be called before it is used.
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
