//! Places a model's graph on a plane: ROS nodes as boxes, callbacks inside, wires left to right.
//!
//! A layered layout after Sugiyama, with three twists that keep it readable. Ranks belong to
//! callbacks and a node's box spans the ranks of its callbacks, so the graph flows in one
//! direction although nodes call each other back and forth. All edges that leave a callback by one
//! topic are one *net*: one label beside the callback, one line that branches. A net that passes
//! over ranks runs on a straight lane of its own, which is placed like a box, so that no line
//! crosses a box or a label.

use crate::schema::{Callback, CallbackType, JunctionKind, Model};
use crate::text;
use std::collections::{BTreeMap, HashMap};

/// Least and greatest width of a callback's box.
const CALLBACK_WIDTH: (f64, f64) = (96.0, 172.0);
/// Height of a callback's box.
const CALLBACK_HEIGHT: f64 = 36.0;
/// Diameter of a synchroniser's circle.
pub const SYNC_SIZE: f64 = 28.0;
/// Height of a node's title.
pub const TITLE_HEIGHT: f64 = 20.0;
/// Room between a node's box and its callbacks.
pub const PAD: f64 = 10.0;
/// Distance of two labels of one callback.
const LABEL_STEP: f64 = 15.0;
/// Font size of labels.
pub const LABEL_FONT: f64 = 10.5;
/// Longest label.
const LABEL_LIMIT: f64 = 144.0;
/// Gap between callbacks of one box.
const CALLBACK_GAP: f64 = 8.0;
/// Margin around everything.
const MARGIN: f64 = 14.0;
/// Weight with which everything is drawn towards the middle; a wire's is about 1.
const GRAVITY: f64 = 0.4;
/// What a pixel of height costs, against one of a wire's length.
const HEIGHT_COST: f64 = 3.0;
/// Moves that the search for a good order may try, times items: keeps large graphs fast.
const SEARCH_BUDGET: usize = 3_000_000;

/// A placed rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rect {
    /// Left.
    pub x: f64,
    /// Top.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
}

/// A ROS node's box.
#[derive(Debug, Clone)]
pub struct NodeBox {
    /// Node's full name (untrusted).
    pub name: String,
    /// Where.
    pub rect: Rect,
    /// Width that its title may take.
    pub title_width: f64,
}

/// A callback's box.
#[derive(Debug, Clone)]
pub struct CallbackBox {
    /// Index into the model's callbacks.
    pub callback: usize,
    /// Where.
    pub rect: Rect,
    /// Junction to be marked at it.
    pub junction: Option<JunctionKind>,
}

/// A line of a net, as SVG path data.
#[derive(Debug, Clone)]
pub struct Wire {
    /// Indices into the model's edges that the line stands for.
    pub edges: Vec<usize>,
    /// Path data.
    pub path: String,
    /// Ends at a callback, so it has an arrow head.
    pub arrow: bool,
}

/// What leaves a callback by one topic.
#[derive(Debug, Clone)]
pub struct Net {
    /// Index of the callback that publishes.
    pub source: usize,
    /// Topic (untrusted).
    pub topic: String,
    /// What stands on the label: the topic, relative to its node (untrusted).
    pub text: String,
    /// Place of the label: left end, base line's middle; `None` where a label would say nothing.
    pub label: Option<(f64, f64)>,
    /// Width that the label may take.
    pub label_width: f64,
    /// Lines.
    pub wires: Vec<Wire>,
}

/// A placed graph.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Width of everything.
    pub width: f64,
    /// Height of everything.
    pub height: f64,
    /// Boxes of nodes.
    pub nodes: Vec<NodeBox>,
    /// Boxes of callbacks.
    pub callbacks: Vec<CallbackBox>,
    /// Nets.
    pub nets: Vec<Net>,
}

/// How much wider bold text is.
pub const TITLE_BOLD: f64 = 1.06;

/// The two lines in a callback's box: what it waits for, and its figures (empty without any).
pub fn captions(callback: &Callback) -> (String, String) {
    let caption = match callback.kind {
        CallbackType::Timer => match callback.period_ns {
            Some(p) => format!("timer {}", text::period(p)),
            None => "timer".into(),
        },
        CallbackType::Subscription => callback.input.clone(),
        CallbackType::Service => match &callback.caller {
            Some(caller) => format!("{} for {caller}", callback.input),
            None => callback.input.clone(),
        },
        CallbackType::Client => format!("answer of {}", callback.input),
        CallbackType::Sync => "synchroniser".into(),
    };
    let e = &callback.figures.exec_ns;
    if e.count() == 0 {
        return (caption, String::new());
    }
    let times = text::range(e.min() as f64, e.mean(), e.max() as f64);
    (
        caption,
        format!("{times} · {}", text::percent(callback.figures.load)),
    )
}

/// About how wide a text is in a sans-serif font, from above.
pub fn text_width(text: &str, font_size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '\'' | '|' => 0.28,
            'f' | 't' | 'I' | '.' | ',' | ':' | ';' | '!' | '/' | '\\' | '[' | ']' | ' ' => 0.35,
            'r' | '(' | ')' | '-' | '"' => 0.41,
            'm' | 'M' | '%' | '@' => 0.95,
            'w' | 'W' => 0.86,
            'A'..='Z' | '…' | '&' => 0.72,
            c if c.is_ascii() => 0.59,
            c if (c as u32) < 0x1100 => 0.68,
            _ => 1.0,
        })
        .sum();
    em * font_size
}

