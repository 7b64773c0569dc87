//! Compares what a device published with what a recording has: missing and additional messages, times
//! and contents.
//!
//! ```text
//! expected (Source) --+-> one queue for each topic and side -> pairs -> fields, shifts -> findings
//! observed (Source) --+   messages within the search time      pairing  fields           figures
//! ```
//!
//! | module | job |
//! |---|---|
//! | `layout` | the fields of a type, from its definition |
//! | `cdr` | primitive values of a serialised message |
//! | [`tolerance`] | how far a field may be off |
//! | `fields` | digests and differences of messages |
//! | `pairing` | which observed message answers to which recorded one |
//! | `topic` | one topic: what is held, and when it is judged |
//! | [`figures`] | the result |
//! | [`junit`] | the result for build servers |

mod cdr;
mod fields;
pub mod figures;
pub mod junit;
mod layout;
mod pairing;
pub mod tolerance;
mod topic;

use crate::definition;
use crate::item::{Kind, Source, SourceError, Stamp};
use figures::{Compared, Part, ShiftLimit, TopicFindings, Verdict};
use layout::Layout;
use std::collections::HashMap;
use tolerance::{Field, Tolerance};
use topic::{Reading, Side, Times, Topic};

/// The maximum number of bytes of messages that a comparison stores. A comparison may store one
/// message beyond this limit.
const MOST_BYTES: usize = 128 << 20;
/// The default of [`Rules::within_ns`]: the time within which a matching message is searched, in
/// ns.
pub const WITHIN_NS: u64 = 2_000_000_000;

/// The rules that decide what counts as a difference.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub tolerances: Vec<Tolerance>,
    pub ignored: Vec<Field>,
    /// The largest allowed shifts. If the list is empty, shifts are reported and not judged.
    pub shift: Vec<ShiftLimit>,
    /// Pairs of two compared topics: a topic, and the topic from which the device makes it. A limit
    /// on the median shift then applies to the difference of the two medians.
    pub follows: Vec<(String, String)>,
    /// The longest allowed time between a recorded message and the observed message that matches
    /// it, in ns.
    pub within_ns: u64,
}

/// The circumstances under which the messages were observed.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// The recorded time at which the observation begins. `None` means at the first message.
    pub from_ns: Option<i64>,
    /// The recorded time at which the observation ends. `None` means at the last message.
    pub until_ns: Option<i64>,
    /// True if the observed messages have time stamps on the recording's time axis. Only then can
    /// shifts be computed.
    pub has_times: bool,
    pub unseen: HashMap<String, u64>,
    /// For each topic, sentences about what restricts its comparison.
    pub notes: HashMap<String, Vec<String>>,
}

/// The reason why a comparison cannot be made or finished.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum CompareError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("no compared topic has a field '{field}'. The fields are {known}")]
    Field {
        field: String,
        /// Some of the fields that the compared topics have.
        known: String,
    },
    /// A topic in [`Rules::follows`] is not compared.
    #[error("{0} is not a compared topic, so its shift is unknown. Name a compared topic")]
    Follows(String),
    #[error("{0} has no messages of ROS 2, so it cannot be compared. Name topics of ROS 2")]
    NoRos(String),
}

