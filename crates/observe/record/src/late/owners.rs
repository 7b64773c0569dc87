//! Finds the node that owns each endpoint, in a process that ran before the recording.
//!
//! No rcl struct of an endpoint names its node. The client library's object of the endpoint does:
//! it holds the rcl handles of both. The layout of this object is unknown, but it is the same for
//! all endpoints of one kind in a process.
//!
//! So onbeat searches the heaps for the endpoints' handles, and learns the distance at which a
//! node's handle lies beside each of them. It recognises a node's handle by its shape: behind it is
//! the public `rmw_node_t`, with the middleware's identifier, a name and a namespace.
//!
//! For an endpoint that no wait set names, only the rmw struct is known. The search then takes one
//! more step back: from the rmw struct to the private struct that points to it, and from there to
//! the rcl handle.

use super::{find_rmw, Memory, RCL_STRUCT_WORDS};
use crate::names::node_name;
use onbeat_trace::EndpointKind;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The number of words before and after an endpoint's handle in which the search looks for a node's
/// handle.
const AROUND_WORDS: i64 = 32;

const NODE_STRUCT_WORDS: u64 = 64;

const MAX_SEARCHED_BYTES: u64 = 1 << 30;

/// The largest number of matching words in memory that a search accepts. If there are more, the
/// search returns nothing: a ROS 2 process never has that many.
const MAX_SITES: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    kind: u8,
    /// The rcl handle, or 0 if only the rmw handle is known.
    pub rcl: u64,
    pub rmw: u64,
}

impl Target {
    pub fn new(endpoint: EndpointKind, rcl: u64, rmw: u64) -> Target {
        let kind = match endpoint {
            EndpointKind::Publisher => 0,
            EndpointKind::Subscription => 1,
            EndpointKind::Service => 2,
            EndpointKind::Client => 3,
        };
        Target { kind, rcl, rmw }
    }

    pub fn is_more_of(&self, by_rmw: &Target) -> bool {
        (self.kind, self.rmw) == (by_rmw.kind, by_rmw.rmw) && self.rcl != 0
    }

