//! Says losses in sentences.

use super::kinds::{LossKind, RequestKind};
use super::report::{Cause, Meanwhile, ServiceLosses, TopicLosses};
use crate::kind::Kind;
use crate::stretch::{title, Culprit};
use onbeat_document::text::duration;
use onbeat_synth::outcomes::Setting;

const CULPRITS_IN_SENTENCE_MAX: usize = 2;

fn node(id: &str) -> &str {
    id.split_once(':').map_or(id, |(node, _)| node)
}

fn items(count: u64) -> String {
    match count {
        1 => "1 item".into(),
        n => format!("{n} items"),
    }
}

fn mismatch(setting: Setting) -> &'static str {
    match setting {
        Setting::Reliability => {
            "the publisher offers best effort, and the subscription requests reliable delivery"
        }
        Setting::Durability => {
            "the publisher offers volatile items, and the subscription requests transient local ones"
        }
        Setting::Deadline => {
            "the publisher offers a longer deadline than the subscription requests"
        }
        Setting::Liveliness => {
            "the publisher offers a weaker liveliness than the subscription requests"
        }
    }
}

fn named(culprit: &Culprit) -> String {
    match culprit {
        Culprit::Callback(id) => id.clone(),
        Culprit::Thread(of) | Culprit::MutexOf(of) | Culprit::WokenBy(of) => title(of),
        Culprit::Call(_) | Culprit::Socket(_) => culprit.text(),
    }
}

impl Meanwhile {
    /// Returns in words what happened while items to the callback `to` waited, such as
    /// `/fusion:timer(100ms) ran for 48 ms while an item waited`.
    pub fn text(&self, to: &str) -> String {
        let time = duration(self.mean_ns as f64);
        let by = self.by.as_ref().map(Culprit::text);
        let behind = |word: &str| {
            by.as_ref()
                .map_or(String::new(), |b| format!(" {word} {b}"))
        };
        let mut text = match (self.kind, &by) {
            (Kind::Executor, Some(by)) if by == to => {
                format!("the callback itself ran for {time} on an earlier item")
            }
            (Kind::Executor, Some(by)) => format!("{by} ran for {time} while an item waited"),
            (Kind::Transport, Some(by)) if matches!(self.by, Some(Culprit::Callback(_))) => {
                format!("an item waited {time} for {by}, which runs the callback within its own execution")
            }
            (Kind::Transport | Kind::Executor, _) => {
                format!("the callback's thread slept for {time} while an item waited")
            }
            (Kind::Preempted | Kind::Queued, _) => {
                format!(
                    "the callback's thread waited for a CPU for {time}{}",
                    behind("behind")
                )
            }
            (Kind::Library, _) => format!("the client library ran for {time} while an item waited"),
            (Kind::Throttled, _) => format!(
                "the callback's thread was throttled for {time}, because its CPU time was used up"
            ),
            (Kind::Stolen, _) => {
                format!("the host had the CPU of the callback's thread for {time}")
            }
            (Kind::Unknown, _) => {
                let why = self.reason.map_or("", |r| r.text());
                format!("the recording does not show what the callback's thread did while an item waited ({why})")
            }
            (kind, _) => format!(
                "the callback's thread was in the state '{}' for {time}",
                kind.text()
            ),
        };
        if let Some(during) = &self.during {
            let culprit = self.by.as_ref().map_or("it".into(), named);
            text += &format!(", and for most of this time, {culprit} {}", during.text());
        }
        text
    }
}

impl Cause {
    fn overwritten(&self, to: &str) -> String {
        let mut text = match self.depth {
            Some(depth) => format!(": the history of the subscription holds {}", items(depth)),
            None => String::from(": the history of the subscription was full"),
        };
        let said = self.meanwhile.iter().take(CULPRITS_IN_SENTENCE_MAX);
        let said = said.map(|m| format!("{} ({} of {})", m.text(to), m.count, self.count));
        let said: Vec<String> = said.collect();
        if !said.is_empty() {
            text += &format!(", and {}", said.join("; "));
        }
        text
    }
}

