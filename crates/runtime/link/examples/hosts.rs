//! Two sensors on one host, and a fusion of their items on another, as tasks. Run `hosts sense PLACE`
//! and `hosts fuse PLACE` with the same place: shm://car between processes, or between machines
//! tcp://10.0.0.2:7400?key=link.key or verbs://10.0.0.2:7400?key=link.key.
use onbeat_flow::chain::{Chain, TaskOptions, TaskResult};
use onbeat_flow::{clock::now_ns, Medium, OnDeath, Options, Policy, Typed, Waker};
use onbeat_link::Links;
use std::{error::Error, time::Duration};

const STEPS: u64 = 50;

fn options() -> Options {
    let credit = Options::of::<f32>(Policy::Credit { credits: 4 });
    let on_death = OnDeath::Fail;
    Options { on_death, ..credit }
}

fn sense(links: &Links) -> Result<(), Box<dyn Error>> {
    let front = Typed::<f32>::over(links.channel("front", options())?)?;
    let rear = Typed::<f32>::over(links.channel("rear", options())?)?;
    let mut chain = Chain::new((0, front.producer()?, rear.producer()?));
    let period = TaskOptions::every(10_000_000, now_ns() % 10_000_000);
    let sense = chain.task("sense", period, |(step, front, rear)| {
        let sent = front
            .send(&(*step as f32))
            .and_then(|()| rear.send(&(*step as f32 / 100.0)));
        sent.expect("the fusion is there"); // a value: a link that broke says so
        *step += 1;
        TaskResult::Nothing
    })?;
    while chain.stats(sense).executions < STEPS {
        chain.step(now_ns());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn fuse(links: &Links) -> Result<(), Box<dyn Error>> {
    let waker = Waker::new(); // an item at either channel wakes this thread
    let front = Typed::<f32>::over(links.channel("front", options())?)?.consumer_on(&waker)?;
    let rear = Typed::<f32>::over(links.channel("rear", options())?)?.consumer_on(&waker)?;
    let mut chain = Chain::new((front, rear));
    let fuse = chain.task("fuse", TaskOptions::each(2), |(front, rear)| {
        let sum = front.take().zip(rear.take()).map(|(a, b)| a + b);
        println!("{sum:?}");
        TaskResult::Nothing
    })?;
    chain.feed_waiting(fuse, 0, |(front, _)| front.waiting())?;
    chain.feed_waiting(fuse, 1, |(_, rear)| rear.waiting())?;
    while chain.stats(fuse).executions < STEPS {
        let came = waker.wait(Some(now_ns() + 100_000_000), || chain.step(now_ns()) > 0);
        let sensor = chain.state().0.bytes(); // both are on one host
        if !came && (sensor.is_severed() || sensor.is_orphaned()) {
            return Err("the sensors' host is gone".into());
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "sense", place] => sense(&Links::sending(place)?),
        [_, "fuse", place] => fuse(&Links::receiving(place)?),
        _ => Err("usage: hosts sense PLACE, or hosts fuse PLACE".into()),
    }
}
