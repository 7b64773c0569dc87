//! Lineage, by real probes in a real program: when the execution began that an item belongs to.

use super::{Harness, Test};
use onbeat_record::{record_observed, Control, Lineage, Observer, RecordOptions, Root, Target};
use onbeat_trace::{Event, EventKind};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

pub const TESTS: &[Test] = tests![an_item_brings_the_begin_of_its_execution];

/// A timer publishes /a; what takes it publishes /b while the timer's next call is due; another timer
/// publishes /c, which is of no chain.
const CHAIN: &str = "
import sys, time, rclpy
from rclpy.node import Node
from std_msgs.msg import UInt64
rclpy.init()
first, second, third = Node('first'), Node('second'), Node('third')
a = first.create_publisher(UInt64, 'a', 10)
b = second.create_publisher(UInt64, 'b', 10)
c = third.create_publisher(UInt64, 'c', 10)
done = []
def take(item):
    time.sleep(0.01)
    b.publish(item)
    done.append(item)
second.create_subscription(UInt64, 'a', take, 10)
first.create_timer(0.1, lambda: a.publish(UInt64(data=len(done))))
third.create_timer(0.07, lambda: c.publish(UInt64(data=len(done))))
executor = rclpy.executors.SingleThreadedExecutor()
for node in (first, second, third):
    executor.add_node(node)
while len(done) < int(sys.argv[1]):
    executor.spin_once(timeout_sec=0.2)
print('published', len(done), flush=True)
";

/// Items on /b that the program publishes.
const ITEMS: usize = 30;

/// The table of lineage, mapped as a shaper does.
struct Table(*const u64);

impl Table {
    fn of(fd: BorrowedFd<'_>) -> Table {
        let bytes = Lineage::LAYOUT[0] as usize * 32;
        // SAFETY: a new mapping at an address of the kernel's choice; it stays until this process ends.
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

    /// When the execution began that published the item with this source time stamp.
    fn born_ns(&self, source_ns: i64) -> Option<u64> {
        let [_, shift, factor, check] = Lineage::LAYOUT;
        let place = (source_ns as u64).wrapping_mul(factor) >> shift;
        // SAFETY: the shift leaves a place of the table, of four words.
        let word = |n: usize| unsafe { self.0.add(place as usize * 4 + n).read_volatile() };
        let (source, born_ns) = (word(0), word(1));
        let is_its = source == source_ns as u64 && source ^ born_ns ^ check == word(2);
        (is_its && born_ns != 0).then_some(born_ns)
    }
}

/// What is seen of the program, and its items' lineage.
#[derive(Default)]
struct Witness {
    lineage: Option<Arc<Lineage>>,
    table: Option<Table>,
    topics: HashMap<u64, String>,
    /// The last call of a timer, and when it was.
    call: Option<(u64, u64)>,
    /// When /a's timer became the root.
    since_ns: Option<u64>,
    /// By source time stamp of an item on /a: its timer's call.
    called_ns: HashMap<i64, u64>,
    /// Source time stamp of the item on /a that was taken last.
    taken: Option<i64>,
    /// Items on /a, /b, /c that were published since there was a root.
    items: [usize; 3],
}

impl Witness {
    fn publishes(&mut self, event: &Event, topic: &str, source_ns: i64) {
        let lineage = self.lineage.clone().expect("this kernel tells lineage");
        let (timer, call_ns) = self.call.expect("timers run from the beginning on");
        if topic == "/a" && self.since_ns.is_none() {
            lineage
                .add_root(event.pid, Root::Timer(timer))
                .expect("room");
            self.table = Some(Table::of(lineage.table()));
            // Of this instant: what began before has no lineage.
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
            assert_eq!(born_ns, None, "an item of another timer");
            self.items[2] += 1;
            return;
        }
        let born_ns = born_ns.unwrap_or_else(|| panic!("an item on {topic} has no lineage"));
        // The call's own record and its lineage are of one hit: less than half a period apart.
        let apart_ns = born_ns.abs_diff(first_ns);
        assert!(
            apart_ns < 35_000_000,
            "{topic}: {apart_ns} ns from its execution's begin"
        );
        if let Some(of_a) = self.taken.filter(|_| topic == "/b") {
            assert_eq!(Some(born_ns), table.born_ns(of_a), "/b: not its input's");
        }
        self.items[usize::from(topic == "/b")] += 1;
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
                }
                EventKind::TimerCall { timer } => self.call = Some((*timer, event.time_ns)),
                EventKind::Take {
                    rmw,
                    source_ns,
                    taken: true,
                    ..
                } if self.topics.get(rmw).is_some_and(|t| t == "/a") => {
                    self.taken = Some(*source_ns);
                }
                EventKind::Publish {
                    rmw,
                    source_ns: Some(source_ns),
                    ..
                } => {
                    let topic = self.topics.get(rmw).cloned().unwrap_or_default();
                    if ["/a", "/b", "/c"].contains(&topic.as_str()) {
                        self.publishes(event, &topic, *source_ns);
                    }
                }
                _ => {}
            }
        }
    }
}

/// This program as a recorder that looks at lineage: `lineage OUTPUT COMMAND...`.
pub fn run(args: &[String]) {
    let mut witness = Witness::default();
    let options = RecordOptions {
        output: args[0].clone().into(),
        target: Target::new(args[1..].to_vec(), true, Vec::new()),
        lineage: true,
        ..RecordOptions::default()
    };
    let summary = record_observed(&options, &mut witness).expect("it records");
    assert_eq!(summary.command_status, Some(0));
    println!(
        "{} {} {}",
        witness.items[0], witness.items[1], witness.items[2]
    );
}

fn an_item_brings_the_begin_of_its_execution(harness: &Harness) {
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
    assert_eq!(items.len(), 3, "{text}");
    // Some of the first are published before the recorder has named the timer.
    assert!(
        items.iter().all(|&n| n >= ITEMS / 3),
        "/a, /b, /c: {items:?}"
    );
}
