//! Selects what is replayed: streams, CAN identifiers, new names, the start and the number of
//! repetitions.

use crate::database::FrameId;
use crate::item::{Details, Extras, Kind, Source, SourceError, Stamp, Stream, StreamId};
pub use crate::pattern::fits;
use crate::requests::{is_published_by, without_topic, Recorded, Service};
use crate::source::damage::Damage;
use events::Events;
pub use events::Sides;
use latched::Latched;
use std::ops::RangeInclusive;

mod events;
mod latched;

/// A function that opens the recording. A [`Chain`] calls the function once for each repetition.
pub type Open = Box<dyn FnMut() -> Result<Box<dyn Source>, SourceError> + Send>;

/// The part of a recording that a [`Chain`] plays, and how often.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The patterns of the names of streams to play. `*` stands for any characters. An empty list
    /// selects all streams.
    pub only: Vec<String>,
    /// The patterns of the names of streams to leave out. `*` stands for any characters.
    pub without: Vec<String>,
    /// The patterns of streams that are compared instead of played. A pattern does not have to
    /// match a stream.
    pub compared: Vec<String>,
    /// The streams to rename: pairs of recorded name and new name.
    pub rename: Vec<(String, String)>,
    /// The CAN identifiers to play, with 11 or 29 bits. If this list and `messages` are empty, all
    /// frames are played.
    pub ids: Vec<RangeInclusive<u32>>,
    /// The identifiers of the CAN messages to play, in addition to `ids`.
    pub messages: Vec<FrameId>,
    pub direction: Direction,
    /// The recorded requests of services and actions to send, chosen by the side that recorded
    /// them. `None` plays service events as messages.
    pub requests: Option<Sides>,
    /// The recorded time to skip at the beginning, in ns.
    pub start_ns: i64,
    /// If true, onbeat plays the latest skipped messages of latched topics first. Messages are
    /// skipped at the beginning and by seeking.
    pub plays_latched: bool,
    /// The recorded time at which playback ends, in ns since the first item. `None` plays all
    /// items.
    pub end_ns: Option<i64>,
    /// The number of times that the recording is played, at least 1.
    pub times: u32,
    /// The longest allowed recorded time without an item, in ns. Longer gaps are shortened to this
    /// time. `None` does not shorten gaps.
    pub max_gap_ns: Option<u64>,
}

/// The frames and packets that are played, by their direction at the recorder.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    #[default]
    All,
    /// Only frames and packets that the recorder received. Those of recordings without directions
    /// count as received.
    Received,
    /// Only frames and packets that the recorder's host sent.
    Sent,
}

impl Direction {
    fn takes(self, is_sent: bool) -> bool {
        match self {
            Direction::All => true,
            Direction::Received => !is_sent,
            Direction::Sent => is_sent,
        }
    }
}

/// A source that returns a selection of another source's items, repeated if the user wants it.
pub struct Chain {
    open: Open,
    source: Box<dyn Source>,
    choice: Choice,
    streams: Vec<Stream>,
    numbers: Vec<Option<StreamId>>,
    times_left: u32,
    span: Span,
    /// One sentence for each kind of stream that is left out.
    left_out: Vec<String>,
    unplayable: u64,
    events: Events,
    /// A sentence about requests that were not sent. Set once the recording was read to its end.
    not_sent: Option<String>,
    damage: Vec<String>,
    /// The recorded time that the user has sought. Items before this time are left out.
    from_ns: i64,
    at_ns: i64,
    /// The messages of latched topics: those that were skipped, and those of them that will be
    /// played before the next item.
    latched: Latched,
}

#[derive(Debug, Default)]
struct Span {
    first_ns: Option<i64>,
    last_ns: i64,
    items: i64,
    shift_ns: i64,
    cut_ns: i64,
}

impl Span {
    fn add(&mut self, time_ns: i64, max_gap_ns: Option<u64>) -> i64 {
        let mut at_ns = time_ns.saturating_sub(self.cut_ns);
        let gap_ns = match self.first_ns {
            Some(_) => u64::try_from(at_ns.saturating_sub(self.last_ns)).unwrap_or(0),
            None => 0,
        };
        if let Some(over_ns) = max_gap_ns.and_then(|most| gap_ns.checked_sub(most)) {
            let over_ns = i64::try_from(over_ns).unwrap_or(i64::MAX);
            self.cut_ns = self.cut_ns.saturating_add(over_ns);
            at_ns = at_ns.saturating_sub(over_ns);
        }
        self.last_ns = match self.first_ns {
            Some(_) => self.last_ns.max(at_ns),
            None => at_ns,
        };
        self.first_ns.get_or_insert(at_ns);
        self.items += 1;
        at_ns
    }

