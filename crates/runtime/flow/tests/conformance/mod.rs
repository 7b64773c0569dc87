//! The rules that every policy keeps on every medium. Tests compare channels with a model in one
//! thread, and check them between threads.

use onbeat_flow::clock::now_ns;
use onbeat_flow::{
    AttachError, Channel, Consumer, CreateError, Item, LoanError, Medium, Options, Policy,
    Producer, ReceiveError, SendError, Waker,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

macro_rules! conforms {
    ($medium:expr) => {
        conformance::conforms!($medium;
            between_threads_no_item_is_torn_and_all_losses_are_counted,
            the_producer_never_waits_for_an_observer,
            nothing_is_sent_before_all_expected_consumers_have_attached,
            a_waiting_producer_sees_the_reason_and_continues_when_an_item_is_consumed,
            a_waiting_buffer_is_not_mistaken_for_the_end,
            one_thread_can_wait_for_several_channels_and_a_deadline,
            a_consumer_that_leaves_gives_its_payloads_back,
            impossible_requests_are_refused_with_a_hint,
            payloads_have_any_size_up_to_the_channels_limit,
            the_newest_value_stays_until_the_next_one,
            a_peeked_item_can_still_be_received,
            every_policy_behaves_like_plain_queues,
        );
    };
    ($medium:expr; $($test:ident,)*) => {
        $(
            #[test]
            fn $test() {
                conformance::$test(&$medium);
            }
        )*
    };
}
pub(crate) use conforms;

fn pair(medium: &impl Medium, options: Options) -> (Channel, Channel) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    let open = || medium.channel(&name, options).unwrap();
    (open(), open())
}

const POLICIES: [Policy; 6] = [
    Policy::Latest,
    Policy::DropOldest { depth: 1 },
    Policy::DropOldest { depth: 5 },
    Policy::Credit { credits: 3 },
    Policy::Swap {
        length: 3,
        flush: true,
    },
    Policy::Swap {
        length: 3,
        flush: false,
    },
];

fn lossless(policy: Policy) -> bool {
    matches!(policy, Policy::Credit { .. } | Policy::Swap { .. })
}

fn options(policy: Policy, expected: usize) -> Options {
    Options {
        expected,
        ..Options::new(policy, 256)
    }
}

fn payload(number: u64) -> Vec<u8> {
    vec![number as u8; 1 + (number % 200) as usize]
}

pub fn between_threads_no_item_is_torn_and_all_losses_are_counted(medium: &impl Medium) {
    const ITEMS: u64 = if cfg!(miri) { 100 } else { 20_000 };
    for policy in POLICIES {
        let (sending, receiving) = pair(medium, options(policy, 3));
        let mut producer = sending.producer().unwrap();
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let consumer = receiving.consumer().unwrap();
                std::thread::spawn(move || {
                    let (mut next, mut gaps, mut received) = (0, 0, 0);
                    while let Some(item) = consumer.receive_until(None).unwrap() {
                        let number = item.sequence();
                        assert!(number >= next, "{policy:?}: {number} after {next}");
                        gaps += number - next;
                        next = number + 1;
                        received += 1;
                        assert_eq!(*item, payload(number)[..], "{policy:?}");
                        assert!(item.sent_ns() > 0);
                        if i == 2 && number % 64 == 0 {
                            // The third consumer is slow.
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                    assert!(consumer.is_over());
                    assert_eq!(gaps, consumer.stats().dropped, "{policy:?}");
                    assert_eq!(received + gaps, ITEMS, "{policy:?}");
                    gaps
                })
            })
            .collect();
        for number in 0..ITEMS {
            producer.send(&payload(number)).unwrap();
        }
        let sent = producer.stats();
        drop(producer);
        let lost: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!((sent.sent, sent.unheard), (ITEMS, 0));
        if lossless(policy) {
            assert_eq!(lost, 0, "{policy:?}");
            // Under Miri there are so few items that the producer may not have to wait.
            let waited = sent.stalls > 0 && sent.stalled_ns > 0;
            assert!(waited || cfg!(miri), "{policy:?}");
        } else {
            assert_eq!(sent.stalls, 0, "{policy:?}");
        }
    }
}

