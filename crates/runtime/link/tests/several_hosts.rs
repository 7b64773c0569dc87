//! Tests one producer with consumers on several hosts, and the losses of a policy on the way to
//! them.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::clock::now_ns;
use onbeat_flow::{Channel, Consumer, Medium, Options, Policy, SendError};
use onbeat_link::channels::{Direction, HostState};
use onbeat_link::interface::Backend;
use onbeat_link::status::survey;
use onbeat_link::{Key, Links, LinksError, Tcp};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const ROLE: &str = "ONBEAT_SEVERAL_HOSTS";
const WATCHDOG: Duration = Duration::from_secs(100);

fn watchdog() -> u64 {
    now_ns() + WATCHDOG.as_nanos() as u64
}

fn wait(what: &str, ready: impl Fn() -> bool) {
    let until = watchdog();
    while !ready() {
        assert!(now_ns() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn key() -> Key {
    Key::from_bytes([3; 32])
}

type Made = Result<Box<dyn Backend>, LinksError>;

fn listener() -> (SocketAddr, impl Fn(&str, u16) -> Made) {
    let tcp = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let tcp = tcp.resume_within(Duration::from_millis(500));
    let (address, tcp) = (tcp.address(), Mutex::new(Some(tcp)));
    let connector =
        move |_: &str, _: u16| -> Made { Ok(Box::new(tcp.lock().unwrap().take().unwrap())) };
    (address, connector)
}

fn receiving(address: SocketAddr) -> Links {
    let links = Links::over(Direction::Receiving, move |_, _| {
        let tcp = Tcp::connect(address, key());
        Ok(Box::new(tcp.resume_within(Duration::from_millis(500))))
    });
    links.wait_for_peer(WATCHDOG)
}

fn sending() -> (Links, [SocketAddr; 2]) {
    let ((first, a), (second, b)) = (listener(), listener());
    let links = Links::over(Direction::Sending, a).and_over(b).unwrap();
    (links.wait_for_peer(WATCHDOG), [first, second])
}

fn options(policy: Policy, expected: usize) -> Options {
    Options {
        expected,
        ..Options::new(policy, 64)
    }
}

fn take(consumer: &Consumer) -> u64 {
    let item = consumer.receive_until(Some(watchdog())).unwrap();
    item.expect("an item before the watchdog").sequence()
}

/// Reads the status page of this process's end at this address. Returns the number of messages that
/// the end has sent, and the number of items that were lost before they left.
fn shown(address: SocketAddr, listens: bool) -> (u64, Option<u64>) {
    let is_it = |found: &onbeat_link::status::Found| {
        let status = &found.status;
        (found.pid, status.listens, &status.name[..])
            == (std::process::id(), listens, &address.to_string())
    };
    let found = survey().links.into_iter().find(is_it);
    let status = found.expect("its page is there").status;
    (status.passed[0].messages, status.lost)
}

#[test]
fn each_host_gets_one_transfer_and_the_slowest_sets_the_pace() {
    let (links, [near, far]) = sending();
    let (quick_host, slow_host) = (receiving(near), receiving(far));
    let options = options(Policy::Credit { credits: 3 }, 2);
    let (sending, quick, slow) = thread::scope(|scope| {
        let quick = scope.spawn(|| quick_host.channel("c", options).unwrap());
        let slow = scope.spawn(|| slow_host.channel("c", options).unwrap());
        let sending = links.channel("c", options).unwrap();
        (sending, quick.join().unwrap(), slow.join().unwrap())
    });
    let mut producer = sending.producer().unwrap();
    let consumers = |c: &Channel| [c.consumer().unwrap(), c.consumer().unwrap()];
    let quick = consumers(&quick);
    wait("one host is ready", || {
        links.hosts("c")[0].state == HostState::Open
    });
    // The other host's consumers are expected too.
    let refused = producer.loan(1).unwrap().try_send().unwrap_err().reason;
    assert!(
        matches!(refused, SendError::NotStarted { expected: 2, .. }),
        "{refused}"
    );
    let slow = consumers(&slow);
    for number in 0..3 {
        producer.send(&[number as u8]).unwrap();
        quick
            .iter()
            .for_each(|consumer| assert_eq!(take(consumer), number));
    }
    let full = SendError::NoCredit { in_flight: 3 };
    let refused = producer.loan(1).unwrap().try_send().unwrap_err().reason;
    assert_eq!(refused, full, "one host has consumed nothing");
    assert_eq!(take(&slow[0]), 0);
    let refused = producer.loan(1).unwrap().try_send().unwrap_err().reason;
    assert_eq!(refused, full, "one of its consumers has consumed nothing");
    assert_eq!(take(&slow[1]), 0);
    producer.send(&[3]).unwrap();
    // The messages are the terms and four items, once per host.
    wait("all has left", || {
        shown(near, true).0 == 5 && shown(far, true).0 == 5
    });
    assert_eq!(take(&quick[0]), 3);
    (1..4).for_each(|number| slow.iter().for_each(|c| assert_eq!(take(c), number)));
    drop(producer);
    let is_over = |c: &Consumer| c.is_over() || matches!(c.receive_until(Some(now_ns())), Ok(None));
    wait("the end comes to all", || {
        slow.iter().all(is_over) && is_over(&quick[0])
    });
    // The sender counts a message when its send returns, which may be after the message has
    // arrived.
    wait("the end has left", || {
        shown(near, true).0 >= 6 && shown(far, true).0 >= 6
    });
    assert_eq!((shown(near, true).0, shown(far, true).0), (6, 6));
}

#[test]
fn the_process_of_another_host_does_nothing_unless_a_test_starts_it() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // The process does not outlive the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (consumers, address) = role.split_once(' ').unwrap();
    let links = receiving(address.parse().unwrap());
    let options = options(Policy::Credit { credits: 2 }, 1);
    let channel = links.channel("c", options).unwrap();
    let _consumers: Vec<_> = (0..consumers.parse().unwrap())
        .map(|_| channel.consumer().unwrap())
        .collect();
    println!("there");
    thread::sleep(WATCHDOG);
}

fn start(consumers: usize, address: SocketAddr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "the_process_of_another_host_does_nothing_unless_a_test_starts_it",
        ])
        .env(ROLE, format!("{consumers} {address}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn outlives_a_host(consumers: usize) {
    let (links, [near, far]) = sending();
    let (host, mut child) = (receiving(near), start(consumers, far));
    let options = options(Policy::Credit { credits: 2 }, 1);
    let (sending, local) = thread::scope(|scope| {
        let local = scope.spawn(|| host.channel("c", options).unwrap());
        (links.channel("c", options).unwrap(), local.join().unwrap())
    });
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines
        .map_while(Result::ok)
        .any(|line| line.contains("there")));
    let consumer = local.consumer().unwrap();
    let mut producer = sending.producer().unwrap();
    let before = 2 * consumers as u8;
    (0..before).for_each(|number| producer.send(&[number]).unwrap());
    (0..before).for_each(|number| assert_eq!(take(&consumer), u64::from(number)));
    let refused = producer.loan(1).unwrap().try_send().unwrap_err().reason;
    assert!(refused != SendError::Severed, "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
    for number in before..before + 20 {
        let loan = producer.loan(1).unwrap();
        loan.send_until(watchdog()).unwrap();
        assert_eq!(take(&consumer), u64::from(number));
    }
    let states: Vec<_> = links.hosts("c").iter().map(|host| host.state).collect();
    assert_eq!(states, [HostState::Open, HostState::Severed]);
    assert!(!sending.is_severed());
    // Without the last host, no consumer could receive.
    drop((consumer, local));
    drop(host);
    wait("the channel is severed", || sending.is_severed());
}

#[test]
fn a_dead_host_does_not_delay_the_others() {
    outlives_a_host(1);
}

#[test]
fn a_host_that_dies_before_it_has_consumers_does_not_delay_the_others() {
    outlives_a_host(0);
}

#[test]
fn lost_items_are_counted_exactly_at_both_hosts() {
    const ITEMS: u64 = 4000;
    for policy in [Policy::Latest, Policy::DropOldest { depth: 3 }] {
        let (address, connector) = listener();
        let links = Links::over(Direction::Sending, connector).wait_for_peer(WATCHDOG);
        let host = receiving(address);
        let (sending, local) = thread::scope(|scope| {
            let local = scope.spawn(|| host.channel("c", options(policy, 1)).unwrap());
            let sending = links.channel("c", options(policy, 1)).unwrap();
            (sending, local.join().unwrap())
        });
        let consumer = local.consumer().unwrap();
        let mut producer = sending.producer().unwrap();
        for number in 0..ITEMS {
            producer.send(&number.to_le_bytes()).unwrap();
        }
        drop(producer);
        let (mut received, mut next, mut gaps) = (0, 0, 0);
        while let Some(item) = consumer.receive_until(Some(watchdog())).unwrap() {
            gaps += item.sequence() - next;
            (received, next) = (received + 1, item.sequence() + 1);
            thread::sleep(Duration::from_micros(300));
        }
        assert_eq!((next, received + gaps), (ITEMS, ITEMS));
        let (before, here) = (links.hosts("c")[0].lost, host.hosts("c")[0].lost);
        assert!(
            before > 0,
            "nothing was lost on the way: the test shows nothing"
        );
        assert_eq!(before + consumer.stats().dropped, gaps, "{policy:?}");
        assert_eq!(before, here);
        let shown = [shown(address, true).1, shown(address, false).1];
        assert_eq!(shown, [Some(before); 2]);
    }
}

#[test]
fn only_a_sending_host_with_links_between_machines_can_have_several_receivers() {
    let refusals = [
        Links::sending("shm://c").unwrap().and_to("shm://d"),
        Links::receiving("shm://c").unwrap().and_over(listener().1),
        receiving(listener().0).and_over(listener().1),
    ];
    for refused in refusals {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("only a sending host"), "{refused}");
    }
}