/// The text in at most that width, by an ellipsis in its middle.
pub fn fit_text(name: &str, font_size: f64, width: f64) -> String {
    let name = text::visible(name);
    if text_width(&name, font_size) <= width {
        return name;
    }
    // Bounded, however long a name is: nothing shows more characters than this anyway.
    let mut limit = name
        .chars()
        .count()
        .min((width / (0.28 * font_size)).ceil().max(1.0) as usize);
    loop {
        let short = text::shorten(&name, limit);
        if text_width(&short, font_size) <= width || limit <= 1 {
            return short;
        }
        limit -= 1;
    }
}

/// A wire of the graph while it is placed.
struct Line {
    from: usize,
    to: usize,
    edge: usize,
    /// Against the flow: part of a loop.
    back: bool,
}

/// What takes vertical room: a node's box, or a lane of a net.
#[derive(Clone)]
enum Item {
    /// Index into `clusters`.
    Cluster(usize),
    /// Index into `lanes`.
    Lane(usize),
}

struct Cluster {
    name: String,
    first: usize,
    last: usize,
    /// Callbacks by rank, counted from `first`, top to bottom.
    columns: Vec<Vec<usize>>,
}

struct Lane {
    net: usize,
    first: usize,
    last: usize,
    back: bool,
}

/// The graph's state while it is placed.
struct Placing<'a> {
    model: &'a Model,
    rank: Vec<usize>,
    ranks: usize,
    lines: Vec<Line>,
    nets: Vec<NetPlan>,
    /// For each callback its nets, top to bottom.
    outs: Vec<Vec<usize>>,
    clusters: Vec<Cluster>,
    cluster_of: Vec<usize>,
    lanes: Vec<Lane>,
    /// Offset of each callback's middle from the top of its cluster.
    inner: Vec<f64>,
    height: Vec<f64>,
    /// Who pulls on whom, with weights; port ids as in `Port`.
    pulls: Vec<(Port, Port, f64)>,
}

struct NetPlan {
    source: usize,
    topic: String,
    lines: Vec<usize>,
    forward: Option<usize>,
    backward: Option<usize>,
    labelled: bool,
}

/// Something with a height on the plane.
#[derive(Clone, Copy)]
enum Port {
    /// Where a net leaves its callback.
    Out(usize),
    /// Where wires enter a callback.
    In(usize),
    /// A lane.
    Lane(usize),
}

/// Lays the graph out.
pub fn layout(model: &Model) -> Layout {
    if model.callbacks.is_empty() {
        return Layout {
            width: 2.0 * MARGIN,
            height: 2.0 * MARGIN,
            ..Layout::default()
        };
    }
    let mut placing = Placing::new(model);
    let tops = placing.order_and_place();
    placing.draw(&tops)
}

/// The lines of the model, with those that close a loop marked.
fn lines(model: &Model) -> Vec<Line> {
    let index: HashMap<&str, usize> = model
        .callbacks
        .iter()
        .enumerate()
        .map(|(i, c)| (c.id.as_str(), i))
        .collect();
    let mut lines: Vec<Line> = model
        .edges
        .iter()
        .enumerate()
        .filter_map(|(edge, e)| {
            let (from, to) = (*index.get(e.from.as_str())?, *index.get(e.to.as_str())?);
            Some(Line {
                from,
                to,
                edge,
                back: from == to,
            })
        })
        .collect();
    let n = model.callbacks.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut has_input = vec![false; n];
    for (i, l) in lines.iter().enumerate().filter(|(_, l)| !l.back) {
        out[l.from].push(i);
        has_input[l.to] = true;
    }
    // Depth first from the sources, without recursion: an edge to a vertex on the way is a loop.
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnPath,
        Done,
    }
    let mut seen = vec![Seen::No; n];
    let mut starts: Vec<usize> = (0..n).collect();
    starts.sort_by_key(|&v| {
        (
            has_input[v],
            model.callbacks[v].kind != CallbackType::Timer,
            v,
        )
    });
    for start in starts {
        if seen[start] != Seen::No {
            continue;
        }
        seen[start] = Seen::OnPath;
        let mut stack = vec![(start, 0usize)];
        while let Some((v, k)) = stack.pop() {
            let Some(&line) = out[v].get(k) else {
                seen[v] = Seen::Done;
                continue;
            };
            stack.push((v, k + 1));
            let to = lines[line].to;
            match seen[to] {
                Seen::OnPath => lines[line].back = true,
                Seen::No => {
                    seen[to] = Seen::OnPath;
                    stack.push((to, 0));
                }
                Seen::Done => {}
            }
        }
    }
    lines
}