pub fn the_producer_never_waits_for_an_observer(medium: &impl Medium) {
    for policy in POLICIES {
        let (sending, receiving) = pair(medium, options(policy, 1));
        let (observer, consumer) = (receiving.observer().unwrap(), receiving.consumer().unwrap());
        let mut producer = sending.producer().unwrap();
        for number in 0..100 {
            producer.send(&payload(number)).unwrap();
            while let Some(item) = consumer.receive() {
                assert!(item.sequence() <= number);
            }
        }
        let stats = observer.stats();
        assert!(stats.observer);
        assert_eq!(stats.dropped + stats.waiting, 100, "{policy:?}");
        let mut last = None;
        while let Some(item) = observer.receive() {
            last = Some(item.sequence());
        }
        assert_eq!(last, Some(99), "{policy:?}: the newest are kept");
    }
}

pub fn nothing_is_sent_before_all_expected_consumers_have_attached(medium: &impl Medium) {
    for policy in POLICIES {
        let (sending, receiving) = pair(medium, options(policy, 2));
        let mut producer = sending.producer().unwrap();
        let first = receiving.consumer().unwrap();
        let refused = producer.loan(1).unwrap().try_send().unwrap_err().reason;
        let reason = SendError::NotStarted {
            attached: 1,
            expected: 2,
        };
        assert_eq!(refused, reason);
        let late = receiving.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            late.consumer().unwrap()
        });
        producer.send(&[7]).unwrap();
        producer.flush();
        let second = thread.join().unwrap();
        for consumer in [&first, &second] {
            assert_eq!(*consumer.receive().expect("both receive it"), [7]);
        }
    }
}

pub fn a_waiting_producer_sees_the_reason_and_continues_when_an_item_is_consumed(
    medium: &impl Medium,
) {
    let (sending, receiving) = pair(medium, options(Policy::Credit { credits: 2 }, 1));
    let mut producer = sending.producer().unwrap();
    let consumer = receiving.consumer().unwrap();
    producer.send(&[0]).unwrap();
    producer.send(&[1]).unwrap();
    let soon = now_ns() + 5_000_000;
    let refused = producer.loan(1).unwrap().send_until(soon).unwrap_err();
    assert_eq!(refused.reason, SendError::NoCredit { in_flight: 2 });
    assert!(now_ns() >= soon);
    let mut loan = refused.loan;
    loan[0] = 2;
    // A received item is not consumed yet.
    let item = consumer.receive().unwrap();
    let loan = loan.try_send().unwrap_err().loan;
    let thread = std::thread::scope(|scope| {
        let sender = scope.spawn(move || loan.send());
        while sending.stats().stalls < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!sender.is_finished(), "there is no credit yet");
        drop(item);
        sender.join()
    });
    thread.unwrap().unwrap();
    assert_eq!(*consumer.receive().unwrap(), [1]);
    assert_eq!(*consumer.receive().unwrap(), [2]);
}

pub fn a_waiting_buffer_is_not_mistaken_for_the_end(medium: &impl Medium) {
    let policy = Policy::Swap {
        length: 2,
        flush: false,
    };
    let (sending, receiving) = pair(medium, options(policy, 1));
    let (mut producer, consumer) = (sending.producer().unwrap(), receiving.consumer().unwrap());
    (0..2).for_each(|n| producer.send(&[n]).unwrap());
    let first = consumer.receive().unwrap();
    drop(consumer.receive().unwrap());
    (2..4).for_each(|n| producer.send(&[n]).unwrap());
    drop(producer);
    let refused = consumer.receive_until(None).unwrap_err();
    assert_eq!(refused, ReceiveError::BufferInUse);
    assert!(!consumer.is_over());
    drop(first);
    for number in 2..4 {
        assert_eq!(*consumer.receive_until(None).unwrap().unwrap(), [number]);
    }
    assert!(consumer.receive_until(None).unwrap().is_none() && consumer.is_over());
}

