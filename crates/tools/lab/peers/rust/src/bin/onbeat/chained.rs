//! The cost of the hand-over from one task of a chain to the next.

use onbeat_flow::activation::{Input, Schedule};
use onbeat_flow::chain::{Chain, TaskOptions, TaskResult};
use onbeat_peers::protocol::await_start;
use onbeat_peers::transport::{arrived, fill, finish, room, Peer, Run, Sample};
use onbeat_peers::{now_ns, or_die, sleep_until, used};
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

const TASKS: usize = 10;
const STEPS: usize = 100;

fn at_each_step() -> TaskOptions {
    TaskOptions {
        schedule: Some(Schedule::Period {
            period_ns: 1,
            offset_ns: 0,
        }),
        ..TaskOptions::default()
    }
}

fn behind() -> TaskOptions {
    TaskOptions {
        inputs: vec![Input::EACH],
        ..TaskOptions::default()
    }
}

pub struct Message {
    payload: Vec<u8>,
    next: Sample,
    came: Option<Sample>,
}

#[derive(Default)]
pub struct Chained {
    came: Mutex<Option<Sample>>,
}

impl Peer for Chained {
    type Writer = (Chain<Message>, u64);
    type Reader = ();

    fn writer(&self, _topic: &str, bytes: usize) -> Self::Writer {
        let mut chain = Chain::new(Message {
            payload: vec![0; bytes],
            next: Sample::default(),
            came: None,
        });
        let send = chain.task("send", at_each_step(), |m: &mut Message| {
            m.next.sent_ns = now_ns();
            fill(&mut m.payload, &m.next);
            TaskResult::Output
        });
        let send = or_die(send, "the chain");
        let receive = chain.task("receive", behind(), |m: &mut Message| {
            m.came = Some(arrived(&m.payload));
            TaskResult::Nothing
        });
        let receive = or_die(receive, "the chain");
        or_die(chain.connect(send, receive, 0), "the chain");
        (chain, 0)
    }

    fn reader(&self, _topic: &str, _bytes: usize) {}

    fn matched(&self, _writer: &Self::Writer, _readers: usize) -> bool {
        true
    }

    fn send(&self, (chain, step): &mut Self::Writer, sample: &Sample, _bytes: usize) {
        chain.state_mut().next = *sample;
        chain.step(*step);
        *step += 1;
        *self.came.lock().unwrap_or_else(PoisonError::into_inner) = chain.state_mut().came.take();
    }

    fn receive(&self, _reader: &mut (), _deadline_ns: Option<i64>) -> Option<Sample> {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.take()
    }
}

fn work(value: &mut u64) {
    *value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).rotate_left(7));
}

/// Runs the work of a thousand tasks as a plain loop and as a chain of tasks, and writes both
/// durations in ns: the loop's in the column `intended`, the chain's in the column `received`.
/// Repeats this as often as the run has messages.
pub fn hand_over() {
    let mut chain = Chain::new(1u64);
    let mut before = None;
    for i in 0..TASKS {
        let options = if i == 0 { at_each_step() } else { behind() };
        let task = chain.task(&i.to_string(), options, |value: &mut u64| {
            work(value);
            TaskResult::Output
        });
        let task = or_die(task, "the chain");
        if let Some(before) = before.replace(task) {
            or_die(chain.connect(before, task, 0), "the chain");
        }
    }
    let mut step = 0;
    while let Some(run) = Run::next() {
        let mut samples = room(run.count);
        sleep_until(await_start());
        let began = used();
        for sequence in 0..run.count as i64 {
            let begin = now_ns();
            for _ in 0..STEPS {
                for _ in 0..TASKS {
                    work(chain.state_mut());
                }
            }
            let middle = now_ns();
            for _ in 0..STEPS {
                chain.step(step);
                step += 1;
            }
            let end = now_ns();
            samples.push(Sample {
                sequence,
                intended_ns: middle - begin,
                sent_ns: 0,
                received_ns: end - middle,
            });
        }
        finish(&run, samples.len(), &began, &samples);
    }
}
