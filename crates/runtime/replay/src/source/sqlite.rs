//! Reads the sqlite3 files of rosbag2, message by message in the order of time.

use super::damage::Damage;
use super::order::Ordered;
use super::{fault, kind_of};
use crate::item::{Source, SourceError, Stamp, Stream, StreamId};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::path::Path;

mod index;

pub use index::read as read_index;

pub const MAGIC: &[u8] = b"SQLite format 3\0";
const PAGE: i64 = 1024;
const MOST_TOPICS: i64 = 100_000;

/// Opens an sqlite3 file of a bag. Error messages show the file as `shown`.
///
/// The index of times gives the order of messages. Without an index, or in a torn file, onbeat
/// reads messages in the order in which they were written, and then sorts them. From a torn file,
/// onbeat reads the messages that the table's B-tree still reaches. If the upper pages of the tree
/// are missing, onbeat reads no message. These pages are never at the beginning of a file. A
/// recorder that is killed leaves no torn file.
///
/// # Errors
/// Fails if the file cannot be read, or is not part of a bag.
pub fn read(path: &Path, shown: &str) -> Result<Box<dyn Source>, SourceError> {
    let mut damage = Damage::default();
    let told = |error: rusqlite::Error| fault(shown, error);
    let is_torn = is_torn(path).map_err(|error| fault(shown, error))?;
    if is_torn {
        damage.add("truncated databases, read as far as possible", || {
            shown.to_owned()
        });
    }
    let database = connect(path, is_torn).map_err(told)?;
    check(&database).map_err(|what| fault(shown, what))?;
    let (streams, places) = topics(&database).map_err(told)?;
    let by_time = !is_torn && index_of_times(&database).map_err(told)?.is_some();
    let mut rows = Rows {
        name: shown.to_owned(),
        database,
        streams,
        places,
        by_time,
        page: VecDeque::new(),
        last: None,
        given_ns: i64::MIN,
        ended: false,
        damage,
    };
    if by_time {
        return Ok(Box::new(rows));
    }
    let back_ns = rows.survey();
    Ok(Box::new(Ordered::new(rows, back_ns)))
}

fn is_torn(path: &Path) -> std::io::Result<bool> {
    let mut head = [0; 100];
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    std::io::Read::read_exact(&mut file, &mut head)?;
    let number =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let page = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65536,
        size => u64::from(size),
    };
    // The number of pages is valid only if both change counters are equal.
    Ok(number(24) == number(92) && u64::from(number(28)) * page > length)
}

/// Opens the file read-only. If there is a write-ahead log beside the file, reads the log, too.
/// Otherwise sqlite writes nothing beside the file.
fn connect(path: &Path, is_torn: bool) -> rusqlite::Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = if has_log {
        Connection::open_with_flags(path, flags)?
    } else {
        Connection::open_with_flags(uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
    };
    // The file is not trusted, so its schema may run no functions. A torn file can be read only
    // with this setting.
    let torn = if is_torn {
        "PRAGMA writable_schema = ON;"
    } else {
        ""
    };
    database.execute_batch(&format!(
        "{torn} PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; \
         PRAGMA cache_size = -16384; PRAGMA mmap_size = 0;"
    ))?;
    Ok(database)
}

/// Returns a URI of the sqlite3 file. With this URI, sqlite writes nothing beside the file.
fn uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02x}"));
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Checks that the two tables of a bag are tables and not views. A view could run any query.
fn check(database: &Connection) -> Result<(), String> {
    for table in ["topics", "messages"] {
        let found = database
            .query_row(
                "SELECT type, sql FROM sqlite_master WHERE name = ?1",
                [table],
                |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)),
            )
            .optional()
            .map_err(|error| error.to_string())?;
        match found {
            Some((kind, sql)) if kind == "table" && sql.starts_with("CREATE TABLE") => {}
            _ => {
                return Err(format!(
                    "this sqlite3 file is not a bag: it has no table '{table}'"
                ))
            }
        }
    }
    Ok(())
}

/// Returns the name of the index of times, or `None` if the file has no such index.
fn index_of_times(database: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT sqlite_master.name FROM sqlite_master, pragma_index_info(sqlite_master.name) AS part \
               WHERE sqlite_master.type = 'index' AND tbl_name = 'messages' AND part.seqno = 0 AND part.name = 'timestamp'";
    database.query_row(sql, [], |row| row.get(0)).optional()
}

type Places = FxHashMap<i64, StreamId>;

fn topics(database: &Connection) -> rusqlite::Result<(Vec<Stream>, Places)> {
    let has_qos =
        "SELECT count(*) FROM pragma_table_info('topics') WHERE name = 'offered_qos_profiles'";
    let has_qos = database.query_row(has_qos, [], |row| row.get::<_, i64>(0))? > 0;
    let qos = if has_qos {
        "offered_qos_profiles"
    } else {
        "''"
    };
    let sql = format!("SELECT id, name, type, serialization_format, {qos} FROM topics ORDER BY id LIMIT {MOST_TOPICS}");
    let mut statement = database.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let (mut streams, mut places) = (Vec::new(), Places::default());
    while let Some(row) = rows.next()? {
        let (name, format): (String, String) = (row.get(1)?, row.get(3)?);
        places.insert(row.get(0)?, StreamId(streams.len() as u32));
        let qos = row
            .get::<_, Option<String>>(4)?
            .filter(|qos| !qos.is_empty());
        let kind = kind_of(&format, row.get(2)?, qos);
        streams.push(Stream { name, kind });
    }
    Ok((streams, places))
}