pub fn one_thread_can_wait_for_several_channels_and_a_deadline(medium: &impl Medium) {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 300 };
    let waker = Waker::new();
    let (mut producers, consumers): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (sending, receiving) = pair(medium, options(Policy::Credit { credits: 2 }, 1));
            let consumer = receiving.consumer_on(&waker).unwrap();
            (sending.producer().unwrap(), consumer)
        })
        .unzip();
    let soon = now_ns() + 3_000_000;
    assert!(!waker.wait(Some(soon), || false));
    assert!(now_ns() >= soon);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                producers[(round % 3) as usize]
                    .send(&round.to_le_bytes())
                    .unwrap();
                if round % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let mut received = 0;
        while received < ROUNDS {
            waker.wait(None, || {
                let mut some = false;
                for consumer in &consumers {
                    while let Some(item) = consumer.receive() {
                        assert_eq!(item.len(), 8);
                        (received, some) = (received + 1, true);
                    }
                }
                some
            });
        }
    });
    // Waker, consumers and producers may be dropped in any order.
    drop(waker);
    producers.iter_mut().for_each(|p| p.send(&[0]).unwrap());
    drop(consumers);
    producers.iter_mut().for_each(|p| p.send(&[0]).unwrap());
}

pub fn a_consumer_that_leaves_gives_its_payloads_back(medium: &impl Medium) {
    for policy in POLICIES {
        let options = Options {
            consumers: 2,
            ..options(policy, 1)
        };
        let (sending, receiving) = pair(medium, options);
        let mut producer = sending.producer().unwrap();
        for round in 0..if cfg!(miri) { 10 } else { 1000 } {
            let (stays, leaves) = (receiving.consumer().unwrap(), receiving.consumer().unwrap());
            assert_eq!(
                receiving.consumer().err(),
                Some(AttachError::Full { consumers: 2 })
            );
            producer.send(&payload(round)).unwrap();
            drop(leaves);
            producer.send(&payload(round)).unwrap();
            drop(stays);
            // The loan reclaims the payloads of both consumers.
            assert!(producer.loan(1).is_ok());
        }
        assert_eq!(receiving.consumers(), []);
        producer.send(&[1]).unwrap();
        assert_eq!(
            producer.stats().unheard,
            1,
            "{policy:?}: no consumer was attached"
        );
        assert_eq!(
            receiving.producer().err(),
            Some(AttachError::SecondProducer)
        );
        drop(producer);
        sending.producer().unwrap();
    }
}

pub fn impossible_requests_are_refused_with_a_hint(medium: &impl Medium) {
    let make = |f: fn(&mut Options)| {
        let mut o = options(Policy::DropOldest { depth: 4 }, 1);
        f(&mut o);
        Channel::new(o).err()
    };
    assert_eq!(make(|_| ()), None);
    let zero = make(|o| o.policy = Policy::Credit { credits: 0 }).unwrap();
    assert!(zero.to_string().contains("Give 1 to"), "{zero}");
    assert!(matches!(
        make(|o| o.payload_bytes = 0),
        Some(CreateError::Number { .. })
    ));
    assert!(matches!(
        make(|o| o.expected = 5),
        Some(CreateError::Expected { .. })
    ));

    let (sending, receiving) = pair(medium, options(Policy::DropOldest { depth: 4 }, 1));
    let (mut producer, consumer) = (sending.producer().unwrap(), receiving.consumer().unwrap());
    assert_eq!(
        producer.loan(257).err(),
        Some(LoanError::TooLarge {
            asked: 257,
            most: 256
        })
    );
    (0..3).for_each(|n| producer.send(&[n]).unwrap());
    let borrowed = (consumer.receive().unwrap(), consumer.receive().unwrap());
    assert_eq!(
        consumer.try_receive().err(),
        Some(ReceiveError::TooManyBorrowed { borrowed: 2 })
    );
    assert_eq!((borrowed.0[0], borrowed.1[0]), (0, 1));
    drop(borrowed);
    assert_eq!(*consumer.receive().unwrap(), [2]);
}

pub fn payloads_have_any_size_up_to_the_channels_limit(medium: &impl Medium) {
    let most = if cfg!(miri) { 4096 } else { 16 << 20 };
    let options = Options {
        consumers: 1,
        borrowed: 1,
        ..Options::new(Policy::Credit { credits: 1 }, most)
    };
    let (sending, receiving) = pair(medium, options);
    let (mut producer, consumer) = (sending.producer().unwrap(), receiving.consumer().unwrap());
    for size in [0, 1, 64, 1538, 4096, 1 << 20, most] {
        let size = size.min(most);
        let mut loan = producer.loan(size).unwrap();
        // The first and last byte, and the bytes at the borders of pages.
        let marks = (0..size).filter(|i| i % 4096 <= 1 || i + 1 == size);
        marks.clone().for_each(|i| loan[i] = i as u8 ^ 0x5a);
        loan.send().unwrap();
        let item = consumer.receive().unwrap();
        assert_eq!(item.len(), size);
        assert!(marks.clone().all(|i| item[i] == i as u8 ^ 0x5a), "{size}");
    }
    assert!(producer.loan(most + 1).is_err());
}

