//! Tests lineage with real probes in a real program: the start of the execution that an item
//! belongs to.

use super::{Harness, Test};
use onbeat_record::{
    record_observed, Control, Join, Lineage, Observer, RecordOptions, Root, Target,
};
use onbeat_trace::{Event, EventKind};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

pub const TESTS: &[Test] = tests![the_lineage_of_an_item_is_the_start_of_its_execution];

/// A script in which a timer publishes /a, and its subscriber publishes /b. Another timer, outside
/// of the chain, publishes /c.
///
/// The subscriber of /b and /c stores both and then publishes /d. Four rounds repeat: /b comes
/// first, /c comes first, /b comes twice before /c, /c comes first.
const CHAIN: &str = "
import sys, time, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
first, second, third, fourth = Node('first'), Node('second'), Node('third'), Node('fourth')
a = first.create_publisher(UInt64, 'a', 10)
b = second.create_publisher(UInt64, 'b', 10)
c = third.create_publisher(UInt64, 'c', 10)
d = fourth.create_publisher(UInt64, 'd', 10)
rounds = ['ac', 'ca', 'aac', 'ca']
todo, done, stored, waits = [], [], {}, 0
def send(what, publisher):
    global waits
    waits -= 1
    if not todo:
        todo.extend(rounds[len(done) % 4])
    # Until it has come; the first ones may be lost.
    if todo[0] == what and waits < 0:
        waits = 100
        publisher.publish(UInt64(data=len(done)))
def take(item):
    time.sleep(0.005)
    b.publish(item)
def join(what, item):
    global waits
    waits = 0
    stored[what] = item
    if todo and todo[0] == what:
        todo.pop(0)
    if len(stored) == 2:
        stored.clear()
        d.publish(item)
        done.append(item)
second.create_subscription(UInt64, 'a', take, 10)
fourth.create_subscription(UInt64, 'b', lambda item: join('a', item), 10)
fourth.create_subscription(UInt64, 'c', lambda item: join('c', item), 10)
first.create_timer(0.02, lambda: send('a', a))
third.create_timer(0.02, lambda: send('c', c))
executor = rclpy.executors.SingleThreadedExecutor()
for node in (first, second, third, fourth):
    executor.add_node(node)
while len(done) < int(sys.argv[1]):
    executor.spin_once(timeout_sec=0.2)
print('published', len(done), flush=True)
";

const ITEMS: usize = 48;

struct Table(*const u64);

impl Table {
    fn of(fd: BorrowedFd<'_>) -> Table {
        let bytes = Lineage::LAYOUT[0] as usize * 32;
        // SAFETY: a new mapping at an address that the kernel chooses. It stays until this process
        // ends.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "the table can be read");
        Table(address.cast())
    }

    fn born_ns(&self, source_ns: i64) -> Option<u64> {
        let [_, shift, factor, check] = Lineage::LAYOUT;
        let place = (source_ns as u64).wrapping_mul(factor) >> shift;
        // SAFETY: the shift gives the index of an entry in the table, which has four words.
        let word = |n: usize| unsafe { self.0.add(place as usize * 4 + n).read_volatile() };
        let (source, born_ns) = (word(0), word(1));
        let is_its = source == source_ns as u64 && source ^ born_ns ^ check == word(2);
        (is_its && born_ns != 0).then_some(born_ns)
    }
}

#[derive(Default)]
struct Witness {
    lineage: Option<Arc<Lineage>>,
    table: Option<Table>,
    topics: HashMap<u64, String>,
    subscription_b: Option<u64>,
    joined: Joined,
    call: Option<(u64, u64)>,
    since_ns: Option<u64>,
    called_ns: HashMap<i64, u64>,
    taken: Option<i64>,
    /// The number of items on /a, /b, /c and /d since the root was added. Items on /d count only if
    /// their execution's input was stored.
    items: [usize; 4],
    unknown: usize,
}

#[derive(Default)]
struct Joined {
    stored: Vec<Option<u64>>,
    is_certain: bool,
    had_several: bool,
    last_take_was_b: bool,
}

impl Joined {
    fn takes(&mut self, topic: &str, born_ns: Option<u64>) {
        self.last_take_was_b = topic == "/b";
        if self.last_take_was_b {
            self.stored.push(born_ns);
        }
    }

    /// Handles a publication of /d. Returns the expected lineage of /d's item, and whether its
    /// input was stored. Returns `None` while the expected lineage is not certain.
    fn publishes(&mut self) -> Option<(Option<u64>, bool)> {
        let stored = std::mem::take(&mut self.stored);
        if stored.contains(&None) {
            // Another item has taken the entry before it was read here.
            self.is_certain = false;
            return None;
        }
        let last = stored.last().copied().flatten();
        if self.last_take_was_b {
            (self.is_certain, self.had_several) = (true, false);
            return Some((last, false));
        }
        self.had_several |= stored.len() > 1;
        let born_ns = last.filter(|_| !self.had_several);
        self.is_certain.then_some((born_ns, born_ns.is_some()))
    }
}