/// Compares all streams of `expected` with the streams of the same names in `observed`. Reads each
/// source once, and stores the messages of a few seconds. After each message, calls `tell` with the
/// number of messages that were read so far.
///
/// # Errors
/// Fails if a recording cannot be read to its end, or if a rule names a field that no compared
/// topic has.
pub fn compare(
    expected: &mut dyn Source,
    observed: &mut dyn Source,
    rules: &Rules,
    observation: &Observation,
    tell: &mut dyn FnMut(u64),
) -> Result<Compared, CompareError> {
    let mut comparison = Comparison::new(&*expected, &*observed, rules)?;
    let sides = [Side::Expected, Side::Observed];
    let mut feeds = [Feed::new(expected)?, Feed::new(observed)?];
    comparison.times.from_ns = observation.from_ns.unwrap_or(i64::MIN);
    comparison.times.begin_ns = observation.from_ns.or(feeds[0].time_ns()).unwrap_or(0);
    comparison.times.until_ns = observation.until_ns.unwrap_or(i64::MAX);
    let mut read = 0;
    loop {
        let times = [feeds[0].time_ns(), feeds[1].time_ns()];
        let next = match times {
            [None, None] => break,
            [Some(a), Some(b)] => usize::from(b < a),
            [a, _] => usize::from(a.is_none()),
        };
        comparison.take(sides[next], &feeds[next]);
        feeds[next].advance()?;
        read += 1;
        tell(read);
    }
    let damage = feeds.iter().flat_map(|feed| feed.source.damage());
    let damage = damage.cloned().collect();
    Ok(comparison.close(rules, observation, damage))
}

struct Feed<'s> {
    source: &'s mut dyn Source,
    head: Option<Stamp>,
    payload: Vec<u8>,
}

impl<'s> Feed<'s> {
    fn new(source: &'s mut dyn Source) -> Result<Feed<'s>, SourceError> {
        let mut feed = Feed {
            source,
            head: None,
            payload: Vec::new(),
        };
        feed.advance()?;
        Ok(feed)
    }

    fn time_ns(&self) -> Option<i64> {
        self.head.map(|head| head.time_ns)
    }

    fn advance(&mut self) -> Result<(), SourceError> {
        self.head = self.source.next(&mut self.payload)?;
        Ok(())
    }
}

struct Compare {
    name: String,
    type_name: String,
    topic: Topic,
    notes: Vec<String>,
    looked_ns: i64,
}

struct Comparison {
    topics: Vec<Compare>,
    places: [Vec<Option<usize>>; 2],
    times: Times,
    bytes: usize,
}

impl Comparison {
    fn new(
        expected: &dyn Source,
        observed: &dyn Source,
        rules: &Rules,
    ) -> Result<Comparison, CompareError> {
        let mut topics = Vec::new();
        let mut numbers = HashMap::new();
        let mut places = [Vec::new(), Vec::new()];
        for stream in expected.streams() {
            let Kind::Ros { type_name, .. } = &stream.kind else {
                return Err(CompareError::NoRos(stream.name.clone()));
            };
            let number = *numbers.entry(stream.name.clone()).or_insert(topics.len());
            places[0].push(Some(number));
            if number == topics.len() {
                let sources = [expected, observed];
                topics.push(Compare::new(&stream.name, type_name, sources, rules));
            }
        }
        for stream in observed.streams() {
            let place = numbers.get(&stream.name).copied();
            if let (Some(place), Kind::Ros { type_name, .. }) = (place, &stream.kind) {
                let topic: &mut Compare = &mut topics[place];
                if topic.type_name != *type_name {
                    topic
                        .notes
                        .push(format!("the observed type is {type_name}"));
                    topic.topic.reading.layout = None;
                }
            }
            let is_ros = matches!(stream.kind, Kind::Ros { .. });
            places[1].push(place.filter(|_| is_ros));
        }
        check(rules, &topics)?;
        let mut named = rules
            .follows
            .iter()
            .flat_map(|(topic, origin)| [topic, origin]);
        if let Some(unknown) = named.find(|name| !numbers.contains_key(*name)) {
            return Err(CompareError::Follows(unknown.clone()));
        }
        Ok(Comparison {
            topics,
            places,
            times: Times {
                begin_ns: 0,
                from_ns: i64::MIN,
                until_ns: i64::MAX,
                within_ns: rules.within_ns,
            },
            bytes: 0,
        })
    }

