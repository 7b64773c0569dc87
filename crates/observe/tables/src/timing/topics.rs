//! Writes the executions of chains as topics of an MCAP file, for Foxglove and PlotJuggler.
//!
//! Each chain has the topics `/onbeat/CHAIN/latency` (a message for each execution, at its end) and
//! `/onbeat/CHAIN/stretches` (a message for each stretch, at its beginning). Messages are JSON, which both
//! programs read without a plug-in.

use super::columns::{Table, Type, KINDS, REASONS};
use super::convert::Lookup;
use super::pass::Take;
use super::spool::Spool;
use super::{known, rows_of, Known, TableOptions, TablesError};
use arrow_schema::ArrowError;
use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;
use mcap::{Compression, McapError, WriteOptions};
use onbeat_document::schema::Chain;
use onbeat_trace::manifest::Span;
use onbeat_trace::Reader;
use serde::Serialize;
use serde_json::{json, Map, Value};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Write};

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicWritten {
    pub name: String,
    pub title: String,
    pub messages: u64,
}

/// Writes the latencies and stretches of all chains of a trace as an MCAP file. Returns the topics.
///
/// # Errors
///
/// Fails if `out` or a temporary file cannot be written.
pub fn export_mcap(
    reader: &mut Reader,
    out: impl Write,
    options: TableOptions<'_>,
) -> Result<Vec<TopicWritten>, TablesError> {
    let mut rows = Rows {
        spool: Spool::create(None, WIDTH).map_err(ArrowError::from)?,
        begun: BTreeMap::new(),
        current: None,
        waiting: BinaryHeap::new(),
        latest: 0,
        failed: None,
    };
    let lookup = Lookup {
        run: options.run.id.clone(),
        host: options.run.host.clone(),
        ..Lookup::default()
    };
    let read = rows_of(reader, &mut (), &mut rows, &mut (), true, options)?;
    rows.end().map_err(ArrowError::from)?;
    let known = known(reader, lookup, read);
    let written = write(rows.spool, &known, out);
    Ok(written.map_err(ArrowError::from)?)
}

const WIDTH: usize = 5 + KINDS.len();

/// The indices of the columns that every row in the temporary file has. In the row of a latency,
/// the data age and the time in each kind of stretch follow, beginning at `REST`. In the row of a
/// stretch, the further columns of [`Table::Stretches`] follow.
const TIME: usize = 0;
const PATH: usize = 1;
const EXECUTION: usize = 2;
const IS_STRETCH: usize = 3;
const REST: usize = 4;

type Row = [Option<i64>; WIDTH];

/// The time in ns for which a message is kept back, so that messages with earlier times can be
/// written before it. onbeat knows the stretches of an execution within this time.
const WINDOW_NS: i64 = 64_000_000_000;

/// An execution of a chain whose stretches are still missing.
struct Begun {
    path: Option<i64>,
    start: Option<i64>,
    end: Option<i64>,
    latency: Option<i64>,
    age: Option<i64>,
    sums: [i64; KINDS.len()],
}

struct Rows {
    spool: Spool,
    begun: BTreeMap<i64, Begun>,
    current: Option<i64>,
    waiting: BinaryHeap<Reverse<Row>>,
    latest: i64,
    failed: Option<io::Error>,
}

impl Rows {
    fn execution(&mut self, row: &[Option<i64>]) {
        let &[path, Some(number), _, start, end, latency, age] = row else {
            return;
        };
        let begun = Begun {
            path,
            start,
            end,
            latency,
            age,
            sums: [0; KINDS.len()],
        };
        match latency {
            Some(_) => drop(self.begun.insert(number, begun)),
            // An execution with data that an earlier one has used has no stretches.
            None => self.latency(number, &begun),
        }
    }

    fn stretch(&mut self, row: &[Option<i64>]) {
        let &[path, Some(number), place, Some(ns), ref rest @ ..] = row else {
            return;
        };
        if self.current.replace(number) != Some(number) {
            self.finish_before(number);
        }
        let Some(begun) = self.begun.get_mut(&number) else {
            return;
        };
        let spent: i64 = begun.sums.iter().sum();
        let kind = rest.get(1).copied().flatten().unwrap_or(0);
        if let Some(sum) = begun.sums.get_mut(kind as usize) {
            *sum += ns;
        }
        let mut message = [None; WIDTH];
        message[TIME] = begun.start.map(|start| start + spent);
        message[PATH] = path;
        message[EXECUTION] = Some(number);
        message[IS_STRETCH] = Some(1);
        message[REST] = place;
        message[REST + 1] = Some(ns);
        for (to, value) in message[REST + 2..].iter_mut().zip(rest) {
            *to = *value;
        }
        self.wait(message);
    }