/// Ranks: longest path from the sources, then each callback moves to where its wires and its
/// node's box are shortest.
fn ranks(model: &Model, lines: &[Line], cluster_of: &[usize]) -> Vec<usize> {
    let n = model.callbacks.len();
    let (mut ins, mut outs) = (vec![Vec::new(); n], vec![Vec::new(); n]);
    for l in lines.iter().filter(|l| !l.back) {
        ins[l.to].push(l.from);
        outs[l.from].push(l.to);
    }
    let mut rank = vec![0usize; n];
    let mut waiting: Vec<usize> = ins.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..n).filter(|&v| waiting[v] == 0).collect();
    while let Some(v) = ready.pop() {
        for &w in &outs[v] {
            rank[w] = rank[w].max(rank[v] + 1);
            waiting[w] -= 1;
            if waiting[w] == 0 {
                ready.push(w);
            }
        }
    }
    let top = rank.iter().copied().max().unwrap_or(0);
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (v, &c) in cluster_of.iter().enumerate() {
        members.entry(c).or_default().push(v);
    }
    for _ in 0..20 {
        let mut moved = false;
        for v in 0..n {
            let low = ins[v].iter().map(|&u| rank[u] + 1).max().unwrap_or(0);
            let high = outs[v]
                .iter()
                .map(|&w| rank[w].saturating_sub(1))
                .min()
                .unwrap_or(top);
            if low >= high {
                continue;
            }
            let others: Vec<usize> = members[&cluster_of[v]]
                .iter()
                .filter(|&&u| u != v)
                .map(|&u| rank[u])
                .collect();
            let cost = |r: usize| {
                let wires: usize = ins[v].iter().map(|&u| r - rank[u]).sum::<usize>()
                    + outs[v].iter().map(|&w| rank[w] - r).sum::<usize>();
                let span = match (others.iter().min(), others.iter().max()) {
                    (Some(&a), Some(&b)) => b.max(r) - a.min(r),
                    _ => 0,
                };
                // Ties go to the left, where a reader looks for sources.
                2 * wires + 3 * span
            };
            let best = (low..=high)
                .min_by_key(|&r| (cost(r), r))
                .unwrap_or(rank[v]);
            if best != rank[v] && cost(best) < cost(rank[v]) {
                rank[v] = best;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    // Ranks that nobody is in any more are closed up.
    let mut used: Vec<usize> = rank.clone();
    used.sort_unstable();
    used.dedup();
    rank.iter()
        .map(|r| used.binary_search(r).unwrap_or(0))
        .collect()
}

impl<'a> Placing<'a> {
    fn new(model: &'a Model) -> Self {
        let n = model.callbacks.len();
        let mut names: Vec<&str> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        let cluster_of: Vec<usize> = model
            .callbacks
            .iter()
            .map(|c| {
                *by_name.entry(c.node.as_str()).or_insert_with(|| {
                    names.push(&c.node);
                    names.len() - 1
                })
            })
            .collect();
        let lines = lines(model);
        let rank = ranks(model, &lines, &cluster_of);
        let mut clusters: Vec<Cluster> = names
            .iter()
            .map(|name| Cluster {
                name: name.to_string(),
                first: usize::MAX,
                last: 0,
                columns: Vec::new(),
            })
            .collect();
        for v in 0..n {
            let c = &mut clusters[cluster_of[v]];
            c.first = c.first.min(rank[v]);
            c.last = c.last.max(rank[v]);
        }
        for c in &mut clusters {
            c.columns = vec![Vec::new(); c.last - c.first + 1];
        }
        for v in 0..n {
            let c = &mut clusters[cluster_of[v]];
            c.columns[rank[v] - c.first].push(v);
        }
        let mut placing = Placing {
            model,
            ranks: rank.iter().max().map_or(0, |r| r + 1),
            rank,
            lines,
            nets: Vec::new(),
            outs: vec![Vec::new(); n],
            clusters,
            cluster_of,
            lanes: Vec::new(),
            inner: vec![0.0; n],
            height: Vec::new(),
            pulls: Vec::new(),
        };
        placing.make_nets();
        placing.make_pulls();
        placing.stack_callbacks();
        placing
    }

    /// Groups lines into nets, adds nets for topics that nobody takes, and lanes.
    fn make_nets(&mut self) {
        let mut of: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        for (i, l) in self.lines.iter().enumerate() {
            let topic = self.model.edges[l.edge].topic.as_str();
            let net = *of.entry((l.from, topic)).or_insert_with(|| {
                self.nets.push(NetPlan {
                    source: l.from,
                    topic: topic.to_string(),
                    lines: Vec::new(),
                    forward: None,
                    backward: None,
                    labelled: false,
                });
                self.nets.len() - 1
            });
            self.nets[net].lines.push(i);
            // Into a synchroniser goes the input's own topic, which stands at the input already.
            self.nets[net].labelled |= self.model.callbacks[l.to].kind != CallbackType::Sync
                || self.cluster_of[l.from] != self.cluster_of[l.to];
        }
        for (source, callback) in self.model.callbacks.iter().enumerate() {
            // What members of a synchroniser publish leaves at its circle.
            let synchronised = self
                .lines
                .iter()
                .any(|l| l.from == source && self.model.callbacks[l.to].kind == CallbackType::Sync);
            for topic in &callback.outputs {
                if !synchronised && !of.contains_key(&(source, topic.as_str())) {
                    self.nets.push(NetPlan {
                        source,
                        topic: topic.clone(),
                        lines: Vec::new(),
                        forward: None,
                        backward: None,
                        labelled: true,
                    });
                }
            }
        }
        for (i, net) in self.nets.iter_mut().enumerate() {
            self.outs[net.source].push(i);
            let start = self.rank[net.source];
            let furthest = net.lines.iter().filter(|&&l| !self.lines[l].back);
            if let Some(last) = furthest.map(|&l| self.rank[self.lines[l].to]).max() {
                if last > start + 1 {
                    net.forward = Some(self.lanes.len());
                    self.lanes.push(Lane {
                        net: i,
                        first: start + 1,
                        last: last - 1,
                        back: false,
                    });
                }
            }
            let back = net.lines.iter().filter(|&&l| self.lines[l].back);
            if let Some(first) = back.map(|&l| self.rank[self.lines[l].to]).min() {
                net.backward = Some(self.lanes.len());
                let (first, last) = (first.min(start), first.max(start));
                self.lanes.push(Lane {
                    net: i,
                    first,
                    last,
                    back: true,
                });
            }
        }
    }

    fn make_pulls(&mut self) {
        let mut pulls = Vec::new();
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            for lane in [net.forward, net.backward].into_iter().flatten() {
                pulls.push((Port::Out(i), Port::Lane(lane), 1.5));
            }
            for &l in &net.lines {
                let line = &self.lines[l];
                let from = match (line.back, net.forward, net.backward) {
                    (true, _, Some(lane)) => Port::Lane(lane),
                    (false, Some(lane), _) if self.rank[line.to] > start + 1 => Port::Lane(lane),
                    _ => Port::Out(i),
                };
                let weight = if line.back { 0.3 } else { 1.0 };
                pulls.push((from, Port::In(line.to), weight));
            }
        }
        self.pulls = pulls;
    }

    /// Height that a callback takes in its column.
    fn callback_height(&self, v: usize) -> f64 {
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

    /// Stacks each box's columns, each in the middle of the box.
    fn stack_callbacks(&mut self) {
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

    fn items(&self) -> Vec<Item> {
        (0..self.clusters.len())
            .map(Item::Cluster)
            .chain((0..self.lanes.len()).map(Item::Lane))
            .collect()
    }

    fn extent(&self, item: &Item) -> (usize, usize, f64) {
        match *item {
            Item::Cluster(c) => (
                self.clusters[c].first,
                self.clusters[c].last,
                self.height[c],
            ),
            Item::Lane(l) => (self.lanes[l].first, self.lanes[l].last, 2.0),
        }
    }

    /// Index of the item that a port belongs to, and the port's offset in it.
    fn place(&self, port: Port) -> (usize, f64) {
        match port {
            Port::In(v) => (self.cluster_of[v], self.inner[v]),
            Port::Out(net) => {
                let v = self.nets[net].source;
                (self.cluster_of[v], self.inner[v] + self.out_offset(net))
            }
            Port::Lane(l) => (self.clusters.len() + l, 1.0),
        }
    }

    /// Where a net leaves its callback, from the callback's middle.
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

    /// Tops that are as near to the wished ones as the order allows: the mean of the solution
    /// that pushes down and the one that pushes up (both fulfil all distances, so does the mean).
    fn resolve(&self, items: &[Item], order: &[usize], wished: &[f64]) -> Vec<f64> {
        let gap = |a: bool, b: bool| match (a, b) {
            (true, true) => 20.0,
            (false, false) => 9.0,
            _ => 13.0,
        };
        let sweep = |order: &mut dyn Iterator<Item = usize>, sign: f64| {
            let mut edge: Vec<Option<(f64, bool)>> = vec![None; self.ranks];
            let mut tops = vec![0.0; items.len()];
            for i in order {
                let (first, last, h) = self.extent(&items[i]);
                let cluster = matches!(items[i], Item::Cluster(_));
                // Upwards, everything is mirrored.
                let mut near = if sign > 0.0 {
                    wished[i]
                } else {
                    -(wished[i] + h)
                };
                for (e, c) in edge[first..=last].iter().flatten() {
                    near = near.max(e + gap(*c, cluster));
                }
                for e in &mut edge[first..=last] {
                    *e = Some((near + h, cluster));
                }
                tops[i] = if sign > 0.0 { near } else { -(near + h) };
            }
            tops
        };
        let down = sweep(&mut order.iter().copied(), 1.0);
        let up = sweep(&mut order.iter().rev().copied(), -1.0);
        down.iter().zip(&up).map(|(a, b)| (a + b) / 2.0).collect()
    }

    /// Where each item would like to be, given where the others are.
    fn wishes(&self, tops: &[f64]) -> Vec<f64> {
        let mut sum = vec![(0.0, 0.0); tops.len()];
        for &(a, b, weight) in &self.pulls {
            let ((ia, oa), (ib, ob)) = (self.place(a), self.place(b));
            if ia == ib {
                continue;
            }
            let (ya, yb) = (tops[ia] + oa, tops[ib] + ob);
            sum[ia].0 += weight * (yb - oa);
            sum[ia].1 += weight;
            sum[ib].0 += weight * (ya - ob);
            sum[ib].1 += weight;
        }
        // Everything is drawn a little towards the middle: that keeps the drawing compact.
        let middle = tops.iter().sum::<f64>() / tops.len().max(1) as f64;
        sum.iter()
            .map(|&(s, w)| (s + GRAVITY * middle) / (w + GRAVITY))
            .collect()
    }

    /// Sorts the callbacks in each column of each box, and the nets of each callback, by where
    /// their wires come from and go to.
    fn sort_inside(&mut self, tops: &[f64]) {
        let n = self.model.callbacks.len();
        let mut sum = vec![(0.0, 0.0); n];
        let mut net_sum = vec![(0.0, 0.0); self.nets.len()];
        let height = |(item, offset): (usize, f64), tops: &[f64]| tops[item] + offset;
        for &(a, b, weight) in &self.pulls {
            let (ya, yb) = (height(self.place(a), tops), height(self.place(b), tops));
            for (own, other) in [(a, yb), (b, ya)] {
                let v = match own {
                    Port::In(v) => v,
                    Port::Out(net) => {
                        net_sum[net].0 += weight * other;
                        net_sum[net].1 += weight;
                        self.nets[net].source
                    }
                    Port::Lane(_) => continue,
                };
                sum[v].0 += weight * other;
                sum[v].1 += weight;
            }
        }
        let mean = |(s, w): (f64, f64), or: f64| if w > 0.0 { s / w } else { or };
        let wish: Vec<f64> = (0..n)
            .map(|v| mean(sum[v], tops[self.cluster_of[v]] + self.inner[v]))
            .collect();
        for c in &mut self.clusters {
            for column in &mut c.columns {
                column.sort_by(|&a, &b| wish[a].total_cmp(&wish[b]).then(a.cmp(&b)));
            }
        }
        for nets in &mut self.outs {
            nets.sort_by(|&a, &b| {
                let key = |i: usize| mean(net_sum[i], f64::MAX);
                key(a).total_cmp(&key(b)).then(a.cmp(&b))
            });
        }
        self.stack_callbacks();
    }

    /// What is bad about a placement: crossings first, then lengths.
    fn cost(&self, tops: &[f64]) -> f64 {
        let y = |p: Port| {
            let (i, o) = self.place(p);
            tops[i] + o
        };
        let mut channels: Vec<Vec<(f64, f64, usize)>> = vec![Vec::new(); self.ranks + 1];
        let mut length = 0.0;
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            let out = y(Port::Out(i));
            if let Some(lane) = net.forward {
                let l = y(Port::Lane(lane));
                channels[start].push((out, l, i));
                length += (out - l).abs();
            }
            if let Some(lane) = net.backward {
                length += (out - y(Port::Lane(lane))).abs();
            }
            for &l in &net.lines {
                let line = &self.lines[l];
                let target = y(Port::In(line.to));
                let to = self.rank[line.to];
                if line.back {
                    length += net
                        .backward
                        .map_or(0.0, |b| (y(Port::Lane(b)) - target).abs());
                } else {
                    let from = match net.forward {
                        Some(lane) if to > start + 1 => y(Port::Lane(lane)),
                        _ => out,
                    };
                    channels[to - 1].push((from, target, i));
                    length += (from - target).abs();
                }
            }
        }
        let mut crossings = 0usize;
        for channel in &channels {
            for (k, a) in channel.iter().enumerate() {
                for b in &channel[k + 1..] {
                    if a.2 != b.2 && (a.0 - b.0) * (a.1 - b.1) < 0.0 {
                        crossings += 1;
                    }
                }
            }
        }
        let bottom = (0..tops.len()).map(|i| tops[i]).fold(f64::MIN, f64::max);
        let top = (0..tops.len()).map(|i| tops[i]).fold(f64::MAX, f64::min);
        crossings as f64 * 60.0 + length + HEIGHT_COST * (bottom - top)
    }

    /// Finds an order of the items from top to bottom, and their tops.
    fn order_and_place(&mut self) -> Vec<f64> {
        let items = self.items();
        let n = items.len();
        // Start in the order of names, which is that of callbacks; lanes beside their sources.
        let mut tops: Vec<f64> = items
            .iter()
            .map(|item| match *item {
                Item::Cluster(c) => c as f64 * 80.0,
                Item::Lane(l) => {
                    self.cluster_of[self.nets[self.lanes[l].net].source] as f64 * 80.0 + 1.0
                }
            })
            .collect();
        let mut best: Option<(f64, Vec<usize>, Vec<f64>)> = None;
        for round in 0..40 {
            let mut order: Vec<usize> = (0..n).collect();
            let wished = self.wishes(&tops);
            // Move half way: two columns that swap to meet each other would swap for ever.
            let aim: Vec<f64> = if round == 0 {
                tops.clone()
            } else {
                tops.iter()
                    .zip(&wished)
                    .map(|(a, b)| (a + b) / 2.0)
                    .collect()
            };
            order.sort_by(|&a, &b| aim[a].total_cmp(&aim[b]).then(a.cmp(&b)));
            tops = self.resolve(&items, &order, &aim);
            self.sort_inside(&tops);
            tops = self.settle(&items, &order, tops, 6);
            let cost = self.cost(&tops);
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, order, tops.clone()));
            }
        }
        let Some((mut cost, mut order, mut tops)) = best else {
            return tops;
        };
        self.sort_inside(&tops);
        tops = self.settle(&items, &order, tops, 6);
        // Then try to move single items, as long as it helps and the budget lasts.
        let mut left = SEARCH_BUDGET / (self.pulls.len() + n).max(1) / 8;
        let mut improved = true;
        while improved && left > 0 {
            improved = false;
            for from in 0..n {
                for step in [-1isize, 1, -2, 2, -4, 4, -8, 8] {
                    let to = from as isize + step;
                    if to < 0 || to >= n as isize || left == 0 {
                        continue;
                    }
                    left -= 1;
                    let mut tried = order.clone();
                    let item = tried.remove(from);
                    tried.insert(to as usize, item);
                    let placed = self.settle(&items, &tried, tops.clone(), 3);
                    let c = self.cost(&placed);
                    if c + 1.0 < cost {
                        (cost, order, tops, improved) = (c, tried, placed, true);
                        break;
                    }
                }
            }
            self.sort_inside(&tops);
            tops = self.settle(&items, &order, tops, 10);
            cost = self.cost(&tops);
        }
        let mut tops = self.settle(&items, &order, tops, 120);
        self.straighten(&items, &mut tops);
        tops
    }

    /// Moves items by the few pixels that make a wire straight, where there is room.
    fn straighten(&self, items: &[Item], tops: &mut [f64]) {
        for top in tops.iter_mut() {
            *top = top.round();
        }
        let mut wires: Vec<Vec<(Port, Port)>> = vec![Vec::new(); items.len()];
        for &(a, b, _) in &self.pulls {
            let (ia, ib) = (self.place(a).0, self.place(b).0);
            if ia != ib {
                wires[ia].push((a, b));
                wires[ib].push((b, a));
            }
        }
        let y = |p: Port, tops: &[f64]| {
            let (i, o) = self.place(p);
            tops[i] + o
        };
        // What has fewest wires gives way; a wire that is straight already holds both ends.
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (wires[i].len(), i));
        for &i in &order {
            let off = |&(own, other): &(Port, Port)| y(other, tops) - y(own, tops);
            if wires[i].iter().any(|w| off(w).abs() < 0.01) {
                continue;
            }
            let Some(move_by) = wires[i]
                .iter()
                .map(off)
                .min_by(|a, b| a.abs().total_cmp(&b.abs()))
            else {
                continue;
            };
            let (first, last, h) = self.extent(&items[i]);
            let wished = tops[i] + move_by;
            let free = move_by.abs() < 12.0
                && (0..items.len()).filter(|&j| j != i).all(|j| {
                    let (f, l, height) = self.extent(&items[j]);
                    l < first
                        || f > last
                        || wished + h + 8.0 < tops[j]
                        || tops[j] + height + 8.0 < wished
                });
            if free {
                tops[i] = wished;
            }
        }
    }

    /// Lets wires pull items straight, within the order.
    fn settle(
        &self,
        items: &[Item],
        order: &[usize],
        mut tops: Vec<f64>,
        rounds: usize,
    ) -> Vec<f64> {
        for _ in 0..rounds {
            let wished = self.wishes(&tops);
            tops = self.resolve(items, order, &wished);
        }
        tops
    }
}

