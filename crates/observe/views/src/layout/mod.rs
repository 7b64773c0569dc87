//! Places a model's graph on a plane: ROS nodes as boxes, callbacks inside, wires left to right.
//!
//! A layered layout after Sugiyama, with three twists that keep it readable. Ranks belong to
//! callbacks and a node's box spans the ranks of its callbacks, so the graph flows in one
//! direction although nodes call each other back and forth. All edges that leave a callback by one
//! topic are one *net*: one label beside the callback, one line that branches. A net that passes
//! over ranks runs on a straight *track* of its own, which is placed like a box, so that no line
//! crosses a box or a label.

mod captions;
mod order;
mod plan;
mod rank;
mod route;
mod settle;

pub use captions::{captions, fit_text, text_width};

use onbeat_document::schema::{JunctionKind, Model};
use plan::Plan;

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
/// How much wider bold text is.
pub const TITLE_BOLD: f64 = 1.06;

/// A rectangle in pixels; `y` grows downwards.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rect {
    /// Left edge.
    pub x: f64,
    /// Top edge.
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
    /// Place in the drawing.
    pub rect: Rect,
    /// Width that its title may take.
    pub title_width: f64,
}

/// A callback's box.
#[derive(Debug, Clone)]
pub struct CallbackBox {
    /// Index into the model's callbacks.
    pub callback: usize,
    /// Place in the drawing.
    pub rect: Rect,
    /// Junction to mark at it.
    pub junction: Option<JunctionKind>,
}

/// A line of a net, as SVG path data.
#[derive(Debug, Clone)]
pub struct Wire {
    /// The edges that the line shows: indices into the model's edges.
    pub edges: Vec<usize>,
    /// Path data.
    pub path: String,
    /// It has an arrow head at its end.
    pub arrow: bool,
}

/// All wires that leave a callback by one topic.
#[derive(Debug, Clone)]
pub struct Net {
    /// Index of the callback that publishes.
    pub source: usize,
    /// Topic (untrusted).
    pub topic: String,
    /// Text of the label: the topic, relative to its node (untrusted).
    pub text: String,
    /// Left end of the label and height of its line; `None` for nets that need no label.
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

/// Lays the graph out.
pub fn layout(model: &Model) -> Layout {
    if model.callbacks.is_empty() {
        return Layout {
            width: 2.0 * MARGIN,
            height: 2.0 * MARGIN,
            ..Layout::default()
        };
    }
    let mut plan = Plan::new(model);
    let tops = plan.order_and_place();
    route::draw(&plan, &tops)
}
