//! Tests promises on messages: each is broken once, with both policies, and counted. No test relies
//! on a fixed time: it waits until a message has become stale or late.

#[allow(dead_code, unused_imports, unused_macros)]
mod backends;
mod noisy;

use backends::{receive, send, watchdog, SIZES};
use noisy::{Harm, Noise, Noisy};
use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{
    Backend, Breach, End, Incoming, Memory, Outgoing, Refusal, SendError, SetupError, Sizes,
};
use onbeat_link::qos::OnBreach::{self, Fail, Warn};
use onbeat_link::qos::{QosIncoming, QosLink, QosOutgoing};
use onbeat_link::{Key, Qos, Shm, Tcp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(1000);
const SHORT: Duration = Duration::from_millis(2);

fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("qos-{}-{number}", std::process::id())
}

type Both = (
    (QosLink<Noisy<Shm>>, QosLink<Noisy<Shm>>),
    (QosOutgoing, QosIncoming),
    (QosOutgoing, QosIncoming),
);

fn connected(first: Qos, second: Qos, noise: Noise) -> Both {
    connected_through(first, second, [noise, Noise::default()])
}

fn connected_through(first: Qos, second: Qos, noise: [Noise; 2]) -> Both {
    let name = fresh_name();
    let [forth, back] = noise;
    let first = first.around(Noisy::new(Shm::listen(&name), forth));
    let second = second.around(Noisy::new(Shm::connect(&name), back));
    let (a, b) = thread::scope(|scope| {
        let b = scope.spawn(|| second.connect(SIZES, Memory::Allot, watchdog()).unwrap());
        let a = first.connect(SIZES, Memory::Allot, watchdog()).unwrap();
        (a, b.join().unwrap())
    });
    ((first, second), a, b)
}

fn wait_until(mut is_there: impl FnMut() -> bool) {
    let watchdog = watchdog().unwrap();
    while !is_there() {
        assert!(now_ns() < watchdog, "it never comes about");
        thread::sleep(Duration::from_millis(1));
    }
}

fn take(incoming: &mut QosIncoming) -> Result<Option<u64>, End> {
    let mut number = None;
    let any = incoming.receive(watchdog(), &mut |n, _| number = Some(n))?;
    assert_eq!(any, number.is_some());
    Ok(number)
}

#[test]
fn stale_messages_are_counted_and_refused_if_the_policy_is_to_fail() {
    for policy in [Warn, Fail] {
        let receiver = Qos::new().fresh_for(LONG, policy);
        let (links, (mut a, _x), (_y, mut b)) = connected(Qos::new(), receiver, Noise::default());
        let expires = now_ns() + 1_000_000;
        a.send_expiring(3, Some(expires), None, &mut |_| {})
            .unwrap();
        a.send(3, None, &mut |_| {}).unwrap();
        wait_until(|| now_ns() >= expires + links.1.counts().round_trip_ns.unwrap() * 2);
        let first = match policy {
            Warn => Ok(Some(0)),
            Fail => Err(End::Breach(Breach::Stale)),
        };
        // The time of the fastest message is unknown, and a clock may drift meanwhile.
        wait_until(|| now_ns() >= expires + 20_000_000);
        assert_eq!(take(&mut b), first, "{policy:?}");
        assert_eq!(take(&mut b), Ok(Some(1)), "the link stands");
        let received = links.1.counts().received;
        assert_eq!(
            (received.messages, received.stale, received.lost),
            (2, 1, 0)
        );
    }
}

#[test]
fn stale_messages_do_not_leave_if_the_policy_is_to_fail() {
    for policy in [Warn, Fail] {
        let sender = Qos::new().fresh_for(LONG, policy);
        let (links, (mut a, _x), (_y, mut b)) = connected(sender, Qos::new(), Noise::default());
        let before = a.send_expiring(3, Some(now_ns()), None, &mut |_| {});
        // The message becomes stale while it is written.
        let soon = now_ns() + 50_000_000;
        let meanwhile = a.send_expiring(3, Some(soon), None, &mut |_| {
            wait_until(|| now_ns() >= soon);
        });
        let stale = Err(SendError::Breach(Breach::Stale));
        let expected = match policy {
            Warn => (Ok(0), Ok(1)),
            Fail => (stale.clone(), stale),
        };
        assert_eq!((before, meanwhile), expected);
        let next = a.send(3, None, &mut |_| {}).unwrap();
        let last = loop {
            let number = take(&mut b).unwrap().unwrap();
            if number == next {
                break number;
            }
        };
        let sent = links.0.counts().sent;
        assert_eq!((sent.stale, sent.messages), (2, last + 1));
        assert_eq!(links.1.counts().received.messages, last + 1);
        assert_eq!(last, if policy == Warn { 2 } else { 0 });
    }
}

