//! Writes two pages of made-up executions, for tests in a browser: `many.html` has 10,000
//! executions with 64 stretches each, and `hostile.html` has names that try to be more than text.
//!
//! `cargo run -p onbeat-why --example pages -- DIRECTORY`

use onbeat_document::schema::{Component, ComponentKind};
use onbeat_why::page::Page;
use onbeat_why::{Bin, Comparison, Culprit, During, Execution, Explanation, Finding};
use onbeat_why::{Kind, Overview, Stretch};
use std::path::Path;

const MS: u64 = 1_000_000;

const PERIOD_NS: u64 = 50 * MS;

const LIMIT_NS: u64 = 80 * MS;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn component(name: &str) -> Component {
    Component {
        kind: ComponentKind::Thread,
        nodes: Vec::new(),
        process: name.into(),
        thread: name.into(),
    }
}

fn thread(name: &str) -> Culprit {
    Culprit::Thread(component(name))
}

/// Makes an execution along the callbacks. Each callback waits for its executor, and is then
/// preempted or waits for mutexes. Every hundredth execution contains a long preemption.
fn execution(number: u64, callbacks: &[String], culprit: &str, random: &mut Random) -> Execution {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut at = 0;
    for (n, place) in callbacks.iter().enumerate() {
        for i in 0..64 / callbacks.len() as u64 {
            let is_planted = number % 100 == 37 && n == 2 && i == 3;
            let (kind, by, during) = match i % 6 {
                _ if is_planted => (Kind::Preempted, Some(thread(culprit)), None),
                0 => (Kind::Transport, None, None),
                1 => (
                    Kind::Executor,
                    Some(Culprit::Callback(format!("{culprit}:timer"))),
                    None,
                ),
                3 => (Kind::Preempted, Some(thread("kworker")), None),
                5 => {
                    let queued = During {
                        kind: Kind::Queued,
                        by: Some(thread("camera")),
                    };
                    (
                        Kind::Sleeps,
                        Some(Culprit::WokenBy(component(culprit))),
                        Some(queued),
                    )
                }
                _ => (Kind::Runs, None, None),
            };
            let ns = match is_planted {
                true => 40 * MS + random.below(10 * MS),
                false => MS / 4 + random.below(MS),
            };
            stretches.push(Stretch {
                begin_ns: at,
                ns,
                place: place.clone(),
                kind,
                by,
                during,
                reason: None,
                cpu: Some((number % 2) as u16),
            });
            at += ns;
        }
    }
    Execution {
        start_ns: number * PERIOD_NS,
        latency_ns: at,
        late: at > LIMIT_NS,
        stretches,
    }
}

fn page(
    count: u64,
    callbacks: &[String],
    culprit: &str,
    title: &str,
) -> Result<String, serde_json::Error> {
    let mut random = Random(7);
    let executions: Vec<Execution> = (0..count)
        .map(|i| execution(i, callbacks, culprit, &mut random))
        .collect();
    let late = executions.iter().filter(|e| e.late).count() as u64;
    let bin = |i: u64| Bin {
        start_ns: i * 20 * PERIOD_NS,
        count: 25,
        min_ns: 20 * MS,
        max_ns: 60 * MS,
    };
    let explanation = Explanation {
        limit_ns: LIMIT_NS,
        count: count + count / 4,
        longest_ns: executions.iter().map(|e| e.latency_ns).max().unwrap_or(0),
        left_out: count / 4,
        unknown_share: 0.0,
        nearest_ns: None,
        comparison: Some(Comparison {
            late,
            others: count + count / 4 - late,
            late_mean_ns: 90e6,
            others_mean_ns: 45e6,
            findings: vec![Finding {
                kind: Kind::Preempted,
                place: callbacks[2].clone(),
                by: Some(thread(culprit)),
                reason: None,
                explained_ns: 44e6,
                present_ns: 22e6,
                late_with: late,
                others_with: 0,
                chance: 0.0,
                during: Vec::new(),
            }],
            together: Vec::new(),
        }),
        overview: Overview {
            width_ns: 20 * PERIOD_NS,
            bins: (0..count / 20).map(bin).collect(),
        },
        executions,
    };
    let page = Page {
        title,
        id: Some("chain-0123456789ab"),
        callbacks,
        notes: &["These executions are made up.".into()],
        start_monotonic_ns: 0,
        start_realtime_ns: 1_795_000_000_000_000_000,
        at_ns: None,
        explanation: &explanation,
    };
    page.html(&|at| format!("{:.3} s", at as f64 / 1e9))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory")?;
    let directory = Path::new(&directory);
    let nodes = [
        "lidar:timer(50ms)",
        "filter:subscription(/points)",
        "fusion:subscription(/filtered)",
    ];
    let more = ["planner:subscription(/objects)"];
    let callbacks: Vec<String> = nodes.iter().chain(&more).map(|n| format!("/{n}")).collect();
    let many = page(10_000, &callbacks, "neighbour", "lidar -> planner")?;
    std::fs::write(directory.join("many.html"), many)?;
    let attack = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">";
    let long = "/very_long".repeat(1_000);
    let hostile = [
        attack,
        &long,
        "/\u{202e}turned\u{1b}[31m\n\u{2028}\u{0}",
        "__proto__",
        "\\u003cb>",
    ];
    let hostile: Vec<String> = hostile.iter().map(|n| n.to_string()).collect();
    let page = page(60, &hostile, attack, attack)?;
    std::fs::write(directory.join("hostile.html"), page)?;
    Ok(())
}
