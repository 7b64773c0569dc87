//! Model-checks the resume protocol: two ends run the code of `onbeat_link::resume` over
//! connections that break at any point, which one end sees before the other.

use onbeat_link::resume::{Progress, Receiver, Sender};
use proptest::prelude::*;
use stateright::{Checker, Model, Property};
use std::collections::VecDeque;

const MESSAGES: u64 = 4;
const CREDITS: u64 = 2;
const BREAKS: u8 = 2;

/// The messages and counts that travel in one connection. The dialling end makes the connection,
/// and the other end accepts it later.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Wire {
    generation: u8,
    data: VecDeque<u64>,
    status: VecDeque<Progress>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    sender: Sender,
    receiver: Receiver,
    slots: (
        [Option<u64>; CREDITS as usize],
        [Option<u64>; CREDITS as usize],
    ),
    consumed: Vec<u64>,
    /// The connection on which the sender sends. It equals `receives_on` once both ends have
    /// changed to the new connection.
    sends_on: u8,
    receives_on: u8,
    resumed: bool,
    old: Wire,
    new: Wire,
    told: Progress,
    violated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Post,
    Transmit,
    Arrive,
    Consume,
    Tell,
    Hear,
    Dial,
    Take,
}

/// The protocol that is checked. Either end may dial. If `careless`, an end reports its counts
/// before it leaves the old connection, and the check must find this error.
struct Protocol {
    sender_dials: bool,
    careless: bool,
}

impl World {
    fn wire(&mut self, generation: u8) -> Option<&mut Wire> {
        [&mut self.old, &mut self.new]
            .into_iter()
            .find(|w| w.generation == generation)
    }

    fn arrive(&mut self, number: u64) {
        self.violated |= self.receiver.on_message(number).is_err();
        self.slots.1[(number % CREDITS) as usize] = Some(number);
    }

    fn tell(&mut self) {
        let (on, progress) = (self.receives_on, self.receiver.progress());
        self.told = progress;
        if let Some(wire) = self.wire(on) {
            wire.status.push_back(progress);
        }
    }