    /// Returns the times of the next repetition of the recording. The next repetition begins one
    /// pause after the end of this repetition. The pause is the mean time between two items.
    fn next(&self) -> Span {
        let first = self.first_ns.unwrap_or(0);
        let length = self.last_ns.saturating_sub(first);
        let gap = length / (self.items - 1).max(1);
        Span {
            shift_ns: self.shift_ns.saturating_add(length).saturating_add(gap),
            ..Span::default()
        }
    }
}

impl Chain {
    /// Opens the recording and selects its streams.
    ///
    /// # Errors
    /// Fails if the recording cannot be opened, or if a pattern matches none of its streams.
    pub fn new(mut open: Open, choice: Choice) -> Result<Chain, SourceError> {
        let source = open()?;
        let Chosen {
            streams,
            numbers,
            left_out,
            unplayable,
        } = choose(source.streams(), source.damage(), &choice)?;
        let mut chain = Chain {
            open,
            source,
            times_left: choice.times.max(1),
            choice,
            streams,
            numbers,
            span: Span::default(),
            left_out: left_out.sentences().to_vec(),
            unplayable,
            events: Events::default(),
            not_sent: None,
            damage: Vec::new(),
            from_ns: i64::MIN,
            at_ns: i64::MIN,
            latched: Latched::default(),
        };
        if chain.choice.plays_latched {
            chain.latched = Latched::of(&chain.streams);
        }
        if let Some(sides) = chain.choice.requests {
            chain.events = Events::of(&chain.streams, sides);
        }
        chain.say();
        Ok(chain)
    }

    /// Returns the number of selected streams that are left out, because their messages cannot be
    /// played.
    pub fn unplayable(&self) -> u64 {
        self.unplayable
    }

    /// Selects the requests to send so that each recorded request is sent once. For each service,
    /// these are the requests that the server recorded, or those of the clients if the server
    /// recorded none. `recorded` contains the requests from a chain with the same choice and
    /// [`Sides::Both`].
    pub fn take_each_request_once(&mut self, recorded: &[Recorded]) {
        self.events.choose(recorded);
    }

    /// Adds the sentences about left-out streams to the sentences about the source's damage.
    fn say(&mut self) {
        if self.left_out.is_empty() {
            return;
        }
        if self.damage.get(self.left_out.len()..) != Some(self.source.damage()) {
            self.damage = self.left_out.clone();
            self.damage.extend_from_slice(self.source.damage());
        }
    }

    fn number(&mut self, stamp: Stamp, payload: &[u8]) -> Option<StreamId> {
        let stream = (*self.numbers.get(stamp.stream.0 as usize)?)?;
        let choice = &self.choice;
        match self.streams[stream.0 as usize].kind {
            Kind::Can if !takes_frame(choice, payload) => return None,
            Kind::Can | Kind::Packets { .. } => {}
            Kind::Requests { .. } => return self.events.take(stream, payload).then_some(stream),
            Kind::Ros { .. } | Kind::Unplayable { .. } => return Some(stream),
        }
        let is_all = choice.direction == Direction::All;
        (is_all || choice.direction.takes(self.source.details().is_sent)).then_some(stream)
    }

    /// Starts the next repetition. Returns `false` after the last one, or if the recording has no
    /// items.
    fn again(&mut self) -> Result<bool, SourceError> {
        self.times_left -= 1;
        if self.times_left == 0 || self.span.first_ns.is_none() {
            self.times_left = 1;
            return Ok(false);
        }
        self.reopen()?;
        self.span = self.span.next();
        Ok(true)
    }

    /// Adds a sentence about requests that were not sent to the sentences about damage.
    fn end(&mut self) {
        let Some(sentence) = self.events.sentence() else {
            return;
        };
        let before = self.not_sent.replace(sentence.clone());
        self.damage.retain(|said| Some(said) != before.as_ref());
        for said in self.source.damage() {
            if !self.damage.contains(said) {
                self.damage.push(said.clone());
            }
        }
        self.damage.push(sentence);
    }