pub fn the_newest_value_stays_until_the_next_one(medium: &impl Medium) {
    let (sending, receiving) = pair(medium, options(Policy::Latest, 1));
    let (mut producer, mut consumer) = (sending.producer().unwrap(), receiving.consumer().unwrap());
    assert!(consumer.newest().is_none());
    for number in 0..100 {
        producer.send(&payload(number)).unwrap();
        for _ in 0..2 {
            assert_eq!(*consumer.newest().unwrap(), payload(number)[..]);
        }
    }
}

pub fn a_peeked_item_can_still_be_received(medium: &impl Medium) {
    for policy in POLICIES {
        let (sending, receiving) = pair(medium, options(policy, 1));
        let (mut producer, mut consumer) =
            (sending.producer().unwrap(), receiving.consumer().unwrap());
        assert_eq!(consumer.peek(0), None);
        producer.send(&[0]).unwrap();
        producer.flush();
        assert_eq!(consumer.peek(0), Some(&[0][..]), "{policy:?}");
        // The shown item stays, whatever else is sent.
        let mut sent = 1;
        while sent < 20 && producer.loan(1).unwrap().try_send().is_ok() {
            sent += 1;
        }
        assert_eq!(sent < 20, lossless(policy), "{policy:?}");
        assert_eq!(consumer.peek(0), Some(&[0][..]), "{policy:?}");
        let stats = consumer.stats();
        assert_eq!(stats.waiting, sent - stats.dropped, "{policy:?}");
        // At most as many items as may be borrowed can be shown.
        let second = consumer.peek(1).is_some();
        assert_eq!(consumer.peek(2), None);
        let first = consumer.receive().unwrap();
        assert_eq!((&*first, first.sequence()), (&[0][..], 0));
        let next = consumer.receive();
        assert_eq!(next.is_some(), second, "{policy:?}");
        assert!(next.is_none_or(|item| item.sequence() > 0));
        drop(first);
        while consumer.receive().is_some() {}
        assert_eq!(consumer.stats().in_flight, 0, "{policy:?}");
        assert_eq!(consumer.peek(0), None);
        producer.send(&[7]).unwrap();
        producer.flush();
        assert!(consumer.peek(0).is_some() && !consumer.is_over());
        drop(producer);
        assert!(!consumer.is_over(), "it is not received yet");
        assert_eq!(*consumer.receive_until(None).unwrap().unwrap(), [7]);
        assert!(consumer.is_over());
        // A consumer that leaves gives back the items that it was shown.
        let mut producer = sending.producer().unwrap();
        producer.send(&[8]).unwrap();
        producer.flush();
        assert!(consumer.peek(0).is_some());
        drop(consumer);
        drop(producer.loan(1));
        assert_eq!(sending.payloads_in_use(), 0, "{policy:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Receive(usize),
    Borrow(usize),
    Release(usize),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..2usize;
    prop_oneof![
        4 => Just(Step::Send),
        2 => who.clone().prop_map(Step::Receive),
        2 => who.clone().prop_map(Step::Borrow),
        2 => who.prop_map(Step::Release),
        1 => Just(Step::Flush),
    ]
}

#[derive(Default)]
struct QueueModel {
    ready: VecDeque<u64>,
    filling: VecDeque<u64>,
    urgent: bool,
    borrowed: usize,
    dropped: u64,
}

impl QueueModel {
    fn exchange(&mut self, policy: Policy) {
        if let Policy::Swap { length, flush } = policy {
            let empty = self.ready.is_empty() && self.borrowed == 0;
            if empty && (flush || self.urgent || self.filling.len() >= length) {
                self.ready.append(&mut self.filling);
                self.urgent = false;
            }
        }
    }

    fn has_room(&mut self, policy: Policy) -> bool {
        self.exchange(policy);
        match policy {
            Policy::Credit { credits } => self.ready.len() + self.borrowed < credits,
            Policy::Swap { length, .. } => self.filling.len() < length,
            _ => true,
        }
    }

    fn push(&mut self, number: u64, policy: Policy) {
        match policy {
            Policy::Swap { .. } => self.filling.push_back(number),
            Policy::Latest => self.add(number, 1),
            Policy::DropOldest { depth } => self.add(number, depth),
            Policy::Credit { .. } => self.ready.push_back(number),
        }
        self.exchange(policy);
    }

    fn add(&mut self, number: u64, depth: usize) {
        self.ready.push_back(number);
        if self.ready.len() > depth {
            self.ready.pop_front();
            self.dropped += 1;
        }
    }
}

pub fn every_policy_behaves_like_plain_queues(medium: &impl Medium) {
    let cases = (0..POLICIES.len(), prop::collection::vec(step(), 0..200));
    let mut runner = TestRunner::new(ProptestConfig {
        // Miri has no file system, so failures are not written to a file.
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 })
    });
    let run = |(which, steps)| behaves_like_plain_queues(medium, POLICIES[which], steps);
    runner.run(&cases, run).unwrap_or_else(|e| panic!("{e}"));
}