/// Passes data over two hops with the same clock. The computed expiry is never too early, and too
/// late by at most the two shortest round trips and the possible drift.
#[test]
fn the_age_of_data_after_several_hops_is_right_within_the_stated_error() {
    let qos = Qos::new().fresh_for(LONG, Warn);
    let (one, (mut a, _x), (_y, mut b)) = connected(qos, qos, Noise::default());
    let (two, (mut c, _z), (_w, mut d)) = connected(qos, qos, Noise::default());
    let begin = now_ns();
    for number in 0..20 {
        let true_end = now_ns() + 5_000_000_000;
        a.send_expiring(8, Some(true_end), None, &mut |_| {})
            .unwrap();
        // Each hop holds the data for a while.
        thread::sleep(Duration::from_millis(number % 3));
        assert_eq!(take(&mut b), Ok(Some(number)));
        c.send_expiring(8, b.expires_ns(), None, &mut |_| {})
            .unwrap();
        assert_eq!(take(&mut d), Ok(Some(number)));
        let believed = d.expires_ns().unwrap();
        let ways = [&one, &two].map(|links| links.1.counts().round_trip_ns.unwrap());
        let error: u64 = ways.iter().sum::<u64>() + (now_ns() - begin) / 250 + 100_000;
        assert!(believed >= true_end, "{} ns too early", true_end - believed);
        assert!(
            believed - true_end <= error,
            "{} of {error}",
            believed - true_end
        );
    }
}

#[test]
fn corrupt_messages_are_never_handed_over() {
    for policy in [Warn, Fail] {
        let qos = Qos::new().checked(policy);
        // The noise changes the content of the second message, and the head of the fourth.
        let noise = Noise::default();
        let noise = noise.harm(1, Harm::Flip(60), 1).harm(3, Harm::Flip(9), 1);
        let (links, (mut a, _x), (_y, mut b)) = connected(qos, qos, noise);
        let mut got = Vec::new();
        for number in 0..4 {
            send(&mut a, number, 100).unwrap();
        }
        let sending = thread::spawn(move || {
            send(&mut a, 4, 100).unwrap();
            a
        });
        while got.last() != Some(&Ok((4, 100))) {
            got.push(receive(&mut b));
        }
        let _a = sending.join().unwrap();
        let corrupt = Err(End::Breach(Breach::Corrupt));
        let all = [
            Ok((0, 100)),
            corrupt.clone(),
            Ok((2, 100)),
            corrupt,
            Ok((4, 100)),
        ];
        let expected: Vec<_> = match policy {
            Fail => all.to_vec(),
            Warn => all.into_iter().filter(Result::is_ok).collect(),
        };
        assert_eq!(got, expected);
        let received = links.1.counts().received;
        assert_eq!(
            (received.corrupt, received.lost, received.messages),
            (2, 2, 3)
        );
    }
}

#[test]
fn missed_deadlines_are_reported_at_both_ends() {
    let qos = |policy| {
        Qos::new()
            .send_every(SHORT, policy)
            .receive_every(SHORT, policy)
    };
    let (links, (mut a, _x), (_y, mut b)) = connected(qos(Fail), qos(Fail), Noise::default());
    let nothing = b.receive(watchdog(), &mut |_, _| panic!("nothing was sent"));
    assert_eq!(nothing, Err(End::Breach(Breach::CameLate)));
    wait_until(|| links.0.counts().sent.late > 0);
    let late = a.send(1, watchdog(), &mut |_| panic!("it does not leave"));
    assert_eq!(late, Err(SendError::Breach(Breach::SentLate)));
    // Both ends go on, however late.
    wait_until(|| links.0.counts().sent.late > 1);
    assert_eq!(a.send(1, watchdog(), &mut |_| {}), Ok(0));
    wait_until(|| links.1.counts().received.late > 2);
    assert_eq!(take(&mut b), Ok(Some(0)));

    let (links, (mut a, _x), (_y, mut b)) = connected(qos(Warn), qos(Warn), Noise::default());
    wait_until(|| links.0.counts().sent.late > 3 && links.1.counts().received.late > 3);
    a.send(1, watchdog(), &mut |_| {}).unwrap();
    assert_eq!(take(&mut b), Ok(Some(0)), "a warning hands over");
    assert!(links.0.counts().sent.late > 3 && links.1.counts().received.late > 3);
}

