//! Chooses the service events whose requests are sent, so that each request is sent once.

use crate::item::{Kind, Stream, StreamId};
use crate::requests::{self, Event, Recorded, Side};
use crate::source::damage::Damage;

/// The service events whose requests a [`super::Chain`] returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sides {
    /// Those that servers recorded.
    #[default]
    Server,
    /// Those that clients recorded.
    Client,
    /// All of them. Requests that both sides recorded come twice.
    Both,
}

impl From<Side> for Sides {
    fn from(side: Side) -> Sides {
        match side {
            Side::Server => Sides::Server,
            Side::Client => Sides::Client,
        }
    }
}

impl Sides {
    fn take(self, side: Side) -> bool {
        self == Sides::Both || self == side.into()
    }
}

struct Row {
    name: String,
    sides: Sides,
    taken: u64,
    of_other_side: u64,
}

/// For each stream with service events, the events to take.
#[derive(Default)]
pub struct Events {
    rows: Vec<Option<Row>>,
}

impl Events {
    pub fn of(streams: &[Stream], sides: Sides) -> Events {
        let row = |stream: &Stream| {
            matches!(stream.kind, Kind::Requests { .. }).then(|| Row {
                name: stream.name.clone(),
                sides,
                taken: 0,
                of_other_side: 0,
            })
        };
        Events {
            rows: streams.iter().map(row).collect(),
        }
    }

    /// Takes for each stream the side that [`Recorded::side`] names.
    pub fn choose(&mut self, all: &[Recorded]) {
        for recorded in all {
            if let Some(Some(row)) = self.rows.get_mut(recorded.stream.0 as usize) {
                row.sides = recorded.side().into();
            }
        }
    }

    /// Returns whether a message is taken. The sink counts damaged messages, so they are taken.
    pub fn take(&mut self, stream: StreamId, message: &[u8]) -> bool {
        let Some(Some(row)) = self.rows.get_mut(stream.0 as usize) else {
            return true;
        };
        match requests::read(message) {
            Ok(Event::Response) => false,
            Ok(Event::Request { side, .. }) if !row.sides.take(side) => {
                row.of_other_side += 1;
                false
            }
            _ => {
                row.taken += 1;
                true
            }
        }
    }

    /// Returns a sentence on services of which only the other side recorded requests.
    pub fn sentence(&self) -> Option<String> {
        let mut said = Damage::default();
        for row in self.rows.iter().flatten() {
            if row.taken == 0 && row.of_other_side > 0 {
                let (what, how) = match row.sides {
                    Sides::Server | Sides::Both => (
                        "requests that only clients recorded, not sent",
                        "--requests=client sends them",
                    ),
                    Sides::Client => (
                        "requests that only servers recorded, not sent",
                        "--requests=server sends them",
                    ),
                };
                said.add_many(what, row.of_other_side, || format!("{}; {how}", row.name));
            }
        }
        said.sentences().first().cloned()
    }
}