    fn reopen(&mut self) -> Result<(), SourceError> {
        if self.left_out.is_empty() {
            self.damage.extend_from_slice(self.source.damage());
            self.damage.dedup();
        }
        let source = (self.open)()?;
        if source.streams() != self.source.streams() {
            return Err(SourceError {
                file: "the recording".into(),
                fault: "the recording changed between two repetitions. Do not change it while it is played."
                    .into(),
            });
        }
        self.source = source;
        Ok(())
    }
}

fn takes_frame(choice: &Choice, frame: &[u8]) -> bool {
    if choice.ids.is_empty() && choice.messages.is_empty() {
        return true;
    }
    let Some(word) = frame.first_chunk().map(|word| u32::from_ne_bytes(*word)) else {
        return false;
    };
    let id = word & 0x1fff_ffff;
    let is_message = |id| choice.messages.contains(&id);
    choice.ids.iter().any(|ids| ids.contains(&id)) || FrameId::of_word(word).is_some_and(is_message)
}

struct Chosen {
    streams: Vec<Stream>,
    numbers: Vec<Option<StreamId>>,
    left_out: Damage,
    unplayable: u64,
}

/// Returns the stream under which items are played. If the requests of a service are sent, the
/// returned stream has the name and type of the service.
fn as_played(stream: &Stream, choice: &Choice) -> Stream {
    let service = choice.requests.and_then(|_| Service::of(stream));
    service.map_or_else(
        || stream.clone(),
        |Service { name, type_name }| Stream {
            name,
            kind: Kind::Requests { type_name },
        },
    )
}

fn check_patterns(all: &[(&Stream, Stream)], choice: &Choice) -> Result<(), SourceError> {
    let names = choice.rename.iter().map(|(from, _)| from);
    for pattern in choice.only.iter().chain(&choice.without).chain(names) {
        let is_name =
            |(s, played): &(&Stream, Stream)| fits(pattern, &s.name) || fits(pattern, &played.name);
        if !all.iter().any(is_name) {
            let known: Vec<&str> = all.iter().take(20).map(|(_, s)| s.name.as_str()).collect();
            return Err(SourceError {
                file: format!("'{pattern}'"),
                fault: format!(
                    "no stream has this name. The recording has {}",
                    known.join(", ")
                ),
            });
        }
    }
    Ok(())
}

fn choose(recorded: &[Stream], damage: &[String], choice: &Choice) -> Result<Chosen, SourceError> {
    let played = recorded.iter().map(|s| (s, as_played(s, choice)));
    let all: Vec<(&Stream, Stream)> = played.collect();
    check_patterns(&all, choice)?;
    let is_chosen = |stream: &Stream, played: &Stream| {
        let named = |patterns: &[String]| {
            let mut patterns = patterns.iter();
            patterns.any(|p| fits(p, &stream.name) || fits(p, &played.name))
        };
        let is_out = named(&choice.without) || named(&choice.compared);
        !is_out && (choice.only.is_empty() || named(&choice.only))
    };
    let sent = all
        .iter()
        .filter(|(s, played)| matches!(played.kind, Kind::Requests { .. }) && is_chosen(s, played));
    let sent: Vec<Service> = sent.filter_map(|(s, _)| Service::of(s)).collect();
    if choice.requests.is_some() && sent.is_empty() {
        return Err(SourceError {
            file: "the recording".into(),
            fault: "no requests to send: none of the chosen streams has service events (NAME/_service_event). Leave --requests out".into(),
        });
    }
    let actions: Vec<String> = sent
        .iter()
        .filter_map(|service| service.action().map(String::from))
        .collect();
    let mut streams = Vec::new();
    let mut left_out = Damage::default();
    let mut unplayable = 0;
    let numbers = all.iter().map(|(stream, played)| {
        if !is_chosen(stream, played) {
            return None;
        }
        if let Kind::Unplayable { reason, .. } = &stream.kind {
            unplayable += 1;
            left_out.add("streams that cannot be played, left out", || {
                format!("{}: {reason}", stream.name)
            });
            return None;
        }
        if is_published_by(&actions, stream) {
            let what = "topics that the servers of actions publish themselves, left out";
            left_out.add(what, || stream.name.clone());
            return None;
        }
        let mut renames = choice.rename.iter();
        let rename = renames.find(|(from, _)| *from == stream.name || *from == played.name);
        let name = rename.map_or(&*played.name, |(_, to)| match played.kind {
            Kind::Requests { .. } => without_topic(to),
            _ => to,
        });
        streams.push(Stream {
            name: name.into(),
            kind: played.kind.clone(),
        });
        Some(StreamId(streams.len() as u32 - 1))
    });
    let numbers = numbers.collect();
    if streams.is_empty() {
        let left_out = left_out.sentences();
        let fault = match recorded.is_empty() || !left_out.is_empty() {
            // The reason is among the damage: encodings that cannot be played, or no readable part.
            true => "nothing to play: no stream of the recording can be read",
            false if choice.compared.is_empty() => {
                "nothing to play: --exclude removes all streams. Exclude fewer"
            }
            false => {
                "nothing to play: --exclude and --compare leave no stream. Name fewer topics in these options"
            }
        };
        return Err(SourceError {
            file: "the recording".into(),
            fault: [fault]
                .into_iter()
                .chain(left_out.iter().chain(damage).map(String::as_str))
                .collect::<Vec<_>>()
                .join(". "),
        });
    }
    Ok(Chosen {
        streams,
        numbers,
        left_out,
        unplayable,
    })
}

