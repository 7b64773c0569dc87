//! Writes recordings in the formats of other tools, for `onbeat convert`.
//!
//! A [`Plan`] first reads the recording once. It finds what the target cannot hold, before anything
//! is written. The recording is then opened again and written.
//!
//! | module | job |
//! |---|---|
//! | [`loss`] | what a target cannot hold |
//! | `frame` | the parts of a CAN frame |
//! | `candump`, `asc`, `blf`, `pcapng`, `mcap` | the formats |
//! | [`save`] | the file or directory, whole or not at all |
//! | `bag` | the metadata of a rosbag2 bag |

use crate::item::{Details, Kind, Source, SourceError, Stamp, Stream, StreamId};
use loss::{Check, Losses};
use std::io::{self, Seek, Write};
use std::path::Path;

mod asc;
mod bag;
mod blf;
mod candump;
mod frame;
pub mod loss;
mod mcap;
mod names;
mod pcapng;
pub mod save;
#[cfg(test)]
mod tests;

/// A format that onbeat writes.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Candump,
    Asc,
    Blf,
    /// An MCAP file with messages of ROS 2.
    Mcap,
    /// The directory of a rosbag2 bag with one MCAP file.
    Rosbag2,
    Pcapng,
}

impl Target {
    /// All targets, in the order in which messages list them.
    pub const ALL: [Target; 6] = [
        Target::Candump,
        Target::Asc,
        Target::Blf,
        Target::Pcapng,
        Target::Mcap,
        Target::Rosbag2,
    ];

    /// Returns the word with which command-line options name the target.
    pub fn word(self) -> &'static str {
        match self {
            Target::Candump => "candump",
            Target::Asc => "asc",
            Target::Blf => "blf",
            Target::Mcap => "mcap",
            Target::Rosbag2 => "rosbag2",
            Target::Pcapng => "pcapng",
        }
    }

    /// Returns the target's name as messages show it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Candump => "candump log",
            Target::Asc => "ASC log",
            Target::Blf => "BLF log",
            Target::Mcap => "MCAP file",
            Target::Rosbag2 => "rosbag2 bag",
            Target::Pcapng => "pcapng file",
        }
    }

    /// Returns whether the target can be written to a pipe.
    pub fn is_stream(self) -> bool {
        matches!(self, Target::Candump | Target::Asc | Target::Pcapng)
    }

    /// Returns the target for the ending of a file name, or `None` if no target has this ending.
    pub fn of_ending(path: &Path) -> Option<Target> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "log" => Some(Target::Candump),
            "asc" => Some(Target::Asc),
            "blf" => Some(Target::Blf),
            "mcap" => Some(Target::Mcap),
            "pcapng" => Some(Target::Pcapng),
            _ => None,
        }
    }

    fn holds(self, kind: &Kind) -> bool {
        match kind {
            Kind::Ros { .. } => matches!(self, Target::Mcap | Target::Rosbag2),
            Kind::Can => !matches!(self, Target::Mcap | Target::Rosbag2),
            Kind::Packets { link_type } => match self {
                Target::Blf => *link_type == ETHERNET,
                Target::Pcapng => u16::try_from(*link_type).is_ok(),
                _ => false,
            },
            Kind::Requests { .. } | Kind::Unplayable { .. } => false,
        }
    }
}

const ETHERNET: u32 = 1;