    fn take(&mut self, side: Side, feed: &Feed<'_>) {
        let Some(stamp) = feed.head else { return };
        let places = &self.places[usize::from(side == Side::Observed)];
        let place = places.get(stamp.stream.0 as usize).copied().flatten();
        let now_ns = stamp.time_ns;
        let within_ns = i64::try_from(self.times.within_ns).unwrap_or(i64::MAX);
        let is_before = now_ns < self.times.from_ns.saturating_sub(within_ns);
        let is_after = now_ns > self.times.until_ns.saturating_add(within_ns);
        let (Some(place), false) = (place, is_before || is_after) else {
            return;
        };
        self.bytes += self.topics[place].topic.add(side, now_ns, &feed.payload);
        self.settle(place, now_ns);
        while self.bytes > MOST_BYTES {
            let largest = (0..self.topics.len()).max_by_key(|&n| self.topics[n].topic.bytes());
            let Some(largest) = largest
                .map(|n| &mut self.topics[n].topic)
                .filter(|t| t.bytes() > 0)
            else {
                break;
            };
            let before = largest.bytes();
            largest.make_room(now_ns, &self.times);
            let freed = before - largest.bytes();
            self.bytes -= freed;
            if freed == 0 {
                break;
            }
        }
    }

    /// Judges the messages of the topic with index `place` for which no matching message can come
    /// any more. To save work, looks for such messages at most once per search time (`within_ns`).
    /// If the topic stores too many messages, judges some of them earlier.
    fn settle(&mut self, place: usize, now_ns: i64) {
        let times = self.times;
        let within_ns = i64::try_from(times.within_ns).unwrap_or(i64::MAX);
        let topic = &mut self.topics[place];
        let wait_ns = within_ns.saturating_mul(2);
        let is_old = |since_ns: i64| now_ns.saturating_sub(since_ns) >= wait_ns;
        let before = topic.topic.earliest_ns();
        if before.is_some_and(is_old) && now_ns.saturating_sub(topic.looked_ns) >= within_ns {
            topic.looked_ns = now_ns;
            self.bytes -= topic.topic.bytes();
            topic.topic.settle(now_ns.saturating_sub(within_ns), &times);
            self.bytes += topic.topic.bytes();
        }
        if topic.topic.is_full() {
            self.bytes -= topic.topic.bytes();
            topic.topic.make_room(now_ns, &times);
            self.bytes += topic.topic.bytes();
        }
    }

    fn close(mut self, rules: &Rules, observation: &Observation, damage: Vec<String>) -> Compared {
        let times = self.times;
        self.topics
            .iter_mut()
            .for_each(|topic| topic.topic.settle(i64::MAX, &times));
        let topics = self
            .topics
            .into_iter()
            .map(|topic| topic.close(observation));
        let mut topics: Vec<TopicFindings> = topics.collect();
        judge(&mut topics, rules);
        Compared {
            verdict: topics
                .iter()
                .map(|t| t.verdict)
                .max()
                .unwrap_or(Verdict::Equal),
            topics,
            damage,
        }
    }
}

fn check(rules: &Rules, topics: &[Compare]) -> Result<(), CompareError> {
    let leaves = || {
        topics.iter().flat_map(|topic| {
            let leaves = topic.topic.reading.layout.iter().flat_map(|l| &l.leaves);
            leaves.map(|leaf| (topic.name.as_str(), leaf.path.as_str()))
        })
    };
    let named = rules.tolerances.iter().filter_map(|t| t.field.as_ref());
    for field in named.chain(&rules.ignored) {
        if !leaves().any(|(topic, path)| field.names(topic, path)) {
            let known: Vec<&str> = leaves().map(|(_, path)| path).take(20).collect();
            return Err(CompareError::Field {
                field: field.to_string(),
                known: match known.is_empty() {
                    true => "unknown, because the type's definition is missing".into(),
                    false => known.join(", "),
                },
            });
        }
    }
    Ok(())
}

impl Compare {
    fn new(name: &str, type_name: &str, sources: [&dyn Source; 2], rules: &Rules) -> Compare {
        let recorded = sources
            .iter()
            .find_map(|source| source.definition(type_name));
        let layout = recorded
            .or_else(|| definition::installed(type_name))
            .ok_or_else(|| {
                String::from("neither the recording nor this ROS 2 installation (AMENT_PREFIX_PATH) has the type's definition")
            })
            .and_then(|text| Layout::of(type_name, &text));
        let (layout, notes) = match layout {
            Ok(layout) => (Some(layout), Vec::new()),
            Err(why) => (None, vec![format!("compared as bytes, because {why}")]),
        };
        let of = |layout| tolerance::rules(name, layout, &rules.tolerances, &rules.ignored);
        let rules = layout.as_ref().map_or_else(Vec::new, of);
        Compare {
            name: name.into(),
            type_name: type_name.into(),
            topic: Topic::new(Reading { layout, rules }),
            notes,
            looked_ns: i64::MIN,
        }
    }

