//! Options of synthesis.

use crate::links::Link;
use crate::mode_rules::ModeRule;
use crate::naming::NameRule;
use onbeat_document::cuts::Cut;
use onbeat_document::schema::Run;
use onbeat_document::stated::StatedJunction;

/// Topics of the ROS 2 infrastructure. No chain leads through them, unless the user states that
/// chains begin at them.
pub const INFRASTRUCTURE: [&str; 5] = ["/bond", "/clock", "/diagnostics", "/tf", "/tf_static"];

/// The options that set how synthesis makes a model from events.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// The description of the recording. Synthesis fills in `events`, `duration_ns` and `lost`
    /// where they are zero or empty.
    pub run: Run,
    /// `/rosout`, `/parameter_events` and the parameter services are in the model.
    pub infrastructure: bool,
    /// Links that the user states. A link is data that passes through a node's memory. No event
    /// shows it.
    pub links: Vec<Link>,
    /// Junctions that the user states. They replace the junctions that synthesis would find.
    pub junctions: Vec<StatedJunction>,
    /// The user's rules for node names. They apply after the built-in ones.
    pub names: Vec<NameRule>,
    /// Topics at which chains begin. An item of such a topic counts as data from outside, whichever
    /// callback published it.
    pub inputs: Vec<String>,
    /// Parts of chains that are measured as chains of their own.
    pub cuts: Vec<Cut>,
    /// Topics through which no chain leads, for example because most nodes use them for logging or
    /// diagnostics. The graph of the model still contains them.
    pub ignore: Vec<String>,
    /// Rules for when modes begin. The mode of [`Self::run`] is active where no rule applies.
    pub modes: Vec<ModeRule>,
    /// The application's threads that publish without a callback are vertices of the model. If not
    /// set, their publications count as published outside of callbacks.
    pub own_threads: bool,
    /// The beginning of the recording was deleted, except for events that describe the system. The
    /// recording's duration then counts from the first event that does not describe the system.
    pub shortened: bool,
    /// The callback ids from an earlier pass over the same events, as
    /// [`Synth::callback_ids`](super::Synth::callback_ids) returned them at its end.
    ///
    /// Links and cuts are matched with these ids. Without the ids, links and cuts are matched when
    /// a callback first runs. The id of a timer created before the recording then lacks the period.
    pub ids: Vec<Option<String>>,
    /// The maximum number of objects that a process may create. Synthesis leaves out the further
    /// events of a process with more.
    ///
    /// A callback counts as [`CALLBACK_COST`] objects. An event with a new name, for example of a
    /// node or an endpoint, counts as one. Each call of [`Synth::forget`](super::Synth::forget)
    /// reduces the number by a sixtieth, so one call a minute reduces it by two thirds in an hour.
    pub created_max: u32,
}

/// The number of objects that a callback counts as, for [`SynthOptions::created_max`].
pub const CALLBACK_COST: u32 = 8;

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
            created_max: u32::MAX,
        }
    }
}
