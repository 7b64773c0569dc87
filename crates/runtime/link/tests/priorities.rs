//! Tests priorities of channels between hosts: on the sending host's port, and where received items
//! are handed to tasks.
#![allow(clippy::undocumented_unsafe_blocks)]

use onbeat_flow::clock::now_ns;
use onbeat_flow::priority::Priorities;
use onbeat_flow::task::TaskResult;
use onbeat_flow::thread::ThreadOptions;
use onbeat_flow::{Channel, Consumer, Medium, Options, Policy, Producer};
use onbeat_link::port::{Port, PortStats, Settings, TransferStats};
use onbeat_link::{Key, Links};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

const ROLE: &str = "ONBEAT_PRIORITIES_PORT";
const CREDITS: usize = 8;
const LARGE: usize = 64 << 10;

fn watchdog() -> u64 {
    now_ns() + 120_000_000_000
}

fn wait(what: &str, ready: impl Fn() -> bool) {
    let until = watchdog();
    while !ready() {
        assert!(now_ns() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn options(payload_bytes: usize) -> Options {
    Options::new(Policy::Credit { credits: CREDITS }, payload_bytes)
}

fn place() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("link.key");
    Key::generate().create_file(&key).unwrap();
    let first = loop {
        let any = TcpListener::bind("127.0.0.1:0").unwrap();
        let first = any.local_addr().unwrap();
        drop(any);
        let is_free = |n| {
            let port = first.port().checked_add(n);
            port.is_some_and(|p| TcpListener::bind(("127.0.0.1", p)).is_ok())
        };
        if (0..4).all(is_free) {
            break first;
        }
    };
    let place = format!("tcp://{first}?key={}", key.display());
    (folder, place)
}

struct Lane {
    producer: Producer,
    come: Consumer,
    _sending: Channel,
    receiving: Channel,
}

fn lane(sending: &Links, receiving: &Links, name: &str) -> Lane {
    let channel = thread::scope(|scope| {
        let sending = scope.spawn(|| sending.channel(name, options(8)).unwrap());
        let receiving = receiving.channel(name, options(8)).unwrap();
        (sending.join().unwrap(), receiving)
    });
    Lane {
        producer: channel.0.producer().unwrap(),
        come: channel.1.observer().unwrap(),
        _sending: channel.0,
        receiving: channel.1,
    }
}

impl Lane {
    fn send(&mut self, number: u8) {
        let before = self.come.waiting();
        self.producer.send(&[number]).unwrap();
        wait("it comes", || self.come.waiting() > before);
    }
}

type Order = Arc<Mutex<Vec<(usize, u8)>>>;

#[test]
fn items_are_handed_over_by_priority_and_then_in_order_of_arrival() {
    const NAMES: [&str; 3] = ["low", "high", "also high"];
    let (_folder, place) = place();
    let prioritized = |links: Links| {
        let links = links.priority("high", 9).priority("also high", 9);
        links.wait_for_peer(Duration::from_secs(100))
    };
    let sending = prioritized(Links::sending(&place).unwrap());
    let receiving = prioritized(Links::receiving(&place).unwrap());
    let mut lanes = NAMES.map(|name| lane(&sending, &receiving, name));

    let order = Order::default();
    let (began, begins) = mpsc::channel();
    let (goes_on, go_on) = mpsc::channel::<()>();
    let mut tasks = Priorities::new("hand over", vec![ThreadOptions::new("receive")]);
    let mut low_waits = Some((began, go_on));
    for (number, lane) in lanes.iter().enumerate() {
        let (name, order) = (NAMES[number], Arc::clone(&order));
        let mut waits = low_waits.take();
        let take = move |item: &onbeat_flow::Item<'_>| {
            order.lock().unwrap().push((number, item[0]));
            // The first execution of the low channel lasts until the test lets it end.
            if let Some((began, go_on)) = waits.take() {
                began.send(()).unwrap();
                go_on.recv().unwrap();
            }
            TaskResult::Nothing
        };
        let priority = receiving.priority_of(name).into();
        tasks
            .receive(0, priority, name, &lane.receiving, take)
            .unwrap();
    }

    // The task handles one item of the low channel while all others arrive, the low ones first.
    // Items of the two high channels arrive in an irregular order.
    let mut running = tasks.start().unwrap();
    lanes[0].producer.send(&[0]).unwrap();
    begins.recv_timeout(Duration::from_secs(100)).unwrap();
    let mut expected = vec![(0, 0)];
    let highs = [1, 1, 2, 1, 2, 2, 2, 1];
    (1..CREDITS as u8).for_each(|number| lanes[0].send(number));
    for (number, high) in (100..).zip(highs) {
        lanes[high].send(number);
        expected.push((high, number));
    }
    expected.extend((1..CREDITS as u8).map(|number| (0, number)));
    goes_on.send(()).unwrap();
    assert_eq!(running.drain(Some(watchdog())), Ok(true));
    assert_eq!(*order.lock().unwrap(), expected);
}

#[test]
fn hosts_with_different_priorities_for_a_channel_are_refused() {
    let (_folder, place) = place();
    let sending = Links::sending(&place).unwrap().priority("stop", 200);
    let receiving = Links::receiving(&place).unwrap();
    let refused = thread::scope(|scope| {
        scope.spawn(|| receiving.channel("stop", options(8)).map(drop));
        sending.channel("stop", options(8)).unwrap_err().to_string()
    });
    assert!(
        refused.contains("'priority 200', the other 'priority 0'"),
        "{refused}"
    );
    let port = Port::alone(settings()).unwrap();
    let no_port = Links::sending("shm://c").unwrap().on_port(&port);
    let refused = no_port.channel("stop", options(8)).unwrap_err().to_string();
    assert!(refused.contains("only channels over tcp://"), "{refused}");
}

/// Returns settings with which no lease ends and no transfer is passed over on a slow machine.
fn settings() -> Settings {
    let long = Duration::from_secs(10);
    let settings = Settings::of_rate(1_000_000_000).chunk_bytes(16 << 10);
    settings.slack(long).patience(long)
}

#[test]
fn the_process_of_a_sending_host_does_nothing_unless_a_test_starts_it() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // The process does not outlive the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (port, place) = role.split_once(' ').unwrap();
    let port = Port::shared(port, settings()).unwrap();
    let links = Links::sending(place).unwrap().on_port(&port);
    let links = links.priority("camera", 3).priority("stop", 200);
    let open = |name| {
        links
            .channel(name, options(LARGE))
            .unwrap()
            .producer()
            .unwrap()
    };
    let (mut camera, mut stop) = (open("camera"), open("stop"));
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    // The thread is not scoped: if this test fails, nothing waits for it.
    let sending = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            camera.loan(LARGE).unwrap().send().unwrap();
        }
    });
    // The camera stops while one of its messages waits, so each round begins once it goes on.
    // Whether a round meets the camera within a message is chance, but several rounds in a row do
    // not all miss it.
    let until = watchdog();
    for round in 0.. {
        let before = by(&port.stats(), 3);
        if round >= 10 && before.preemptions > 0 {
            break;
        }
        assert!(now_ns() < until, "never preempted: {before:?}");
        wait("the camera goes on", || {
            by(&port.stats(), 3).sent.chunks > before.sent.chunks
        });
        (0..6).for_each(|_| stop.loan(LARGE).unwrap().send().unwrap());
    }
    is_over.store(true, Ordering::Relaxed);
    sending.join().unwrap();
    println!("sent");
    // The process waits until the test has read the counts.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn by(stats: &PortStats, priority: u8) -> TransferStats {
    let mut found = stats.transfers.iter().filter(|t| t.priority == priority);
    found.next().expect("the transfer is there").clone()
}

