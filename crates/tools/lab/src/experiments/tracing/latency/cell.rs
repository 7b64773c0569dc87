//! Measures one cell: two nodes exchange messages while a recorder is attached and detached in
//! turns.
//!
//! LTTng cannot be detached from a running process, so its pairs are started anew each time.

use super::nodes::{read_samples, Nodes, RecordedEvents, Sample, REAL_TIME_PRIORITY};
use super::pair::{self, Tracer};
use super::{Cell, Policy, Segment, Setting, LTTNG, OFF, ONBEAT, STARTED};
use crate::frame::children::{self, Guarded};
use crate::frame::{Context, LabError, Result};
use crate::measure::recorder::Recorder;
use crate::measure::ros;
use std::process::{Command, Stdio};
use std::time::Duration;

fn side(
    context: &Context,
    nodes: &Nodes<'_>,
    policy: Policy,
    arguments: &[String],
) -> Result<Guarded> {
    let mut command = Command::new(nodes.program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    ros::enter(&mut command, nodes.env);
    if policy == Policy::RealTime {
        children::real_time(&mut command, REAL_TIME_PRIORITY);
    }
    context.spawn(&mut command)
}

pub fn measure(
    context: &Context,
    nodes: &Nodes<'_>,
    setting: Setting,
    rounds: usize,
    segment: Duration,
) -> Result<Cell> {
    let file = context.dir().join("latency.samples");
    let _ = std::fs::remove_file(&file);
    let (rate, bytes) = (setting.rate_hz.to_string(), setting.kib * 1024);
    let policy = setting.policy;
    let to_file = ["sub".into(), file.display().to_string()];
    let mut subscriber = side(context, nodes, policy, &to_file)?;
    let mut publisher = side(
        context,
        nodes,
        policy,
        &["pub".into(), rate, bytes.to_string()],
    )?;
    pair::wait_ready(&mut publisher, 1)?;
    pair::wait_ready(&mut subscriber, 1)?;
    std::thread::sleep(Duration::from_millis(500));

    let (mut segments, mut fresh) = (vec![], vec![]);
    let mut recorded = RecordedEvents::default();
    let arms: &[usize] = match nodes.lttng {
        Some(_) => &[OFF, ONBEAT, STARTED, LTTNG],
        None => &[OFF, ONBEAT],
    };
    let mut turns = context.turns(&setting.id(), arms.len(), rounds);
    for (round, turn) in turns.by_ref() {
        let arm = arms[turn];
        if arm >= STARTED {
            let way = match (arm, &nodes.lttng) {
                (LTTNG, Some(lttng)) => Tracer::Lttng(lttng),
                _ => Tracer::None,
            };
            let (mine, from_ns, to_ns) = pair::measure(context, nodes, setting, segment, way)?;
            fresh.push((
                mine,
                Segment {
                    round,
                    arm,
                    from_ns,
                    to_ns,
                },
            ));
            continue;
        }
        let pids = [publisher.pid(), subscriber.pid()];
        let (from_ns, to_ns) = one_segment(context, arm, &pids, segment, &mut recorded)?;
        segments.push(Segment {
            round,
            arm,
            from_ns,
            to_ns,
        });
        expect_running(&mut publisher, "publisher")?;
        expect_running(&mut subscriber, "subscriber")?;
    }
    publisher
        .end(libc::SIGTERM)
        .map_err(|e| LabError::program("the publisher", e))?;
    // Messages that are on their way still arrive.
    std::thread::sleep(Duration::from_millis(300));
    subscriber
        .end(libc::SIGTERM)
        .map_err(|e| LabError::program("the subscriber", e))?;
    let samples = read_samples(&file)?;
    let _ = std::fs::remove_file(&file);
    if recorded.hits == 0 {
        return Err(LabError::unexpected(
            "the recording of the two nodes",
            "no probe in the two nodes was hit",
        ));
    }
    let kept = turns.finish();
    let mut cell = Cell::new(setting, rounds);
    for segment in &segments {
        cell.add(&samples, segment);
    }
    for (samples, segment) in fresh {
        cell.add(&samples, &segment);
    }
    cell.keep(kept);
    Ok(Cell {
        lost_events: recorded.lost,
        ..cell
    })
}

/// Records for the time `segment`. For the arm [`OFF`], only waits for that time. Returns the begin
/// and the end of the measured time in ns of CLOCK_MONOTONIC.
fn one_segment(
    context: &Context,
    arm: usize,
    pids: &[u32],
    segment: Duration,
    recorded: &mut RecordedEvents,
) -> Result<(i64, i64)> {
    let trace = context.dir().join("latency.trace");
    let recorder = match arm {
        OFF => None,
        _ => Some(Recorder::attach(context, &trace, pids, &[])?),
    };
    // Starting and stopping a recorder disturbs the nodes, but is not a cost of recording.
    std::thread::sleep(Duration::from_millis(300));
    let span_ns = pair::wait(segment);
    if let Some(recorder) = recorder {
        recorded.add(&recorder.stop()?.manifest);
        let _ = std::fs::remove_dir_all(&trace);
    }
    Ok(span_ns)
}

fn expect_running(child: &mut Guarded, name: &str) -> Result<()> {
    if child.running() {
        return Ok(());
    }
    Err(LabError::program(
        name,
        format!(
            "the program ended during the measurement{}",
            child.last_error()
        ),
    ))
}

impl Cell {
    pub(super) fn add(&mut self, samples: &[Sample], segment: &Segment) {
        let &Segment { round, arm, .. } = segment;
        let mine: Vec<&Sample> = samples
            .iter()
            .filter(|s| segment.has(s.intended_ns))
            .collect();
        let us = |ns: i64| ns as f64 / 1000.0;
        let message = mine.iter().map(|s| us(s.received_ns - s.sent_ns));
        self.message.extend(round, arm, message);
        let release = mine.iter().map(|s| us(s.received_ns - s.intended_ns));
        self.release.extend(round, arm, release);
        if let (Some(first), Some(last)) = (mine.first(), mine.last()) {
            self.sent[arm] += last.sequence - first.sequence + 1;
            self.arrived[arm] += mine.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_for_the_arm_that_was_active_when_it_was_due() {
        let sample = |sequence: u64, intended_ns: i64, late: i64| Sample {
            sequence,
            intended_ns,
            sent_ns: intended_ns + 1_000,
            received_ns: intended_ns + late,
        };
        // Message 2 is lost; message 4 was due before the second segment.
        let samples = [
            sample(0, 100, 6_000),
            sample(1, 200, 7_000),
            sample(3, 299, 8_000),
            sample(4, 300, 1),
            sample(5, 500, 9_000),
        ];
        let segment = |arm, from_ns, to_ns| Segment {
            round: 0,
            arm,
            from_ns,
            to_ns,
        };
        let setting = Setting {
            policy: Policy::Normal,
            rate_hz: 100,
            kib: 1,
        };
        let mut cell = Cell::new(setting, 1);
        cell.add(&samples, &segment(0, 100, 300));
        cell.add(&samples, &segment(1, 400, 600));
        assert_eq!(cell.release.pooled(0).values(), [6.0, 7.0, 8.0]);
        assert_eq!(cell.message.pooled(0).values(), [5.0, 6.0, 7.0]);
        assert_eq!(cell.release.pooled(1).values(), [9.0]);
        assert_eq!(
            (cell.sent, cell.arrived),
            ([4, 1, 0, 0, 0, 0, 0], [3, 1, 0, 0, 0, 0, 0])
        );
    }
}