    pub fn endpoint(&self) -> EndpointKind {
        match self.kind {
            0 => EndpointKind::Publisher,
            1 => EndpointKind::Subscription,
            2 => EndpointKind::Service,
            _ => EndpointKind::Client,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub target: Target,
    pub rcl: u64,
    pub node: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The full names of the process's nodes. A node whose endpoints were found also has its rcl
    /// handle.
    pub nodes: Vec<(Option<u64>, String)>,
    pub owners: Vec<Owner>,
}

/// A possible rcl handle of an endpoint, at the address `at`. The handle points to rcl's private
/// `impl` struct. The `impl` struct has a pointer to the endpoint's rmw struct, `words` machine
/// words after the start of the `impl` struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    target: usize,
    words: u64,
    at: u64,
}

/// A guessed memory layout, as two distances in machine words. The first distance is the offset of
/// the rmw pointer in rcl's private `impl` struct. The second distance leads from an endpoint's
/// handle to the handle of the endpoint's node.
type Layout = (u64, i64);

/// The pairs of node handle and endpoint handle that were found, by layout and by the endpoint's
/// index.
type Votes = BTreeMap<Layout, BTreeMap<usize, BTreeSet<(u64, u64)>>>;

pub fn search(memory: &impl Memory, targets: &[Target]) -> Found {
    let size: u64 = memory.regions().iter().map(|r| r.end - r.start).sum();
    if size > MAX_SEARCHED_BYTES {
        return Found::default();
    }
    let identifiers = targets.iter().filter_map(|t| memory.word(t.rmw));
    let identifiers: HashSet<u64> = identifiers.filter(|&i| i >= 4096).collect();
    let unknown: HashMap<u64, usize> = (targets.iter().enumerate())
        .filter(|(_, t)| t.rcl == 0)
        .map(|(i, t)| (t.rmw, i))
        .collect();
    let first = sites(memory, |w| {
        identifiers.contains(&w) || unknown.contains_key(&w)
    });
    let mut nodes = Nodes::default();
    let mut inside = Vec::new();
    for (at, word) in first {
        match unknown.get(&word) {
            Some(&target) => inside.push((at, target)),
            None => nodes.add_if_node(memory, at),
        }
    }
    let mut found = Found::default();
    if nodes.names.len() > 1 {
        let mut holders = holders(memory, targets, inside);
        let known = targets.iter().enumerate().filter(|(_, t)| t.rcl != 0);
        holders.extend(known.map(|(target, t)| Holder {
            target,
            words: 0,
            at: t.rcl,
        }));
        found.owners = owners(memory, targets, &holders, &mut nodes);
    }
    found.nodes = nodes.with_handles(&found.owners);
    found
}

/// Returns the words in the process's heaps that `wanted` accepts, each with its address. Returns
/// nothing if there are more than [`MAX_SITES`].
fn sites(memory: &impl Memory, wanted: impl Fn(u64) -> bool) -> Vec<(u64, u64)> {
    let mut sites = Vec::new();
    let mut buffer = vec![0; 256 * 1024];
    for region in memory.regions() {
        let mut at = region.start;
        while at < region.end {
            let length = (region.end - at).min(buffer.len() as u64);
            let piece = &mut buffer[..length as usize];
            if memory.read(at, piece) {
                let words = piece.chunks_exact(8).enumerate();
                let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
                let words = words.map(|(i, bytes)| (at + 8 * i as u64, word(bytes)));
                sites.extend(words.filter(|&(_, w)| w >= 4096 && wanted(w)));
            }
            if sites.len() > MAX_SITES {
                return Vec::new();
            }
            at += length;
        }
    }
    sites
}

#[derive(Default)]
struct Nodes {
    names: BTreeMap<u64, String>,
    /// The addresses that may be rcl handles of nodes. A node's handle points to a private struct,
    /// and this struct points to the node's rmw struct. Each value lists the private struct's
    /// pointers to rmw structs of nodes: the pointer's offset in words, and the address of the rmw
    /// struct. The list is empty if the address is not a node's handle.
    handles: HashMap<u64, Vec<(u64, u64)>>,
    place: Option<u64>,
}

impl Nodes {
    fn add_if_node(&mut self, memory: &impl Memory, at: u64) {
        let text = |words: u64| memory.text(memory.word(at + 8 * words)?);
        let (Some(name), Some(namespace)) = (text(2), text(3)) else {
            return;
        };
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let named = !name.is_empty() && name.chars().all(part);
        if named && namespace.starts_with('/') && namespace.chars().all(|c| part(c) || c == '/') {
            self.names.insert(at, node_name(&namespace, &name));
        }
    }

    /// Returns whether an address may be a node's rcl handle. `rcl_node_t` contains a context and a
    /// pointer to a private struct.
    fn may_be_handle(&mut self, memory: &impl Memory, handle: u64) -> bool {
        if handle < 4096 || !handle.is_multiple_of(8) {
            return false;
        }
        if let Some(known) = self.handles.get(&handle) {
            return !known.is_empty();
        }
        let inside = (|| {
            let context = memory.word(handle).filter(|&c| c >= 4096)?;
            let private = memory
                .word(handle.wrapping_add(8))
                .filter(|&p| p >= 4096 && p.is_multiple_of(8))?;
            memory.word(context)?;
            let word = |i| Some((i, memory.word(private.checked_add(8 * i)?)?));
            let words = (0..NODE_STRUCT_WORDS).map_while(word);
            Some(words.filter(|w| self.names.contains_key(&w.1)).collect())
        })();
        let inside: Vec<(u64, u64)> = inside.unwrap_or_default();
        let may_be = !inside.is_empty();
        self.handles.insert(handle, inside);
        may_be
    }

    fn rmw_of_handle(&self, handle: u64) -> Option<u64> {
        let mut inside = self.handles.get(&handle)?.iter();
        Some(inside.find(|w| Some(w.0) == self.place)?.1)
    }

