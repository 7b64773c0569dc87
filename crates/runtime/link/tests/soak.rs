//! Sends many items through every policy on both media: none is lost, doubled or out of order.
//! `ONBEAT_ITEMS` is the number of items with credit; each other policy gets a tenth of it. `./dev
//! check soak` sends 10^8.

use onbeat_flow::{Channel, Medium, Options, Policy};

const POLICIES: [Policy; 5] = [
    Policy::Credit { credits: 1 },
    Policy::Credit { credits: 64 },
    Policy::Swap {
        length: 64,
        flush: true,
    },
    Policy::Swap {
        length: 64,
        flush: false,
    },
    Policy::DropOldest { depth: 64 },
];

fn items() -> u64 {
    let given = std::env::var("ONBEAT_ITEMS").ok();
    given.map_or(500_000, |n| n.parse().expect("a number"))
}

fn stream(policy: Policy, sending: &Channel, receiving: &Channel, items: u64) {
    let mut producer = sending.producer().unwrap();
    let consumer = receiving.consumer().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut next, mut received) = (0, 0);
        while let Some(item) = consumer.receive_until(None).unwrap() {
            let number = u64::from_le_bytes(item[..8].try_into().unwrap());
            assert_eq!(number, item.sequence());
            let in_order = number >= next;
            assert!(in_order, "{policy:?}: {number} after {next}");
            (next, received) = (number + 1, received + 1);
        }
        assert_eq!(next, items, "{policy:?}");
        (received, consumer.stats().dropped)
    });
    for number in 0..items {
        let mut loan = producer.loan(8).unwrap();
        loan.copy_from_slice(&number.to_le_bytes());
        loan.send().unwrap();
    }
    drop(producer);
    let (received, dropped) = receiver.join().unwrap();
    assert_eq!(received + dropped, items, "{policy:?}");
    assert!(dropped == 0 || matches!(policy, Policy::DropOldest { .. }));
    assert_eq!(sending.payloads_in_use(), 0, "{policy:?}");
}

fn all(medium: &impl Medium) {
    for (index, policy) in POLICIES.into_iter().enumerate() {
        let items = match policy {
            // With one credit, each item costs two sleeps and two wake-ups.
            Policy::Credit { credits: 1 } => items() / 100,
            Policy::Credit { .. } => items(),
            _ => items() / 10,
        };
        let open = || medium.channel(&index.to_string(), Options::new(policy, 8));
        let begin = std::time::Instant::now();
        stream(policy, &open().unwrap(), &open().unwrap(), items);
        println!("{policy:?}: {items} items in {:?}", begin.elapsed());
    }
}

#[test]
fn items_within_a_process_arrive_once_and_in_order() {
    all(&onbeat_flow::InProcess::new());
}

#[test]
fn items_between_two_mappings_of_a_channel_arrive_once_and_in_order() {
    all(&onbeat_link::Machine::new(&format!(
        "soak-{}",
        std::process::id()
    )));
}
