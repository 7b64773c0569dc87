//! The index: a list of the store's content in Parquet files, its parts. Parts are only added.
//!
//! A part is named by the SHA-256 of its bytes. Rows form a set: a row in two parts counts once.
//! Writing a part twice, or replacing several parts by one, therefore changes nothing.

use crate::columns::{self, Cell, CellType, Column};
use crate::id::Id;
use serde::Serialize;

/// The kind of an object in a store: model or trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A timing model, as `onbeat model` and `onbeat merge` write it.
    Model,
    /// A trace. The object is the list of the trace's files.
    Trace,
}

impl Kind {
    /// Returns the word by which the index names this kind, for example `model`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Model => "model",
            Kind::Trace => "trace",
        }
    }

    /// Parses the word by which the index names a kind. Returns `None` for another word.
    pub fn parse(word: &str) -> Option<Kind> {
        [Kind::Model, Kind::Trace]
            .into_iter()
            .find(|k| k.word() == word)
    }
}

/// A row of the index: one run in one object. All texts except the kind come from recordings and
/// users, and are untrusted.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Row {
    /// The id of the model, or of the trace's list of files.
    pub object: Id,
    pub kind: Kind,
    /// The id of the run: the id of its recording.
    pub run: String,
    /// The name that the user gave with `onbeat store put --build`, for example a version. Empty if
    /// the user gave none.
    pub build: String,
    /// The mode of the run, for example urban. Empty if the run has no mode.
    pub mode: String,
    /// The host name of the machine that ran the application. Empty if unknown.
    pub host: String,
    /// The ROS 2 distributions of the run, separated by commas, for example `jazzy`.
    pub distribution: String,
    /// The start of the run, in ns since 1970 (CLOCK_REALTIME).
    pub start_ns: u64,
    pub duration_ns: u64,
    pub events: u64,
    /// The number of events that are missing because the recorder lost them.
    pub lost: u64,
    /// The size of the model, or of all files of the trace, in bytes.
    pub bytes: u64,
}

fn schema() -> Vec<Column> {
    let of = |name: &str, cell_type| (name.to_string(), cell_type);
    vec![
        of("object", CellType::Text),
        of("kind", CellType::Text),
        of("run", CellType::Text),
        of("build", CellType::Text),
        of("mode", CellType::Text),
        of("host", CellType::Text),
        of("distribution", CellType::Text),
        of("start", CellType::Time),
        of("duration_ns", CellType::Int),
        of("events", CellType::Int),
        of("lost", CellType::Int),
        of("bytes", CellType::Int),
    ]
}

/// Encodes rows as a part of the index: sorted, and without duplicates. Equal rows give equal
/// bytes.
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

/// Decodes a part of the index. The bytes are untrusted.
///
/// # Errors
///
/// Returns one line with the reason if the bytes are not Parquet, are damaged, or have other
/// columns.
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
        object: Id::parse(&object).ok_or("a row has no valid object id")?,
        kind: Kind::parse(&kind).ok_or("the kind of a row is neither model nor trace")?,
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
