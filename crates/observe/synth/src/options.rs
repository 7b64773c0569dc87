//! What to make of the events.

use crate::links::Link;
use crate::mode_rules::ModeRule;
use crate::naming::NameRule;
use onbeat_document::cuts::Cut;
use onbeat_document::schema::Run;
use onbeat_document::stated::StatedJunction;

/// Topics of the infrastructure, that make no chains unless asked for.
pub const INFRASTRUCTURE: [&str; 5] = ["/bond", "/clock", "/diagnostics", "/tf", "/tf_static"];

/// What to make of the events.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// The recording. Its `events`, `duration_ns` and `lost` are filled in from the events where
    /// they are zero or empty.
    pub run: Run,
    /// Keep `/rosout`, `/parameter_events` and the parameter services.
    pub infrastructure: bool,
    /// Links through nodes' memories that the user states.
    pub links: Vec<Link>,
    /// Junctions that the user states.
    pub junctions: Vec<StatedJunction>,
    /// Rules for node names that the user adds to the built-in ones.
    pub names: Vec<NameRule>,
    /// Topics at which chains begin: an item taken there comes from a source outside, whoever
    /// publishes it.
    pub inputs: Vec<String>,
    /// Parts of chains that are measured as chains of their own.
    pub cuts: Vec<Cut>,
    /// Topics that make no chains, though they are in the graph: what most nodes publish or take
    /// beside their work.
    pub ignore: Vec<String>,
    /// When the modes of the run begin. Where no rule says, the run's own is active.
    pub modes: Vec<ModeRule>,
    /// Threads of the application's own that publish are callbacks; else what they publish is
    /// published outside of callbacks.
    pub own_threads: bool,
    /// The beginning of the recording was deleted, except what describes the system: the recording
    /// lasts from its first other event on.
    pub shortened: bool,
    /// Ids as another pass over the same events found them at its end, from
    /// [`Synth::callback_ids`](super::Synth::callback_ids): they tie links and cuts. Without them, these are tied by
    /// what is known when a callback first runs; that lacks the period of a timer that was made
    /// before the recording.
    pub ids: Vec<Option<String>>,
}

impl SynthOptions {
    /// Defaults for a run.
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
