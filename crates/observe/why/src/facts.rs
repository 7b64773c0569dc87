//! The facts about callbacks and threads that `cut` needs in addition to their history.

use onbeat_document::evidence::MEMORY;
use onbeat_document::schema::CallbackType;
use onbeat_synth::named::{Components, Named, ThreadNames};
use onbeat_synth::{CallbackFacts, Synth};

/// The facts about callbacks and threads on which stretches depend. Numbers are those of the
/// synthesis.
pub(crate) trait Facts {
    fn kind_of(&self, callback: u32) -> CallbackType;
    /// Reports whether a topic's name stands for data that a callback keeps in memory.
    fn is_memory(&self, name: u32) -> bool;
    fn are_of_same_node(&self, a: u32, b: u32) -> bool;
    /// Returns the number of a thread's component. If `names` is `None`, uses the names that the
    /// facts have.
    fn component(&mut self, names: Option<&ThreadNames>, tid: u32) -> u32;
}

impl Facts for Synth {
    fn kind_of(&self, callback: u32) -> CallbackType {
        Synth::kind_of(self, callback)
    }

    fn is_memory(&self, name: u32) -> bool {
        self.name(name) == MEMORY
    }

    fn are_of_same_node(&self, a: u32, b: u32) -> bool {
        Synth::are_of_same_node(self, a, b)
    }

    fn component(&mut self, names: Option<&ThreadNames>, tid: u32) -> u32 {
        match names {
            Some(names) => self.component_in(names, tid),
            None => self.component_of(tid),
        }
    }
}

/// A copy of the facts in a synthesis, for another thread.
#[derive(Debug, Clone)]
pub struct Copied {
    callbacks: Vec<CallbackFacts>,
    memory: u32,
    components: Components,
}

/// New facts of a synthesis, which [`Copied::update`] takes.
#[derive(Debug, Default)]
pub struct News {
    callbacks: Vec<CallbackFacts>,
    /// The number of the first callback in `callbacks`.
    from: usize,
}

/// Finds the facts that have changed in a synthesis.
#[derive(Debug, Default)]
pub struct Watch {
    known: usize,
    events: usize,
}

impl Watch {
    /// Returns the facts about new callbacks. After as many events as there are callbacks, returns
    /// the facts about all callbacks, because they can change. `events` is the number of events
    /// since the last call.
    pub fn news(&mut self, synth: &Synth, events: usize) -> News {
        self.events += events;
        let count = synth.callback_count();
        let mut from = self.known;
        if self.events >= count {
            (from, self.events) = (0, 0);
        }
        self.known = count;
        let callbacks = (from..count).map(|n| synth.callback_facts(n as u32));
        News {
            callbacks: callbacks.collect(),
            from,
        }
    }
}

impl Copied {
    /// Creates a copy without callbacks and threads.
    pub fn new(synth: &Synth) -> Copied {
        Copied {
            callbacks: Vec::new(),
            memory: synth.memory_name(),
            components: Components::default(),
        }
    }

    /// Takes over new facts.
    pub fn update(&mut self, news: News) {
        self.callbacks.truncate(news.from);
        self.callbacks.extend(news.callbacks);
    }

    /// Takes over a thread's name.
    pub fn named(&mut self, named: &Named) {
        self.components.named(named);
    }

    /// Returns the components to which the numbers in stretches refer.
    pub fn into_components(self) -> Components {
        self.components
    }
}

impl Facts for Copied {
    fn kind_of(&self, callback: u32) -> CallbackType {
        self.callbacks[callback as usize].kind
    }

    fn is_memory(&self, name: u32) -> bool {
        name == self.memory
    }

    fn are_of_same_node(&self, a: u32, b: u32) -> bool {
        self.callbacks[a as usize].node == self.callbacks[b as usize].node
    }

    fn component(&mut self, names: Option<&ThreadNames>, tid: u32) -> u32 {
        match names {
            Some(names) => self.components.number_in(names, tid),
            None => self.components.number(tid),
        }
    }
}
