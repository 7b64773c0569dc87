//! The graph while it is placed: boxes, nets and tracks, and the forces between them.

use super::rank::{self, Line};
use super::{CALLBACK_GAP, CALLBACK_HEIGHT, LABEL_STEP, PAD, SYNC_SIZE, TITLE_HEIGHT};
use onbeat_document::schema::{CallbackType, Model};
use std::collections::{BTreeMap, HashMap};

/// An item that takes vertical space in a rank: the box of a node, or the track of a net.
#[derive(Clone)]
pub(super) enum Item {
    Cluster(usize),
    Track(usize),
}

pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) first: usize,
    pub(super) last: usize,
    /// The callbacks in each rank of this cluster (the box of a node), beginning with rank `first`.
    /// Each list is ordered from top to bottom.
    pub(super) columns: Vec<Vec<usize>>,
}

pub(super) struct Track {
    pub(super) net: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

pub(super) struct Plan<'a> {
    pub(super) model: &'a Model,
    pub(super) rank: Vec<usize>,
    pub(super) ranks: usize,
    pub(super) lines: Vec<Line>,
    pub(super) nets: Vec<NetPlan>,
    pub(super) outs: Vec<Vec<usize>>,
    pub(super) clusters: Vec<Cluster>,
    pub(super) cluster_of: Vec<usize>,
    pub(super) tracks: Vec<Track>,
    /// The distance of each callback's middle from the top of its cluster (the box of its node), in
    /// pixels.
    pub(super) inner: Vec<f64>,
    pub(super) height: Vec<f64>,
    pub(super) pulls: Vec<(Port, Port, f64)>,
}

pub(super) struct NetPlan {
    pub(super) source: usize,
    pub(super) topic: String,
    pub(super) lines: Vec<usize>,
    pub(super) forward: Option<usize>,
    pub(super) backward: Option<usize>,
    pub(super) labelled: bool,
}

/// A point at which a wire ends. The wire is straight if both of its ends have the same height.
#[derive(Clone, Copy)]
pub(super) enum Port {
    Out(usize),
    In(usize),
    Track(usize),
}

impl NetPlan {
    fn new(source: usize, topic: &str) -> Self {
        NetPlan {
            source,
            topic: topic.into(),
            lines: Vec::new(),
            forward: None,
            backward: None,
            labelled: false,
        }
    }
}

