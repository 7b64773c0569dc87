//! Makes replacement names with a key. The same name gets the same replacement under the same key,
//! and nobody without the key can test a guess.

use crate::policy::{is_any, stem, Policy};
use blake2::digest::consts::U16;
use blake2::digest::Mac;
use blake2::{Blake2bMac, Blake2s256, Digest};
use onbeat_document::schema::{Callback, CallbackType, Model};
use std::collections::BTreeSet;

/// The minimum length of a secret key, in bytes.
pub const LEAST_KEY: usize = 16;

/// The secret key from which replacement names are derived.
pub struct Key([u8; 32]);

/// The error that a secret key is too short. The field is the number of the key's bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key has {0} bytes, but needs at least {LEAST_KEY} random bytes. Make it with `head -c 32 /dev/urandom > redact.key`")]
pub struct KeyError(usize);

impl Key {
    /// Makes a key from all of these bytes.
    ///
    /// # Errors
    ///
    /// Returns a [`KeyError`] if there are fewer than [`LEAST_KEY`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Key, KeyError> {
        match bytes.len() < LEAST_KEY {
            true => Err(KeyError(bytes.len())),
            false => Ok(Key(Blake2s256::digest(bytes).into())),
        }
    }
}

/// The kind of a name. A text that names both a node and a topic gets two different replacements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Node,
    Topic,
    Thread,
    Symbol,
    Mode,
    Run,
    Host,
    Boot,
    Chain,
    Id,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Topic => "topic",
            Kind::Thread => "thread",
            Kind::Symbol => "symbol",
            Kind::Mode => "mode",
            Kind::Run => "run",
            Kind::Host => "host",
            Kind::Boot => "boot",
            Kind::Chain => "chain",
            Kind::Id => "id",
        }
    }
}

/// The letters of replacement names. Without vowels, they form no words.
const LETTERS: &[u8; 20] = b"bcdfghjkmnpqrstvwxyz";
/// The number of letters of a replacement name. Among ten thousand names, the probability of two
/// equal ones is 1 in 80 million.
const LENGTH: usize = 12;

