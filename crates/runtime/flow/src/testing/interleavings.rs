//! Tests of a producer and a consumer in all interleavings, by loom. Run them with `./dev check
//! loom`.

use crate::{Channel, Options, Policy};
use loom::thread;

fn channel(policy: Policy) -> Channel {
    let options = Options {
        expected: 0,
        consumers: 1,
        borrowed: 1,
        ..Options::new(policy, 1)
    };
    Channel::new(options).unwrap()
}

fn check(switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

fn everything_arrives(policy: Policy, items: u64) {
    let channel = channel(policy);
    let mut producer = channel.producer().unwrap();
    let consumer = channel.consumer().unwrap();
    let receiver = thread::spawn(move || {
        for number in 0..items {
            let item = consumer.receive_until(None).unwrap().unwrap();
            assert_eq!(item.sequence(), number);
        }
        consumer
    });
    for _ in 0..items {
        producer.loan(1).unwrap().send().unwrap();
    }
    // The producer leaves only now, because leaving wakes everybody.
    let consumer = receiver.join().unwrap();
    drop(producer);
    assert!(consumer.receive_until(None).unwrap().is_none());
    assert_eq!(consumer.stats().in_flight, 0);
    assert_eq!(channel.payloads_in_use(), 0);
}

#[test]
fn a_channel_with_credit_loses_no_item_and_no_wake_up() {
    check(2, || everything_arrives(Policy::Credit { credits: 1 }, 2));
}

#[test]
fn a_channel_that_swaps_loses_no_item_and_no_wake_up() {
    let policy = |length, flush| Policy::Swap { length, flush };
    check(2, move || everything_arrives(policy(1, true), 2));
    check(2, move || everything_arrives(policy(1, false), 2));
    check(2, move || everything_arrives(policy(2, true), 3));
}

#[test]
fn each_item_is_received_or_dropped_and_no_payload_in_use_is_refilled() {
    check(3, || {
        let channel = channel(Policy::DropOldest { depth: 1 });
        let mut producer = channel.producer().unwrap();
        let consumer = channel.consumer().unwrap();
        let receiver = thread::spawn(move || {
            let (mut next, mut received) = (0, 0);
            for _ in 0..2 {
                if let Some(item) = consumer.receive() {
                    let number = item.sequence();
                    assert!(number >= next);
                    thread::yield_now();
                    assert_eq!(
                        item.sequence(),
                        number,
                        "the payload was refilled while it was in use"
                    );
                    (next, received) = (number + 1, received + 1);
                }
            }
            (consumer, received)
        });
        for _ in 0..3 {
            producer.loan(1).unwrap().send().unwrap();
        }
        let (consumer, mut received) = receiver.join().unwrap();
        while let Some(item) = consumer.receive() {
            assert!(item.sequence() < 3);
            received += 1;
        }
        assert_eq!(received + consumer.stats().dropped, 3);
        assert_eq!(channel.payloads_in_use(), 0);
    });
}

#[test]
fn a_consumer_that_leaves_during_a_delivery_leaves_no_reference() {
    check(3, || {
        let channel = channel(Policy::DropOldest { depth: 2 });
        let mut producer = channel.producer().unwrap();
        let consumer = channel.consumer().unwrap();
        let leaver = thread::spawn(move || {
            drop(consumer.receive());
            drop(consumer);
        });
        producer.loan(1).unwrap().send().unwrap();
        producer.loan(1).unwrap().send().unwrap();
        leaver.join().unwrap();
        // A loan cleans up the references that the consumer could not.
        drop(producer.loan(1).unwrap());
        assert_eq!(channel.payloads_in_use(), 0);
        assert!(channel.consumer().is_ok());
    });
}
