//! Options of synthesis.

use crate::links::Link;
use crate::mode_rules::ModeRule;
use crate::naming::NameRule;
use onbeat_document::cuts::Cut;
use onbeat_document::schema::Run;
use onbeat_document::stated::StatedJunction;

/// The topics of the infrastructure. They make no chains unless they are among the inputs.
pub const INFRASTRUCTURE: [&str; 5] = ["/bond", "/clock", "/diagnostics", "/tf", "/tf_static"];

/// Sets how events become a model.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// The description of the recording. Synthesis fills in `events`, `duration_ns` and `lost`
    /// where they are zero or empty.
    pub run: Run,
    /// Keeps `/rosout`, `/parameter_events` and the parameter services in the model.
    pub infrastructure: bool,
    /// Links that the user states: data that passes through the memory of a node.
    pub links: Vec<Link>,
    /// Junctions that the user states instead of the ones that the run shows.
    pub junctions: Vec<StatedJunction>,
    /// The user's rules for node names. They apply after the built-in ones.
    pub names: Vec<NameRule>,
    /// Topics at which chains begin. An item that is taken there counts as coming from outside,
    /// whichever callback published it.
    pub inputs: Vec<String>,
    /// Parts of chains that are measured as chains of their own.
    pub cuts: Vec<Cut>,
    /// Topics that make no chains although they are in the graph, because most nodes use them
    /// beside their work.
    pub ignore: Vec<String>,
    /// Rules for when modes begin. The mode of [`Self::run`] is active where no rule applies.
    pub modes: Vec<ModeRule>,
    /// Shows threads of the application that publish as callbacks. Otherwise their publications
    /// count as published outside of callbacks.
    pub own_threads: bool,
    /// The beginning of the recording was deleted, except for events that describe the system. The
    /// recording's duration then starts with its first other event.
    pub shortened: bool,
    /// The callback ids from an earlier pass over the same events, as
    /// [`Synth::callback_ids`](super::Synth::callback_ids) returned them at its end.
    ///
    /// Links and cuts are matched with these ids. Without them, they are matched when a callback
    /// first runs, and the period of a timer created before the recording is then missing from its
    /// id.
    pub ids: Vec<Option<String>>,
}

impl SynthOptions {
    /// Returns the default options for a run.
    pub fn new(run: Run) -> Self {
        SynthOptions {
            run,
            infrastructure: false,
            links: Vec::new(),
            junctions: Vec::new(),
            names: Vec::new(),
            inputs: Vec::new(),
            cuts: Vec::new(),
            ignore: INFRASTRUCTURE.map(String::from).into(),
            modes: Vec::new(),
            own_threads: true,
            shortened: false,
            ids: Vec::new(),
        }
    }
}
