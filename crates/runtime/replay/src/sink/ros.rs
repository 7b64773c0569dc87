//! Publishes recorded messages on ROS 2 topics: the sink of `onbeat replay`.

use super::qos::Overrides;
use super::{Put, Refused, Sink, SinkError};
use crate::item::{Kind, Stream, StreamId};
use onbeat_ros::rcl::{self, Item, Node, Publisher, Qos, Rcl, RclError, Subscription};
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
/// The pause after a subscriber was found. It gives best-effort subscribers the time to discover the
/// publisher too.
const BEST_EFFORT_PAUSE: Duration = Duration::from_millis(200);
const CLOCK: &str = "rosgraph_msgs/msg/Clock";

/// A sink that publishes recorded messages on topics of ROS 2.
pub struct Topics {
    publishers: Vec<Option<Publisher>>,
    names: Vec<String>,
    refused_since: Option<u64>,
    answers: Option<Answers>,
}

/// The answers of the application, which pace the replay: for each message of some topics the application
/// publishes a message on another topic.
struct Answers {
    asked: Vec<(StreamId, u64)>,
    topic: String,
    subscription: Subscription,
    item: Item,
    credits: u64,
    answered: u64,
}

impl Answers {
    /// Returns whether the application has answered enough for one more message of the stream. Each stream is
    /// counted separately. Of topics that are answered together, none gets ahead of the others.
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

/// The rule by which the application paces the replay: it answers messages of some topics on another topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The topics whose messages the application answers. If there are several, one answer stands for one
    /// message of each.
    pub asked: Vec<String>,
    /// The topic on which the application publishes its answers.
    pub answered: String,
    /// The number of messages of each topic that may be unanswered at a time.
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
    /// The longest time to wait for a subscriber of each topic.
    pub wait: Duration,
}

impl Topics {
    /// Creates the publishers with the ROS 2 installation in LD_LIBRARY_PATH, and waits until each topic has
    /// a subscriber. Also returns the topics without a subscriber.
    ///
    /// # Errors
    /// Fails if ROS 2 or a message type cannot be used.
    pub fn open(plan: &Plan<'_>) -> Result<(Topics, Vec<String>), SinkError> {
        let failed = |e: RclError| SinkError {
            sink: "ros".into(),
            fault: e.to_string(),
        };
        let library = Rcl::load(Path::new("librcl.so"), &[]).map_err(failed)?;
        let node = Node::new(library, NODE).map_err(failed)?;
        let mut topics = Topics {
            publishers: Vec::new(),
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
        let unheard = topics.wait_for_subscribers(plan.wait);
        Ok((topics, unheard))
    }

    fn add(
        &mut self,
        node: &Arc<Node>,
        id: StreamId,
        (topic, type_name): (&str, &str),
        qos: &Qos,
    ) -> Result<(), RclError> {
        let index = id.0 as usize;
        if self.publishers.len() <= index {
            self.publishers.resize_with(index + 1, || None);
            self.names.resize(index + 1, String::new());
        }
        self.publishers[index] = Some(node.publisher(topic, type_name, qos)?);
        self.names[index] = topic.into();
        Ok(())
    }

    fn wait_for_subscribers(&self, at_most: Duration) -> Vec<String> {
        let until = monotonic_ns().saturating_add(at_most.as_nanos() as u64);
        loop {
            let all = self.publishers.iter().zip(&self.names);
            let unheard: Vec<String> = all
                .filter(|(p, _)| p.as_ref().is_some_and(|p| p.subscriptions() == 0))
                .map(|(_, name)| name.clone())
                .collect();
            if unheard.is_empty() || monotonic_ns() >= until {
                std::thread::sleep(BEST_EFFORT_PAUSE.min(at_most));
                return unheard;
            }
            std::thread::sleep(LOOK);
        }
    }
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

    /// Publishes a message. The middleware copies the message and may allocate. A reliable topic whose
    /// subscribers do not acknowledge keeps the message for up to 100 ms, and is busy after that.
    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused> {
        let publisher = self.publishers.get(stream.0 as usize);
        let Some(Some(publisher)) = publisher else {
            return Ok(Put::Unsuitable);
        };
        if bytes.len() < ENCAPSULATION {
            return Ok(Put::Unsuitable);
        }
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
        let since = *self.refused_since.get_or_insert_with(monotonic_ns);
        if monotonic_ns().saturating_sub(since) < PATIENCE_NS {
            return Err(Refused::Busy);
        }
        let seconds = PATIENCE_NS / 1_000_000_000;
        let (name, topic) = (&self.names[stream.0 as usize], answers.map(|a| &a.topic));
        Err(hung(match (code, topic) {
            // Without a code, the message had no credit.
            (None, Some(topic)) => {
                format!("no answer on {topic} to a message on {name} for {seconds} s. Check whether the application hangs")
            }
            (code, _) => format!(
                "{name} could not be published for {seconds} s (code {}). Check whether a subscriber hangs",
                code.unwrap_or(0)
            ),
        }))
    }

    fn gives_credit(&self) -> bool {
        self.answers.is_some()
    }

    fn settle(&mut self, deadline_ns: u64) {
        for publisher in self.publishers.iter().flatten() {
            let left = deadline_ns.saturating_sub(monotonic_ns());
            publisher.settle(left as i64);
        }
    }
}

fn hung(why: impl ToString) -> Refused {
    Refused::Failed(io::Error::other(why.to_string()))
}