impl<'a> Plan<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        let n = model.callbacks.len();
        let (names, cluster_of) = nodes(model);
        let lines = rank::lines(model);
        let rank = rank::ranks(model, &lines, &cluster_of);
        let mut plan = Plan {
            model,
            ranks: rank.iter().max().map_or(0, |r| r + 1),
            clusters: clusters(&names, &cluster_of, &rank),
            rank,
            lines,
            nets: Vec::new(),
            outs: vec![Vec::new(); n],
            cluster_of,
            tracks: Vec::new(),
            inner: vec![0.0; n],
            height: Vec::new(),
            pulls: Vec::new(),
        };
        plan.make_nets();
        plan.make_tracks();
        plan.make_pulls();
        plan.stack_callbacks();
        plan
    }

    fn make_nets(&mut self) {
        let model = self.model;
        let mut of: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        for (i, l) in self.lines.iter().enumerate() {
            let topic = model.edges[l.edge].topic.as_str();
            let net = *of.entry((l.from, topic)).or_insert_with(|| {
                self.nets.push(NetPlan::new(l.from, topic));
                self.nets.len() - 1
            });
            self.nets[net].lines.push(i);
            // An edge into a synchroniser has the input's topic, which the input's label already
            // shows.
            self.nets[net].labelled |= model.callbacks[l.to].kind != CallbackType::Sync
                || self.cluster_of[l.from] != self.cluster_of[l.to];
        }
        for (source, callback) in model.callbacks.iter().enumerate() {
            // The synchroniser's circle, not its members, shows the published topic.
            let into_sync = |l: &Line| model.callbacks[l.to].kind == CallbackType::Sync;
            let mut lines = self.lines.iter();
            if lines.any(|l| l.from == source && into_sync(l)) {
                continue;
            }
            for topic in &callback.outputs {
                if !of.contains_key(&(source, topic.as_str())) {
                    let mut net = NetPlan::new(source, topic);
                    net.labelled = true;
                    self.nets.push(net);
                }
            }
        }
        for (i, net) in self.nets.iter().enumerate() {
            self.outs[net.source].push(i);
        }
    }

    fn make_tracks(&mut self) {
        for (i, net) in self.nets.iter_mut().enumerate() {
            let start = self.rank[net.source];
            let ends = |back: bool| {
                let lines = net.lines.iter().map(|&l| &self.lines[l]);
                lines
                    .filter(move |l| l.back == back)
                    .map(|l| self.rank[l.to])
            };
            let (furthest, first_back) = (ends(false).max(), ends(true).min());
            if let Some(last) = furthest.filter(|&last| last > start + 1) {
                net.forward = Some(self.tracks.len());
                self.tracks.push(Track {
                    net: i,
                    first: start + 1,
                    last: last - 1,
                });
            }
            if let Some(to) = first_back {
                net.backward = Some(self.tracks.len());
                self.tracks.push(Track {
                    net: i,
                    first: to.min(start),
                    last: to.max(start),
                });
            }
        }
    }

    fn make_pulls(&mut self) {
        let mut pulls = Vec::new();
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            for track in [net.forward, net.backward].into_iter().flatten() {
                pulls.push((Port::Out(i), Port::Track(track), 1.5));
            }
            for &l in &net.lines {
                let line = &self.lines[l];
                let from = match (line.back, net.forward, net.backward) {
                    (true, _, Some(track)) => Port::Track(track),
                    (false, Some(track), _) if self.rank[line.to] > start + 1 => Port::Track(track),
                    _ => Port::Out(i),
                };
                let weight = if line.back { 0.3 } else { 1.0 };
                pulls.push((from, Port::In(line.to), weight));
            }
        }
        self.pulls = pulls;
    }

    pub(super) fn callback_height(&self, v: usize) -> f64 {
        let labels = self.outs[v]
            .iter()
            .filter(|&&n| self.nets[n].labelled)
            .count();
        let own = if self.model.callbacks[v].kind == CallbackType::Sync {
            SYNC_SIZE
        } else {
            CALLBACK_HEIGHT
        };
        own.max(LABEL_STEP * labels as f64)
    }

    pub(super) fn stack_callbacks(&mut self) {
        self.height = vec![0.0; self.clusters.len()];
        for (i, c) in self.clusters.iter().enumerate() {
            let heights: Vec<f64> = c
                .columns
                .iter()
                .map(|col| {
                    col.iter()
                        .map(|&v| self.callback_height(v) + CALLBACK_GAP)
                        .sum::<f64>()
                        - CALLBACK_GAP
                })
                .collect();
            let tallest = heights.iter().copied().fold(CALLBACK_HEIGHT, f64::max);
            self.height[i] = TITLE_HEIGHT + tallest + PAD;
            for (col, h) in c.columns.iter().zip(&heights) {
                let mut y = TITLE_HEIGHT + (tallest - h) / 2.0;
                for &v in col {
                    let own = self.callback_height(v);
                    self.inner[v] = y + own / 2.0;
                    y += own + CALLBACK_GAP;
                }
            }
        }
    }

    pub(super) fn items(&self) -> Vec<Item> {
        (0..self.clusters.len())
            .map(Item::Cluster)
            .chain((0..self.tracks.len()).map(Item::Track))
            .collect()
    }

    pub(super) fn extent(&self, item: &Item) -> (usize, usize, f64) {
        match *item {
            Item::Cluster(c) => (
                self.clusters[c].first,
                self.clusters[c].last,
                self.height[c],
            ),
            Item::Track(l) => (self.tracks[l].first, self.tracks[l].last, 2.0),
        }
    }

    pub(super) fn place(&self, port: Port) -> (usize, f64) {
        match port {
            Port::In(v) => (self.cluster_of[v], self.inner[v]),
            Port::Out(net) => {
                let v = self.nets[net].source;
                (self.cluster_of[v], self.inner[v] + self.out_offset(net))
            }
            Port::Track(l) => (self.clusters.len() + l, 1.0),
        }
    }

    fn out_offset(&self, net: usize) -> f64 {
        let v = self.nets[net].source;
        let labelled: Vec<usize> = self.outs[v]
            .iter()
            .copied()
            .filter(|&n| self.nets[n].labelled)
            .collect();
        match labelled.iter().position(|&n| n == net) {
            Some(k) => LABEL_STEP * (k as f64 - (labelled.len() as f64 - 1.0) / 2.0),
            None => 0.0,
        }
    }
}

fn nodes(model: &Model) -> (Vec<&str>, Vec<usize>) {
    let mut names: Vec<&str> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let node = |name| {
        *by_name.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        })
    };
    let nodes = model.callbacks.iter().map(|c| c.node.as_str()).map(node);
    let cluster_of = nodes.collect();
    (names, cluster_of)
}

fn clusters(names: &[&str], cluster_of: &[usize], rank: &[usize]) -> Vec<Cluster> {
    let empty = |name: &&str| Cluster {
        name: name.to_string(),
        first: usize::MAX,
        last: 0,
        columns: Vec::new(),
    };
    let mut clusters: Vec<Cluster> = names.iter().map(empty).collect();
    for (&c, &rank) in cluster_of.iter().zip(rank) {
        let c = &mut clusters[c];
        c.first = c.first.min(rank);
        c.last = c.last.max(rank);
    }
    for c in &mut clusters {
        c.columns = vec![Vec::new(); c.last - c.first + 1];
    }
    for (v, (&c, &rank)) in cluster_of.iter().zip(rank).enumerate() {
        let c = &mut clusters[c];
        c.columns[rank - c.first].push(v);
    }
    clusters
}
