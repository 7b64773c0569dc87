//! Publishes recorded messages on ROS 2 topics, and sends recorded requests to services: the sink
//! of `onbeat replay`.

use super::qos::Overrides;
use super::requests::Clients;
use super::{Put, Refused, RequestFigures, Sink, SinkError};
use crate::item::{Kind, Stream, StreamId};
use onbeat_ros::rcl::{self, Item, Node, Publisher, Qos, Rcl, RclError, Responses, Subscription};
use onbeat_time::clock::monotonic_ns;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The name of the ROS 2 node that publishes the recorded messages.
pub const NODE: &str = "onbeat_replay";
const ENCAPSULATION: usize = 4;
const PATIENCE_NS: u64 = 30_000_000_000;
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// The pause after onbeat found a subscriber. The pause gives best-effort subscribers the time to
/// discover onbeat's publisher.
const BEST_EFFORT_PAUSE: Duration = Duration::from_millis(200);
const CLOCK: &str = "rosgraph_msgs/msg/Clock";

/// A sink that publishes recorded messages on topics of ROS 2, and sends recorded requests to
/// services.
pub struct Topics {
    ends: Vec<End>,
    clients: Option<Clients>,
    names: Vec<String>,
    refused_since: Option<u64>,
    answers: Option<Answers>,
}

/// The publisher or client through which a stream's items leave.
enum End {
    None,
    Topic(Publisher),
    /// A service. The value is the index of its client.
    Service(usize),
}

/// The replay's topics without a subscriber and services without a server.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alone {
    pub topics: Vec<String>,
    pub services: Vec<String>,
}

/// The state of the answers with which the application paces the replay. For each message of some
/// topics, the application publishes a message on another topic.
struct Answers {
    asked: Vec<(StreamId, u64)>,
    topic: String,
    subscription: Subscription,
    item: Item,
    credits: u64,
    answered: u64,
}

impl Answers {
    /// Returns true if the application has answered enough messages for one more message of the
    /// stream. Each stream is counted separately. If several topics are answered together, none of
    /// them gets ahead of the others.
    fn has_credit(&mut self, stream: StreamId) -> Result<bool, RclError> {
        let Some(&(_, sent)) = self.asked.iter().find(|(asked, _)| *asked == stream) else {
            return Ok(true);
        };
        while self.subscription.take(&mut self.item)? {
            self.answered += 1;
        }
        Ok(sent.saturating_sub(self.answered) < self.credits)
    }

    fn left(&mut self, stream: StreamId) {
        let asked = self.asked.iter_mut().find(|(asked, _)| *asked == stream);
        asked.into_iter().for_each(|(_, sent)| *sent += 1);
    }
}

/// The rule by which the application paces the replay. For messages of some topics, the application
/// publishes answers on another topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The topics whose messages the application answers. If there are several, each answer is for
    /// one message of each topic.
    pub asked: Vec<String>,
    /// The topic on which the application publishes its answers.
    pub answered: String,
    /// The number of messages of each topic that may be without an answer at the same time.
    pub credits: u64,
}

/// The settings of the publishers of a replay.
#[allow(missing_docs)]
pub struct Plan<'p> {
    /// The recorded topics, each with its stream number.
    pub streams: &'p [(StreamId, Stream)],
    pub clock: Option<StreamId>,
    pub overrides: &'p Overrides,
    /// The answers that pace the replay, or `None` if recorded times pace it.
    pub answer: Option<&'p Answer>,
    /// The longest time to wait until each topic has a subscriber and each service a server.
    pub wait: Duration,
}