    /// Adds the latencies of the executions whose stretches are complete. These are the executions
    /// with numbers below `number`.
    fn finish_before(&mut self, number: i64) {
        let rest = self.begun.split_off(&number);
        for (number, begun) in std::mem::replace(&mut self.begun, rest) {
            self.latency(number, &begun);
        }
    }

    fn latency(&mut self, number: i64, begun: &Begun) {
        let mut message = [None; WIDTH];
        message[TIME] = begun.end;
        message[PATH] = begun.path;
        message[EXECUTION] = Some(number);
        message[IS_STRETCH] = Some(0);
        message[REST] = begun.age;
        let sums = begun.sums.iter().copied().map(Some);
        let sums = sums.filter(|_| begun.latency.is_some());
        for (to, sum) in message[REST + 1..].iter_mut().zip(sums) {
            *to = sum;
        }
        self.wait(message);
    }

    fn wait(&mut self, message: Row) {
        self.latest = self.latest.max(message[TIME].unwrap_or(0));
        self.waiting.push(Reverse(message));
        self.spool(self.latest.saturating_sub(WINDOW_NS));
    }

    fn spool(&mut self, until: i64) {
        while let Some(Reverse(first)) = self.waiting.peek() {
            if first[TIME] > Some(until) {
                break;
            }
            let pushed = self.spool.push(first);
            self.failed = self.failed.take().or(pushed.err());
            self.waiting.pop();
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.finish_before(i64::MAX);
        self.spool(i64::MAX);
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Take for Rows {
    fn row(&mut self, table: Table, row: &[Option<i64>]) {
        match table {
            Table::ChainExecutions => self.execution(row),
            Table::Stretches => self.stretch(row),
            _ => {}
        }
    }

    fn failed(&mut self) -> Option<ArrowError> {
        self.failed.take().map(ArrowError::from)
    }
}

#[derive(Serialize)]
struct Stretch<'a> {
    execution: i64,
    number: i64,
    kind: &'a str,
    length_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    culprit_kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    culprit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    during: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    during_culprit_kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    during_culprit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

fn latency(row: &[Option<i64>]) -> Value {
    let mut message = Map::new();
    message.insert("execution".into(), row[EXECUTION].into());
    let sums = || row[REST + 1..].iter().copied();
    if sums().all(|sum| sum.is_some()) {
        let latency: i64 = sums().flatten().sum();
        message.insert("latency_ms".into(), ms(latency).into());
        for (kind, sum) in KINDS.iter().zip(sums().flatten()) {
            message.insert(format!("{kind}_ms"), ms(sum).into());
        }
    }
    if let Some(age) = row[REST] {
        message.insert("age_ms".into(), ms(age).into());
    }
    Value::Object(message)
}

fn stretch<'a>(row: &[Option<i64>], lookup: &'a Lookup) -> Stretch<'a> {
    let value = |place: usize| row.get(REST + place).copied().flatten();
    let text = |place: usize, ty: Type| value(place).and_then(|n| lookup.text(ty, n));
    Stretch {
        execution: row[EXECUTION].unwrap_or(0),
        number: value(0).unwrap_or(0),
        kind: text(3, Type::Word(KINDS)).unwrap_or("unknown"),
        length_ms: ms(value(1).unwrap_or(0)),
        place: text(2, Type::Callback),
        culprit_kind: text(4, Type::CulpritKind),
        culprit: text(5, Type::Culprit),
        during: text(6, Type::Word(KINDS)),
        during_culprit_kind: text(7, Type::CulpritKind),
        during_culprit: text(8, Type::Culprit),
        reason: text(9, Type::Word(REASONS)),
    }
}

fn latency_schema() -> Value {
    let number = |text: &str| json!({"type": "number", "description": text});
    let mut properties = Map::new();
    properties.insert("execution".into(), json!({"type": "integer"}));
    let latency = "Time from the start of the first callback to the end of the last one";
    properties.insert("latency_ms".into(), number(latency));
    let age =
        "Age of the data at the end of the last callback, even if an earlier execution already used the data";
    properties.insert("age_ms".into(), number(age));
    for kind in KINDS {
        let text = "Sum of the lengths of all stretches of this kind";
        properties.insert(format!("{kind}_ms"), number(text));
    }
    json!({"title": "onbeat.Latency", "type": "object", "properties": properties})
}

fn stretch_schema() -> Value {
    let text = json!({"type": "string"});
    let names = [
        "place",
        "culprit_kind",
        "culprit",
        "during",
        "during_culprit_kind",
        "during_culprit",
    ];
    let mut properties: Map<String, Value> = names
        .map(|name| (name.into(), text.clone()))
        .into_iter()
        .collect();
    properties.insert("kind".into(), json!({"type": "string", "enum": KINDS}));
    properties.insert("reason".into(), json!({"type": "string", "enum": REASONS}));
    properties.insert("execution".into(), json!({"type": "integer"}));
    properties.insert("number".into(), json!({"type": "integer"}));
    properties.insert("length_ms".into(), json!({"type": "number"}));
    json!({"title": "onbeat.Stretch", "type": "object", "properties": properties})
}

struct Topic {
    channel: u16,
    written: TopicWritten,
}

fn io(error: McapError) -> io::Error {
    match error {
        McapError::Io(error) => error,
        other => io::Error::other(other),
    }
}

fn write(spool: Spool, known: &Known, out: impl Write) -> io::Result<Vec<TopicWritten>> {
    let options = WriteOptions::new()
        .library(format!("onbeat {}", env!("CARGO_PKG_VERSION")))
        .compression(Some(Compression::Zstd))
        .disable_seeking(true);
    let mut writer = mcap::Writer::with_options(NoSeek::new(out), options).map_err(io)?;
    writer.write_metadata(&about(known)).map_err(io)?;
    let mut add = |name: &str, schema: Value| {
        writer.add_schema(name, "jsonschema", schema.to_string().as_bytes())
    };
    let schemas = [
        add("onbeat.Latency", latency_schema()).map_err(io)?,
        add("onbeat.Stretch", stretch_schema()).map_err(io)?,
    ];
    let titles = onbeat_document::titles::titles(&known.model);
    let chains = known.model.chains.iter().zip(&titles);
    let chains: BTreeMap<&str, (&Chain, &String)> = chains
        .map(|(chain, title)| (chain.id.as_str(), (chain, title)))
        .collect();
    let mut topics: BTreeMap<(&str, usize), Topic> = BTreeMap::new();
    let span = &known.manifest.span;
    spool.read(|row| {
        let path = row[PATH].unwrap_or(-1);
        let Some((chain, title)) = known
            .lookup
            .text(Type::Chain, path)
            .and_then(|id| chains.get(id))
        else {
            return Ok(());
        };
        let kind = usize::from(row[IS_STRETCH] == Some(1));
        let topic = match topics.entry((&chain.id, kind)) {
            std::collections::btree_map::Entry::Occupied(topic) => topic.into_mut(),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                let name = format!(
                    "/onbeat/{}/{}",
                    chain.id.replace('-', "_"),
                    ["latency", "stretches"][kind]
                );
                let channel =
                    writer.add_channel(schemas[kind], &name, "json", &about_chain(chain, title));
                vacant.insert(Topic {
                    channel: channel.map_err(io)?,
                    written: TopicWritten {
                        name,
                        title: title.to_string(),
                        messages: 0,
                    },
                })
            }
        };
        topic.written.messages += 1;
        let bytes = match kind {
            0 => serde_json::to_vec(&latency(row)),
            _ => serde_json::to_vec(&stretch(row, &known.lookup)),
        };
        let time = realtime(span, row[TIME].unwrap_or(0));
        let header = MessageHeader {
            channel_id: topic.channel,
            sequence: topic.written.messages as u32,
            log_time: time,
            publish_time: time,
        };
        writer.write_to_known_channel(&header, &bytes?).map_err(io)
    })?;
    writer.finish().map_err(io)?;
    let mut out = writer.into_inner().into_inner();
    out.flush()?;
    Ok(topics.into_values().map(|topic| topic.written).collect())
}

/// Returns the wall-clock time of an instant of CLOCK_MONOTONIC, in ns since 1970.
fn realtime(span: &Span, monotonic_ns: i64) -> u64 {
    let since = monotonic_ns - span.start_monotonic_ns as i64;
    (span.start_realtime_ns as i64).saturating_add(since).max(0) as u64
}

fn about(known: &Known) -> Metadata {
    let lookup = &known.lookup;
    let metadata = [("run", &lookup.run), ("host", &lookup.host)];
    Metadata {
        name: "onbeat".into(),
        metadata: metadata
            .map(|(name, text)| (name.into(), text.clone()))
            .into(),
    }
}

fn about_chain(chain: &Chain, title: &str) -> BTreeMap<String, String> {
    let about = [
        ("chain", chain.id.clone()),
        ("title", title.into()),
        ("callbacks", chain.callbacks.join(" ")),
    ];
    about.map(|(name, text)| (name.to_string(), text)).into()
}