    fn close(self, observation: &Observation) -> TopicFindings {
        let tally = self.topic.tally;
        let mut notes = self.notes;
        if let Some(ns) = tally.searched_ns {
            notes.push(format!(
                "onbeat searched for matching messages only within {} ms, because the memory was too small for more messages",
                ns / 1_000_000
            ));
        }
        if tally.unreadable > 0 {
            notes.push(format!(
                "{} pairs of messages do not match the type's definition, so their bytes were compared",
                tally.unreadable
            ));
        }
        notes.extend(
            observation
                .notes
                .get(&self.name)
                .into_iter()
                .flatten()
                .cloned(),
        );
        let shift_ns = tally.shifts.close().filter(|_| observation.has_times);
        TopicFindings {
            shift_exceeded: Vec::new(),
            unseen: observation.unseen.get(&self.name).copied().unwrap_or(0),
            name: self.name,
            type_name: self.type_name,
            verdict: Verdict::Equal,
            expected: tally.expected,
            observed: tally.observed,
            paired: tally.paired,
            paired_by: tally.paired_by,
            missing: tally.missing,
            additional: tally.additional,
            different: tally.different,
            fields: tally.fields.close(),
            shift_ns,
            notes,
        }
    }
}

fn judge(topics: &mut [TopicFindings], rules: &Rules) {
    let medians: HashMap<String, i64> = topics
        .iter()
        .filter_map(|t| Some((t.name.clone(), t.shift_ns?.p50)))
        .collect();
    for topic in topics {
        let follows = rules.follows.iter().find(|(name, _)| *name == topic.name);
        if let (Some((_, origin)), Some(shift)) = (follows, &mut topic.shift_ns) {
            let median = medians.get(origin);
            shift.own_p50 = median.map(|median| shift.p50.saturating_sub(*median));
        }
        let exceeded = rules.shift.iter().filter_map(|limit| {
            let shift = topic.shift_ns.as_ref()?;
            let ns = limit.exceeded(shift)?;
            let ms = |ns: u64| ns as f64 / 1e6;
            let direction = if ns < 0 { "earlier" } else { "later" };
            let (part, by, most) = (limit.part, ms(ns.unsigned_abs()), ms(limit.most_ns));
            Some(match (part, follows, shift.own_p50) {
                (Part::P50, Some((_, origin)), Some(_)) => format!(
                    "{part} is {by} ms {direction} than that of {origin}, at most {most} ms are allowed"
                ),
                _ => format!("{part} is {by} ms {direction}, at most {most} ms are allowed"),
            })
        });
        topic.shift_exceeded = exceeded.collect();
        let aspects = topic.aspects(&|ns| ns.to_string());
        let worst = aspects.iter().map(|aspect| aspect.verdict).max();
        topic.verdict = worst.unwrap_or(Verdict::Equal);
    }
}

#[cfg(test)]
pub(crate) fn paths(type_name: &str, definition: &str) -> Result<Vec<String>, String> {
    let layout = Layout::of(type_name, definition)?;
    Ok(layout.leaves.into_iter().map(|leaf| leaf.path).collect())
}

#[cfg(test)]
mod tests;
