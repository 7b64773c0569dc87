//! The perception pipeline of 50 publishers and 100 subscriptions in three variants.
//!
//! Its graph is that of `../../../../pipeline.h`.
//!
//! - *callbacks*: one thread per node, which every message of every input wakes
//! - *inputs*: one thread per node, which the triggering input wakes; the thread then reads the
//!   other inputs
//! - *chain*: one thread, with all nodes as tasks of a chain
//!
//! Samples hold the due time of an iteration (intended) and the end of its last node (received).

use onbeat_flow::activation::{Input, Schedule};
use onbeat_flow::chain::{Chain, TaskOptions, TaskResult};
use onbeat_flow::{Channel, Consumer, Options as ChannelOptions, Policy, Producer, Waker};
use onbeat_peers::protocol::await_start;
use onbeat_peers::transport::{arrived, fill, finish, room, Run, Sample, WARM_UP};
use onbeat_peers::{die, now_ns, or_die, sleep_until, used, Usage};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

const NODES: usize = 50;

fn sources(node: usize) -> Vec<usize> {
    match node {
        0 => vec![],
        n if n == NODES - 1 => vec![n - 1, (n - 1) / 2, 10, 20],
        n => vec![n - 1, (n - 1) / 2],
    }
}

fn bytes(node: usize) -> usize {
    [64, 1024, 16384, 64, 1024, 64, 16384, 1024, 64, 262_144][node % 10]
}

fn readers(source: usize) -> usize {
    (0..NODES)
        .flat_map(sources)
        .filter(|s| *s == source)
        .count()
}

/// Returns the node that starts as number `i`. The order is the same in every run, but differs from
/// the order of the chain. The order matters, because a message wakes the subscriber that started
/// first before the others.
fn starting_as(i: usize) -> usize {
    1 + i * 17 % (NODES - 1)
}

pub fn serve(variant: &str) {
    while let Some(run) = Run::next() {
        let (samples, began) = match variant {
            "callbacks" => threads(&run, true),
            "inputs" => threads(&run, false),
            "chain" => chain(&run),
            other => die(format!("the pipeline has no variant '{other}'")),
        };
        finish(&run, run.count, &began, &samples);
    }
}

struct Node {
    producer: Producer,
    bytes: usize,
    inputs: Vec<Consumer>,
    seen: Vec<Sample>,
    last: i64,
    stop: Arc<AtomicBool>,
    ended: Vec<Sample>,
}

impl Node {
    fn take(&mut self, input: usize) -> u32 {
        match self.inputs[input].receive().map(|item| arrived(&item)) {
            None => 0,
            Some(sample) => {
                self.seen[input] = sample;
                1
            }
        }
    }

    fn read_latest(&mut self, input: usize) {
        if let Some(item) = self.inputs[input].newest() {
            self.seen[input] = arrived(&item);
        }
    }

    fn publish(&mut self, sample: Sample) {
        let mut loan = or_die(self.producer.loan(self.bytes), "a loan");
        fill(&mut loan, &sample);
        or_die(loan.send(), "sending");
        if sample.sequence >= 0 && self.ended.len() < self.ended.capacity() {
            self.ended.push(Sample {
                received_ns: now_ns(),
                ..sample
            });
        }
        if sample.sequence == self.last {
            self.stop.store(true, Ordering::Release);
        }
    }
}

fn each() -> TaskOptions {
    TaskOptions {
        inputs: vec![Input::EACH],
        ..TaskOptions::default()
    }
}

fn tasks(node: Node, callbacks: bool) -> Chain<Node> {
    let inputs = node.inputs.len();
    let mut chain = Chain::new(node);
    let run = |n: &mut Node| {
        n.publish(n.seen[0]);
        TaskResult::Nothing
    };
    if callbacks {
        // Messages of inputs that do not trigger are stored by a callback of their own.
        for input in 1..inputs {
            let task = chain.task("keep", each(), |_: &mut Node| TaskResult::Nothing);
            let task = or_die(task, "the node");
            let fed = chain.feed(task, 0, move |n: &mut Node| n.take(input));
            or_die(fed, "the node");
        }
        let task = or_die(chain.task("run", each(), run), "the node");
        or_die(chain.feed(task, 0, |n: &mut Node| n.take(0)), "the node");
    } else {
        let options = TaskOptions {
            inputs: std::iter::once(Input::EACH)
                .chain((1..inputs).map(|_| Input::NON_TRIGGERING))
                .collect(),
            ..TaskOptions::default()
        };
        let task = chain.task("run", options, move |n: &mut Node| {
            (1..inputs).for_each(|input| n.read_latest(input));
            run(n)
        });
        let task = or_die(task, "the node");
        or_die(chain.feed(task, 0, |n: &mut Node| n.take(0)), "the node");
    }
    chain
}