struct Comparison<'c> {
    policy: Policy,
    producer: Producer,
    consumers: &'c [Consumer; 2],
    models: [QueueModel; 2],
    borrowed: [VecDeque<Item<'c>>; 2],
    number: u64,
}

impl<'c> Comparison<'c> {
    fn send(&mut self) -> Result<(), TestCaseError> {
        let (policy, number) = (self.policy, self.number);
        let mut loan = self.producer.loan(payload(number).len()).unwrap();
        loan.copy_from_slice(&payload(number));
        // Both models are asked, because each may exchange its buffers.
        let rooms = self.models.each_mut().map(|m| m.has_room(policy));
        let room = rooms == [true; 2];
        prop_assert_eq!(loan.try_send().is_ok(), room);
        if room {
            self.models.iter_mut().for_each(|m| m.push(number, policy));
            self.number += 1;
        }
        Ok(())
    }

    fn receive(&mut self, i: usize, keeps: bool) -> Result<(), TestCaseError> {
        let consumer: &'c Consumer = &self.consumers[i];
        if self.borrowed[i].len() >= 2 {
            prop_assert!(consumer.try_receive().is_err());
            return Ok(());
        }
        self.models[i].exchange(self.policy);
        let expected = self.models[i].ready.pop_front();
        let item = consumer.receive();
        prop_assert_eq!(item.as_ref().map(|i| i.sequence()), expected);
        if let Some(item) = item {
            prop_assert_eq!(&*item, &payload(item.sequence())[..]);
            if keeps {
                self.models[i].borrowed += 1;
                self.borrowed[i].push_back(item);
            }
        }
        Ok(())
    }

    fn release(&mut self, i: usize) -> Result<(), TestCaseError> {
        if let Some(item) = self.borrowed[i].pop_front() {
            // Nobody has overwritten the item.
            prop_assert_eq!(&*item, &payload(item.sequence())[..]);
            self.models[i].borrowed -= 1;
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.producer.flush();
        let models = self.models.iter_mut();
        models.for_each(|m| m.urgent = !m.filling.is_empty());
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (consumer, model) in self.consumers.iter().zip(&self.models) {
            let stats = consumer.stats();
            prop_assert_eq!(stats.dropped, model.dropped);
            let waiting = model.ready.len() + model.filling.len();
            prop_assert_eq!(stats.waiting, waiting as u64);
            prop_assert_eq!(stats.in_flight, (waiting + model.borrowed) as u64);
        }
        Ok(())
    }
}

fn behaves_like_plain_queues(
    medium: &impl Medium,
    policy: Policy,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let (sending, receiving) = pair(medium, options(policy, 2));
    let consumers = [receiving.consumer().unwrap(), receiving.consumer().unwrap()];
    let mut comparison = Comparison {
        policy,
        producer: sending.producer().unwrap(),
        consumers: &consumers,
        models: Default::default(),
        borrowed: Default::default(),
        number: 0,
    };
    for step in steps {
        match step {
            Step::Send => comparison.send()?,
            Step::Receive(i) => comparison.receive(i, false)?,
            Step::Borrow(i) => comparison.receive(i, true)?,
            Step::Release(i) => comparison.release(i)?,
            Step::Flush => comparison.flush(),
        }
        comparison.check()?;
    }
    Ok(())
}