impl TopicLosses {
    /// Returns one sentence for each cause of lost items, the most frequent first.
    pub fn sentences(&self) -> Vec<String> {
        self.causes
            .iter()
            .map(|cause| self.sentence(cause))
            .collect()
    }

    /// Returns a cause as a sentence, such as `37 of 600 items of /scan to /fusion were
    /// overwritten: the history of the subscription holds 1 item, and /fusion:timer(100ms) ran for
    /// 48 ms while an item waited (35 of 37).`
    pub fn sentence(&self, cause: &Cause) -> String {
        let (is, count) = (if cause.count == 1 { "was" } else { "were" }, cause.count);
        let to = match cause.kind {
            LossKind::PassedOver => self.to.as_str(),
            _ => node(&self.to),
        };
        let (published_items, topic) = (items(self.published), &self.topic);
        let head = format!("{count} of {published_items} of {topic} to {to}");
        match cause.kind {
            LossKind::Overwritten => {
                format!("{head} {is} overwritten{}.", cause.overwritten(&self.to))
            }
            LossKind::Refused => {
                let why = cause.setting.map_or("", mismatch);
                format!("{head} {is} refused by QoS: {why}.")
            }
            LossKind::PassedOver => {
                let lacks = cause.lacks.as_ref().map(|lacks| {
                    format!(", and since the synchroniser's previous output, {lacks} gave it the fewest inputs")
                });
                let lacks = lacks.unwrap_or_default();
                format!("{head} {is} passed over: the synchroniser joined later items{lacks}.")
            }
            LossKind::Read => {
                format!("{head} {is} taken, and no callback ran.")
            }
            LossKind::Discarded => format!(
                "{head} {is} discarded: a shaper held items back, and did not send {}.",
                if count == 1 { "this one" } else { "these" }
            ),
            LossKind::SubscriptionEnded => format!(
                "{head} {is} not taken before the subscription ended or emptied its history."
            ),
            LossKind::RecordingEnded => {
                format!("{head} {is} not taken before the recording ended.")
            }
            LossKind::Socket => {
                let port = cause
                    .port
                    .map_or(String::new(), |port| format!(" (port {port})"));
                format!("{head} {is} lost while the kernel dropped datagrams, because the receive buffer of a UDP socket{port} was full. Make this buffer larger: net.core.rmem_max, and the middleware's setting.")
            }
            LossKind::Unknown => {
                let why = cause.reason.map_or("", |r| r.text());
                format!("{head} {is} lost, and the cause is unknown: {why}.")
            }
        }
    }
}

impl ServiceLosses {
    /// Returns one sentence for each outcome of requests that were late or not answered.
    pub fn sentences(&self) -> Vec<String> {
        let said = self.kinds.iter().filter(|k| k.0 != RequestKind::Answered);
        said.map(|k| self.sentence(k.0, k.1)).collect()
    }

    fn sentence(&self, kind: RequestKind, count: u64) -> String {
        let head = format!("{count} of {} requests to {}", self.sent, self.service);
        let is = if count == 1 { "was" } else { "were" };
        let to = self.to.as_deref().unwrap_or("a server");
        match kind {
            RequestKind::Answered => format!("{head} {is} answered."),
            RequestKind::Late => format!(
                "{head} {is} answered late. The slowest response came {} after its request.",
                duration(self.slowest_ns as f64)
            ),
            RequestKind::NoServer => {
                format!("{head} {is} never answered: the recording has no server.")
            }
            RequestKind::NotExecuted => {
                format!("{head} {is} never answered: {to} did not run.")
            }
            RequestKind::NoResponse => {
                format!("{head} {is} never answered: {to} ran and sent no response.")
            }
            RequestKind::ResponseNotTaken => {
                format!("{head} {is} never answered: {to} sent a response, and the client did not take it.")
            }
            RequestKind::RecordingEnded => {
                format!("{head} {is} without a response at the end of the recording.")
            }
            RequestKind::Unknown => format!(
                "The outcome of {head} is unknown: events were lost, or a server executed requests of an unknown client."
            ),
        }
    }
}
