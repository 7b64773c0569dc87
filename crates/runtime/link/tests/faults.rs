//! Tests that a channel keeps its guarantees when other processes die, fall silent or write
//! nonsense.
//!
//! The other process is this test program, started again with a role; see
//! `the_child_process_does_nothing_unless_a_test_starts_it`.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::clock::now_ns;
use onbeat_flow::{
    die_at, passed, Channel, Consumer, LoanError, OnDeath, OpenError, Options, Policy,
    ReceiveError, SendError,
};
use onbeat_link::LinkError;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const POLICIES: [Policy; 5] = [
    Policy::Latest,
    Policy::DropOldest { depth: 2 },
    Policy::Credit { credits: 2 },
    Policy::Swap {
        length: 2,
        flush: true,
    },
    Policy::Swap {
        length: 2,
        flush: false,
    },
];

const ROLE: &str = "ONBEAT_TEST_ROLE";

fn options(policy: Policy) -> Options {
    Options {
        expected: 0,
        ..Options::new(policy, 256)
    }
}

fn payload(number: u64) -> Vec<u8> {
    vec![number as u8; 1 + (number % 200) as usize]
}

fn lossless(policy: Policy) -> bool {
    matches!(policy, Policy::Credit { .. } | Policy::Swap { .. })
}

/// Returns a new name that is not a prefix of any other. Some tests search for it in lists of all
/// names.
fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("faults-{}-{number}-", std::process::id())
}

fn spawn(role: &str, name: &str, policy: usize, number: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_child_process_does_nothing_unless_a_test_starts_it",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, format!("{role} {name} {policy} {number}"))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

fn ended(mut child: Child) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let status = child.wait().unwrap();
    assert!(
        status.success() || status.signal() == Some(libc::SIGKILL),
        "{status}"
    );
    status.success()
}

/// Waits until the channel has lost its producer. The kernel may release the lock of a dead
/// producer late: another search for a channel may hold the descriptor with this lock for an
/// instant.
fn wait_until_orphaned(channel: &Channel) {
    let until = now_ns() + 60_000_000_000;
    while !channel.is_orphaned() {
        assert!(now_ns() < until, "its producer is dead");
        std::thread::sleep(Duration::from_micros(100));
    }
}

struct Role {
    kind: String,
    name: String,
    policy: Policy,
    number: u64,
}

impl Role {
    fn from_environment() -> Option<Role> {
        let role = std::env::var(ROLE).ok()?;
        let words: Vec<_> = role.split(' ').collect();
        Some(Role {
            kind: words[0].into(),
            name: words[1].into(),
            policy: POLICIES[words[2].parse::<usize>().unwrap()],
            number: words[3].parse().unwrap(),
        })
    }

    fn open(&self, expected: usize) -> Channel {
        let options = Options {
            expected,
            ..options(self.policy)
        };
        onbeat_link::channel(&self.name, options).unwrap()
    }

    fn attach(&self) -> Channel {
        onbeat_link::attach(&self.name, None).unwrap()
    }
}