fn threads(run: &Run, callbacks: bool) -> (Vec<Sample>, Usage) {
    let channels: Vec<Channel> = (0..NODES)
        .map(|node| {
            let options = ChannelOptions {
                consumers: readers(node).max(1),
                expected: readers(node),
                ..ChannelOptions::new(Policy::Latest, bytes(node))
            };
            or_die(Channel::new(options), "the channel")
        })
        .collect();
    let last = run.count as i64 - 1;
    let make = |number: usize, waker: &Waker| Node {
        producer: or_die(channels[number].producer(), "the producer"),
        bytes: bytes(number),
        inputs: sources(number)
            .into_iter()
            .enumerate()
            .map(|(input, source)| {
                let channel = &channels[source];
                let wakes = callbacks || input == 0;
                let made = if wakes {
                    channel.consumer_on(waker)
                } else {
                    channel.consumer()
                };
                or_die(made, "the consumer")
            })
            .collect(),
        seen: vec![Sample::default(); sources(number).len()],
        last,
        stop: Arc::default(),
        ended: room(if number == NODES - 1 { run.count } else { 0 }),
    };
    let handles: Vec<_> = (1..NODES)
        .map(|i| {
            let number = starting_as(i);
            let waker = Waker::new();
            let node = make(number, &waker);
            std::thread::spawn(move || {
                let stop = Arc::clone(&node.stop);
                let mut chain = tasks(node, callbacks);
                chain.run(&waker, &stop);
                std::mem::take(&mut chain.state_mut().ended)
            })
        })
        .collect();
    let mut source = make(0, &Waker::new());
    let mut began = used();
    let mut intended_ns = await_start();
    for sequence in -WARM_UP..=last {
        if sequence == 0 {
            began = used();
        }
        sleep_until(intended_ns);
        source.publish(Sample {
            sequence,
            intended_ns,
            sent_ns: intended_ns,
            received_ns: 0,
        });
        intended_ns += run.period_ns();
    }
    let mut samples = vec![];
    for handle in handles {
        samples.extend(or_die(handle.join(), "a node's thread"));
    }
    (samples, began)
}

struct Car {
    messages: Vec<Vec<u8>>,
    sequence: i64,
    began: Usage,
    ended: Vec<Sample>,
}

fn chain(run: &Run) -> (Vec<Sample>, Usage) {
    let mut chain = Chain::new(Car {
        messages: (0..NODES).map(|node| vec![0; bytes(node)]).collect(),
        sequence: -WARM_UP,
        began: used(),
        ended: room(run.count),
    });
    let (last, period) = (run.count as i64 - 1, run.period_ns());
    let first_ns = await_start();
    let (waker, stop) = (Waker::new(), Arc::new(AtomicBool::new(false)));
    let released = TaskOptions {
        schedule: Some(Schedule::Period {
            period_ns: period as u64,
            offset_ns: first_ns as u64,
        }),
        ..TaskOptions::default()
    };
    let source = chain.task("0", released, move |car: &mut Car| {
        if car.sequence == 0 {
            car.began = used();
        }
        let intended_ns = first_ns + (car.sequence + WARM_UP) * period;
        let sample = Sample {
            sequence: car.sequence,
            intended_ns,
            sent_ns: intended_ns,
            received_ns: 0,
        };
        fill(&mut car.messages[0], &sample);
        car.sequence += 1;
        TaskResult::Output
    });
    let mut ids = vec![or_die(source, "the chain")];
    for node in 1..NODES {
        let from = sources(node);
        let options = TaskOptions {
            inputs: std::iter::once(Input::EACH)
                .chain(from.iter().skip(1).map(|_| Input::NON_TRIGGERING))
                .collect(),
            ..TaskOptions::default()
        };
        let (read, done) = (from.clone(), Arc::clone(&stop));
        let task = chain.task(&node.to_string(), options, move |car: &mut Car| {
            for source in read.iter().skip(1) {
                std::hint::black_box(arrived(&car.messages[*source]));
            }
            let sample = arrived(&car.messages[read[0]]);
            fill(&mut car.messages[node], &sample);
            if node == NODES - 1 {
                if sample.sequence >= 0 {
                    car.ended.push(Sample {
                        received_ns: now_ns(),
                        ..sample
                    });
                }
                if sample.sequence == last {
                    done.store(true, Ordering::Release);
                }
            }
            TaskResult::Output
        });
        let task = or_die(task, "the chain");
        for (input, source) in from.into_iter().enumerate() {
            or_die(chain.connect(ids[source], task, input), "the chain");
        }
        ids.push(task);
    }
    chain.run(&waker, &stop);
    let car = chain.state_mut();
    (std::mem::take(&mut car.ended), car.began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipeline_has_50_nodes_with_100_subscriptions_to_topics_of_earlier_nodes() {
        let all: Vec<(usize, usize)> = (0..NODES)
            .flat_map(|node| sources(node).into_iter().map(move |s| (node, s)))
            .collect();
        assert_eq!((NODES, all.len()), (50, 100));
        assert!(all.iter().all(|(node, source)| source < node));
        assert_eq!((0..NODES).map(readers).sum::<usize>(), 100);
        assert!((1..NODES).all(|node| sources(node)[0] == node - 1));
    }

    #[test]
    fn every_pipeline_node_starts_once() {
        let mut order: Vec<usize> = (1..NODES).map(starting_as).collect();
        assert_ne!(order, (1..NODES).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (1..NODES).collect::<Vec<_>>());
    }
}
