//! Places a model's graph on a plane: ROS nodes as boxes, callbacks inside, wires left to right.
//!
//! A layered layout after Sugiyama, with three twists that keep it readable. Ranks belong to
//! callbacks and a node's box spans the ranks of its callbacks, so the graph flows in one
//! direction although nodes call each other back and forth. All edges that leave a callback by one
//! topic are one *net*: one label beside the callback, one line that branches. A net that passes
//! over ranks runs on a straight lane of its own, which is placed like a box, so that no line
//! crosses a box or a label.

mod order;
mod rank;
mod route;

use crate::schema::{Callback, CallbackType, JunctionKind, Model};
use crate::text;

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