#[test]
fn the_child_process_does_nothing_unless_a_test_starts_it() {
    let Some(role) = Role::from_environment() else {
        return;
    };
    // The process does not outlive the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let wait_for_the_end = || std::thread::sleep(Duration::from_secs(60));
    match role.kind.as_str() {
        "send" => send_until_killed(&role),
        "receive" => receive_until_killed(&role),
        "stream" => {
            let mut producer = role.open(2).producer().unwrap();
            (0..role.number).for_each(|n| producer.send(&payload(n)).unwrap());
        }
        "count" => {
            let consumer = role.open(2).consumer().unwrap();
            receive_all(&consumer, role.policy, role.number);
        }
        "slow" => {
            let consumer = role.open(2).consumer().unwrap();
            while let Some(item) = consumer.receive_until(None).unwrap() {
                assert_eq!(*item, payload(item.sequence())[..]);
                if item.sequence() % 64 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        }
        "borrow" => {
            let consumer = role.open(0).consumer().unwrap();
            let item = consumer.receive_until(None).unwrap().unwrap();
            assert_eq!(item.sequence(), 0);
            println!("borrowed");
            wait_for_the_end();
        }
        "keep" => {
            let consumer = role.attach().consumer().unwrap();
            let _item = consumer.receive_until(None).unwrap().unwrap();
            wait_for_the_end();
        }
        "send-two" => {
            let mut producer = role.attach().producer().unwrap();
            producer.send(&[1]).unwrap();
            producer.send(&[2]).unwrap();
            wait_for_the_end();
        }
        "produce" => {
            let mut producer = role.open(0).producer().unwrap();
            (0..role.number).for_each(|n| producer.send(&payload(n)).unwrap());
            wait_for_the_end();
        }
        "scribble" => {
            let memory = Raw::of(&role.name);
            let mut rng = rng(role.number);
            loop {
                memory.scribble(&mut rng, 64);
            }
        }
        kind => panic!("no role '{kind}'"),
    }
}

fn send_until_killed(role: &Role) {
    let mut producer = role.open(0).producer().unwrap();
    die_at(role.number);
    for _ in 0..4 {
        let sent = producer.stats().sent;
        let mut loan = producer.loan(payload(sent).len()).unwrap();
        loan.copy_from_slice(&payload(sent));
        // The send may fail for lack of credit, since no consumer receives meanwhile.
        let _ = loan.try_send();
    }
    assert!(role.number > 0 && passed() > 0);
    std::mem::forget(producer);
}

fn receive_until_killed(role: &Role) {
    let consumer = role.open(0).consumer().unwrap();
    die_at(role.number);
    for _ in 0..2 {
        let first = consumer.receive_until(Some(now_ns() + 2_000_000_000));
        let second = consumer.receive();
        drop(first);
        drop(second);
    }
    std::mem::forget(consumer);
}

fn receive_all(consumer: &Consumer, policy: Policy, items: u64) {
    let (mut next, mut gaps) = (0, 0);
    while let Some(item) = consumer.receive_until(None).unwrap() {
        assert!(item.sequence() >= next, "{policy:?}");
        gaps += item.sequence() - next;
        next = item.sequence() + 1;
        assert_eq!(*item, payload(item.sequence())[..], "{policy:?}");
    }
    assert_eq!(
        (next, gaps),
        (items, consumer.stats().dropped),
        "{policy:?}"
    );
    assert!(gaps == 0 || !lossless(policy), "{policy:?}");
}

#[test]
fn between_processes_no_item_is_torn_and_all_losses_are_counted() {
    const ITEMS: u64 = 20_000;
    for (index, policy) in POLICIES.into_iter().enumerate() {
        let name = fresh_name();
        let children = [
            spawn("stream", &name, index, ITEMS),
            spawn("count", &name, index, ITEMS),
            spawn("slow", &name, index, ITEMS),
        ];
        for child in children {
            assert!(ended(child), "{policy:?}");
        }
    }
}

#[test]
fn a_producer_killed_at_any_step_leaves_no_gap_and_no_leak() {
    for (index, policy) in POLICIES.into_iter().enumerate() {
        let mut number = 0;
        loop {
            let name = fresh_name();
            let channel = onbeat_link::channel(&name, options(policy)).unwrap();
            let consumers = [channel.consumer().unwrap(), channel.consumer().unwrap()];
            let observer = channel.observer().unwrap();
            let done = ended(spawn("send", &name, index, number));
            wait_until_orphaned(&channel);

            // The next producer continues where the dead one stopped.
            let mut producer = channel.producer().unwrap();
            let mut next = [0; 3];
            let mut receive = |producer: Option<u64>| {
                for (i, consumer) in consumers.iter().chain([&observer]).enumerate() {
                    while let Some(item) = consumer.receive() {
                        assert_eq!(*item, payload(item.sequence())[..]);
                        let gap = item.sequence() - next[i];
                        let may_lose = i == 2 || !lossless(policy);
                        assert!(gap == 0 || may_lose, "{policy:?} at {number}: {item:?}");
                        next[i] = item.sequence() + 1;
                    }
                    if let Some(sent) = producer {
                        let stats = consumer.stats();
                        assert_eq!(
                            (next[i], stats.waiting),
                            (sent, 0),
                            "{policy:?} at {number}"
                        );
                    }
                }
            };
            receive(None);
            for _ in 0..8 {
                let sent = producer.stats().sent;
                producer.send(&payload(sent)).unwrap();
                producer.flush();
                receive(None);
            }
            receive(Some(producer.stats().sent));
            assert_eq!(channel.payloads_in_use(), 0, "{policy:?} at {number}");
            if done {
                assert!(number > 40, "{policy:?}: only {number} points");
                break;
            }
            number += 1;
        }
    }
}

#[test]
fn a_killed_producer_leaves_its_channel_at_once_although_others_read_its_memory_map() {
    use std::sync::atomic::{AtomicBool, AtomicU32};
    const ROUNDS: u32 = 40;
    let (looked_at, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let look = || {
        while !is_over.load(Ordering::Relaxed) {
            let pid = looked_at.load(Ordering::Relaxed);
            let _ = std::fs::read(format!("/proc/{pid}/smaps"));
        }
    };
    let late = std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(look)));
        let killed = |_: &u32| {
            let name = fresh_name();
            let channel = onbeat_link::channel(&name, options(POLICIES[2])).unwrap();
            let mut child = spawn("produce", &name, 2, 2);
            looked_at.store(child.id(), Ordering::Relaxed);
            while channel.stats().sent < 2 && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            kill(&mut child);
            let is_late = !channel.is_orphaned();
            wait_until_orphaned(&channel);
            is_late
        };
        let late = (0..ROUNDS).filter(killed).count();
        is_over.store(true, Ordering::Relaxed);
        late
    });
    // A thread that reads the process's descriptors can hold one for an instant. One that reads its
    // memory map did so often.
    assert!(late <= 2, "late in {late} of {ROUNDS} rounds");
}