    /// Picks the nodes' rcl handles from the candidates in `votes`. In the private structs of all
    /// nodes, the pointer to the rmw struct has the same offset. A candidate with another offset
    /// belongs to another kind of object, which happens to lie before a node's private struct. If a
    /// node has several candidates, picks the one that was found near most endpoints.
    fn real_handles<'v>(&mut self, votes: impl Iterator<Item = &'v Votes>) -> BTreeSet<u64> {
        let mut count: BTreeMap<u64, usize> = BTreeMap::new();
        for (handle, _) in votes
            .flat_map(BTreeMap::values)
            .flat_map(BTreeMap::values)
            .flatten()
        {
            *count.entry(*handle).or_default() += 1;
        }
        let mut places: BTreeMap<u64, (BTreeSet<u64>, usize)> = BTreeMap::new();
        for (handle, n) in &count {
            for &(words, rmw) in self.handles.get(handle).into_iter().flatten() {
                let place = places.entry(words).or_default();
                place.0.insert(rmw);
                place.1 += n;
            }
        }
        let best = places
            .iter()
            .max_by_key(|(_, (nodes, n))| (nodes.len(), *n));
        self.place = best.map(|(&words, _)| words);
        let mut best: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for (&handle, &n) in &count {
            if let Some(rmw) = self.rmw_of_handle(handle) {
                let best = best.entry(rmw).or_default();
                *best = (*best).max((n, handle));
            }
        }
        best.into_values().map(|(_, handle)| handle).collect()
    }

    fn with_handles(&self, owners: &[Owner]) -> Vec<(Option<u64>, String)> {
        let handles: BTreeSet<u64> = owners.iter().map(|o| o.node).collect();
        let rmw_of = |handle: &u64| self.rmw_of_handle(*handle);
        let mut list = Vec::new();
        for (rmw, name) in &self.names {
            let mut own = handles
                .iter()
                .filter(|h| rmw_of(h) == Some(*rmw))
                .peekable();
            if own.peek().is_none() {
                list.push((None, name.clone()));
            }
            list.extend(own.map(|&handle| (Some(handle), name.clone())));
        }
        list
    }
}

fn holders(memory: &impl Memory, targets: &[Target], mut inside: Vec<(u64, usize)>) -> Vec<Holder> {
    if inside.is_empty() {
        return Vec::new();
    }
    inside.sort_unstable();
    // Returns the places that a struct reaches if it starts at `word`.
    let behind = |word: u64| {
        let first = inside.partition_point(|&(at, _)| at < word);
        let reached = move |&&(at, _): &&(u64, usize)| at - word < 8 * RCL_STRUCT_WORDS;
        inside[first..].iter().take_while(reached)
    };
    let pointers = sites(memory, |w| {
        w.is_multiple_of(8) && behind(w).next().is_some()
    });
    let mut holders: BTreeSet<Holder> = BTreeSet::new();
    for (at, word) in pointers {
        let reached = behind(word).map(|&(place, target)| Holder {
            target,
            words: (place - word) / 8,
            at,
        });
        let same = |h: &Holder| find_rmw(memory, at).is_some_and(|r| r.0 == targets[h.target].rmw);
        holders.extend(reached.filter(same));
    }
    holders.into_iter().collect()
}

fn owners(
    memory: &impl Memory,
    targets: &[Target],
    holders: &[Holder],
    nodes: &mut Nodes,
) -> Vec<Owner> {
    let mut by_address: HashMap<u64, Vec<&Holder>> = HashMap::new();
    for holder in holders {
        by_address.entry(holder.at).or_default().push(holder);
    }
    let mut votes: BTreeMap<u8, Votes> = BTreeMap::new();
    for (site, word) in sites(memory, |w| by_address.contains_key(&w)) {
        for (distance, handle) in words_around(memory, site) {
            if !nodes.may_be_handle(memory, handle) {
                continue;
            }
            for holder in &by_address[&word] {
                let layouts = votes.entry(targets[holder.target].kind).or_default();
                let layout = layouts.entry((holder.words, distance)).or_default();
                let seen = layout.entry(holder.target).or_default();
                seen.insert((handle, holder.at));
            }
        }
    }
    let real = nodes.real_handles(votes.values());
    let mut owners = Vec::new();
    for (kind, votes) in &mut votes {
        drop_votes_for_others(votes, &real);
        let endpoints = targets.iter().filter(|t| t.kind == *kind).count();
        for (target, (node, rcl)) in elect(votes, endpoints) {
            owners.push(Owner {
                target: targets[target],
                rcl,
                node,
            });
        }
    }
    owners
}

fn drop_votes_for_others(votes: &mut Votes, real: &BTreeSet<u64>) {
    for layout in votes.values_mut() {
        for seen in layout.values_mut() {
            seen.retain(|(handle, _)| real.contains(handle));
        }
        layout.retain(|_, seen| !seen.is_empty());
    }
    votes.retain(|_, layout| !layout.is_empty());
}

