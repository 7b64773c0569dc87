//! Tests channels of `onbeat-flow` between hosts, over shared memory and TCP.
//!
//! Three laws of flow's own conformance suite are tested here too, with receives that wait: no item
//! is torn and all losses are counted (losses of both hosts are added), payloads have any size up
//! to the limit, and one thread can wait for several channels. The other laws concern the one
//! memory that both sides share in a process, for example the payloads that a leaving consumer
//! gives back. Each host's channel is such a memory, for which flow's own tests hold.

use onbeat_flow::clock::now_ns;
use onbeat_flow::{
    Channel, Consumer, Medium, Options, Policy, Producer, ReceiveError, SendError, Waker,
};
use onbeat_link::channels::Direction;
use onbeat_link::interface::{Backend, Halves, Memory, Outgoing, SetupError, Sizes};
use onbeat_link::{Key, Links, LinksError, Shm, Tcp};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const WATCHDOG: Duration = Duration::from_secs(100);

fn watchdog() -> Option<u64> {
    Some(now_ns() + WATCHDOG.as_nanos() as u64)
}

#[derive(Debug, Clone, Copy)]
enum Wire {
    Shm,
    Tcp,
}

const WIRES: [Wire; 2] = [Wire::Shm, Wire::Tcp];

fn key() -> Key {
    Key::from_bytes([7; 32])
}

fn hosts(wire: Wire) -> (Links, Links) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let system = format!("channels-{}-{number}", std::process::id());
    // The connecting host learns the port from the listening one.
    let ports = Arc::new(Ports::default());
    let theirs = Arc::clone(&ports);
    let prefix = system.clone();
    let sending = Links::over(Direction::Sending, move |name, number| match wire {
        Wire::Shm => Ok(Box::new(Shm::listen(&format!("{prefix}/{name}")))),
        Wire::Tcp => {
            let tcp = Tcp::listen("127.0.0.1:0".parse().unwrap(), key())?;
            ports.put(number, tcp.address());
            Ok(Box::new(tcp))
        }
    });
    let receiving = Links::over(Direction::Receiving, move |name, number| match wire {
        Wire::Shm => Ok(Box::new(Shm::connect(&format!("{system}/{name}")))),
        Wire::Tcp => Ok(Box::new(Tcp::connect(theirs.get(number), key()))),
    });
    (
        sending.wait_for_peer(WATCHDOG),
        receiving.wait_for_peer(WATCHDOG),
    )
}

#[derive(Default)]
struct Ports {
    by_number: std::sync::Mutex<std::collections::HashMap<u16, SocketAddr>>,
    came: std::sync::Condvar,
}

impl Ports {
    fn put(&self, number: u16, address: SocketAddr) {
        self.by_number.lock().unwrap().insert(number, address);
        self.came.notify_all();
    }

    fn get(&self, number: u16) -> SocketAddr {
        let ports = self.by_number.lock().unwrap();
        let (ports, _) = self
            .came
            .wait_timeout_while(ports, WATCHDOG, |p| !p.contains_key(&number))
            .unwrap();
        ports[&number]
    }
}

fn open(
    hosts: &(Links, Links),
    name: &str,
    options: (Options, Options),
) -> (Result<Channel, LinksError>, Result<Channel, LinksError>) {
    thread::scope(|scope| {
        let sending = scope.spawn(|| hosts.0.channel(name, options.0));
        let receiving = hosts.1.channel(name, options.1);
        (sending.join().unwrap(), receiving)
    })
}