pub(crate) struct Names<'a> {
    policy: &'a Policy,
    key: &'a Key,
    nodes: BTreeSet<String>,
    topics: BTreeSet<String>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(model: &Model, policy: &'a Policy, key: &'a Key) -> Self {
        let shown = |c: &&Callback| policy.visible.callbacks.contains(&c.id);
        let shown: Vec<&Callback> = model.callbacks.iter().filter(shown).collect();
        let nodes = shown
            .iter()
            .flat_map(|c| [Some(&c.node), c.caller.as_ref()]);
        Names {
            policy,
            key,
            nodes: nodes.flatten().cloned().collect(),
            topics: shown.iter().map(|c| c.input.clone()).collect(),
        }
    }

    pub(crate) fn shows(&self, c: &Callback) -> bool {
        let v = &self.policy.visible;
        v.callbacks.contains(&c.id) || is_any(&v.nodes, &c.node)
    }

    pub(crate) fn shows_node(&self, name: &str) -> bool {
        is_any(&self.policy.visible.nodes, name) || self.nodes.contains(name)
    }

    pub(crate) fn shows_topic(&self, name: &str) -> bool {
        let topics = &self.policy.visible.topics;
        let is = |name: &str| is_any(topics, name) || self.topics.contains(name);
        !name.is_empty() && (is(name) || is(stem(name).0))
    }

    pub(crate) fn hide(&self, kind: Kind, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        let slash = match kind {
            Kind::Node | Kind::Topic => "/",
            _ => "",
        };
        let joint = if kind == Kind::Chain { '-' } else { '_' };
        format!("{slash}{}{joint}{}", kind.word(), self.letters(kind, name))
    }

    fn letters(&self, kind: Kind, name: &str) -> String {
        let mut mac = Blake2bMac::<U16>::new_from_slice(&self.key.0).expect("32 bytes fit");
        Mac::update(&mut mac, kind.word().as_bytes());
        Mac::update(&mut mac, &[0]);
        Mac::update(&mut mac, name.as_bytes());
        let bytes: [u8; 16] = mac.finalize().into_bytes().into();
        let mut number = u128::from_le_bytes(bytes);
        let mut letter = || {
            let at = (number % LETTERS.len() as u128) as usize;
            number /= LETTERS.len() as u128;
            char::from(LETTERS[at])
        };
        (0..LENGTH).map(|_| letter()).collect()
    }

    pub(crate) fn node(&self, name: &str) -> String {
        match self.shows_node(name) {
            true => name.into(),
            false => self.hide(Kind::Node, name),
        }
    }

    pub(crate) fn topic(&self, name: &str) -> String {
        // The edge of a link has no topic.
        if name == "(memory)" || self.shows_topic(name) {
            return name.into();
        }
        let (base, end) = stem(name);
        self.hide(Kind::Topic, base) + end
    }

    fn listed(&self, list: &[String], kind: Kind, name: &str) -> String {
        match list.iter().any(|l| l == name) {
            true => name.into(),
            false => self.hide(kind, name),
        }
    }

    pub(crate) fn thread(&self, name: &str) -> String {
        self.listed(&self.policy.visible.threads, Kind::Thread, name)
    }

    pub(crate) fn host(&self, name: &str) -> String {
        self.listed(&self.policy.visible.hosts, Kind::Host, name)
    }

    pub(crate) fn mode(&self, name: &str) -> String {
        match name == onbeat_document::schema::DEFAULT_MODE {
            true => name.into(),
            false => self.listed(&self.policy.visible.modes, Kind::Mode, name),
        }
    }

    pub(crate) fn id(&self, c: &Callback) -> String {
        if self.policy.visible.callbacks.contains(&c.id) {
            return c.id.clone();
        }
        let parts = Parts::of(c);
        let node = self.node(&c.node);
        let kind = type_name(c.kind);
        let Some(parts) = parts else {
            return format!("{node}:{kind}({})", self.hide(Kind::Id, &c.id));
        };
        let what = match c.kind {
            CallbackType::Timer if is_period(parts.what) => parts.what.to_string(),
            CallbackType::Timer => self.hide(Kind::Id, parts.what),
            _ => self.topic(parts.what),
        };
        let caller = parts.caller.map(|c| format!("@{}", self.node(c)));
        let ordinal = parts.ordinal.map(|n| format!("#{n}"));
        let (caller, ordinal) = (caller.unwrap_or_default(), ordinal.unwrap_or_default());
        format!("{node}:{kind}({what}){caller}{ordinal}")
    }
}

struct Parts<'c> {
    what: &'c str,
    caller: Option<&'c str>,
    ordinal: Option<u32>,
}

impl<'c> Parts<'c> {
    fn of(c: &'c Callback) -> Option<Self> {
        let rest = c.id.strip_prefix(c.node.as_str())?.strip_prefix(':')?;
        let rest = rest.strip_prefix(type_name(c.kind))?.strip_prefix('(')?;
        let (what, end) = rest.split_at(rest.rfind(')')?);
        let end = &end[1..];
        let caller = match &c.caller {
            Some(caller) if end.starts_with('@') => Some(caller.as_str()),
            _ => None,
        };
        let end = match caller {
            Some(caller) => end[1..].strip_prefix(caller)?,
            None => end,
        };
        let ordinal = match end.strip_prefix('#') {
            Some(n) => Some(n.parse().ok()?),
            None if end.is_empty() => None,
            None => return None,
        };
        Some(Parts {
            what,
            caller,
            ordinal,
        })
    }
}

pub(crate) fn type_name(kind: CallbackType) -> &'static str {
    match kind {
        CallbackType::Timer => "timer",
        CallbackType::Subscription => "subscription",
        CallbackType::Service => "service",
        CallbackType::Client => "client",
        CallbackType::Task => "task",
        CallbackType::Sync => "sync",
        CallbackType::Thread => "thread",
    }
}

fn is_period(text: &str) -> bool {
    let digits = |t: &str| !t.is_empty() && t.chars().all(|c| c.is_ascii_digit() || c == '.');
    text == "?" || text.strip_suffix("ms").is_some_and(digits)
}
