//! Two sensors, a fusion that waits for both, and an output that leaves in its slot.
use onbeat_flow::chain::{Chain, TaskOptions, TaskResult};
use onbeat_flow::{activation::Schedule, clock::now_ns, Medium, Options, Policy, Typed, Waker};
use std::{collections::VecDeque, error::Error, thread, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let medium = onbeat_flow::InProcess::new();
    let credit = Options::of::<f32>(Policy::Credit { credits: 4 });
    let front = Typed::<f32>::over(medium.channel("front", credit)?)?;
    let rear = Typed::<f32>::over(medium.channel("rear", credit)?)?;
    let part = std::env::args().nth(1).unwrap_or("both".into());
    let mut sensing = None;
    if part != "fuse" {
        let mut sensors = [front.producer()?, rear.producer()?];
        sensing = Some(thread::spawn(move || {
            for step in 0..50 {
                sensors[0].send(&(step as f32)).unwrap();
                sensors[1].send(&(step as f32 / 100.0)).unwrap();
                thread::sleep(Duration::from_millis(10));
            }
        }));
    }
    if part != "sense" {
        let (waker, origin_ns, ms) = (Waker::new(), now_ns(), 1_000_000);
        let (front, rear) = (front.consumer_on(&waker)?, rear.consumer_on(&waker)?);
        let mut chain = Chain::new((front, rear, VecDeque::new())); // what the tasks share
        let fuse = chain.task("fuse", TaskOptions::each(2), |(front, rear, sums)| {
            sums.extend(front.take().zip(rear.take()).map(|(a, b)| a + b));
            TaskResult::Output
        })?;
        let slot = Schedule::slots(10 * ms, origin_ns, [(8 * ms, 9 * ms)]);
        let output = chain.task("output", TaskOptions::each(1).within(slot), move |s| {
            println!("{:?} at {}", s.2.pop_front(), now_ns() - origin_ns);
            TaskResult::Nothing
        })?;
        chain.connect(fuse, output, 0)?;
        chain.feed_waiting(fuse, 0, |s| s.0.waiting())?;
        chain.feed_waiting(fuse, 1, |s| s.1.waiting())?;
        while chain.stats(output).executions < 50 {
            waker.wait(chain.wake_ns(now_ns()), || chain.step(now_ns()) > 0);
        }
    }
    sensing.map(|thread| thread.join());
    Ok(())
}
