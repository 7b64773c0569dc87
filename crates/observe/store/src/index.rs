//! The index: what is in a store, as rows of Parquet files that are only ever added.
//!
//! A part is named by the SHA-256 of its bytes. Rows are a set: a row that stands in two parts is one, so that
//! writing a part twice, or writing parts anew as one, changes nothing.

use crate::columns::{self, Cell, Column, Holds};
use crate::id::Id;
use serde::Serialize;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A timing model.
    Model,
    /// A trace: a list of its files.
    Trace,
}

impl Kind {
    /// As the index has it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Model => "model",
            Kind::Trace => "trace",
        }
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Kind> {
        [Kind::Model, Kind::Trace]
            .into_iter()
            .find(|k| k.word() == word)
    }
}

/// One run of one object. All texts but the kind come from recordings and users: they are untrusted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Row {
    /// The model, or the trace's list of files.
    pub object: Id,
    /// What it is.
    pub kind: Kind,
    /// Id of the run.
    pub run: String,
    /// What was recorded, by the name that its owner gave with `put`; empty: none.
    pub build: String,
    /// Mode of the run.
    pub mode: String,
    /// Host of the run; empty: not known.
    pub host: String,
    /// ROS 2 distributions, with commas between them.
    pub distribution: String,
    /// Start, CLOCK_REALTIME ns since 1970.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Events read or written.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
    /// Bytes of the model, or of all files of the trace.
    pub bytes: u64,
}

fn schema() -> Vec<Column> {
    let of = |name: &str, holds| (name.to_string(), holds);
    vec![
        of("object", Holds::Text),
        of("kind", Holds::Text),
        of("run", Holds::Text),
        of("build", Holds::Text),
        of("mode", Holds::Text),
        of("host", Holds::Text),
        of("distribution", Holds::Text),
        of("start", Holds::Time),
        of("duration_ns", Holds::Int),
        of("events", Holds::Int),
        of("lost", Holds::Int),
        of("bytes", Holds::Int),
    ]
}

/// A part of the index: the rows, sorted, each once.
pub fn encode(rows: &[Row]) -> Result<Vec<u8>, String> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort();
    rows.dedup();
    let text = |t: &str| Cell::Text(t.to_string());
    let cells: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            vec![
                text(&row.object.to_string()),
                text(row.kind.word()),
                text(&row.run),
                text(&row.build),
                text(&row.mode),
                text(&row.host),
                text(&row.distribution),
                Cell::Int(row.start_ns),
                Cell::Int(row.duration_ns),
                Cell::Int(row.events),
                Cell::Int(row.lost),
                Cell::Int(row.bytes),
            ]
        })
        .collect();
    columns::write(&schema(), &cells).map_err(|e| e.to_string())
}

/// The rows of a part of the index. The bytes are untrusted.
///
/// # Errors
///
/// One line: it is no Parquet, is damaged, or has other columns.
pub fn decode(bytes: &[u8]) -> Result<Vec<Row>, String> {
    let rows = columns::read(bytes, &schema())?;
    rows.into_iter().map(row).collect()
}

fn row(cells: Vec<Cell>) -> Result<Row, String> {
    let mut cells = cells.into_iter();
    let text = |cells: &mut std::vec::IntoIter<Cell>| match cells.next() {
        Some(Cell::Text(text)) => Ok(text),
        _ => Err("a row lacks a text".to_string()),
    };
    let int = |cells: &mut std::vec::IntoIter<Cell>| match cells.next() {
        Some(Cell::Int(n)) => Ok(n),
        _ => Err("a row lacks a number".to_string()),
    };
    let (object, kind) = (text(&mut cells)?, text(&mut cells)?);
    Ok(Row {
        object: Id::parse(&object).ok_or("a row names no object")?,
        kind: Kind::parse(&kind).ok_or("a row is neither of a model nor of a trace")?,
        run: text(&mut cells)?,
        build: text(&mut cells)?,
        mode: text(&mut cells)?,
        host: text(&mut cells)?,
        distribution: text(&mut cells)?,
        start_ns: int(&mut cells)?,
        duration_ns: int(&mut cells)?,
        events: int(&mut cells)?,
        lost: int(&mut cells)?,
        bytes: int(&mut cells)?,
    })
}