impl Topics {
    /// Creates publishers and clients with the ROS 2 installation in LD_LIBRARY_PATH. Waits until
    /// each topic has a subscriber and each service has a server. Also returns the topics and
    /// services that still have no subscriber or server.
    ///
    /// # Errors
    /// Fails if ROS 2 or a message type cannot be used.
    pub fn open(plan: &Plan<'_>) -> Result<(Topics, Alone), SinkError> {
        let failed = |e: RclError| SinkError {
            sink: "ros".into(),
            fault: e.to_string(),
        };
        let library = Rcl::load(Path::new("librcl.so"), &[]).map_err(failed)?;
        let node = Node::new(library, NODE).map_err(failed)?;
        let mut topics = Topics {
            ends: Vec::new(),
            clients: None,
            names: Vec::new(),
            refused_since: None,
            answers: None,
        };
        for (id, stream) in plan.streams {
            let Kind::Ros { type_name, qos } = &stream.kind else {
                continue;
            };
            let recorded = qos.as_deref().unwrap_or("");
            let qos = plan.overrides.offered(&stream.name, recorded);
            topics
                .add(&node, *id, (&stream.name, type_name), &qos)
                .map_err(failed)?;
        }
        if let Some(id) = plan.clock {
            topics
                .add(
                    &node,
                    id,
                    ("/clock", CLOCK),
                    &plan.overrides.offered("/clock", ""),
                )
                .map_err(failed)?;
        }
        if let Some(answer) = plan.answer {
            topics.answers = Some(listen(&node, plan, answer)?);
        }
        let services = topics.connect(&node, plan.streams).map_err(failed)?;
        let alone = topics.wait_for_partners(services.as_ref(), plan.wait);
        let alone = alone.map_err(failed)?;
        if let Some(Services {
            clients,
            names,
            responses,
        }) = services
        {
            topics.clients = Some(Clients::start(clients, names, responses)?);
        }
        Ok((topics, alone))
    }

    fn connect(
        &mut self,
        node: &Arc<Node>,
        streams: &[(StreamId, Stream)],
    ) -> Result<Option<Services>, RclError> {
        let mut services = Vec::new();
        for (id, stream) in streams {
            if let Kind::Requests { type_name } = &stream.kind {
                self.set(*id, End::Service(services.len()), &stream.name);
                services.push((&*stream.name, &**type_name));
            }
        }
        if services.is_empty() {
            return Ok(None);
        }
        let (clients, responses) = node.clients(&services)?;
        Ok(Some(Services {
            clients,
            names: services.iter().map(|(name, _)| name.to_string()).collect(),
            responses,
        }))
    }

    fn set(&mut self, id: StreamId, end: End, name: &str) {
        let index = id.0 as usize;
        if self.ends.len() <= index {
            self.ends.resize_with(index + 1, || End::None);
            self.names.resize(index + 1, String::new());
        }
        self.ends[index] = end;
        self.names[index] = name.into();
    }

    fn add(
        &mut self,
        node: &Arc<Node>,
        id: StreamId,
        (topic, type_name): (&str, &str),
        qos: &Qos,
    ) -> Result<(), RclError> {
        let publisher = node.publisher(topic, type_name, qos)?;
        self.set(id, End::Topic(publisher), topic);
        Ok(())
    }

