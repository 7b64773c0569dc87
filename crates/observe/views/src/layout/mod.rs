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
/// The diameter of a synchroniser's circle in pixels.
pub const SYNC_SIZE: f64 = 28.0;
/// The height of the title in a node's box, in pixels.
pub const TITLE_HEIGHT: f64 = 20.0;
/// The space between the edge of a node's box and its callbacks, in pixels.
pub const PAD: f64 = 10.0;
const LABEL_STEP: f64 = 15.0;
/// The font size of labels and captions, in pixels.
pub const LABEL_FONT: f64 = 10.5;
const LABEL_LIMIT: f64 = 144.0;
const CALLBACK_GAP: f64 = 8.0;
const MARGIN: f64 = 14.0;
/// The factor by which bold text is wider than normal text.
pub const TITLE_BOLD: f64 = 1.06;

/// A rectangle in pixels: its left upper corner, its width and its height. `y` grows downwards.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[allow(missing_docs)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
}

#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct NodeBox {
    /// The full name of the node. It is untrusted.
    pub name: String,
    pub rect: Rect,
    /// The width, in pixels, that the title must not exceed.
    pub title_width: f64,
}

#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct CallbackBox {
    /// The index of the callback in [`Model::callbacks`].
    pub callback: usize,
    pub rect: Rect,
    /// The kind of junction to mark at the callback. `None` if only one input triggers it.
    pub junction: Option<JunctionKind>,
}

/// One line of a [`Net`] in the drawing.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct Wire {
    /// The edges that the line shows, as indices in [`Model::edges`].
    pub edges: Vec<usize>,
    /// The course of the line, as the `d` attribute of an SVG path.
    pub path: String,
    pub arrow: bool,
}

/// All lines in the drawing that leave one callback for one topic.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct Net {
    /// The index of the publishing callback in [`Model::callbacks`].
    pub source: usize,
    /// The full name of the topic. It is untrusted.
    pub topic: String,
    /// The text of the label: the topic relative to its node. It is untrusted.
    pub text: String,
    /// The x of the label's left end and the y of its base line, in pixels. `None` for a net
    /// without a label.
    pub label: Option<(f64, f64)>,
    /// The width, in pixels, that the label must not exceed.
    pub label_width: f64,
    pub wires: Vec<Wire>,
}

/// A drawing of a model: its size in pixels, and the positions of all boxes, lines and labels.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Layout {
    pub width: f64,
    pub height: f64,
    pub nodes: Vec<NodeBox>,
    pub callbacks: Vec<CallbackBox>,
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
