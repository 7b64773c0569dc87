//! Reads the times and topics of all messages in an sqlite3 file of rosbag2, without the messages.
//! sqlite keeps long messages in pages of their own, which onbeat does not read.

use super::{check, connect, index_of_times, is_torn, topics, Places};
use crate::item::{Source, SourceError, Stamp, Stream, StreamId};
use crate::source::fault;
use rusqlite::{Connection, Result};
use std::path::Path;

/// The number of rows that are read at once. A message may be earlier than this number of messages
/// before it.
const ROWS: usize = 1 << 15;
/// The bits of a time that count in the checksum of all times. The sum of these bits of all times of
/// a file fits into an `i64`.
const CHECKED: i64 = 0xf_ffff;

/// Opens an sqlite3 file of a bag by its index. Error messages show the file as `shown`. The items
/// of the source have no payload. The source fails if messages are too far out of order, or if the
/// index of times does not fit the messages.
///
/// # Errors
/// Fails if the file cannot be read, is not part of a bag, is torn, or has no index of times.
pub fn read(path: &Path, shown: &str) -> std::result::Result<Box<dyn Source>, SourceError> {
    let told = |error: rusqlite::Error| fault(shown, error);
    if is_torn(path).map_err(|error| fault(shown, error))? {
        return Err(fault(shown, "the database is truncated"));
    }
    let database = connect(path, false).map_err(told)?;
    check(&database).map_err(|what| fault(shown, what))?;
    let (streams, places) = topics(&database).map_err(told)?;
    let index = index_of_times(&database).map_err(told)?;
    let index = index.ok_or_else(|| fault(shown, "the database has no index of times"))?;
    Ok(Box::new(Times {
        name: shown.to_owned(),
        database,
        streams,
        places,
        index,
        window: Vec::new(),
        given: 0,
        ready: 0,
        last_row: None,
        is_ended: false,
        given_ns: i64::MIN,
        found: Sums::default(),
    }))
}

/// The figures that the messages and the index of times must have in common.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    messages: i64,
    /// The sum of the lower bits of all times.
    checksum: i64,
    ends: Option<(i64, i64)>,
}

impl Sums {
    fn add(&mut self, time_ns: i64) {
        self.messages += 1;
        self.checksum += time_ns & CHECKED;
        let (first, last) = self.ends.unwrap_or((time_ns, time_ns));
        self.ends = Some((first.min(time_ns), last.max(time_ns)));
    }

    /// Reads the sums from the index of times.
    fn of(database: &Connection, index: &str) -> Result<Sums> {
        let messages = format!(
            "FROM messages INDEXED BY \"{}\"",
            index.replace('"', "\"\"")
        );
        // SQLite looks up a minimum or a maximum at the end of the index only if it is the only
        // result of a query.
        let sql = format!(
            "SELECT count(*), coalesce(sum(timestamp & {CHECKED}), 0), \
             (SELECT min(timestamp) {messages}), (SELECT max(timestamp) {messages}) {messages}"
        );
        database.query_row(&sql, [], |row| {
            let ends: (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
            Ok(Sums {
                messages: row.get(0)?,
                checksum: row.get(1)?,
                ends: ends.0.zip(ends.1),
            })
        })
    }
}

struct Times {
    name: String,
    database: Connection,
    streams: Vec<Stream>,
    places: Places,
    /// The name of the index of times.
    index: String,
    /// The times and streams of consecutive messages, in the order of time.
    window: Vec<(i64, StreamId)>,
    /// The number of messages in the window that were returned.
    given: usize,
    /// The number of messages in the window before which no other message can come.
    ready: usize,
    last_row: Option<i64>,
    is_ended: bool,
    given_ns: i64,
    found: Sums,
}

const DISORDERED: &str = "messages are too far out of order";
const DISAGREES: &str = "the index of times does not fit the messages";
const UNKNOWN: &str = "messages without a known topic";

impl Times {
    fn fault(&self, what: impl std::fmt::Display) -> SourceError {
        fault(&self.name, what)
    }

    fn fill(&mut self) -> std::result::Result<(), SourceError> {
        self.window.drain(..self.given);
        self.given = 0;
        let read = self.rows().map_err(|error| self.fault(error))?;
        let Some(rows) = read else {
            return Err(self.fault(UNKNOWN));
        };
        self.is_ended = rows < ROWS;
        self.window.sort_by_key(|message| message.0);
        self.ready = match self.is_ended {
            true => self.window.len(),
            false => self.window.len().saturating_sub(ROWS),
        };
        if self.is_ended {
            let sums = Sums::of(&self.database, &self.index);
            if sums.map_err(|error| self.fault(error))? != self.found {
                return Err(self.fault(DISAGREES));
            }
        }
        Ok(())
    }

    /// Reads the next rows of the table into the window, and returns their number. Returns `None`
    /// if a message has no known topic.
    fn rows(&mut self) -> Result<Option<usize>> {
        const COLUMNS: &str = "SELECT timestamp, topic_id, rowid FROM messages NOT INDEXED";
        let after = match self.last_row {
            Some(row) => format!("WHERE rowid > {row}"),
            None => String::new(),
        };
        let sql = format!("{COLUMNS} {after} ORDER BY rowid LIMIT {ROWS}");
        let mut statement = self.database.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            let (time_ns, topic): (i64, i64) = (row.get(0)?, row.get(1)?);
            let Some(stream) = self.places.get(&topic) else {
                return Ok(None);
            };
            self.window.push((time_ns, *stream));
            self.found.add(time_ns);
            read += 1;
            if read == ROWS {
                self.last_row = Some(row.get(2)?);
            }
        }
        Ok(Some(read))
    }
}

impl Source for Times {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> std::result::Result<Option<Stamp>, SourceError> {
        payload.clear();
        while self.given == self.ready && !self.is_ended {
            self.fill()?;
        }
        let Some(&(time_ns, stream)) = self.window.get(self.given) else {
            return Ok(None);
        };
        if time_ns < self.given_ns {
            return Err(self.fault(DISORDERED));
        }
        self.given += 1;
        self.given_ns = time_ns;
        Ok(Some(Stamp { time_ns, stream }))
    }

    fn damage(&self) -> &[String] {
        &[]
    }
}