fn definition(database: &Connection, type_name: &str) -> rusqlite::Result<Option<String>> {
    let is_table =
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'message_definitions'";
    if database.query_row(is_table, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(None);
    }
    let sql = "SELECT encoded_message_definition FROM message_definitions \
               WHERE topic_type = ?1 AND encoding = 'ros2msg' LIMIT 1";
    let found = database.query_row(sql, [type_name], |row| row.get::<_, String>(0));
    Ok(found.optional()?.filter(|text| !text.trim().is_empty()))
}

struct Rows {
    name: String,
    database: Connection,
    streams: Vec<Stream>,
    places: Places,
    by_time: bool,
    page: VecDeque<(i64, i64)>,
    last: Option<(i64, i64)>,
    given_ns: i64,
    ended: bool,
    damage: Damage,
}

impl Rows {
    /// Returns the largest difference in ns by which a message is earlier than a message that was
    /// written before it.
    fn survey(&mut self) -> u64 {
        let (mut newest, mut back_ns) = (i64::MIN, 0);
        let mut unsaid = Damage::default();
        std::mem::swap(&mut self.damage, &mut unsaid);
        loop {
            self.look_up();
            if self.page.is_empty() {
                break;
            }
            for (time_ns, _) in self.page.drain(..) {
                if time_ns < newest {
                    back_ns = newest.abs_diff(time_ns).max(back_ns);
                }
                newest = newest.max(time_ns);
            }
        }
        (self.damage, self.last, self.ended) = (unsaid, None, false);
        back_ns
    }

    fn look_up(&mut self) {
        if self.ended {
            return;
        }
        if let Err(error) = self.try_look_up() {
            self.damage.add(
                "damaged places in the database, which was read up to the damage",
                || error.to_string(),
            );
            self.ended = true;
        }
        self.ended |= (self.page.len() as i64) < PAGE;
        self.last = self.page.back().copied().or(self.last);
    }

    fn try_look_up(&mut self) -> rusqlite::Result<()> {
        let sql = match (self.by_time, self.last) {
            (true, None) => "SELECT timestamp, id FROM messages ORDER BY timestamp, id LIMIT ?3",
            (true, Some(_)) => {
                "SELECT timestamp, id FROM messages WHERE (timestamp, id) > (?1, ?2) ORDER BY timestamp, id LIMIT ?3"
            }
            (false, None) => "SELECT timestamp, id FROM messages NOT INDEXED ORDER BY id LIMIT ?3",
            (false, Some(_)) => "SELECT timestamp, id FROM messages NOT INDEXED WHERE id > ?2 ORDER BY id LIMIT ?3",
        };
        let (time_ns, id) = self.last.unwrap_or((0, 0));
        let mut statement = self.database.prepare_cached(sql)?;
        let mut rows = statement.query([time_ns, id, PAGE])?;
        while let Some(row) = rows.next()? {
            self.page.push_back((row.get(0)?, row.get(1)?));
        }
        Ok(())
    }

    /// Returns `time_ns`, or the time of the previous message if that is later. With a damaged
    /// index, a message can be earlier than the previous one.
    fn in_order(&mut self, time_ns: i64) -> i64 {
        if !self.by_time {
            return time_ns;
        }
        if time_ns < self.given_ns {
            self.damage.add(
                "messages in a wrong place of a damaged index, played late",
                String::new,
            );
        }
        self.given_ns = self.given_ns.max(time_ns);
        self.given_ns
    }

    fn fetch(&self, id: i64, payload: &mut Vec<u8>) -> rusqlite::Result<i64> {
        let mut statement = self
            .database
            .prepare_cached("SELECT topic_id, data FROM messages WHERE id = ?1")?;
        statement.query_row([id], |row| {
            payload.clear();
            payload.extend_from_slice(row.get_ref(1)?.as_blob()?);
            row.get(0)
        })
    }
}

impl Source for Rows {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        loop {
            if self.page.is_empty() {
                self.look_up();
            }
            let Some((time_ns, id)) = self.page.pop_front() else {
                payload.clear();
                return Ok(None);
            };
            let name = &self.name;
            match self
                .fetch(id, payload)
                .map(|topic| (topic, self.places.get(&topic)))
            {
                Ok((_, Some(stream))) => {
                    let stream = *stream;
                    let time_ns = self.in_order(time_ns);
                    return Ok(Some(Stamp { time_ns, stream }));
                }
                Ok((topic, None)) => {
                    self.damage.add(
                        "messages whose topic is not in the file's table of topics",
                        || format!("topic {topic}"),
                    );
                }
                Err(error) => self
                    .damage
                    .add("unreadable messages", || format!("{name}: {error}")),
            }
        }
    }

    fn damage(&self) -> &[String] {
        self.damage.sentences()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        definition(&self.database, type_name).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_gives_the_definitions_that_its_recorder_stored() {
        let database = Connection::open_in_memory().unwrap();
        assert_eq!(
            definition(&database, "a/msg/B").unwrap(),
            None,
            "older than Iron"
        );
        let tables = "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL, \
             encoding TEXT NOT NULL, encoded_message_definition TEXT NOT NULL, type_description_hash TEXT NOT NULL); \
             INSERT INTO message_definitions VALUES(1, 'a/msg/B', 'ros2msg', 'bool x', ''), \
             (2, 'a/msg/C', 'ros2idl', 'module a {};', ''), (3, 'a/msg/D', 'unknown', '', '')";
        database.execute_batch(tables).unwrap();
        let found =
            ["a/msg/B", "a/msg/C", "a/msg/D", "x"].map(|name| definition(&database, name).unwrap());
        assert_eq!(found, [Some("bool x".to_owned()), None, None, None]);
    }
}
