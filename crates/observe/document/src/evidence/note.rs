//! Notes about the assumptions of a model and the limits of its recordings.

use serde::{Deserialize, Serialize};

/// A note on a model, for its assumptions or its coverage. `V` identifies a vertex and `N` a name.
/// During synthesis both are indices; in a model they are an id and a text.
///
/// In `model.json` a note has the fields `kind` and `subject`. The subject is empty for a note
/// without one. The kinds are in alphabetical order, here and in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "subject", rename_all = "snake_case")]
pub enum Note<V = String, N = String> {
    Aborted(V),
    Assumed(String),
    /// onbeat guessed which client called this service.
    CallerGuess(N),
    CallerUnknown(N),
    /// Lineages were dropped at this vertex, because too many paths lead there.
    Capped(V),
    #[serde(with = "no_subject")]
    ClockStep,
    Cut(String),
    /// The end of the process cut off an execution of this vertex.
    CutOff(V),
    Doubled(N),
    Foreign(N),
    /// Threads that run no callbacks and publish nothing used CPU time. The count is a time in ns.
    /// A shaper of onbeat held items of this topic back.
    HeldBack(N),
    #[serde(with = "no_subject")]
    HelperTime,
    /// The user excluded this topic from chains. The count is the number of items that callbacks
    /// took from it.
    Ignored(N),
    /// The user named this topic as an input, so chains begin with it.
    Input(N),
    Junction(String),
    /// The user stated this link (`--link`), but no data followed it.
    Link(String),
    #[serde(with = "no_subject")]
    LostSwitch,
    ModeUnseen(String),
    NameRule(String),
    /// The user named this topic as an input, but no callback took an item from it.
    NoInput(N),
    NodeName(String),
    #[serde(with = "no_subject")]
    OutOfOrder,
    Outside(N),
    /// A callback took an item of this topic, and then a later one before it published anything.
    /// The earlier item counts as taken, but no chain follows it.
    Overtaken(N),
    /// Figures for some pairs of a source and a sink are missing, because there are too many pairs.
    /// The count is the number of outputs of these pairs.
    #[serde(with = "no_subject")]
    PairsCapped,
    PeriodChanged(V),
    Renamed(N),
    /// An execution of this vertex ended after an execution that took a later item of the same
    /// publisher.
    Reordered(V),
    /// onbeat found from the topic of a ring buffer that this subscription reads the buffer.
    RingFound(V),
    /// The subscription is named after the ring buffer that it reads, because its topic is unknown.
    RingName(V),
    /// Another program added this sentence to the coverage.
    Said(String),
    /// Several goals of this vertex's action ran at the same time and shared the vertex's CPU time.
    Shared(V),
    Simulated(V),
    /// Items were published for this subscription, or requests sent to this service, and it took
    /// none of them. The count is their number.
    Starved(V),
    /// The virtual machine's host took CPU time from observed threads. The count is a time in ns.
    #[serde(with = "no_subject")]
    Stolen,
    /// The topics that this timer publishes showed to which node it belongs.
    TimerNode(V),
    #[serde(with = "no_subject")]
    Unasked,
    /// The first item that a thread took in the recording was left out, because a callback that
    /// began before the recording may have taken it.
    #[serde(with = "no_subject")]
    Unbegun,
    /// A thread received an item of this link while it ran no callback.
    Unclaimed(N),
    /// onbeat could not decide in time to which callback or caller an event belongs.
    #[serde(with = "no_subject")]
    Undecided,
    #[serde(with = "no_subject")]
    UnknownCallback,
    /// A task executed a goal of this action, and the recording does not show which goal, for
    /// example because the goal was sent before the recording.
    UnknownGoal(N),
    #[serde(with = "no_subject")]
    UnknownHandle,
    #[serde(with = "no_subject")]
    UnknownMachine,
    /// One of several callbacks that waited for responses has published on this topic or service.
    /// onbeat cannot know which of these callbacks it was.
    UnknownWaiter(N),
    Unscheduled(V),
    Unseen(V),
    /// Executors used CPU time for work that has no events. The count is a time in ns.
    #[serde(with = "no_subject")]
    UnseenTime,
    #[serde(with = "no_subject")]
    UnseenWork,
    /// An execution of this vertex ran at a time that no event shows: on a thread of a pool, or
    /// beside callbacks that waited for other responses.
    Unshown(V),
}

