//! Reads service events: the messages in which the service introspection of ROS 2 records requests
//! and responses of services, and of the services of actions.

use crate::item::{Kind, Stream, StreamId};
use serde::Serialize;

/// The end of the name of a topic with service events. The characters before it are the service's
/// name.
const TOPIC: &str = "/_service_event";
/// The end of the type name of a service event. The characters before it are the service's type.
const TYPE: &str = "_Event";
const GOALS: &str = "/_action/send_goal";

/// The side of a service at which an event was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The event was recorded at the server, when it received the request.
    Server,
    /// The event was recorded at a client, when it sent the request.
    Client,
}

/// The facts about a recorded service event that a replay needs.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Request {
        side: Side,
        /// True if the event contains the request. False if the service's introspection was set to
        /// metadata only.
        has_contents: bool,
    },
    Response,
}

/// The error for a message that is not a service event, or that is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// The service whose events a stream contains.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name of the service, for example `/set_mode` or `/walk/_action/send_goal`.
    pub name: String,
    pub type_name: String,
}

impl Service {
    /// Returns the service whose events a stream contains, or `None` for other streams.
    pub fn of(stream: &Stream) -> Option<Service> {
        let Kind::Ros { type_name, .. } = &stream.kind else {
            return None;
        };
        let name = stream.name.strip_suffix(TOPIC)?;
        let type_name = type_name.strip_suffix(TYPE)?;
        let is_service = type_name.contains("/srv/") || type_name.contains("/action/");
        (!name.is_empty() && is_service).then(|| Service {
            name: name.into(),
            type_name: type_name.into(),
        })
    }

    /// Returns the name of the action if this service receives the goals of an action, otherwise
    /// `None`.
    pub fn action(&self) -> Option<&str> {
        self.name.strip_suffix(GOALS)
    }
}

/// Removes the end `/_service_event` from a topic's name, which leaves the name of the service.
/// Returns other names unchanged.
pub(crate) fn without_topic(name: &str) -> &str {
    name.strip_suffix(TOPIC).unwrap_or(name)
}

/// Returns whether the stream is a topic for the feedback or the status of one of these actions.
/// The action's server publishes such topics.
pub(crate) fn is_published_by(actions: &[String], stream: &Stream) -> bool {
    ["/_action/feedback", "/_action/status"].iter().any(|end| {
        let action = stream.name.strip_suffix(end);
        action.is_some_and(|action| actions.iter().any(|a| a == action))
    })
}

/// Parses the beginning of a service event: the encapsulation, `service_msgs/msg/ServiceEventInfo`,
/// and the number of requests. Also parses the number of responses, which has a fixed place only if
/// the event contains no request.
///
/// # Errors
/// Fails if the bytes are not those of a service event.
pub fn read(message: &[u8]) -> Result<Event, Damaged> {
    // The offsets in the CDR stream, which begins after the encapsulation.
    const REQUESTS: usize = 40;
    const RESPONSES: usize = 44;
    let (head, body) = message.split_first_chunk::<4>().ok_or(Damaged)?;
    let number = |at: usize| {
        let bytes = body.get(at..at + 4).and_then(|b| b.first_chunk());
        let bytes = *bytes.ok_or(Damaged)?;
        match head {
            [0, 1, ..] => Ok(u32::from_le_bytes(bytes)),
            [0, 0, ..] => Ok(u32::from_be_bytes(bytes)),
            _ => Err(Damaged),
        }
    };
    let requests = number(REQUESTS)?;
    // Behind a request the length of the responses has no fixed place. The request has at least four bytes.
    let behind = number(RESPONSES)?;
    let has_contents = match requests {
        0 => false,
        1 => true,
        _ => return Err(Damaged),
    };
    let side = match body[0] {
        0 => Side::Client,
        1 => Side::Server,
        2 | 3 if !has_contents && behind <= 1 => return Ok(Event::Response),
        _ => return Err(Damaged),
    };
    match has_contents || behind == 0 {
        true => Ok(Event::Request { side, has_contents }),
        false => Err(Damaged),
    }
}

/// The recorded requests of one service.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    pub service: String,
    #[serde(skip)]
    pub stream: StreamId,
    /// The number of requests with contents that the server recorded.
    pub by_server: u64,
    /// The number of requests with contents that clients recorded.
    pub by_clients: u64,
    pub by_server_without_contents: u64,
    pub by_clients_without_contents: u64,
    /// The number of messages that are not service events, or that are incomplete.
    pub damaged: u64,
}

impl Recorded {
    pub(crate) fn add(&mut self, message: &[u8]) {
        let count = match read(message) {
            Ok(Event::Response) => return,
            Ok(Event::Request { side, has_contents }) => match (side, has_contents) {
                (Side::Server, true) => &mut self.by_server,
                (Side::Client, true) => &mut self.by_clients,
                (Side::Server, false) => &mut self.by_server_without_contents,
                (Side::Client, false) => &mut self.by_clients_without_contents,
            },
            Err(Damaged) => &mut self.damaged,
        };
        *count += 1;
    }

    /// Returns the side whose events contain each request once. This is the server if it recorded
    /// requests with contents, otherwise the client.
    pub fn side(&self) -> Side {
        match self.by_server == 0 && self.by_clients > 0 {
            true => Side::Client,
            false => Side::Server,
        }
    }