impl Source for Chain {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        if let Some(stamp) = self.latched.release(payload) {
            return Ok(Some(stamp));
        }
        loop {
            let next = self.source.next(payload)?;
            self.say();
            let next = next.map(|stamp| {
                let time_ns = self.span.add(stamp.time_ns, self.choice.max_gap_ns);
                let first_ns = self.span.first_ns.unwrap_or(time_ns);
                (stamp, time_ns, time_ns.saturating_sub(first_ns))
            });
            let is_within = |since_ns: i64| self.choice.end_ns.is_none_or(|end| since_ns < end);
            let Some((stamp, time_ns, since_ns)) = next.filter(|next| is_within(next.2)) else {
                if self.again()? {
                    continue;
                }
                self.end();
                return Ok(None);
            };
            let time_ns = time_ns.saturating_add(self.span.shift_ns);
            let is_skipped = since_ns < self.choice.start_ns || time_ns < self.from_ns;
            if is_skipped && self.latched.is_empty() {
                continue;
            }
            let Some(stream) = self.number(stamp, payload) else {
                continue;
            };
            if is_skipped {
                self.latched.keep(stream, payload);
                continue;
            }
            self.at_ns = time_ns;
            return Ok(Some(
                self.latched.before(Stamp { time_ns, stream }, payload),
            ));
        }
    }

    fn details(&self) -> Details {
        self.source.details()
    }

    fn seek(&mut self, to_ns: i64) -> Result<(), SourceError> {
        if to_ns <= self.at_ns {
            self.reopen()?;
            self.span = Span::default();
            self.times_left = self.choice.times.max(1);
            self.at_ns = i64::MIN;
            self.latched.forget();
        }
        self.from_ns = to_ns;
        Ok(())
    }

    fn damage(&self) -> &[String] {
        if self.damage.is_empty() {
            self.source.damage()
        } else {
            &self.damage
        }
    }

    fn back_ns(&self) -> u64 {
        self.source.back_ns()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.source.definition(type_name)
    }

    fn encoding(&self, stream: StreamId) -> Option<&str> {
        let mut numbers = self.numbers.iter();
        let recorded = numbers.position(|number| *number == Some(stream))?;
        self.source.encoding(StreamId(recorded as u32))
    }

    fn extras(&self) -> Extras {
        self.source.extras()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{stream, Listed};

    fn played(choice: Choice) -> Result<Vec<(i64, String, u8)>, SourceError> {
        let open = || {
            let mut listed = Listed::new(vec![stream("/a"), stream("/b/x"), stream("/b/y")]);
            (0..6u8).for_each(|n| listed.push(1000 + 10 * i64::from(n), u32::from(n) % 3, &[n]));
            Ok(Box::new(listed) as Box<dyn Source>)
        };
        let mut chain = Chain::new(Box::new(open), choice)?;
        let (mut out, mut payload) = (Vec::new(), Vec::new());
        while let Some(stamp) = chain.next(&mut payload)? {
            let name = chain.streams()[stamp.stream.0 as usize].name.clone();
            out.push((stamp.time_ns, name, payload[0]));
        }
        Ok(out)
    }

    #[test]
    fn the_choice_of_the_user_selects_renames_and_repeats_streams() {
        let choice = Choice {
            only: vec!["/b/*".into(), "/a".into()],
            without: vec!["*/y".into()],
            rename: vec![("/a".into(), "/z".into())],
            start_ns: 10,
            times: 2,
            ..Choice::default()
        };
        let one = [(1010, "/b/x", 1), (1030, "/z", 3), (1040, "/b/x", 4)];
        let mut expected = Vec::new();
        for shift in [0, 60] {
            expected.extend(one.map(|(t, name, n)| (t + shift, name.to_string(), n)));
        }
        assert_eq!(played(choice).unwrap(), expected);
    }

    #[test]
    fn frames_are_selected_by_identifier_message_and_direction() {
        let open = || {
            let text = "(1.0) can0 123#01 R\n(1.1) can0 00000123#02 T\n(1.2) can0 124#03 T\n\
                (1.3) can0 20000123#04 T\n(1.4) can0 125#05 R\n";
            let log = crate::source::candump::read("log", std::io::Cursor::new(text.as_bytes()))?;
            Ok(log)
        };
        let played = |choice: Choice| {
            let mut chain = Chain::new(Box::new(open), choice).unwrap();
            let (mut out, mut payload) = (Vec::new(), Vec::new());
            while chain.next(&mut payload).unwrap().is_some() {
                out.push(payload[8]);
            }
            out
        };
        let near = FrameId::of_word(0x123).unwrap();
        let some = |ids: &[RangeInclusive<u32>], messages: &[FrameId], direction| {
            played(Choice {
                ids: ids.to_vec(),
                messages: messages.to_vec(),
                direction,
                ..Choice::default()
            })
        };
        assert_eq!(some(&[], &[], Direction::All).len(), 5);
        assert_eq!(some(&[], &[near], Direction::All), [1]);
        assert_eq!(some(&[0x124..=0x125], &[near], Direction::All), [1, 3, 5]);
        assert_eq!(some(&[0x123..=0x123], &[], Direction::Received), [1]);
        assert_eq!(some(&[0x123..=0x124], &[], Direction::Sent)[..2], [2, 3]);
    }

    #[test]
    fn a_seek_continues_at_any_time_of_any_repetition_of_a_recording() {
        let open = || {
            let mut listed = Listed::new(vec![stream("/a")]);
            (0..4u8).for_each(|n| listed.push(1000 + 10 * i64::from(n), 0, &[n]));
            Ok(Box::new(listed) as Box<dyn Source>)
        };
        let choice = Choice {
            start_ns: 10,
            times: 2,
            ..Choice::default()
        };
        let mut chain = Chain::new(Box::new(open), choice).unwrap();
        let mut times = |to_ns: i64, count: usize| {
            chain.seek(to_ns).unwrap();
            let mut payload = Vec::new();
            let next = || Some(chain.next(&mut payload).unwrap()?.time_ns);
            std::iter::from_fn(next).take(count).collect::<Vec<_>>()
        };
        assert_eq!(times(0, 2), [1010, 1020]);
        assert_eq!(
            times(1055, 9),
            [1060, 1070],
            "forward, into the second repetition"
        );
        assert_eq!(times(1015, 3), [1020, 1030, 1050], "back");
        assert!(times(9999, 1).is_empty());
        assert_eq!(times(1010, 9).len(), 6);
    }

    #[test]
    fn latched_messages_before_the_start_are_played_first() {
        let open = || {
            let topic = |name: &str, depth: u32, durability: &str| Stream {
                name: name.into(),
                kind: Kind::Ros {
                    type_name: "a/msg/B".into(),
                    qos: Some(format!(
                        "- history: keep_last\n  depth: {depth}\n  durability: {durability}\n"
                    )),
                },
            };
            let map = topic("/map", 1, "transient_local");
            let tf = topic("/tf_static", 3, "transient_local");
            let mut listed = Listed::new(vec![map, tf, topic("/scan", 5, "volatile")]);
            for (time_ns, stream, value) in [
                (0, 0, 1),
                (1, 1, 2),
                (2, 1, 3),
                (3, 0, 4),
                (4, 2, 5),
                (5, 1, 3),
                (6, 1, 6),
                (7, 0, 4),
                (20, 2, 7),
                (30, 0, 8),
                (40, 2, 9),
            ] {
                listed.push(time_ns, stream, &[value]);
            }
            Ok(Box::new(listed) as Box<dyn Source>)
        };
        let choice = |start_ns, plays_latched| Choice {
            start_ns,
            plays_latched,
            ..Choice::default()
        };
        let rest = |chain: &mut Chain| {
            let mut payload = Vec::new();
            let next = || Some((chain.next(&mut payload).unwrap()?.time_ns, payload[0]));
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        let mut chain = Chain::new(Box::new(open), choice(10, true)).unwrap();
        // Of equal messages the latest counts, and no topic has more than a late subscriber would receive.
        let latched = [
            (20, 2),
            (20, 3),
            (20, 6),
            (20, 4),
            (20, 7),
            (30, 8),
            (40, 9),
        ];
        assert_eq!(rest(&mut chain), latched);
        chain.seek(35).unwrap();
        let again = [(40, 2), (40, 3), (40, 6), (40, 8), (40, 9)];
        assert_eq!(rest(&mut chain), again);
        let mut chain = Chain::new(Box::new(open), choice(10, false)).unwrap();
        assert_eq!(rest(&mut chain), latched[4..]);
        let mut chain = Chain::new(Box::new(open), choice(0, true)).unwrap();
        assert_eq!(rest(&mut chain).len(), 11);
    }

    #[test]
    fn each_recorded_request_is_taken_once_under_the_name_of_its_service() {
        let open = || {
            let topic = |name: &str, type_name: &str| Stream {
                name: name.into(),
                kind: Kind::Ros {
                    type_name: type_name.into(),
                    qos: None,
                },
            };
            let mut listed = Listed::new(vec![
                topic("/s/_service_event", "a/srv/S_Event"),
                topic("/c/_service_event", "a/srv/S_Event"),
                topic(
                    "/w/_action/send_goal/_service_event",
                    "a/action/W_SendGoal_Event",
                ),
                topic("/w/_action/status", "action_msgs/msg/GoalStatusArray"),
                topic("/v/_action/status", "action_msgs/msg/GoalStatusArray"),
            ]);
            let event = crate::requests::tests::event;
            // The server and a client of /s record both, only a client of /c does.
            for (n, (stream, kind)) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 3), (2, 1)]
                .into_iter()
                .enumerate()
            {
                let requests = u32::from(kind < 2);
                listed.push(n as i64, stream, &event(kind, requests, &[0; 8]));
            }
            listed.push(7, 0, b"cut off");
            listed.push(8, 3, &[0, 1, 0, 0]);
            listed.push(9, 4, &[0, 1, 0, 0]);
            Ok(Box::new(listed) as Box<dyn Source>)
        };
        let choice = |requests| Choice {
            requests,
            rename: vec![("/c".into(), "/d".into())],
            ..Choice::default()
        };
        let chain = |requests| Chain::new(Box::new(open), choice(requests)).unwrap();
        let played = |chain: &mut Chain| {
            let (mut out, mut payload) = (Vec::new(), Vec::new());
            while let Some(stamp) = chain.next(&mut payload).unwrap() {
                let name = chain.streams()[stamp.stream.0 as usize].name.clone();
                out.push((stamp.time_ns, name));
            }
            out
        };
        let expected = |all: &[(i64, &str)]| -> Vec<(i64, String)> {
            all.iter().map(|(n, name)| (*n, name.to_string())).collect()
        };
        let mut by_server = chain(Some(Sides::Server));
        let goal = (6, "/w/_action/send_goal");
        let rest = [goal, (7, "/s"), (9, "/v/_action/status")];
        let all = [&[(1, "/s")], &rest[..]].concat();
        assert_eq!(played(&mut by_server), expected(&all));
        let left_out = by_server.damage().join("; ");
        assert!(left_out.contains("/w/_action/status"), "{left_out}");
        assert!(left_out.contains("--requests=client"), "{left_out}");
        let mut by_client = chain(Some(Sides::Client));
        let all = [&[(0, "/s"), (4, "/d")], &rest[1..]].concat();
        assert_eq!(played(&mut by_client), expected(&all));
        let contents = crate::contents::Contents::of(&mut chain(Some(Sides::Both)), &mut |_| {});
        let counts = contents.requests.iter();
        let counts: Vec<_> = counts.map(|r| (r.stream.0, r.playable())).collect();
        assert_eq!(counts, [(0, 1), (1, 1), (2, 1)]);
        let mut once = chain(Some(Sides::Server));
        once.take_each_request_once(&contents.requests);
        let all = [&[(1, "/s"), (4, "/d")], &rest[..]].concat();
        assert_eq!(played(&mut once), expected(&all));
        assert_eq!(once.damage().len(), 1, "{:?}", once.damage());
        // Without the option, service events are messages of a topic.
        let plain = Choice {
            without: vec!["/w*".into()],
            ..Choice::default()
        };
        let mut plain = Chain::new(Box::new(open), plain).unwrap();
        assert_eq!(played(&mut plain).len(), 8);
        assert_eq!(plain.streams()[0].name, "/s/_service_event");
        let none = Choice {
            only: vec!["/v*".into()],
            requests: Some(Sides::Server),
            ..Choice::default()
        };
        let error = Chain::new(Box::new(open), none).err().expect("no requests");
        assert!(error.to_string().contains("--requests"), "{error}");
    }

    #[test]
    fn gaps_longer_than_the_limit_are_shortened_and_shorter_gaps_stay() {
        let open = || {
            let mut listed = Listed::new(vec![stream("/a")]);
            // The clock was not set before the second item, and the recorder paused before the last.
            for time_ns in [0, 5_000_000, 5_000_010, 5_000_020, 5_007_000] {
                listed.push(time_ns, 0, &[0]);
            }
            Ok(Box::new(listed) as Box<dyn Source>)
        };
        let times = |max_gap_ns| {
            let choice = Choice {
                max_gap_ns,
                ..Choice::default()
            };
            let mut chain = Chain::new(Box::new(open), choice).unwrap();
            let (mut out, mut payload) = (Vec::new(), Vec::new());
            while let Some(stamp) = chain.next(&mut payload).unwrap() {
                out.push(stamp.time_ns);
            }
            out
        };
        assert_eq!(times(Some(100)), [0, 100, 110, 120, 220]);
        assert_eq!(times(None)[1..3], [5_000_000, 5_000_010]);
    }

    #[test]
    fn streams_that_cannot_be_played_are_left_out_and_reported() {
        let open = || {
            let mut own = stream("/own");
            own.kind = Kind::Unplayable {
                type_name: "my_msgs/Thing".into(),
                encoding: None,
                reason: "unknown type".into(),
            };
            let mut listed = Listed::new(vec![own, stream("/b")]);
            (0..4u8).for_each(|n| listed.push(n.into(), u32::from(n) % 2, &[n]));
            Ok(Box::new(listed) as Box<dyn Source>)
        };
        let played = |only: &[&str]| {
            let choice = Choice {
                only: only.iter().map(|pattern| pattern.to_string()).collect(),
                ..Choice::default()
            };
            Chain::new(Box::new(open), choice)
        };
        let mut chain = played(&[]).unwrap();
        let (mut out, mut payload) = (Vec::new(), Vec::new());
        while let Some(stamp) = chain.next(&mut payload).unwrap() {
            out.push((stamp.time_ns, stamp.stream.0));
        }
        assert_eq!(out, [(1, 0), (3, 0)]);
        let left_out = "streams that cannot be played, left out: 1 (the first: /own: unknown type)";
        assert_eq!(chain.damage(), [left_out]);
        let error = played(&["/own"])
            .err()
            .expect("nothing to play")
            .to_string();
        assert!(error.contains(left_out), "{error}");
    }

    #[test]
    fn an_error_names_the_stream_pattern_without_a_match() {
        let choice = Choice {
            only: vec!["/c".into()],
            ..Choice::default()
        };
        let error = played(choice).unwrap_err().to_string();
        assert!(error.contains("'/c'") && error.contains("/b/x"), "{error}");
        let choice = Choice {
            without: vec!["*".into()],
            ..Choice::default()
        };
        let error = played(choice).unwrap_err().to_string();
        assert!(error.contains("--exclude"), "{error}");
        let empty = || Ok(Box::new(Listed::new(Vec::new())) as Box<dyn Source>);
        let error = Chain::new(Box::new(empty), Choice::default()).err();
        let error = error.expect("nothing to play").to_string();
        assert!(!error.contains("--exclude"), "{error}");
    }
}