fn pair(hosts: &(Links, Links), name: &str, options: Options) -> (Channel, Channel) {
    let (sending, receiving) = open(hosts, name, (options, options));
    (sending.unwrap(), receiving.unwrap())
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

fn take(consumer: &Consumer) -> (u64, Vec<u8>) {
    let item = consumer.receive_until(watchdog()).unwrap();
    let item = item.expect("an item before the watchdog");
    (item.sequence(), item.to_vec())
}

fn wait(what: &str, ready: impl Fn() -> bool) {
    let until = watchdog().unwrap();
    while !ready() {
        assert!(now_ns() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_item_is_torn_and_each_loss_is_a_gap_in_the_numbers() {
    const ITEMS: u64 = 3000;
    for wire in WIRES {
        let hosts = hosts(wire);
        let policies = [
            Policy::Latest,
            Policy::DropOldest { depth: 5 },
            Policy::Credit { credits: 3 },
            Policy::Credit { credits: 40 },
        ];
        for (number, policy) in policies.into_iter().enumerate() {
            let (sending, receiving) = pair(&hosts, &number.to_string(), options(policy, 3));
            let threads: Vec<_> = (0..3)
                .map(|i| {
                    let consumer = receiving.consumer().unwrap();
                    thread::spawn(move || {
                        let (mut next, mut received) = (0, 0);
                        while let Some(item) = consumer.receive_until(watchdog()).unwrap() {
                            let number = item.sequence();
                            assert!(number >= next, "{policy:?}: {number} after {next}");
                            next = number + 1;
                            received += 1;
                            assert_eq!(*item, payload(number)[..], "{policy:?}");
                            if i == 2 && number % 64 == 0 {
                                thread::sleep(Duration::from_micros(200));
                            }
                        }
                        assert!(consumer.is_over(), "{policy:?}: no end before the watchdog");
                        (received, next)
                    })
                })
                .collect();
            let mut producer = sending.producer().unwrap();
            (0..ITEMS).for_each(|n| producer.send(&payload(n)).unwrap());
            drop(producer);
            for thread in threads {
                let (received, next) = thread.join().unwrap();
                assert_eq!(next, ITEMS, "{wire:?} {policy:?}: the last one arrives");
                let lossless = matches!(policy, Policy::Credit { .. });
                assert!(
                    received == ITEMS || !lossless,
                    "{wire:?} {policy:?}: {received}"
                );
            }
            assert_eq!(sending.stats().unheard, 0);
        }
    }
}

#[test]
fn a_credit_returns_when_the_other_hosts_slowest_consumer_has_consumed() {
    for wire in WIRES {
        let hosts = hosts(wire);
        let (sending, receiving) = pair(&hosts, "c", options(Policy::Credit { credits: 2 }, 2));
        let (quick, slow) = (receiving.consumer().unwrap(), receiving.consumer().unwrap());
        let mut producer = sending.producer().unwrap();
        (0..2).for_each(|n| producer.send(&[n]).unwrap());
        for number in 0..2 {
            assert_eq!(take(&quick), (number, vec![number as u8]));
        }
        wait("both came", || slow.waiting() == 2);
        let refused = |producer: &mut Producer| {
            let refused = producer.loan(1).unwrap().try_send();
            refused.err().map(|r| r.reason)
        };
        let none = Some(SendError::NoCredit { in_flight: 2 });
        // A received item is not consumed yet.
        let item = slow.receive().unwrap();
        assert_eq!(refused(&mut producer), none);
        drop(item);
        producer.send(&[2]).unwrap();
        assert_eq!(
            refused(&mut producer),
            none,
            "{wire:?}: one was consumed, not two"
        );
        for number in 1..3 {
            assert_eq!(take(&slow).0, number);
        }
        assert_eq!(take(&quick).0, 2);
    }
}

#[test]
fn nothing_is_sent_before_the_other_host_has_all_expected_consumers() {
    for wire in WIRES {
        let hosts = hosts(wire);
        let (sending, receiving) = pair(&hosts, "c", options(Policy::Latest, 2));
        let mut producer = sending.producer().unwrap();
        let first = receiving.consumer().unwrap();
        let refused = producer.loan(1).unwrap().try_send().unwrap_err().reason;
        let (attached, expected) = (0, 1);
        assert_eq!(refused, SendError::NotStarted { attached, expected });
        let second = receiving.consumer().unwrap();
        producer.send(&[7]).unwrap();
        assert_eq!((take(&first), take(&second)), ((0, vec![7]), (0, vec![7])));
    }
}

#[test]
fn payloads_have_any_size_up_to_the_limit_and_a_new_producer_continues_the_numbers() {
    let most = 3 << 20;
    for wire in WIRES {
        let hosts = hosts(wire);
        let options = Options {
            consumers: 1,
            borrowed: 1,
            ..Options::new(Policy::Credit { credits: 1 }, most)
        };
        let (sending, receiving) = pair(&hosts, "c", options);
        let consumer = receiving.consumer().unwrap();
        for (next, size) in (0..).zip([0, 1, 64, 1538, 4096, 1 << 20, most]) {
            let mut producer = sending.producer().unwrap();
            let mut loan = producer.loan(size).unwrap();
            loan.iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = i as u8 ^ 0x5a);
            loan.send().unwrap();
            assert!(producer.loan(most + 1).is_err());
            drop(producer);
            // The consumer may see the end between two producers, or miss it.
            let until = watchdog().unwrap();
            let (number, item) = loop {
                if let Some(item) = consumer.receive_until(watchdog()).unwrap() {
                    break (item.sequence(), item.to_vec());
                }
                assert!(now_ns() < until, "{wire:?}: {size}");
                thread::yield_now();
            };
            assert_eq!((number, item.len()), (next, size));
            assert!(
                item.iter().enumerate().all(|(i, b)| *b == i as u8 ^ 0x5a),
                "{size}"
            );
        }
    }
}

#[test]
fn one_thread_can_wait_for_several_channels_from_another_host() {
    const ROUNDS: u64 = 300;
    for wire in WIRES {
        let hosts = hosts(wire);
        let waker = Waker::new();
        let open = |n: u64| {
            let (sending, receiving) = pair(
                &hosts,
                &n.to_string(),
                options(Policy::Credit { credits: 2 }, 1),
            );
            let consumer = receiving.consumer_on(&waker).unwrap();
            (sending.producer().unwrap(), consumer)
        };
        let (mut producers, consumers): (Vec<_>, Vec<_>) = (0..3).map(open).unzip();
        let sender = thread::spawn(move || {
            for round in 0..ROUNDS {
                producers[(round % 3) as usize]
                    .send(&[round as u8])
                    .unwrap();
            }
        });
        let mut received = 0;
        while received < ROUNDS {
            let woken = waker.wait(watchdog(), || {
                let before = received;
                for consumer in &consumers {
                    while consumer.receive().is_some() {
                        received += 1;
                    }
                }
                received > before
            });
            assert!(woken, "{wire:?}: {received}");
        }
        sender.join().unwrap();
    }
}

#[test]
fn sent_items_arrive_although_the_sending_host_ends_at_once() {
    for wire in WIRES {
        let hosts = hosts(wire);
        let (sending, receiving) = pair(&hosts, "c", options(Policy::Credit { credits: 9 }, 1));
        let consumer = receiving.consumer().unwrap();
        let mut producer = sending.producer().unwrap();
        (0..9).for_each(|n| producer.send(&[n]).unwrap());
        drop((producer, sending));
        drop(hosts.0);
        for number in 0..9 {
            assert_eq!(take(&consumer), (number, vec![number as u8]), "{wire:?}");
        }
        assert!(consumer.receive_until(watchdog()).unwrap().is_none());
        assert!(consumer.is_over(), "{wire:?}: a regular end");
    }
}

#[test]
fn a_receiving_host_that_closes_counts_as_a_consumer_that_leaves() {
    for wire in WIRES {
        let hosts = hosts(wire);
        let (sending, receiving) = pair(&hosts, "c", options(Policy::Credit { credits: 1 }, 1));
        let consumer = receiving.consumer().unwrap();
        let mut producer = sending.producer().unwrap();
        producer.send(&[0]).unwrap();
        drop((consumer, receiving));
        drop(hosts.1);
        // No credit comes back, and the producer does not wait for it.
        producer.send(&[1]).unwrap();
        wait("the relay leaves", || producer.consumers() == 0);
        producer.send(&[2]).unwrap();
        assert!(!sending.is_severed(), "{wire:?}");
    }
}

#[test]
fn the_error_of_hosts_with_different_options_names_the_difference() {
    type Change = fn(&mut Options);
    let changes: [(Change, &str); 2] = [
        (|o| o.expected = 2, "2 consumers expected"),
        (|o| o.item.align = 8, "aligned to 8"),
    ];
    for wire in WIRES {
        for (change, told) in changes {
            let hosts = hosts(wire);
            let ours = options(Policy::Credit { credits: 2 }, 1);
            let mut theirs = ours;
            change(&mut theirs);
            let (sending, receiving) = open(&hosts, "c", (ours, theirs));
            let (sending, receiving) = (sending.err().unwrap(), receiving.err());
            assert!(sending.to_string().contains(told), "{wire:?}: {sending}");
            assert!(receiving.is_some(), "{wire:?}");
        }
    }
    let hosts = hosts(Wire::Tcp);
    let swap = Policy::Swap {
        length: 2,
        flush: true,
    };
    let refused = hosts
        .0
        .channel("c", options(swap, 1))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("Use Policy::Credit"), "{refused}");
}

struct Counting {
    inner: Box<dyn Backend>,
    sent: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

struct CountingOut {
    inner: Box<dyn Outgoing>,
    sent: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl Backend for Counting {
    fn initialize(&self, s: Sizes, m: Memory, d: Option<u64>) -> Result<Halves, SetupError> {
        let (inner, incoming) = self.inner.initialize(s, m, d)?;
        let (sent, bytes) = (Arc::clone(&self.sent), Arc::clone(&self.bytes));
        Ok((Box::new(CountingOut { inner, sent, bytes }), incoming))
    }
}

impl Outgoing for CountingOut {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, onbeat_link::interface::SendError> {
        let number = self.inner.send(bytes, deadline_ns, fill)?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(number)
    }

    fn publish(
        &mut self,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), onbeat_link::interface::SendError> {
        self.inner.publish(bytes, fill)
    }
}

/// Sends 60 items of 1000 bytes to `consumers` consumers of different rates, and checks that all of
/// them read an item at the same address. Returns the numbers of messages and of bytes on the wire.
fn transfers(consumers: usize) -> (usize, usize) {
    const ITEMS: u64 = 60;
    let (sent, bytes) = (Arc::default(), Arc::default());
    let (counted, counted_bytes) = (Arc::clone(&sent), Arc::clone(&bytes));
    let listener = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = listener.address();
    let listener = std::sync::Mutex::new(Some(listener));
    let sending = Links::over(Direction::Sending, move |_, _| {
        Ok(Box::new(Counting {
            inner: Box::new(listener.lock().unwrap().take().unwrap()),
            sent: Arc::clone(&counted),
            bytes: Arc::clone(&counted_bytes),
        }))
    });
    let receiving = Links::over(Direction::Receiving, move |_, _| {
        Ok(Box::new(Tcp::connect(address, key())))
    });
    let hosts = (
        sending.wait_for_peer(WATCHDOG),
        receiving.wait_for_peer(WATCHDOG),
    );
    let options = Options {
        borrowed: 8,
        ..Options::new(Policy::Credit { credits: 8 }, 1000)
    };
    let (sending, receiving) = pair(
        &hosts,
        "c",
        Options {
            expected: consumers,
            ..options
        },
    );
    let threads: Vec<_> = (1..=consumers)
        .map(|each| {
            let consumer = receiving.consumer().unwrap();
            // The n-th consumer takes n items at a time, so each has its own rate.
            thread::spawn(move || {
                let mut places = Vec::new();
                while places.len() < ITEMS as usize {
                    let items: Vec<_> = (0..each)
                        .map(|_| consumer.receive_until(watchdog()).unwrap().unwrap())
                        .collect();
                    places.extend(items.iter().map(|item| item.as_ptr() as usize));
                }
                places
            })
        })
        .collect();
    let mut producer = sending.producer().unwrap();
    (0..ITEMS).for_each(|n| producer.send(&[n as u8; 1000]).unwrap());
    drop(producer);
    let places: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(places.iter().all(|p| *p == places[0]), "one copy for all");
    drop(hosts);
    (sent.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
}

#[test]
fn consumers_of_one_host_share_one_transfer_and_one_copy() {
    let (one, three) = (transfers(1), transfers(3));
    // The messages are the terms, 60 items, and the end of the producer.
    assert_eq!((one.0, three.0), (62, 62));
    // The terms name the number of consumers.
    assert_eq!(one.1, three.1);
}

#[test]
fn the_process_of_another_host_does_nothing_unless_a_test_starts_it() {
    let Ok(place) = std::env::var("ONBEAT_CHANNEL_PEER") else {
        return;
    };
    let words: Vec<&str> = place.split(' ').collect();
    let (direction, place) = (words[0], words[2].to_string());
    let is_shm = words[1] == "shm";
    let connect = move |_: &str, _: u16| -> Result<Box<dyn Backend>, LinksError> {
        Ok(if is_shm {
            Box::new(Shm::connect(&place))
        } else {
            let tcp = Tcp::connect(place.parse().unwrap(), key());
            Box::new(tcp.resume_within(Duration::from_millis(500)))
        })
    };
    let policy = options(Policy::Credit { credits: 2 }, 1);
    let sends = direction == "sends";
    let direction = if sends {
        Direction::Sending
    } else {
        Direction::Receiving
    };
    let channel = Links::over(direction, connect).wait_for_peer(WATCHDOG);
    let channel = (channel.channel("c", policy).unwrap(), channel);
    if sends {
        let mut producer = channel.0.producer().unwrap();
        (0..2).for_each(|n| producer.send(&[n]).unwrap());
        // The first two items are consumed, so the third one has a credit.
        producer.send(&[2]).unwrap();
        thread::sleep(WATCHDOG);
    } else {
        let consumer = channel.0.consumer().unwrap();
        let _first = consumer.receive_until(watchdog()).unwrap();
        println!("received");
        thread::sleep(WATCHDOG);
    }
}

fn beside_a_process(wire: Wire, theirs: &str) -> (Channel, Links, std::process::Child) {
    let name = format!("channels-dies-{theirs}-{}", std::process::id());
    let tcp = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let tcp = tcp.resume_within(Duration::from_millis(500));
    let place = match wire {
        Wire::Shm => format!("{theirs} shm {name}"),
        Wire::Tcp => format!("{theirs} tcp {}", tcp.address()),
    };
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "the_process_of_another_host_does_nothing_unless_a_test_starts_it",
        ])
        .env("ONBEAT_CHANNEL_PEER", place)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let direction = match theirs {
        "sends" => Direction::Receiving,
        _ => Direction::Sending,
    };
    let tcp = std::sync::Mutex::new(Some(tcp));
    let links = Links::over(direction, move |_, _| {
        Ok(match wire {
            Wire::Shm => Box::new(Shm::listen(&name)) as Box<dyn Backend>,
            Wire::Tcp => Box::new(tcp.lock().unwrap().take().unwrap()),
        })
    });
    let links = links.wait_for_peer(WATCHDOG);
    let channel = links.channel("c", options(Policy::Credit { credits: 2 }, 1));
    (channel.unwrap(), links, child)
}

#[test]
fn consumers_get_an_error_after_the_last_item_when_the_sending_host_dies() {
    for wire in WIRES {
        let (channel, _links, mut child) = beside_a_process(wire, "sends");
        let consumer = channel.consumer().unwrap();
        for number in 0..3 {
            assert_eq!(take(&consumer).0, number);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let error = consumer
            .receive_until(watchdog())
            .map(|item| item.is_some());
        assert_eq!(error, Err(ReceiveError::Severed), "{wire:?}");
        assert!(!consumer.is_over());
    }
}

#[test]
fn a_producer_that_waits_for_credit_gets_an_error_when_the_receiving_host_dies() {
    use std::io::BufRead;
    for wire in WIRES {
        let (channel, _links, mut child) = beside_a_process(wire, "receives");
        let mut producer = channel.producer().unwrap();
        (0..2).for_each(|n| producer.send(&[n]).unwrap());
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        assert!(out.lines().any(|line| line.unwrap().contains("received")));
        // The child process never gives the first item back.
        child.kill().unwrap();
        child.wait().unwrap();
        let refused = producer.loan(1).unwrap().send_until(watchdog().unwrap());
        assert_eq!(refused.unwrap_err().reason, SendError::Severed, "{wire:?}");
    }
}