#[test]
fn a_consumer_killed_at_any_step_leaves_no_gap_for_others_and_no_leak() {
    for (index, policy) in POLICIES.into_iter().enumerate() {
        let mut number = 0;
        loop {
            let name = fresh_name();
            let channel = onbeat_link::channel(&name, options(policy)).unwrap();
            let mut producer = channel.producer().unwrap();
            let stays = channel.consumer().unwrap();
            let mut child = spawn("receive", &name, index, number);
            while channel.consumers().len() < 2 && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_micros(100));
            }
            let mut next = 0;
            let mut send = |some: u64| {
                for _ in 0..some {
                    let sent = producer.stats().sent;
                    let mut loan = producer.loan(payload(sent).len()).unwrap();
                    loan.copy_from_slice(&payload(sent));
                    // Until the child dies, the producer may have to wait for it.
                    loan.send_until(now_ns() + 20_000_000_000).unwrap();
                    producer.flush();
                    while let Some(item) = stays.receive() {
                        assert!(item.sequence() == next || !lossless(policy));
                        assert_eq!(*item, payload(item.sequence())[..]);
                        next = item.sequence() + 1;
                    }
                }
                producer.check_consumers();
            };
            send(4);
            let done = ended(child);
            send(4);
            assert_eq!(channel.payloads_in_use(), 0, "{policy:?} at {number}");
            let died = channel.stats().lost_consumers;
            assert_eq!((channel.consumers().len(), died), (1, 1), "{policy:?}");
            // The place of the dead consumer is free again.
            let others: Vec<_> = (0..3).map(|_| channel.consumer().unwrap()).collect();
            drop(others);
            if done {
                assert!(number > 8, "{policy:?}: only {number} points");
                break;
            }
            number += 1;
        }
    }
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn when_a_consumer_dies_the_producer_continues_pauses_or_fails_as_configured() {
    for on_death in [OnDeath::Continue, OnDeath::Pause, OnDeath::Fail] {
        let name = fresh_name();
        let options = Options {
            on_death,
            expected: 1,
            ..Options::new(Policy::Credit { credits: 1 }, 256)
        };
        let channel = onbeat_link::channel(&name, options).unwrap();
        let mut producer = channel.producer().unwrap();
        let mut child = spawn("keep", &name, 0, 0);
        producer.send(&payload(0)).unwrap();
        while channel.consumers().iter().all(|c| c.waiting > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let soon = now_ns() + 300_000_000;
        let reason = producer
            .loan(1)
            .unwrap()
            .send_until(soon)
            .unwrap_err()
            .reason;
        assert_eq!(reason, SendError::NoCredit { in_flight: 1 });
        kill(&mut child);
        let soon = now_ns() + 500_000_000;
        let sent = producer.loan(1).unwrap().send_until(soon);
        let reason = sent.err().map(|refused| refused.reason);
        match on_death {
            OnDeath::Continue => assert_eq!(reason, None),
            OnDeath::Pause => {
                let missing = SendError::NotStarted {
                    attached: 0,
                    expected: 1,
                };
                assert_eq!(reason, Some(missing));
                let consumer = channel.consumer().unwrap();
                producer.send(&payload(1)).unwrap();
                assert_eq!(*consumer.receive().unwrap(), payload(1)[..]);
            }
            OnDeath::Fail => {
                assert_eq!(reason, Some(SendError::ConsumerDied));
                assert!(producer.loan(1).unwrap().send().is_err(), "until `resume`");
                producer.resume();
                producer.loan(1).unwrap().send().unwrap();
            }
        }
        assert_eq!(channel.stats().lost_consumers, 1);
    }
}

#[test]
fn when_the_producer_dies_consumers_wait_for_the_next_or_fail_as_configured() {
    for on_death in [OnDeath::Continue, OnDeath::Fail] {
        let name = fresh_name();
        let options = Options {
            on_death,
            ..options(Policy::Credit { credits: 2 })
        };
        let channel = onbeat_link::channel(&name, options).unwrap();
        let consumer = channel.consumer().unwrap();
        let mut child = spawn("send-two", &name, 0, 0);
        assert_eq!(*consumer.receive_until(None).unwrap().unwrap(), [1]);
        while channel.stats().sent < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(&mut child);
        let soon = Some(now_ns() + 2_000_000_000);
        // Items that were sent are received in any case.
        assert_eq!(*consumer.receive_until(soon).unwrap().unwrap(), [2]);
        let received = consumer.receive_until(Some(now_ns() + 500_000_000));
        match on_death {
            OnDeath::Fail => assert_eq!(received.unwrap_err(), ReceiveError::ProducerDied),
            _ => assert!(received.unwrap().is_none()),
        }
        assert!(consumer.is_orphaned() && !consumer.is_over());
        let mut next = channel.producer().unwrap();
        next.send(&[3]).unwrap();
        assert_eq!(*consumer.receive_until(soon).unwrap().unwrap(), [3]);
        drop(next);
        assert!(consumer.is_over() && !consumer.is_orphaned());
    }
}

#[test]
fn a_dead_producers_buffer_is_received_before_its_death_is_reported() {
    let name = fresh_name();
    let options = Options {
        on_death: OnDeath::Fail,
        ..options(Policy::Swap {
            length: 4,
            flush: false,
        })
    };
    let channel = onbeat_link::channel(&name, options).unwrap();
    let consumer = channel.consumer().unwrap();
    let mut child = spawn("send-two", &name, 0, 0);
    while channel.stats().sent < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(consumer.receive().is_none(), "its buffer is not full");
    kill(&mut child);
    for number in [1, 2] {
        assert_eq!(*consumer.receive_until(None).unwrap().unwrap(), [number]);
    }
    let error = consumer.receive_until(None).unwrap_err();
    assert_eq!(error, ReceiveError::ProducerDied);
}

#[test]
fn a_peer_that_is_silent_for_seconds_does_not_count_as_dead() {
    let name = fresh_name();
    let channel = onbeat_link::channel(&name, options(Policy::Credit { credits: 1 })).unwrap();
    let mut producer = channel.producer().unwrap();
    let mut child = spawn("keep", &name, 0, 0);
    while channel.consumers().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    producer.send(&payload(0)).unwrap();
    unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
    let soon = now_ns() + 2_000_000_000;
    let reason = producer
        .loan(1)
        .unwrap()
        .send_until(soon)
        .unwrap_err()
        .reason;
    assert_eq!(reason, SendError::NoCredit { in_flight: 1 });
    assert_eq!(channel.stats().lost_consumers, 0);
    kill(&mut child);
    producer.send(&payload(1)).unwrap();
    assert_eq!(channel.stats().lost_consumers, 1);
}

struct Raw {
    base: *mut u8,
    size: usize,
}

impl Raw {
    fn of(name: &str) -> Raw {
        let descriptor = onbeat_link::descriptor(name).unwrap();
        let size = std::fs::File::from(descriptor.try_clone().unwrap())
            .metadata()
            .unwrap()
            .len() as usize;
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Raw {
            base: base.cast(),
            size,
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.size);
        for (i, &byte) in bytes.iter().enumerate() {
            unsafe { self.base.add(offset + i).write_volatile(byte) };
        }
    }

    fn scribble(&self, rng: &mut TestRng, words: usize) {
        use proptest::prelude::Rng;
        for _ in 0..words {
            let at = rng.next_u64() as usize % (self.size / 8) * 8;
            let word = match rng.next_u32() % 4 {
                0 => rng.next_u64(),
                1 => u64::MAX,
                2 => u64::from(rng.next_u32() % 32),
                _ => 1 << (rng.next_u32() % 64),
            };
            self.write(at, &word.to_le_bytes());
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Calls every operation of a channel whose memory contains arbitrary bytes. `descriptor` refers to
/// that memory.
fn use_it(channel: &Channel, descriptor: &OwnedFd) {
    let soon = || now_ns() + 100_000;
    let producer = channel.producer();
    let consumer = channel.consumer();
    let observer = channel.observer();
    if let Ok(mut producer) = producer {
        for size in [1, 256, 3] {
            if let Ok(mut loan) = producer.loan(size) {
                loan.fill(1);
                let _ = loan.send_until(soon());
            }
        }
        producer.flush();
        producer.check_consumers();
        producer.stats();
    }
    for consumer in [consumer, observer].into_iter().flatten() {
        let _ = consumer
            .receive_until(Some(soon()))
            .map(|i| i.map(|i| i.len()));
        let first = consumer.receive();
        let second = consumer.receive();
        let bytes = first.iter().chain(&second).flat_map(|i| i.iter());
        std::hint::black_box(bytes.map(|&b| u64::from(b)).sum::<u64>());
        drop((first, second));
        let mut consumer = consumer;
        consumer.newest().map(|i| i.len());
        consumer.stats();
        consumer.is_over();
    }
    channel.stats();
    channel.consumers();
    // Attaching by name reads the descriptors of all processes first.
    let _ = onbeat_link::open(descriptor.as_fd(), None);
    let _ = onbeat_link::open(descriptor.as_fd(), Some(channel.options()));
}

#[test]
fn random_bytes_in_a_channels_memory_cause_only_errors() {
    for seed in 0..400 {
        let policy = POLICIES[seed as usize % POLICIES.len()];
        let name = fresh_name();
        let channel = onbeat_link::channel(&name, options(policy)).unwrap();
        let raw = Raw::of(&name);
        let descriptor = onbeat_link::descriptor(&name).unwrap();
        let mut rng = rng(seed);
        for _ in 0..4 {
            raw.scribble(&mut rng, 1 + seed as usize % 300);
            use_it(&channel, &descriptor);
        }
        let _ = onbeat_link::attach(&name, None);
    }
}

#[test]
fn a_peer_that_writes_nonsense_all_the_time_neither_crashes_nor_blocks_others() {
    for (index, policy) in POLICIES.into_iter().enumerate() {
        let name = fresh_name();
        let channel = onbeat_link::channel(&name, options(policy)).unwrap();
        let descriptor = onbeat_link::descriptor(&name).unwrap();
        let mut child = spawn("scribble", &name, index, index as u64);
        for round in 0..300 {
            use_it(&channel, &descriptor);
            if round % 30 == 0 {
                let _ = onbeat_link::attach(&name, None);
            }
        }
        assert!(child.try_wait().unwrap().is_none(), "it still writes");
        kill(&mut child);
    }
}

#[test]
fn a_loan_fails_when_all_payloads_of_the_pool_are_in_use() {
    let name = fresh_name();
    let options = options(Policy::Latest);
    let channel = onbeat_link::channel(&name, options).unwrap();
    let mut producer = channel.producer().unwrap();
    let raw = Raw::of(&name);
    // Each of four consumers needs one item that waits, two in use, and its latest value. One loan
    // comes on top.
    let (slots, slot_bytes) = (4 * (1 + 2 + 1) + 1, 64 + 256);
    let pool = raw.size - slots * slot_bytes;
    let refer = |consumers: u64| {
        (0..slots).for_each(|s| raw.write(pool + s * slot_bytes, &consumers.to_le_bytes()));
    };
    refer(1);
    assert_eq!(channel.payloads_in_use(), slots);
    let refused = producer.loan(1).unwrap_err();
    assert_eq!(refused, LoanError::Exhausted { slots });
    refer(0);
    producer.send(&[1]).unwrap();
}

fn of_four(policy: Policy) -> Options {
    Options {
        expected: 0,
        ..Options::of::<[f32; 4]>(policy)
    }
}

#[test]
fn attaching_with_options_that_differ_from_the_channels_fails_and_names_the_difference() {
    let name = fresh_name();
    let policy = Policy::Credit { credits: 3 };
    let made = of_four(policy);
    let _channel = onbeat_link::create(&name, made).unwrap();
    let again = onbeat_link::create(&name, made).unwrap_err();
    assert!(matches!(again, LinkError::Exists { pid, .. } if pid == std::process::id()));
    let difference = |options: Options| {
        let error = onbeat_link::attach(&name, Some(options)).unwrap_err();
        assert!(
            matches!(
                &error,
                LinkError::Open {
                    reason: OpenError::Differs { .. },
                    ..
                }
            ),
            "{error}"
        );
        error.to_string()
    };
    let message = difference(Options {
        expected: 0,
        ..Options::of::<[f64; 4]>(policy)
    });
    assert!(
        message.contains("f32") && message.contains("f64"),
        "{message}"
    );
    let message = difference(Options {
        payload_bytes: 17,
        ..made
    });
    assert!(
        message.contains("16") && message.contains("17"),
        "{message}"
    );
    let message = difference(Options {
        policy: Policy::Latest,
        ..made
    });
    assert!(message.contains("Credit { credits: 3 }"), "{message}");
    let attached = onbeat_link::attach(&name, None).unwrap();
    assert_eq!(attached.options().policy, policy);
}

#[test]
fn attaching_to_memory_with_a_wrong_description_fails_with_the_reason() {
    let name = fresh_name();
    let made = of_four(Policy::Credit { credits: 3 });
    let _channel = onbeat_link::create(&name, made).unwrap();
    let raw = Raw::of(&name);
    let description = 3 * 64;
    let reason = || match onbeat_link::attach(&name, None).unwrap_err() {
        LinkError::Open { reason, .. } => reason,
        other => panic!("{other}"),
    };
    raw.write(description + 6 * 8, &65u64.to_le_bytes());
    assert!(matches!(reason(), OpenError::Impossible(_)));
    raw.write(description + 6 * 8, &60u64.to_le_bytes());
    assert!(
        matches!(reason(), OpenError::Impossible(_)),
        "too small for 60"
    );
    raw.write(description + 16, &9u64.to_le_bytes());
    assert_eq!(reason(), OpenError::Nonsense { what: "policy" });
    raw.write(description + 8, &2u64.to_le_bytes());
    assert_eq!(reason(), OpenError::Version { theirs: 2, ours: 1 });
    raw.write(description, b"another!");
    assert_eq!(reason(), OpenError::Foreign);
}

#[test]
fn impossible_names_are_refused_and_printed_escaped() {
    let options = of_four(Policy::Latest);
    for bad in ["", "a b", "\u{1b}[2J", &"x".repeat(81)] {
        let error = onbeat_link::channel(bad, options).unwrap_err();
        assert!(matches!(error, LinkError::Name { .. }));
        assert!(!error.to_string().contains('\u{1b}'));
    }
}

/// Returns how many descriptors and mappings of a channel this process has, and whether it has a
/// socket.
fn resources(name: &str) -> (usize, usize, bool) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let of_ours = |l: &&str| l.contains("memfd:onbeat:") && l.contains(name);
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let descriptors = descriptors.filter(|d| {
        let link = std::fs::read_link(d.path()).unwrap_or_default();
        link.to_string_lossy().contains(name)
    });
    (
        descriptors.count(),
        maps.lines().filter(of_ours).count(),
        sockets.contains(name),
    )
}

#[test]
fn a_thousand_attachments_leave_no_descriptor_and_no_mapping() {
    let name = fresh_name();
    let channel = onbeat_link::channel(&name, options(Policy::Credit { credits: 4 })).unwrap();
    assert_eq!(resources(&name), (1, 1, false));
    // No item is sent meanwhile.
    for _ in 0..1000 {
        let attached = onbeat_link::attach(&name, None).unwrap();
        let (first, second) = (attached.consumer().unwrap(), attached.observer().unwrap());
        drop(attached.producer().unwrap());
        drop((attached, first, second));
    }
    assert_eq!(resources(&name), (1, 1, false));
    assert_eq!(channel.consumers(), []);
    drop(channel);
    assert_eq!(resources(&name), (0, 0, false));
}

#[test]
fn a_channel_disappears_when_all_its_participants_were_killed() {
    let name = fresh_name();
    let mut children = [spawn("produce", &name, 1, 3), spawn("borrow", &name, 1, 0)];
    let channel = loop {
        match onbeat_link::attach(&name, None) {
            Ok(channel) if channel.stats().sent == 3 => break channel,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    // The channel survives the death of any participant, even of its creator.
    drop(channel);
    kill(&mut children[0]);
    kill(&mut children[1]);
    let gone = onbeat_link::attach(&name, None).unwrap_err();
    assert!(matches!(gone, LinkError::NotThere { .. }), "{gone}");
    assert_eq!(resources(&name), (0, 0, false));
}

#[test]
fn a_process_with_a_descriptor_can_attach_without_the_name() {
    let name = fresh_name();
    let channel = onbeat_link::create(&name, options(Policy::Latest)).unwrap();
    let descriptor = onbeat_link::descriptor(&name).unwrap();
    let other = onbeat_link::open(descriptor.as_fd(), Some(channel.options())).unwrap();
    let consumer = other.consumer().unwrap();
    channel.producer().unwrap().send(&[5]).unwrap();
    assert_eq!(*consumer.receive().unwrap(), [5]);

    // Another file is refused before any access to its content.
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(onbeat_link::open(file.as_fd(), None).is_err());
}
