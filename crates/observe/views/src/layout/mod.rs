//! Places a model's graph on a plane: ROS nodes as boxes, callbacks inside, wires left to right.
//!
//! The layout is layered after Sugiyama, with three changes that keep it readable. First, ranks
//! belong to callbacks, and a node's box spans the ranks of its callbacks. So the graph flows in
//! one direction although nodes call each other back and forth. Second, all edges that leave a
//! callback by one topic are one *net*: one label beside the callback, one line that branches.
//! Third, a net that passes over ranks runs on a straight *track* of its own. The track is placed
//! like a box, so that no line crosses a box or a label.

mod captions;
mod order;
mod plan;
mod rank;
mod route;
mod settle;

pub use captions::{captions, fit_text, text_width};

use onbeat_document::schema::{JunctionKind, Model};
use plan::Plan;

const CALLBACK_WIDTH: (f64, f64) = (96.0, 172.0);
const CALLBACK_HEIGHT: f64 = 36.0;
/// The diameter of a synchroniser's circle.
pub const SYNC_SIZE: f64 = 28.0;
/// The height of a node's title.
pub const TITLE_HEIGHT: f64 = 20.0;
/// The space between a node's box and its callbacks.
pub const PAD: f64 = 10.0;
const LABEL_STEP: f64 = 15.0;
/// The font size of labels.
pub const LABEL_FONT: f64 = 10.5;
const LABEL_LIMIT: f64 = 144.0;
const CALLBACK_GAP: f64 = 8.0;
const MARGIN: f64 = 14.0;
/// The factor by which bold text is wider.
pub const TITLE_BOLD: f64 = 1.06;

/// A rectangle in pixels; `y` grows downwards.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rect {
    /// The x coordinate of the left edge.
    pub x: f64,
    /// The y coordinate of the top edge.
    pub y: f64,
    /// The width of the rectangle.
    pub w: f64,
    /// The height of the rectangle.
    pub h: f64,
}

/// A ROS node's box.
#[derive(Debug, Clone)]
pub struct NodeBox {
    /// The node's full name, untrusted.
    pub name: String,
    /// The position and size of the box in the drawing.
    pub rect: Rect,
    /// The width, in pixels, that the title must not exceed.
    pub title_width: f64,
}

/// A callback's box.
#[derive(Debug, Clone)]
pub struct CallbackBox {
    /// The index into the model's callbacks.
    pub callback: usize,
    /// The position and size of the box in the drawing.
    pub rect: Rect,
    /// The junction to mark at the callback.
    pub junction: Option<JunctionKind>,
}

/// A line of a net, as SVG path data.
#[derive(Debug, Clone)]
pub struct Wire {
    /// The edges that the line shows, as indices into the model's edges.
    pub edges: Vec<usize>,
    /// The course of the line as SVG path data.
    pub path: String,
    /// The line ends with an arrow head.
    pub arrow: bool,
}

/// All wires that leave a callback by one topic.
#[derive(Debug, Clone)]
pub struct Net {
    /// The index of the publishing callback in the model's callbacks.
    pub source: usize,
    /// The name of the topic, untrusted.
    pub topic: String,
    /// The label's text, untrusted: the topic relative to its node.
    pub text: String,
    /// The left end of the label and the height of its line. `None` for a net without a label.
    pub label: Option<(f64, f64)>,
    /// The width, in pixels, that the label must not exceed.
    pub label_width: f64,
    /// The lines of the net.
    pub wires: Vec<Wire>,
}

/// A placed graph.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The width of the drawing in pixels.
    pub width: f64,
    /// The height of the drawing in pixels.
    pub height: f64,
    /// The boxes of nodes.
    pub nodes: Vec<NodeBox>,
    /// The boxes of callbacks.
    pub callbacks: Vec<CallbackBox>,
    /// The nets between the callbacks.
    pub nets: Vec<Net>,
}

/// Computes where a drawing of the model shows its nodes, callbacks and edges. A model without
/// callbacks gives an empty drawing.
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