/// The reason why a recording was not written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum WriteError {
    #[error(transparent)]
    Read(#[from] SourceError),
    /// onbeat cannot write the output, for example because the disk is full.
    #[error(transparent)]
    Write(#[from] io::Error),
    #[error("interrupted")]
    Stopped,
}

/// A writer of one format. It receives the items in the order of time.
trait Writer {
    fn write(&mut self, stamp: Stamp, details: Details, payload: &[u8]) -> io::Result<()>;
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// The plan of a conversion: the target, the parts of each stream that are written, and the losses.
/// [`Plan::of`] makes it in a first pass over the recording.
#[allow(missing_docs)]
pub struct Plan {
    pub target: Target,
    pub streams: Vec<StreamPlan>,
    /// The number of the recording's items that are written.
    pub items: u64,
    /// The recorded time of the first item that is written, in ns since 1970.
    pub first_ns: Option<i64>,
    /// The recorded time of the last item that is written, in ns since 1970.
    pub last_ns: Option<i64>,
    pub losses: Losses,
    pub damage: Vec<String>,
}

/// A stream of the recording, with its name and its number of items in the target.
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct StreamPlan {
    pub stream: Stream,
    pub items: u64,
    /// The definition of the stream's message type, as recorders store it. `None` if it is unknown.
    definition: Option<String>,
    /// The stream's name in the target: the name of an interface, or the number of a channel as
    /// text.
    pub written_as: String,
}

impl Plan {
    /// Reads a source to its end and plans how to write it to `target`. After each item, calls
    /// `go_on` with the number of items so far.
    ///
    /// # Errors
    /// Fails if the source cannot be read to its end, or if `go_on` returns `false`.
    pub fn of(
        source: &mut dyn Source,
        target: Target,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Plan, WriteError> {
        let streams = source.streams().iter().map(|stream| StreamPlan {
            stream: stream.clone(),
            items: 0,
            definition: definition(source, &stream.kind),
            written_as: stream.name.clone(),
        });
        let mut plan = Plan {
            target,
            streams: streams.collect(),
            items: 0,
            first_ns: None,
            last_ns: None,
            losses: Losses::default(),
            damage: Vec::new(),
        };
        let mut payload = Vec::new();
        let mut read = 0;
        while let Some(stamp) = source.next(&mut payload)? {
            let stream = &mut plan.streams[stamp.stream.0 as usize];
            let check = Check::new(target, &stream.stream.kind, stamp.time_ns);
            if check.item(source.details(), &payload, &mut plan.losses) {
                stream.items += 1;
                plan.items += 1;
                plan.first_ns.get_or_insert(stamp.time_ns);
                plan.last_ns = Some(stamp.time_ns);
            }
            read += 1;
            if !go_on(read) {
                return Err(WriteError::Stopped);
            }
        }
        plan.damage = source.damage().to_vec();
        plan.losses.add_extras(&source.extras());
        names::give(&mut plan);
        Ok(plan)
    }

    /// Writes the recording to `out`. `source` must be the recording for which the plan was made,
    /// opened again. After each written item, calls `go_on` with the number of items so far.
    ///
    /// # Errors
    /// Fails if the source cannot be read or differs from the plan, if `out` cannot be written, or
    /// if `go_on` returns `false`.
    pub fn write<W: Write + Seek>(
        &self,
        source: &mut dyn Source,
        out: &mut W,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), WriteError> {
        let mut writer: Box<dyn Writer + '_> = match self.target {
            Target::Candump => Box::new(candump::Candump::new(self, &mut *out)),
            Target::Asc => Box::new(asc::Asc::new(self, &mut *out)?),
            Target::Blf => Box::new(blf::Blf::new(self, &mut *out)?),
            Target::Pcapng => Box::new(pcapng::Pcapng::new(self, &mut *out)?),
            Target::Mcap | Target::Rosbag2 => Box::new(mcap::Mcap::new(self, &mut *out)?),
        };
        let mut payload = Vec::new();
        let mut written = 0;
        // The plan already has these losses, so they are not reported again.
        let mut unsaid = Losses::default();
        while let Some(stamp) = source.next(&mut payload)? {
            let Some(stream) = self.streams.get(stamp.stream.0 as usize) else {
                return Err(io::Error::other(CHANGED).into());
            };
            let check = Check::new(self.target, &stream.stream.kind, stamp.time_ns);
            if stream.items == 0 || !check.item(source.details(), &payload, &mut unsaid) {
                continue;
            }
            writer.write(stamp, source.details(), &payload)?;
            written += 1;
            if !go_on(written) {
                return Err(WriteError::Stopped);
            }
        }
        if written != self.items {
            return Err(io::Error::other(CHANGED).into());
        }
        writer.finish()?;
        out.flush()?;
        Ok(())
    }

    /// Returns the text of a bag's `metadata.yaml`. `file_name` is the name of the file with the
    /// bag's messages.
    pub fn bag_metadata(&self, file_name: &str) -> String {
        bag::metadata(self, file_name)
    }

    fn stream(&self, stream: StreamId) -> &StreamPlan {
        &self.streams[stream.0 as usize]
    }
}

const CHANGED: &str = "the recording changed while it was read. Do not write to it meanwhile";

fn definition(source: &dyn Source, kind: &Kind) -> Option<String> {
    match kind {
        Kind::Ros { type_name, .. } => source
            .definition(type_name)
            .or_else(|| crate::definition::installed(type_name)),
        _ => None,
    }
}