#[test]
fn a_channels_priority_applies_to_its_connection_on_the_port() {
    let (_folder, place) = place();
    let name = format!("priorities-{}", std::process::id());
    let port = Port::shared(&name, settings()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "the_process_of_a_sending_host_does_nothing_unless_a_test_starts_it",
        ])
        .env(ROLE, format!("{name} {place}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let links = Links::receiving(&place)
        .unwrap()
        .chunk_bytes(settings().chunk());
    let links = links.priority("camera", 3).priority("stop", 200);
    let mut tasks = Priorities::new("take", vec![ThreadOptions::new("take")]);
    for channel in ["camera", "stop"] {
        let priority = links.priority_of(channel).into();
        let local = links.channel(channel, options(LARGE)).unwrap();
        let take = |_: &onbeat_flow::Item<'_>| TaskResult::Nothing;
        tasks.receive(0, priority, channel, &local, take).unwrap();
    }
    let mut running = tasks.start().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("sent")));
    let (camera, stop) = (by(&port.stats(), 3), by(&port.stats(), 200));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    running.stop().unwrap();
    assert_eq!((camera.pid, stop.pid), (child.id(), child.id()));
    // While a chunk of the other channel waits, the camera sends at most the chunk that it had
    // begun.
    assert!(stop.most_before <= 1 && stop.preemptions == 0, "{stop:?}");
    assert!(camera.preemptions > 0, "{camera:?}");
}