    fn hear(&mut self, told: Progress) {
        let heard = if self.resumed {
            self.sender.on_progress(told)
        } else {
            self.sender.on_resumed(told)
        };
        self.resumed = true;
        self.violated |= heard.is_err();
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let receiver = Receiver::new(CREDITS);
        vec![World {
            sender: Sender::new(CREDITS),
            told: receiver.progress(),
            receiver,
            slots: ([None; CREDITS as usize], [None; CREDITS as usize]),
            consumed: Vec::new(),
            sends_on: 0,
            receives_on: 0,
            resumed: true,
            old: Wire {
                generation: u8::MAX,
                ..Wire::default()
            },
            new: Wire::default(),
            violated: false,
        }]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        use Action::*;
        let mut state = state.clone();
        let (sends_on, receives_on) = (state.sends_on, state.receives_on);
        let is_same = sends_on == receives_on;
        let mut offer = |action, possible: bool| {
            if possible {
                actions.push(action);
            }
        };
        let left = state.sender.posted() < MESSAGES;
        offer(Post, left && state.sender.may_post().is_some());
        let may_transmit = state.resumed && state.sender.to_transmit().is_some();
        offer(Transmit, may_transmit);
        let data = state.wire(receives_on).map_or(0, |w| w.data.len());
        offer(Arrive, data > 0);
        offer(Consume, state.receiver.to_consume().is_some());
        // Reported counts need not be reported again.
        offer(Tell, state.told != state.receiver.progress());
        let told = state.wire(sends_on).map_or(0, |w| w.status.len());
        offer(Hear, told > 0);
        offer(Dial, is_same && state.new.generation < BREAKS);
        offer(Take, !is_same);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut state = last.clone();
        match action {
            Action::Post => {
                let number = state.sender.may_post()?;
                state.slots.0[(number % CREDITS) as usize] = Some(number);
                state.sender.post();
            }
            Action::Transmit => {
                let number = state.sender.to_transmit()?;
                // The slot's content leaves.
                let content = state.slots.0[(number % CREDITS) as usize]?;
                state.violated |= content != number;
                let on = state.sends_on;
                if let Some(wire) = state.wire(on) {
                    wire.data.push_back(number);
                }
                state.sender.transmitted();
            }
            Action::Arrive => {
                let on = state.receives_on;
                let number = state.wire(on)?.data.pop_front()?;
                state.arrive(number);
            }
            Action::Consume => {
                let number = state.receiver.to_consume()?;
                state
                    .consumed
                    .push(state.slots.1[(number % CREDITS) as usize]?);
                state.receiver.consume();
            }
            Action::Tell => state.tell(),
            Action::Hear => {
                let on = state.sends_on;
                let told = state.wire(on)?.status.pop_front()?;
                state.hear(told);
            }
            Action::Dial => {
                let generation = state.new.generation + 1;
                let fresh = Wire {
                    generation,
                    ..Wire::default()
                };
                state.old = std::mem::replace(&mut state.new, fresh);
                if self.sender_dials {
                    (state.sends_on, state.resumed) = (generation, false);
                } else {
                    state.receives_on = generation;
                    state.tell();
                }
            }
            Action::Take if self.sender_dials => {
                if self.careless {
                    // A careless end reports its counts first, and then reads the old connection to
                    // its end.
                    let (on, progress) = (state.new.generation, state.receiver.progress());
                    state.wire(on)?.status.push_back(progress);
                    while let Some(number) = state.old.data.pop_front() {
                        state.arrive(number);
                    }
                    state.receives_on = on;
                } else {
                    state.receives_on = state.new.generation;
                    state.tell();
                }
            }
            Action::Take => (state.sends_on, state.resumed) = (state.new.generation, false),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("in order, once, and unspoilt", |_, state: &World| {
                let expected = 0..state.consumed.len() as u64;
                !state.violated && state.consumed.iter().copied().eq(expected)
            }),
            Property::always("slots suffice", |_, state: &World| {
                let progress = state.receiver.progress();
                let open = state.sender.posted() - state.sender.progress().consumed;
                open <= CREDITS && progress.received - progress.consumed <= CREDITS
            }),
            Property::eventually("all arrive", |_, state: &World| {
                state.consumed.len() as u64 == MESSAGES
            }),
            Property::sometimes("it broke, twice", |_, state: &World| {
                state.new.generation == BREAKS && state.consumed.len() as u64 == MESSAGES
            }),
        ]
    }
}

fn check(sender_dials: bool, careless: bool) -> (usize, bool) {
    let model = Protocol {
        sender_dials,
        careless,
    };
    let checker = model.checker().spawn_bfs().join();
    let wrong = checker.discovery("in order, once, and unspoilt");
    if !careless {
        checker.assert_properties();
    }
    (checker.unique_state_count(), wrong.is_some())
}

#[test]
fn no_message_is_lost_or_doubled_whichever_end_dials() {
    for sender_dials in [true, false] {
        let (states, _) = check(sender_dials, false);
        println!("sender dials: {sender_dials}: {states} states");
        assert!(states > 1000);
    }
}

#[test]
fn the_model_check_finds_an_end_that_still_reads_after_it_reported_its_counts() {
    assert!(check(true, true).1);
}

proptest! {
    #[test]
    fn impossible_counts_of_the_peer_change_nothing(
        steps in proptest::collection::vec((0u8..4, 0u64..12, 0u64..12), 0..60)
    ) {
        let mut sender = Sender::new(3);
        for (step, received, consumed) in steps {
            let before = sender.clone();
            let told = Progress { received, consumed };
            match step {
                0 if sender.may_post().is_some() => sender.post(),
                1 if sender.to_transmit().is_some() => sender.transmitted(),
                2 => {
                    let heard = sender.on_progress(told);
                    prop_assert!(heard.is_ok() || sender == before);
                }
                3 => {
                    let heard = sender.on_resumed(told);
                    prop_assert!(heard.is_ok() || sender == before);
                }
                _ => {}
            }
            let progress = sender.progress();
            prop_assert!(progress.consumed <= progress.received);
            prop_assert!(progress.received <= sender.posted());
            prop_assert!(sender.posted() - progress.consumed <= 3);
        }
    }
}