    fn wait_for_partners(
        &self,
        services: Option<&Services>,
        at_most: Duration,
    ) -> Result<Alone, RclError> {
        let until = monotonic_ns().saturating_add(at_most.as_nanos() as u64);
        loop {
            let mut alone = Alone::default();
            for (end, name) in self.ends.iter().zip(&self.names) {
                match (end, services) {
                    (End::Topic(publisher), _) if publisher.subscriptions() == 0 => {
                        alone.topics.push(name.clone());
                    }
                    (End::Service(number), Some(services))
                        if !services.responses.has_server(*number)? =>
                    {
                        alone.services.push(name.clone());
                    }
                    _ => {}
                }
            }
            if alone == Alone::default() || monotonic_ns() >= until {
                std::thread::sleep(BEST_EFFORT_PAUSE.min(at_most));
                return Ok(alone);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The clients of services, before the thread that receives their responses is started.
struct Services {
    clients: Vec<rcl::Client>,
    names: Vec<String>,
    responses: Responses,
}

fn listen(node: &Arc<Node>, plan: &Plan<'_>, answer: &Answer) -> Result<Answers, SinkError> {
    let failed = |fault: String| SinkError {
        sink: "ros".into(),
        fault,
    };
    let ros = |e: RclError| failed(e.to_string());
    let stream = |topic: &String| {
        let found = plan.streams.iter().find(|(_, s)| s.name == *topic);
        found.map(|(id, _)| (*id, 0)).ok_or_else(|| {
            failed(format!(
                "topic {topic} is not played. Name a played topic in --answer"
            ))
        })
    };
    let asked: Result<Vec<_>, SinkError> = answer.asked.iter().map(stream).collect();
    let asked = asked?;
    let until = monotonic_ns().saturating_add(plan.wait.as_nanos() as u64);
    let offered = loop {
        if let Some(found) = node.announced(&answer.answered).map_err(ros)?.pop() {
            break found;
        }
        if monotonic_ns() >= until {
            let how = "start the application first, or wait longer (--wait)";
            return Err(failed(format!(
                "nobody publishes {}: {how}",
                answer.answered
            )));
        }
        std::thread::sleep(LOOK);
    };
    let qos = Qos {
        history: rcl::KEEP_ALL,
        ..offered.qos
    };
    let subscription = node.subscription(&answer.answered, &offered.type_name, &qos);
    Ok(Answers {
        asked,
        topic: answer.answered.clone(),
        subscription: subscription.map_err(ros)?,
        item: node.item(64 << 10).map_err(ros)?,
        credits: answer.credits.max(1),
        answered: 0,
    })
}

impl Sink for Topics {
    fn name(&self) -> String {
        "ros".into()
    }

    /// Publishes a message, or sends a request. The middleware copies the bytes and may allocate
    /// memory. If the subscribers of a reliable topic do not acknowledge, the middleware stores the
    /// message for up to 100 ms. After that, the sink is busy.
    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused> {
        let publisher = match (self.ends.get(stream.0 as usize), &mut self.clients) {
            (Some(End::Topic(publisher)), _) if bytes.len() >= ENCAPSULATION => publisher,
            (Some(&End::Service(number)), Some(clients)) => {
                return match clients.put(number, bytes) {
                    Ok(put) => {
                        self.refused_since = None;
                        Ok(put)
                    }
                    Err(code) => Err(self.refused(stream, code)),
                };
            }
            _ => return Ok(Put::Unsuitable),
        };
        let mut answers = self.answers.as_mut();
        let has_credit = match &mut answers {
            Some(answers) => answers.has_credit(stream).map_err(hung)?,
            None => true,
        };
        let mut code = None;
        if has_credit {
            code = publisher.publish_bytes(bytes).err();
            if code.is_none() {
                self.refused_since = None;
                answers.into_iter().for_each(|a| a.left(stream));
                return Ok(Put::Left);
            }
        }
        Err(self.refused(stream, code.unwrap_or(rcl::OK)))
    }

    fn gives_credit(&self) -> bool {
        self.answers.is_some()
    }

    fn settle(&mut self, deadline_ns: u64) {
        for end in &self.ends {
            if let End::Topic(publisher) = end {
                let left = deadline_ns.saturating_sub(monotonic_ns());
                publisher.settle(left as i64);
            }
        }
        if let Some(clients) = &self.clients {
            clients.settle(deadline_ns);
        }
    }

    fn requests(&mut self) -> Vec<RequestFigures> {
        let clients = self.clients.as_mut();
        clients.map(Clients::figures).unwrap_or_default()
    }
}

impl Topics {
    /// Returns [`Refused::Busy`], or an error if the sink has not sent anything for `PATIENCE_NS`
    /// although items were offered. `code` is the error code of the middleware, or `rcl::OK` if the
    /// message had no credit.
    fn refused(&mut self, stream: StreamId, code: i32) -> Refused {
        let since = *self.refused_since.get_or_insert_with(monotonic_ns);
        if monotonic_ns().saturating_sub(since) < PATIENCE_NS {
            return Refused::Busy;
        }
        let seconds = PATIENCE_NS / 1_000_000_000;
        let name = &self.names[stream.0 as usize];
        hung(match (code, &self.answers) {
            (rcl::OK, Some(Answers { topic, .. })) => {
                format!("no answer on {topic} to a message on {name} for {seconds} s. Check whether the application hangs")
            }
            _ => format!(
                "{name} could not be published for {seconds} s (code {code}). Check whether a subscriber or a server hangs"
            ),
        })
    }
}

fn hung(why: impl ToString) -> Refused {
    Refused::Failed(io::Error::other(why.to_string()))
}
