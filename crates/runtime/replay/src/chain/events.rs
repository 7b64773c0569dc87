//! Chooses the service events whose requests are sent, so that each request is sent once.

use crate::item::{Kind, Stream, StreamId};
use crate::requests::{self, Event, Recorded, Side};
use crate::source::damage::Damage;

/// The recorded requests of services that a [`super::Chain`] returns, selected by the side that
/// recorded them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sides {
    /// The requests that servers recorded.
    #[default]
    Server,
    /// The requests that clients recorded.
    Client,
    /// The requests of both sides. A request that server and client recorded comes twice.
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
    /// The number of requests with contents that are sent.
    taken: u64,
    /// The number of requests with contents that are not sent, because the side that is not
    /// selected recorded them.
    of_other_side: u64,
}

/// Selects, for each stream with service events, the events whose requests are sent.
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

    /// Selects for each stream the requests of the side that [`Recorded::side`] returns.
    pub fn choose(&mut self, all: &[Recorded]) {
        for recorded in all {
            if let Some(Some(row)) = self.rows.get_mut(recorded.stream.0 as usize) {
                row.sides = recorded.side().into();
            }
        }
    }

    /// Returns true if the message passes the selection. Damaged messages pass, because the sink
    /// counts them.
    pub fn take(&mut self, stream: StreamId, message: &[u8]) -> bool {
        let Some(Some(row)) = self.rows.get_mut(stream.0 as usize) else {
            return true;
        };
        match requests::read(message) {
            Ok(Event::Response) => false,
            Ok(Event::Request { side, has_contents }) => {
                let is_taken = row.sides.take(side);
                let count = match is_taken {
                    true => &mut row.taken,
                    false => &mut row.of_other_side,
                };
                *count += u64::from(has_contents);
                is_taken
            }
            Err(requests::Damaged) => true,
        }
    }

    /// Returns a sentence about services whose requests are not sent, because only the side that is
    /// not selected recorded them.
    pub fn sentence(&self) -> Option<String> {
        let mut said = Damage::default();
        for row in self.rows.iter().flatten() {
            if row.taken == 0 && row.of_other_side > 0 {
                let (what, how) = match row.sides {
                    Sides::Server | Sides::Both => (
                        "requests not sent, because they were recorded only on the side of the client",
                        "--requests=client sends these requests",
                    ),
                    Sides::Client => (
                        "requests not sent, because they were recorded only on the side of the server",
                        "--requests=server sends these requests",
                    ),
                };
                said.add_many(what, row.of_other_side, || format!("{}; {how}", row.name));
            }
        }
        said.sentences().first().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_of_a_service_is_suggested_only_if_the_chosen_side_has_no_requests() {
        let streams = [Stream {
            name: "/s".into(),
            kind: Kind::Requests {
                type_name: "a/srv/S".into(),
            },
        }];
        // The kind of the event, and its number of requests: 1 for one with contents.
        let sentence = |all: &[(u8, u32)]| {
            let mut events = Events::of(&streams, Sides::Server);
            assert!(events.take(StreamId(0), b"cut off"));
            for &(kind, requests) in all {
                let event = requests::tests::event(kind, requests, &[0; 8]);
                events.take(StreamId(0), &event);
            }
            events.sentence()
        };
        let (client, server) = (0, 1);
        let said = sentence(&[(server, 0), (client, 1)]).expect("a sentence");
        assert!(said.contains("--requests=client"), "{said}");
        assert_eq!(sentence(&[(server, 1), (client, 1)]), None);
        assert_eq!(sentence(&[(client, 0)]), None);
    }
}