/// Distance of parallel wires.
const TRACK: f64 = 7.0;
/// Radius of a wire's corners.
const CORNER: f64 = 6.0;

/// What a net does between two ranks: it comes at one height and leaves at others.
struct Passage {
    net: usize,
    from: f64,
    to: Vec<f64>,
}

impl Passage {
    fn span(&self) -> (f64, f64) {
        self.to
            .iter()
            .fold((self.from, self.from), |(a, b), &y| (a.min(y), b.max(y)))
    }

    fn is_straight(&self) -> bool {
        let (a, b) = self.span();
        b - a < 1.0
    }

    /// How bad it is that `self` turns left of `other`: crossings, and wires that would lie on one
    /// another.
    fn left_of(&self, other: &Passage) -> usize {
        let inside = |y: f64, (a, b): (f64, f64)| y > a + 1.0 && y < b - 1.0;
        self.to.iter().filter(|&&y| inside(y, other.span())).count()
            + usize::from(inside(other.from, self.span()))
            + 4 * self
                .to
                .iter()
                .filter(|&&y| (y - other.from).abs() < 4.0)
                .count()
    }
}

/// Gives each passage of a channel the track on which it turns; the number of tracks comes too.
fn tracks(passages: &[Passage]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..passages.len())
        .filter(|&i| !passages[i].is_straight())
        .collect();
    // Those that go up: the topmost turns first. Those that go down: the lowest first.
    order.sort_by(|&a, &b| {
        let key = |i: usize| {
            let p = &passages[i];
            let mean = p.to.iter().sum::<f64>() / p.to.len().max(1) as f64;
            if mean < p.from {
                p.from
            } else {
                -p.from
            }
        };
        key(a).total_cmp(&key(b)).then(a.cmp(&b))
    });
    // Neighbours change places as long as that is better; bounded for very full channels.
    for _ in 0..order.len().min(50) {
        let mut changed = false;
        for k in 1..order.len() {
            let (a, b) = (&passages[order[k - 1]], &passages[order[k]]);
            if b.left_of(a) < a.left_of(b) {
                order.swap(k - 1, k);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let mut track = vec![0; passages.len()];
    let mut count = 0;
    for (k, &i) in order.iter().enumerate() {
        let (a, b) = passages[i].span();
        let mine = order[..k]
            .iter()
            .filter(|&&j| {
                let (c, d) = passages[j].span();
                c < b + 8.0 && d > a - 8.0
            })
            .map(|&j| track[j] + 1)
            .max()
            .unwrap_or(0);
        track[i] = mine;
        count = count.max(mine + 1);
    }
    (track, count)
}

/// From `(x0, y0)` to the track, along it, and on to `x1` at height `y1`, with round corners.
fn step(x0: f64, y0: f64, track: f64, y1: f64, x1: f64) -> String {
    let r = CORNER.min((y1 - y0).abs() / 2.0);
    if r < 0.5 {
        return format!("M{x0:.1} {y0:.1}H{x1:.1}");
    }
    let down = (y1 - y0).signum() * r;
    let come = (track - x0).signum() * r;
    let leave = (x1 - track).signum() * r;
    format!(
        "M{x0:.1} {y0:.1}H{:.1}Q{track:.1} {y0:.1} {track:.1} {:.1}V{:.1}Q{track:.1} {y1:.1} {:.1} {y1:.1}H{x1:.1}",
        track - come,
        y0 + down,
        y1 - down,
        track + leave
    )
}

/// Where the columns stand, by rank.
#[derive(Default)]
struct Columns {
    /// Left edge of boxes.
    left: Vec<f64>,
    /// Width of callbacks.
    width: Vec<f64>,
    /// Where labels end.
    label_end: Vec<f64>,
    /// Where wires that go back to the left turn, behind the labels: first track.
    turn_right: Vec<f64>,
    /// Where they turn before the boxes: first track.
    turn_left: Vec<f64>,
    /// Where wires to the next rank turn: first track.
    channel: Vec<f64>,
    /// Right end of everything.
    right: f64,
}

impl Columns {
    /// Left edge of callbacks.
    fn callback(&self, rank: usize) -> f64 {
        self.left[rank] + PAD
    }
    /// Right edge of boxes.
    fn box_right(&self, rank: usize) -> f64 {
        self.left[rank] + self.width[rank] + 2.0 * PAD
    }
}

impl Placing<'_> {
    /// What passes between each rank and the next.
    fn passages(&self, y: &dyn Fn(Port) -> f64) -> Vec<Vec<Passage>> {
        let mut channels: Vec<BTreeMap<usize, Passage>> =
            (0..self.ranks).map(|_| BTreeMap::new()).collect();
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            let lane = net.forward.map(|l| (y(Port::Lane(l)), self.lanes[l].last));
            for &l in net.lines.iter().filter(|&&l| !self.lines[l].back) {
                let to = self.rank[self.lines[l].to];
                // Every channel on the way: up to the last one the net only passes through.
                for channel in start..to {
                    let from = match lane {
                        Some((ly, _)) if channel > start => ly,
                        _ => y(Port::Out(i)),
                    };
                    let end = match lane {
                        Some((ly, _)) if channel + 1 < to => ly,
                        _ => y(Port::In(self.lines[l].to)),
                    };
                    channels[channel]
                        .entry(i)
                        .or_insert_with(|| Passage {
                            net: i,
                            from,
                            to: Vec::new(),
                        })
                        .to
                        .push(end);
                }
            }
        }
        channels
            .into_iter()
            .map(|c| c.into_values().collect())
            .collect()
    }

    /// For each net that has a lane back: on which track it turns behind its source.
    fn turns(&self) -> HashMap<usize, usize> {
        let mut used = vec![0; self.ranks];
        let mut turns = HashMap::new();
        for (i, net) in self
            .nets
            .iter()
            .enumerate()
            .filter(|(_, n)| n.backward.is_some())
        {
            let rank = self.rank[net.source];
            turns.insert(i, used[rank]);
            used[rank] += 1;
        }
        turns
    }

    fn columns(&self, counts: &[usize], turns: &HashMap<usize, usize>) -> Columns {
        let mut c = Columns {
            width: vec![SYNC_SIZE; self.ranks],
            ..Columns::default()
        };
        for (v, callback) in self.model.callbacks.iter().enumerate() {
            if callback.kind != CallbackType::Sync {
                let (caption, figures) = captions(callback);
                let needed = (text_width(&caption, 11.0).max(text_width(&figures, 10.0)) + 26.0)
                    .max(text_width(
                        &text::visible(&callback.node),
                        11.5 * TITLE_BOLD,
                    ))
                    .clamp(CALLBACK_WIDTH.0, CALLBACK_WIDTH.1);
                let width = &mut c.width[self.rank[v]];
                *width = width.max(needed.ceil());
            }
        }
        let mut labels = vec![0.0f64; self.ranks];
        let (mut left_turns, mut right_turns) = (vec![0; self.ranks], vec![0; self.ranks]);
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            if net.labelled {
                let w = text_width(&self.label(net), LABEL_FONT).min(LABEL_LIMIT);
                labels[start] = labels[start].max(w + 10.0);
            }
            if let Some(&turn) = turns.get(&i) {
                right_turns[start] = right_turns[start].max(turn + 1);
                for &l in net.lines.iter().filter(|&&l| self.lines[l].back) {
                    let to = self.rank[self.lines[l].to];
                    left_turns[to] = left_turns[to].max(turn + 1);
                }
            }
        }
        let mut x = MARGIN;
        for r in 0..self.ranks {
            c.turn_left.push(x + 2.0);
            if left_turns[r] > 0 {
                x += 8.0 + TRACK * left_turns[r] as f64;
            }
            c.left.push(x);
            x += c.width[r] + 2.0 * PAD + labels[r];
            c.label_end.push(x);
            c.turn_right.push(x + 8.0);
            if right_turns[r] > 0 {
                x += 8.0 + TRACK * right_turns[r] as f64;
            }
            c.channel.push(x + 10.0);
            if r + 1 < self.ranks {
                x += 22.0 + TRACK * counts[r] as f64;
            }
        }
        c.right = x + MARGIN;
        c
    }

    /// What stands beside a net: its topic, shortened as ROS 2 does for a node's private names.
    fn label(&self, net: &NetPlan) -> String {
        let node = &self.model.callbacks[net.source].node;
        match net.topic.strip_prefix(node.as_str()) {
            Some(rest) if rest.starts_with('/') && node.len() > 1 => {
                format!("~{}", text::visible(rest))
            }
            _ => text::visible(&net.topic),
        }
    }

    fn draw(&self, tops: &[f64]) -> Layout {
        let mut low = f64::MAX;
        let mut high = f64::MIN;
        for (i, item) in self.items().iter().enumerate() {
            low = low.min(tops[i] - 6.0);
            high = high.max(tops[i] + self.extent(item).2);
        }
        let shift = (MARGIN - low).round();
        let y = |p: Port| {
            let (i, o) = self.place(p);
            tops[i] + shift + o
        };
        let passages = self.passages(&y);
        let turns = self.turns();
        let mut counts = Vec::new();
        let mut track_of: HashMap<(usize, usize), usize> = HashMap::new();
        for (rank, channel) in passages.iter().enumerate() {
            let (track, count) = tracks(channel);
            counts.push(count);
            for (passage, t) in channel.iter().zip(track) {
                track_of.insert((rank, passage.net), t);
            }
        }
        let columns = self.columns(&counts, &turns);
        let nodes = self
            .clusters
            .iter()
            .enumerate()
            .map(|(i, c)| {
                let x = columns.left[c.first];
                NodeBox {
                    name: c.name.clone(),
                    rect: Rect {
                        x,
                        y: tops[i] + shift,
                        w: columns.box_right(c.last) - x,
                        h: self.height[i],
                    },
                    title_width: columns.width[c.first],
                }
            })
            .collect();
        let mut junctions: HashMap<&str, JunctionKind> = HashMap::new();
        for j in &self.model.junctions {
            junctions.insert(&j.callback, j.kind);
        }
        let callbacks = (0..self.model.callbacks.len())
            .map(|v| {
                let callback = &self.model.callbacks[v];
                let r = self.rank[v];
                let (w, h) = match callback.kind {
                    CallbackType::Sync => (SYNC_SIZE, SYNC_SIZE),
                    _ => (columns.width[r], self.callback_height(v)),
                };
                CallbackBox {
                    callback: v,
                    rect: Rect {
                        x: columns.callback(r),
                        y: y(Port::In(v)) - h / 2.0,
                        w,
                        h,
                    },
                    junction: junctions.get(callback.id.as_str()).copied(),
                }
            })
            .collect();
        let track = |rank: usize, net: usize| {
            let t = track_of.get(&(rank, net)).copied().unwrap_or(0);
            columns.channel[rank] + TRACK * t as f64
        };
        let nets = (0..self.nets.len())
            .map(|i| {
                let turn = turns.get(&i).map_or(0.0, |&t| TRACK * t as f64);
                self.draw_net(i, &columns, turn, &y, &track)
            })
            .collect();
        Layout {
            width: columns.right,
            height: high + shift + MARGIN,
            nodes,
            callbacks,
            nets,
        }
    }

    fn draw_net(
        &self,
        index: usize,
        columns: &Columns,
        turn: f64,
        y: &dyn Fn(Port) -> f64,
        track: &dyn Fn(usize, usize) -> f64,
    ) -> Net {
        let plan = &self.nets[index];
        let start = self.rank[plan.source];
        let own_width = match self.model.callbacks[plan.source].kind {
            CallbackType::Sync => SYNC_SIZE,
            _ => columns.width[start],
        };
        let from = columns.callback(start) + own_width;
        let end = columns.label_end[start];
        let out = y(Port::Out(index));
        let mut wires = Vec::new();
        if plan.lines.is_empty() {
            let path = format!("M{from:.1} {out:.1}H{end:.1}");
            wires.push(Wire {
                edges: Vec::new(),
                path,
                arrow: true,
            });
        }
        for &l in &plan.lines {
            let line = &self.lines[l];
            let to = self.rank[line.to];
            let target = y(Port::In(line.to));
            let last = columns.callback(to);
            let path = match (line.back, plan.forward, plan.backward) {
                (true, _, Some(lane)) => {
                    let ly = y(Port::Lane(lane));
                    let first = columns.turn_right[start] + turn;
                    let second = columns.turn_left[to] + turn;
                    let middle = (first + second) / 2.0;
                    step(from, out, first, ly, middle) + &step(middle, ly, second, target, last)
                }
                (false, Some(lane), _) if to > start + 1 => {
                    let ly = y(Port::Lane(lane));
                    let middle = columns.left[start + 1];
                    step(from, out, track(start, index), ly, middle)
                        + &step(middle, ly, track(to - 1, index), target, last)
                }
                _ => step(from, out, track(start, index), target, last),
            };
            wires.push(Wire {
                edges: vec![line.edge],
                path,
                arrow: true,
            });
        }
        let label = columns.box_right(start) + 4.0;
        Net {
            source: plan.source,
            topic: plan.topic.clone(),
            text: self.label(plan),
            label: plan.labelled.then_some((label, out)),
            label_width: end - label - 2.0,
            wires,
        }
    }
}