fn words_around(memory: &impl Memory, site: u64) -> Vec<(i64, u64)> {
    let mut bytes = [0; 8 * (2 * AROUND_WORDS as usize + 1)];
    let start = site.wrapping_add_signed(-8 * AROUND_WORDS);
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    if memory.read(start, &mut bytes) {
        let words = bytes.chunks_exact(8).map(word);
        return (-AROUND_WORDS..).zip(words).filter(|w| w.0 != 0).collect();
    }
    let near = (-AROUND_WORDS..=AROUND_WORDS).filter(|&d| d != 0);
    near.filter_map(|d| Some((d, memory.word(site.wrapping_add_signed(8 * d))?)))
        .collect()
}

/// Chooses the memory layouts that fit the most endpoints. Returns the index of each endpoint, with
/// the node's handle and the endpoint's rcl handle by these layouts. Leaves out endpoints for which
/// these layouts disagree. If there are several `endpoints` of a kind, a layout that fits only one
/// of them counts as chance, because some node's handle always lies near an endpoint.
fn elect(votes: &Votes, endpoints: usize) -> Vec<(usize, (u64, u64))> {
    let most = votes.values().map(BTreeMap::len).max().unwrap_or(0);
    if most == 1 && endpoints > 1 {
        return Vec::new();
    }
    let mut seen: BTreeMap<usize, BTreeSet<(u64, u64)>> = BTreeMap::new();
    for layout in votes.values().filter(|v| v.len() == most) {
        for (&target, nodes) in layout {
            seen.entry(target).or_default().extend(nodes);
        }
    }
    let only = |(target, nodes): (usize, BTreeSet<(u64, u64)>)| {
        let mut nodes = nodes.into_iter();
        let first = nodes.next()?;
        nodes.next().is_none().then_some((target, first))
    };
    seen.into_iter().filter_map(only).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Image;
    use super::*;

    const IDENTIFIER: u64 = 5000 / 8 * 8;
    const CONTEXT: u64 = 5200;

    struct Process {
        image: Image,
        free: u64,
        nodes: Vec<u64>,
    }

    impl Process {
        fn new() -> Process {
            let mut image = Image::new();
            image.put(IDENTIFIER, b"rmw_x\0");
            image.word_at(CONTEXT, 1);
            let mut process = Process {
                image,
                free: 8192,
                nodes: Vec::new(),
            };
            process.nodes = ["a", "b"].map(|name| process.node(name)).into();
            process
        }

        fn take(&mut self, words: u64) -> u64 {
            self.free += 8 * words;
            self.free - 8 * words
        }

        fn text(&mut self, text: &str) -> u64 {
            let at = self.take(8);
            self.image.put(at, text.as_bytes());
            at
        }

        fn rmw(&mut self, texts: &[&str]) -> u64 {
            let texts: Vec<u64> = texts.iter().map(|t| self.text(t)).collect();
            let at = self.take(8);
            self.image.word_at(at, IDENTIFIER);
            for (i, text) in texts.into_iter().enumerate() {
                self.image.word_at(at + 16 + 8 * i as u64, text);
            }
            at
        }

        fn node(&mut self, name: &str) -> u64 {
            let rmw = self.rmw(&[name, "/"]);
            let (private, rcl) = (self.take(16), self.take(2));
            self.image.word_at(private + 8 * 9, rmw);
            self.image.word_at(rcl, CONTEXT);
            self.image.word_at(rcl + 8, private);
            rcl
        }

        fn endpoint(&mut self, node: u64, distance: u64, name: &str) -> (u64, u64) {
            let rmw = self.rmw(&[name]);
            let (private, rcl) = (self.take(16), self.take(1));
            self.image.word_at(private + 8 * 11, rmw);
            self.image.word_at(rcl, private);
            let object = self.take(80);
            self.image.word_at(object + 8 * 40, node);
            self.image.word_at(object + 8 * (40 + distance), rcl);
            (rcl, rmw)
        }
    }

    #[test]
    fn the_layout_that_holds_for_all_endpoints_of_a_kind_shows_their_nodes() {
        for with_rcl in [true, false] {
            let mut p = Process::new();
            let nodes = p.nodes.clone();
            let mut targets = Vec::new();
            let mut expected = Vec::new();
            for (i, distance) in [(0, 2), (1, 2), (0, 2), (1, 2)] {
                let (rcl, rmw) = p.endpoint(nodes[i], distance, "/t");
                let asked = if with_rcl { rcl } else { 0 };
                let target = Target::new(EndpointKind::Subscription, asked, rmw);
                targets.push(target);
                let node = nodes[i];
                expected.push(Owner { target, rcl, node });
            }
            let found = search(&p.image, &targets);
            assert_eq!(found.owners, expected);
            let named = [(Some(nodes[0]), "/a".into()), (Some(nodes[1]), "/b".into())];
            assert_eq!(found.nodes, named);
        }
    }

    #[test]
    fn a_pointer_before_a_nodes_private_struct_is_not_a_nodes_handle() {
        let mut p = Process::new();
        let nodes = p.nodes.clone();
        // Beside each endpoint of the first node, another struct looks like a node's handle.
        let private = p.image.word(nodes[0] + 8).unwrap();
        let decoy = p.take(2);
        p.image.word_at(decoy, CONTEXT);
        p.image.word_at(decoy + 8, private - 8 * 4);
        let mut targets = Vec::new();
        let mut expected = Vec::new();
        for i in [0, 1, 0] {
            let (rcl, rmw) = p.endpoint(nodes[i], 2, "/t");
            if i == 0 {
                let object = p.free - 8 * 80;
                p.image.word_at(object + 8 * 45, decoy);
            }
            let target = Target::new(EndpointKind::Subscription, rcl, rmw);
            targets.push(target);
            let node = nodes[i];
            expected.push(Owner { target, rcl, node });
        }
        assert_eq!(search(&p.image, &targets).owners, expected);
    }

    #[test]
    fn an_endpoint_beside_two_nodes_has_no_owner() {
        let mut p = Process::new();
        let nodes = p.nodes.clone();
        let (rcl, rmw) = p.endpoint(nodes[0], 2, "/t");
        // Another object of the same layout names the other node.
        let object = p.take(80);
        p.image.word_at(object + 8 * 40, nodes[1]);
        p.image.word_at(object + 8 * 42, rcl);
        let target = Target::new(EndpointKind::Publisher, rcl, rmw);
        let found = search(&p.image, &[target]);
        assert_eq!(found.owners, []);
        let named = [(None, "/a".into()), (None, "/b".into())];
        assert_eq!(found.nodes, named);
    }

    #[test]
    fn a_nodes_handle_beside_only_one_of_several_endpoints_does_not_count() {
        let mut p = Process::new();
        let nodes = p.nodes.clone();
        // The client library's objects hold no nodes, but one lies beside another object that does.
        let mut targets: Vec<Target> = Vec::new();
        for i in 0..4 {
            let (rcl, rmw) = p.endpoint(if i == 0 { nodes[1] } else { 0 }, 2, "/t");
            targets.push(Target::new(EndpointKind::Service, rcl, rmw));
        }
        assert_eq!(search(&p.image, &targets).owners, []);
        let mut owners = Vec::new();
        owners.extend(
            search(&p.image, &targets[..1])
                .owners
                .iter()
                .map(|o| o.node),
        );
        assert_eq!(owners, [nodes[1]]);
    }

    #[test]
    fn a_process_with_one_node_needs_no_search_for_owners() {
        let mut image = Image::new();
        image.put(IDENTIFIER, b"rmw_x\0");
        let mut p = Process {
            image,
            free: 8192,
            nodes: Vec::new(),
        };
        let rmw = p.rmw(&["only", "/ns"]);
        let endpoint = p.rmw(&["/t"]);
        assert_ne!(rmw, endpoint);
        let target = Target::new(EndpointKind::Publisher, 0, endpoint);
        let found = search(&p.image, &[target]);
        assert_eq!(found.nodes, [(None, "/ns/only".into())]);
        assert_eq!(found.owners, []);
    }

    #[test]
    fn empty_memory_shows_no_nodes_and_owners() {
        let target = Target::new(EndpointKind::Client, 0x1234_5678, 0xdead_0000);
        assert_eq!(search(&Image::new(), &[target]), Found::default());
    }
}