impl Note {
    /// Returns the subject of a note, if one sentence can unite several notes of its kind about
    /// different subjects. Otherwise returns `None`.
    pub fn subject(&self) -> Option<&str> {
        use Note::{Aborted, CallerGuess, CallerUnknown, Capped, CutOff, Foreign, Ignored};
        use Note::{Doubled, RingName, Unclaimed, Unscheduled};
        use Note::{
            Outside, PeriodChanged, Reordered, RingFound, Shared, Simulated, Starved, TimerNode,
        };
        match self {
            Aborted(s) | CallerGuess(s) | CallerUnknown(s) | Capped(s) | CutOff(s) | Foreign(s)
            | Doubled(s) | Ignored(s) | Outside(s) | PeriodChanged(s) | Reordered(s)
            | RingFound(s) | RingName(s) | Simulated(s) | Shared(s) | Starved(s) | TimerNode(s)
            | Unclaimed(s) | Unscheduled(s) => Some(s),
            _ => None,
        }
    }

    pub fn about(&self, subject: String) -> Option<Note> {
        self.subject()?;
        self.clone()
            .named(|_| Some(subject.clone()), |_| subject.clone())
    }
}

impl<V, N> Note<V, N> {
    /// Replaces the indices of vertices and names in a note by ids and texts. Returns `None` if
    /// `vertex` gives no id.
    pub fn named(
        self,
        vertex: impl FnOnce(V) -> Option<String>,
        name: impl FnOnce(N) -> String,
    ) -> Option<Note> {
        Some(match self {
            Note::Aborted(v) => Note::Aborted(vertex(v)?),
            Note::Assumed(sentence) => Note::Assumed(sentence),
            Note::CallerGuess(n) => Note::CallerGuess(name(n)),
            Note::CallerUnknown(n) => Note::CallerUnknown(name(n)),
            Note::Capped(v) => Note::Capped(vertex(v)?),
            Note::ClockStep => Note::ClockStep,
            Note::Cut(cut) => Note::Cut(cut),
            Note::CutOff(v) => Note::CutOff(vertex(v)?),
            Note::Doubled(n) => Note::Doubled(name(n)),
            Note::Foreign(n) => Note::Foreign(name(n)),
            Note::HeldBack(n) => Note::HeldBack(name(n)),
            Note::HelperTime => Note::HelperTime,
            Note::Ignored(n) => Note::Ignored(name(n)),
            Note::Input(n) => Note::Input(name(n)),
            Note::Junction(stated) => Note::Junction(stated),
            Note::Link(link) => Note::Link(link),
            Note::LostSwitch => Note::LostSwitch,
            Note::ModeUnseen(mode) => Note::ModeUnseen(mode),
            Note::NameRule(rule) => Note::NameRule(rule),
            Note::NoInput(n) => Note::NoInput(name(n)),
            Note::NodeName(node) => Note::NodeName(node),
            Note::OutOfOrder => Note::OutOfOrder,
            Note::Outside(n) => Note::Outside(name(n)),
            Note::Overtaken(n) => Note::Overtaken(name(n)),
            Note::PairsCapped => Note::PairsCapped,
            Note::PeriodChanged(v) => Note::PeriodChanged(vertex(v)?),
            Note::Renamed(n) => Note::Renamed(name(n)),
            Note::Reordered(v) => Note::Reordered(vertex(v)?),
            Note::RingFound(v) => Note::RingFound(vertex(v)?),
            Note::RingName(v) => Note::RingName(vertex(v)?),
            Note::Said(sentence) => Note::Said(sentence),
            Note::Shared(v) => Note::Shared(vertex(v)?),
            Note::Simulated(v) => Note::Simulated(vertex(v)?),
            Note::Starved(v) => Note::Starved(vertex(v)?),
            Note::Stolen => Note::Stolen,
            Note::TimerNode(v) => Note::TimerNode(vertex(v)?),
            Note::Unasked => Note::Unasked,
            Note::Unbegun => Note::Unbegun,
            Note::Unclaimed(n) => Note::Unclaimed(name(n)),
            Note::Undecided => Note::Undecided,
            Note::UnknownCallback => Note::UnknownCallback,
            Note::UnknownGoal(n) => Note::UnknownGoal(name(n)),
            Note::UnknownHandle => Note::UnknownHandle,
            Note::UnknownMachine => Note::UnknownMachine,
            Note::UnknownWaiter(n) => Note::UnknownWaiter(name(n)),
            Note::Unscheduled(v) => Note::Unscheduled(vertex(v)?),
            Note::Unseen(v) => Note::Unseen(vertex(v)?),
            Note::UnseenTime => Note::UnseenTime,
            Note::UnseenWork => Note::UnseenWork,
            Note::Unshown(v) => Note::Unshown(vertex(v)?),
        })
    }
}