#[test]
fn a_consumer_that_is_too_slow_makes_the_sender_late() {
    let period = Duration::from_millis(50);
    let sender = Qos::new().send_every(period, Fail);
    let (links, (mut a, _x), (_y, _b)) = connected(sender, Qos::new(), Noise::default());
    let late = SendError::Breach(Breach::SentLate);
    while links.0.counts().sent.messages < SIZES.credits as u64 {
        let sent = a.send(1, None, &mut |_| {});
        assert!(sent.is_ok() || sent == Err(late.clone()));
    }
    // Without the promise, this send would wait for ever.
    assert_eq!(a.send(1, None, &mut |_| {}), Err(late));
}

#[test]
fn stale_and_corrupt_values_are_not_read() {
    let receiver = Qos::new().fresh_for(LONG, Fail).checked(Fail);
    let sender = Qos::new().fresh_for(SHORT, Warn).checked(Warn);
    let noise = Noise::default().flip_values();
    let (links, (mut a, _x), (_y, mut b)) = connected(sender, receiver, noise);
    a.publish(8, &mut |value| value.fill(1)).unwrap();
    let corrupt = b.read(watchdog(), &mut |_| panic!("it is not what was published"));
    assert_eq!(corrupt, Err(End::Breach(Breach::Corrupt)));

    let (links_too, (mut a, _z), (_w, mut b)) = connected(sender, receiver, Noise::default());
    a.publish(8, &mut |value| value.fill(1)).unwrap();
    let watchdog_ns = watchdog().unwrap();
    while b.read(watchdog(), &mut |value| assert_eq!(value, [1; 8])) == Ok(true) {
        assert!(now_ns() < watchdog_ns, "it never becomes stale");
    }
    let stale = b.read(watchdog(), &mut |_| panic!("it is stale"));
    assert_eq!(stale, Err(End::Breach(Breach::Stale)));
    assert_eq!(links.1.counts().received.corrupt, 1);
    assert!(links_too.1.counts().received.stale >= 2);
}

#[test]
fn unacknowledged_messages_are_sent_again_and_received_once() {
    const COUNT: u64 = 60;
    let qos = Qos::new().checked(Warn).acknowledged(SHORT * 5, 1000, Fail);
    let mut noise = Noise::default();
    for number in (0..COUNT).filter(|n| n % 2 == 0) {
        let harm = [Harm::Flip(60), Harm::Lose, Harm::Double, Harm::Flip(9)];
        let times = 1 + number as usize % 3;
        noise = noise.harm(number, harm[number as usize / 2 % 4], times);
    }
    let back = Noise::default().harm_statuses(15);
    let (links, (mut a, _x), (_y, mut b)) = connected_through(qos, qos, [noise, back]);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COUNT {
                assert_eq!(send(&mut a, number, 100), Ok(number));
            }
        });
        for number in 0..COUNT {
            assert_eq!(receive(&mut b), Ok((number, 100)));
        }
    });
    let (sent, received) = (links.0.counts().sent, links.1.counts().received);
    assert_eq!((received.messages, received.lost), (COUNT, 0));
    assert_eq!((sent.messages, sent.unacknowledged), (COUNT, 0));
    // 15 messages are changed and 8 lost, once to three times each.
    let is_harmed = |k: u64| (0..COUNT).filter(move |n| n % 2 == 0 && n / 2 % 4 == k);
    let times = |k| is_harmed(k).map(|n| 1 + n % 3).sum::<u64>();
    assert_eq!(received.corrupt, times(0) + times(3));
    assert!(sent.resent >= times(0) + times(1) + times(3), "{sent:?}");
    assert!(
        received.doubled >= is_harmed(2).count() as u64,
        "{received:?}"
    );
    assert_eq!(links.0.counts().received.corrupt, 15);
}