impl Witness {
    fn publishes(&mut self, event: &Event, topic: &str, source_ns: i64) {
        if topic == "/d" {
            return self.publishes_joined(source_ns);
        }
        let lineage = self.lineage.clone().expect("this kernel provides lineage");
        let (timer, call_ns) = self.call.expect("timers run from the beginning on");
        if topic == "/a" && self.since_ns.is_none() {
            lineage
                .add_root(event.pid, Root::Timer(timer))
                .expect("room");
            let of_d = self.topics.iter().find(|(_, topic)| *topic == "/d");
            let join = Join {
                input: Root::Subscription(self.subscription_b.expect("/b is taken")),
                output: *of_d.expect("/d is published").0,
            };
            lineage.add_join(event.pid, join).expect("room");
            self.table = Some(Table::of(lineage.table()));
            // Executions that began before this time have no lineage.
            self.since_ns = Some(onbeat_time::clock::monotonic_ns());
        }
        if topic == "/a" {
            self.called_ns.insert(source_ns, call_ns);
        }
        let first_ns = match topic {
            "/b" => self.taken.and_then(|taken| self.called_ns.get(&taken)),
            _ => Some(&call_ns),
        };
        let Some((&first_ns, table)) = first_ns.zip(self.table.as_ref()) else {
            return;
        };
        if self.since_ns.is_none_or(|since_ns| first_ns <= since_ns) {
            return;
        }
        let born_ns = table.born_ns(source_ns);
        if topic == "/c" {
            assert_eq!(born_ns, None, "an item of another timer has lineage");
            self.items[2] += 1;
            return;
        }
        let Some(born_ns) = born_ns else {
            self.unknown += 1;
            return;
        };
        // The call's record and the item's lineage come from the same hit, so they are less than
        // half a period apart.
        let apart_ns = born_ns.abs_diff(first_ns);
        assert!(
            apart_ns < 10_000_000,
            "{topic}: {apart_ns} ns from the begin of its execution"
        );
        let of_a = self.taken.filter(|_| topic == "/b");
        // Another item may have taken the entry of the item on /a.
        if let Some(of_a) = of_a.and_then(|of_a| table.born_ns(of_a)) {
            assert_eq!(born_ns, of_a, "/b: the lineage is not its input's");
        }
        self.items[usize::from(topic == "/b")] += 1;
    }

    fn publishes_joined(&mut self, source_ns: i64) {
        let Some(table) = &self.table else { return };
        if let Some((born_ns, was_stored)) = self.joined.publishes() {
            let found = table.born_ns(source_ns);
            if found.is_none() && born_ns.is_some() {
                self.unknown += 1;
                return;
            }
            assert_eq!(found, born_ns, "/d: the lineage is not its input's");
            self.items[3] += usize::from(was_stored);
        }
    }
}

impl Observer for Witness {
    fn events(&mut self, events: &[Event], control: &Control<'_>) {
        self.lineage = control.lineage();
        for event in events {
            match &event.kind {
                EventKind::PublisherInit { rmw, topic, .. }
                | EventKind::SubscriptionInit { rmw, topic, .. } => {
                    self.topics.insert(*rmw, topic.to_string());
                    let is_taken = matches!(event.kind, EventKind::SubscriptionInit { .. });
                    if is_taken && &**topic == "/b" {
                        self.subscription_b = Some(*rmw);
                    }
                }
                EventKind::TimerCall { timer } => self.call = Some((*timer, event.time_ns)),
                EventKind::Take {
                    rmw,
                    source_ns,
                    taken: true,
                    ..
                } => match self.topics.get(rmw).map(String::as_str) {
                    Some("/a") => self.taken = Some(*source_ns),
                    Some(topic @ ("/b" | "/c")) if Some(event.time_ns) > self.since_ns => {
                        let born_ns = self.table.as_ref().and_then(|t| t.born_ns(*source_ns));
                        self.joined.takes(topic, born_ns);
                    }
                    _ => {}
                },
                EventKind::Publish {
                    rmw,
                    source_ns: Some(source_ns),
                    ..
                } => {
                    let topic = self.topics.get(rmw).cloned().unwrap_or_default();
                    if ["/a", "/b", "/c", "/d"].contains(&topic.as_str()) {
                        self.publishes(event, &topic, *source_ns);
                    }
                }
                _ => {}
            }
        }
    }
}

pub fn run(args: &[String]) {
    let mut witness = Witness::default();
    let mut options = RecordOptions {
        target: Target::new(args[1..].to_vec(), true, Vec::new()),
        lineage: true,
        ..RecordOptions::default()
    };
    options.files.output = args[0].clone().into();
    let summary = record_observed(&options, &mut witness).expect("it records");
    assert_eq!(summary.command_status, Some(0));
    let [a, b, c, joined] = witness.items;
    println!("{a} {b} {c} {joined} {}", witness.unknown);
}

fn the_lineage_of_an_item_is_the_start_of_its_execution(harness: &Harness) {
    let path = harness.dir.path().join("lineage");
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .arg("lineage")
        .arg(Path::new(&path))
        .args(harness.script(CHAIN, &[&ITEMS.to_string()]))
        .output()
        .expect("the recorder starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let items: Vec<usize> = text
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    assert_eq!(items.len(), 5, "{text}");
    let unknown = items[4];
    assert!(unknown <= ITEMS / 6, "{unknown} of {items:?}");
    // Some of the first items are published before the test has named the timer. Each group of four
    // rounds has one item on /d whose execution's input was stored.
    let least = [ITEMS / 3, ITEMS / 3, ITEMS / 3, ITEMS / 12];
    let enough = items.iter().zip(least).all(|(&n, least)| n >= least);
    assert!(enough, "/a, /b, /c, stored for /d: {items:?}");
}