mod no_subject {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str("")
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<(), D::Error> {
        match String::deserialize(d)?.as_str() {
            "" => Ok(()),
            other => Err(serde::de::Error::custom(format_args!(
                "the note's kind allows no subject, but the note has the subject '{other}'"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::hidden::CountedNote;

    fn all() -> Vec<Note> {
        let s = || "x".to_string();
        vec![
            Note::Aborted(s()),
            Note::Assumed(s()),
            Note::CallerGuess(s()),
            Note::CallerUnknown(s()),
            Note::Capped(s()),
            Note::ClockStep,
            Note::Cut(s()),
            Note::CutOff(s()),
            Note::Doubled(s()),
            Note::Foreign(s()),
            Note::HeldBack(s()),
            Note::HelperTime,
            Note::Ignored(s()),
            Note::Input(s()),
            Note::Junction(s()),
            Note::Link(s()),
            Note::LostSwitch,
            Note::ModeUnseen(s()),
            Note::NameRule(s()),
            Note::NoInput(s()),
            Note::NodeName(s()),
            Note::OutOfOrder,
            Note::Outside(s()),
            Note::Overtaken(s()),
            Note::PairsCapped,
            Note::PeriodChanged(s()),
            Note::Renamed(s()),
            Note::Reordered(s()),
            Note::RingFound(s()),
            Note::RingName(s()),
            Note::Said(s()),
            Note::Shared(s()),
            Note::Simulated(s()),
            Note::Starved(s()),
            Note::Stolen,
            Note::TimerNode(s()),
            Note::Unasked,
            Note::Unbegun,
            Note::Unclaimed(s()),
            Note::Undecided,
            Note::UnknownCallback,
            Note::UnknownGoal(s()),
            Note::UnknownHandle,
            Note::UnknownMachine,
            Note::UnknownWaiter(s()),
            Note::Unscheduled(s()),
            Note::Unseen(s()),
            Note::UnseenTime,
            Note::UnseenWork,
            Note::Unshown(s()),
        ]
    }

    #[test]
    fn every_model_note_survives_writing_and_reading() {
        for note in all() {
            let counted = CountedNote { note, count: 3 };
            let text = serde_json::to_string(&counted).unwrap();
            assert_eq!(serde_json::from_str::<CountedNote>(&text).unwrap(), counted);
        }
    }

    #[test]
    fn a_note_is_written_as_kind_subject_and_count() {
        let text = |note| serde_json::to_string(&CountedNote { note, count: 2 }).unwrap();
        assert_eq!(
            text(Note::CutOff("/a:timer(1ms)".into())),
            r#"{"kind":"cut_off","subject":"/a:timer(1ms)","count":2}"#
        );
        assert_eq!(
            text(Note::LostSwitch),
            r#"{"kind":"lost_switch","subject":"","count":2}"#
        );
    }

    #[test]
    fn notes_sort_in_the_order_of_their_text() {
        let kind = |note: &Note| {
            let value = serde_json::to_value(note).unwrap();
            value["kind"].as_str().unwrap().to_string()
        };
        let (mut by_note, mut by_kind) = (all(), all());
        by_note.sort();
        by_kind.sort_by_key(kind);
        assert_eq!(by_note, by_kind);
        let mut names: Vec<String> = by_kind.iter().map(kind).collect();
        names.dedup();
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn an_unknown_kind_of_note_gives_an_error_that_names_it() {
        let read = |text| {
            serde_json::from_str::<CountedNote>(text)
                .unwrap_err()
                .to_string()
        };
        let error = read(r#"{"kind":"sunspots","subject":"","count":1}"#);
        assert!(error.contains("`sunspots`"), "{error}");
        let error = read(r#"{"kind":"lost_switch","subject":"/a","count":1}"#);
        assert!(error.contains("'/a'"), "{error}");
        let error = read(r#"{"kind":"outside","count":1}"#);
        assert!(error.contains("subject"), "{error}");
    }

    #[test]
    fn a_note_about_a_vertex_without_an_id_is_left_out() {
        let ids = [Some("/a".to_string()), None];
        let named = |note: Note<usize, u32>| note.named(|v| ids[v].clone(), |n| n.to_string());
        assert_eq!(
            named(Note::Aborted(0)),
            Some(Note::Aborted("/a".to_string()))
        );
        assert_eq!(named(Note::Aborted(1)), None);
        assert_eq!(
            named(Note::Outside(7)),
            Some(Note::Outside("7".to_string()))
        );
    }
}