#[test]
fn messages_that_are_never_acknowledged_are_given_up_and_skipped() {
    thread::scope(|scope| {
        scope.spawn(|| give_up(Warn));
        give_up(Fail);
    });
}

fn give_up(policy: OnBreach) {
    // The time is long enough for the other messages to be acknowledged on any machine.
    let qos = Qos::new()
        .checked(Warn)
        .acknowledged(Duration::from_millis(500), 2, policy);
    let noise = Noise::default().harm(1, Harm::Lose, usize::MAX);
    let (links, (mut a, _x), (_y, mut b)) = connected(qos, qos, noise);
    for number in 0..3 {
        send(&mut a, number, 100).unwrap();
    }
    // The third message has come long before the second is given up.
    assert_eq!(receive(&mut b), Ok((0, 100)));
    assert_eq!(receive(&mut b), Ok((2, 100)));
    wait_until(|| links.0.counts().sent.unacknowledged == 1);
    assert_eq!(links.1.counts().received.lost, 1);
    if policy == Fail {
        let number = 1;
        let told = send(&mut a, 3, 100);
        assert_eq!(told, Err(Breach::Unacknowledged { number }.into()));
    }
    send(&mut a, 3, 100).unwrap();
    assert_eq!(receive(&mut b), Ok((3, 100)), "{policy:?}");
    assert_eq!(links.0.counts().sent.resent, 2);
}

#[test]
fn a_peer_without_a_sign_of_life_is_silent_until_it_gives_one() {
    let qos = |policy| Qos::new().alive_within(Duration::from_millis(300), policy);
    let back = Noise::default();
    let mute = std::sync::Arc::clone(&back.is_mute);
    let noise = [Noise::default(), back];
    let (links, (mut a, mut from_b), (mut b, _y)) = connected_through(qos(Fail), qos(Warn), noise);
    mute.store(true, Ordering::Relaxed);
    let silent = from_b.receive(None, &mut |_, _| panic!("nothing was sent"));
    assert_eq!(silent, Err(End::Breach(Breach::Silent)));
    wait_until(|| links.0.counts().is_silent);
    assert!(links.0.counts().silences >= 1);
    let refused = a.send(1, watchdog(), &mut |_| panic!("the peer is silent"));
    assert_eq!(refused, Err(SendError::Breach(Breach::Silent)));
    mute.store(false, Ordering::Relaxed);
    wait_until(|| a.send(1, watchdog(), &mut |_| {}).is_ok());
    wait_until(|| b.send(1, watchdog(), &mut |_| {}).is_ok());
    wait_until(|| from_b.receive(watchdog(), &mut |_, _| {}) == Ok(true));
}

#[test]
fn an_end_with_promises_that_differ_from_its_peers_learns_the_difference() {
    let tcp = || {
        let key = || Key::from_bytes([3; 32]);
        let first = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
        let second = Tcp::connect(first.address(), key());
        (first, second)
    };
    let refused = |first: &(dyn Backend + Sync), fits: &dyn Backend, other: &dyn Backend, sizes| {
        thread::scope(|scope| {
            let waiting =
                scope.spawn(|| first.initialize(SIZES, Memory::Allot, watchdog()).is_ok());
            let refused = other.initialize(sizes, Memory::Allot, watchdog()).err();
            // The first end goes on waiting for a peer that fits.
            let link = fits.initialize(SIZES, Memory::Allot, watchdog());
            assert!(waiting.join().unwrap() && link.is_ok());
            match refused {
                Some(SetupError::Refused { reason, .. }) => reason,
                other => panic!("{other:?}"),
            }
        })
    };
    let (first, second) = tcp();
    let other = Qos::new().around(Tcp::connect(first.address(), Key::from_bytes([3; 32])));
    assert_eq!(refused(&first, &second, &other, SIZES), Refusal::Quality);

    let (first, second) = tcp();
    let (first, second) = (Qos::new().around(first), Qos::new().around(second));
    let ours = Sizes {
        message_bytes: 77,
        ..SIZES
    };
    let theirs = SIZES;
    let told = Refusal::Sizes { ours, theirs };
    assert_eq!(refused(&first, &second, &second, ours), told);
}