    /// Returns the number of requests that can be sent.
    pub fn playable(&self) -> u64 {
        match self.side() {
            Side::Server => self.by_server,
            Side::Client => self.by_clients,
        }
    }

    /// Returns the number of requests that were recorded without contents. A request counts once,
    /// even if both sides recorded it.
    pub fn without_contents(&self) -> u64 {
        match self.side() {
            Side::Server if self.by_server == 0 => self
                .by_server_without_contents
                .max(self.by_clients_without_contents),
            Side::Server => self.by_server_without_contents,
            Side::Client => self.by_clients_without_contents,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the bytes of a service event of this kind. The event states that it contains
    /// `requests` requests. The bytes `rest` follow this number.
    pub(crate) fn event(kind: u8, requests: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 0, kind, 0, 0, 0];
        bytes.extend_from_slice(&7i32.to_le_bytes());
        bytes.extend_from_slice(&9u32.to_le_bytes());
        bytes.extend_from_slice(&[0xab; 16]);
        bytes.resize(4 + 32, 0);
        bytes.extend_from_slice(&3i64.to_le_bytes());
        bytes.extend_from_slice(&requests.to_le_bytes());
        bytes.extend_from_slice(rest);
        bytes
    }

    fn stream(name: &str, type_name: &str) -> Stream {
        Stream {
            name: name.into(),
            kind: Kind::Ros {
                type_name: type_name.into(),
                qos: None,
            },
        }
    }

    #[test]
    fn only_whole_service_events_with_at_most_one_request_are_read() {
        let request = |side, has_contents| Ok(Event::Request { side, has_contents });
        let one = [1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read(&event(1, 1, &one)), request(Side::Server, true));
        assert_eq!(read(&event(0, 1, &one)), request(Side::Client, true));
        assert_eq!(read(&event(1, 0, &[0; 4])), request(Side::Server, false));
        for kind in [2, 3] {
            assert_eq!(read(&event(kind, 0, &one)), Ok(Event::Response));
            assert_eq!(read(&event(kind, 0, &[0; 4])), Ok(Event::Response));
        }
        let swapped = |requests: u32| {
            let mut bytes = event(1, 0, &[0; 8]);
            bytes[1] = 0;
            bytes[44..48].copy_from_slice(&requests.to_be_bytes());
            read(&bytes)
        };
        assert_eq!(swapped(1), request(Side::Server, true));
        assert_eq!(swapped(0x0100_0000), Err(Damaged));
        let two = event(1, 2, &[0; 12]);
        let of_other_kind = event(4, 1, &one);
        let request_in_response = event(2, 1, &one);
        let response_in_request = event(1, 0, &[1, 0, 0, 0, 1, 0, 0, 0]);
        let mut other_encoding = event(1, 1, &one);
        other_encoding[1] = 7;
        for wrong in [
            two,
            of_other_kind,
            request_in_response,
            response_in_request,
            other_encoding,
        ] {
            assert_eq!(read(&wrong), Err(Damaged), "{wrong:?}");
        }
        let whole = event(1, 1, &one[..4]);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), Err(Damaged), "{length}");
        }
    }

    #[test]
    fn streams_of_service_events_name_their_service_and_action() {
        let of = |name: &str, type_name: &str| Service::of(&stream(name, type_name));
        let service = of("/a/_service_event", "b_msgs/srv/C_Event").unwrap();
        assert_eq!(
            (&*service.name, &*service.type_name, service.action()),
            ("/a", "b_msgs/srv/C", None)
        );
        let goals = of(
            "/w/_action/send_goal/_service_event",
            "b/action/Walk_SendGoal_Event",
        );
        assert_eq!(goals.unwrap().action(), Some("/w"));
        for (name, type_name) in [
            ("/a/_service_event", "b_msgs/msg/C_Event"),
            ("/a/_service_event", "b_msgs/srv/C"),
            ("/a/service_event", "b_msgs/srv/C_Event"),
            ("/_service_event", "b_msgs/srv/C_Event"),
        ] {
            assert_eq!(of(name, type_name), None, "{name} {type_name}");
        }
        let actions = ["/w".to_string()];
        let is_published = |name: &str| is_published_by(&actions, &stream(name, "b/msg/C"));
        assert!(is_published("/w/_action/status") && is_published("/w/_action/feedback"));
        assert!(!is_published("/v/_action/status") && !is_published("/w/status"));
    }

    #[test]
    fn each_request_counts_once_from_the_side_that_has_contents() {
        let count = |kinds: &[(u8, u32)]| {
            let mut recorded = Recorded::default();
            let all = kinds.iter().map(|&(kind, n)| event(kind, n, &[0; 8]));
            all.for_each(|event| recorded.add(&event));
            (
                recorded.side(),
                recorded.playable(),
                recorded.without_contents(),
                recorded.damaged,
            )
        };
        let both = [(0, 1), (1, 1), (2, 0), (3, 0), (0, 1), (1, 1)];
        assert_eq!(count(&both), (Side::Server, 2, 0, 0));
        let by_client = [(0, 1), (1, 0), (0, 1), (1, 0), (0, 0), (9, 0)];
        assert_eq!(count(&by_client), (Side::Client, 2, 1, 1));
        assert_eq!(count(&[(0, 0), (1, 0)]), (Side::Server, 0, 1, 0));
    }
}
