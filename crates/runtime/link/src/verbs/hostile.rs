//! Tests of a peer that has the key and lies, by its device and by the side channel. The honest end
//! refuses it with the reason, and none of its memory changes except the peer's slots.

use super::device::{Done, Kind, Queue, Request, Transfer};
use super::memory::Block;
use super::places::places;
use super::{Joined, Verbs};
use crate::interface::{Backend, End, Halves, Memory, Sizes};
use crate::sealed;
use crate::verbs_wire::{Record, Window};
use crate::Key;
use onbeat_flow::clock::now_ns;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SIZES: Sizes = Sizes {
    credits: 2,
    message_bytes: 64,
    value_bytes: 32,
};
const RING: usize = 2 * 64;

fn watchdog() -> Option<u64> {
    Some(now_ns() + 100_000_000_000)
}

fn ends() -> [Verbs; 2] {
    let key = || Key::from_bytes([3; 32]);
    let [first, _] = places();
    let address = SocketAddr::new(first.address, 0);
    let listening = first.within(|| Verbs::listen(address, key())).unwrap();
    let connecting = Verbs::connect(listening.address(), key());
    [listening, connecting].map(|end| end.gone_after(Duration::from_secs(20)))
}

fn joined(end: &Verbs, memory: Memory) -> Joined {
    let block = Block::new(SIZES, memory).unwrap();
    end.joined((SIZES, block), end.terms(SIZES), watchdog())
        .unwrap()
}

fn honest_and_liar() -> (Halves, Joined, *const u8) {
    let [listening, connecting] = ends();
    let [first, second] = places();
    let memory = Box::leak(vec![0xA5; SIZES.memory_bytes().unwrap()].into_boxed_slice());
    let base = memory.as_ptr();
    std::thread::scope(|scope| {
        let liar = scope.spawn(|| second.within(|| joined(&connecting, Memory::Allot)));
        let (end, given) = (&listening, Memory::Mapped(memory));
        let honest = first.within(move || end.initialize(SIZES, given, watchdog()));
        (honest.unwrap(), liar.join().unwrap(), base)
    })
}

fn post(queue: &mut Queue, request: Request, until_ns: u64) -> Option<Result<(), String>> {
    // SAFETY: the liar's memory stays registered until the test ends.
    unsafe { queue.post(request, Kind::Message) }.unwrap();
    while now_ns() < until_ns {
        match queue.next_done() {
            Ok(Some(Done::Sent(_))) => return Some(Ok(())),
            Ok(_) => {}
            Err(error) => return Some(Err(error.to_string())),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

fn perform(queue: &mut Queue, request: Request) -> Option<String> {
    let done = post(queue, request, watchdog().unwrap());
    done.expect("the request must end before the watchdog's deadline")
        .err()
}

fn write(liar: &Joined, bytes: usize, at: isize) -> Transfer {
    let ring = liar.peer.ring;
    let remote = ring.address.wrapping_add_signed(at as i64);
    let ours = liar.memory.to_any(bytes);
    Transfer {
        remote,
        remote_key: ring.key,
        ..ours
    }
}

fn next(halves: &mut Halves) -> Result<(), End> {
    let taken = halves.1.receive(watchdog(), &mut |_, _| {})?;
    assert!(taken, "nothing came");
    Ok(())
}

fn protocol(what: &'static str) -> Result<(), End> {
    Err(End::Protocol { what })
}

/// Writes messages (bytes, offset, tag) as a lying peer, and returns the result of the honest end.
fn outcome_of_lies(messages: &[(usize, isize, u32)]) -> Result<(), End> {
    let (mut honest, mut liar, _) = honest_and_liar();
    for (bytes, at, tag) in messages {
        let request = Request::WriteWithTag(write(&liar, *bytes, *at), *tag);
        // A link that has ended may refuse later requests.
        let _ = perform(&mut liar.queues.out, request);
    }
    let mut last = Ok(());
    for _ in messages {
        last = next(&mut honest);
        if last.is_err() {
            break;
        }
    }
    last
}

#[test]
fn messages_too_long_out_of_turn_or_without_credit_end_the_link() {
    assert_eq!(
        outcome_of_lies(&[(64, 0, 0), (64, 64, 1)]),
        Ok(()),
        "as agreed"
    );
    // The message fits into the ring, but not into its slot.
    let larger = protocol("a message that is larger than agreed");
    assert_eq!(outcome_of_lies(&[(65, 0, 0)]), larger);
    let out_of_turn = protocol("a message out of order");
    for tag in [1, 7, 0xffff] {
        assert_eq!(outcome_of_lies(&[(8, 0, tag)]), out_of_turn, "{tag}");
    }
    let chunks = protocol("a message in chunks");
    assert_eq!(
        outcome_of_lies(&[(8, 0, 1 << 16)]),
        chunks,
        "the ends have not agreed on chunks"
    );
    assert_eq!(
        outcome_of_lies(&[(8, 0, 0), (8, 64, 0)]),
        out_of_turn,
        "twice"
    );
    let many = protocol("more messages than the peer has credits for");
    assert_eq!(outcome_of_lies(&[(8, 0, 0), (8, 64, 1), (8, 0, 2)]), many);
}

fn memory(base: *const u8) -> Vec<u8> {
    let bytes = SIZES.memory_bytes().unwrap();
    // SAFETY: the memory is leaked, and the ends that wrote there are gone.
    unsafe { std::slice::from_raw_parts(base, bytes) }.to_vec()
}

#[test]
fn rdma_writes_outside_of_the_ring_are_refused_by_the_device_and_change_nothing() {
    for (bytes, at) in [
        (16, RING as isize - 8),
        (8, RING as isize),
        (8, -8),
        (8, 1 << 40),
    ] {
        let (mut honest, mut liar, base) = honest_and_liar();
        let request = Request::Write(write(&liar, bytes, at));
        let refused = perform(&mut liar.queues.out, request);
        assert_eq!(
            refused.as_deref(),
            Some("remote access error"),
            "{bytes} at {at}"
        );
        drop(liar);
        let end = next(&mut honest);
        assert!(matches!(end, Err(End::Gone { .. })), "{end:?}");
        drop(honest);
        assert!(memory(base).iter().all(|b| *b == 0xA5), "{bytes} at {at}");
    }
    // A wrong key, and a write to memory that the peer may only read.
    for what in [
        |w: Window, _| (w.address, w.key ^ 0x100),
        |_, v: Window| (v.address, v.key),
    ] {
        let (honest, mut liar, base) = honest_and_liar();
        let (remote, remote_key) = what(liar.peer.ring, liar.peer.values);
        let transfer = Transfer {
            remote,
            remote_key,
            ..write(&liar, 8, 0)
        };
        let refused = perform(&mut liar.queues.out, Request::Write(transfer));
        assert_eq!(refused.as_deref(), Some("remote access error"));
        drop((honest, liar));
        assert!(memory(base).iter().all(|b| *b == 0xA5));
    }
}

/// Keeps the other end's queue pair alive, so that only the key can be the reason for the refusal.
#[test]
fn rdma_writes_with_a_revoked_memory_key_are_refused() {
    let [listening, connecting] = ends();
    let [first, second] = places();
    std::thread::scope(|scope| {
        let liar = scope.spawn(|| second.within(|| joined(&connecting, Memory::Allot)));
        let other = first.within(|| joined(&listening, Memory::Allot));
        let mut liar = liar.join().unwrap();
        let request = Request::Write(write(&liar, 8, 0));
        assert_eq!(perform(&mut liar.queues.out, request), None);
        other.memory.revoke();
        let refused = perform(&mut liar.queues.out, request);
        assert_eq!(refused.as_deref(), Some("remote access error"));
    });
}

#[test]
fn a_peer_that_writes_after_the_end_of_a_link_changes_nothing() {
    let (honest, mut liar, base) = honest_and_liar();
    let request = Request::Write(write(&liar, 8, 0));
    assert_eq!(perform(&mut liar.queues.out, request), None);
    drop(honest);
    let before = memory(base);
    assert_ne!(before[RING..RING + 8], [0xA5; 8], "it could write");
    // The other end is gone, so the request may stay open.
    let more = Request::Write(write(&liar, 64, 64));
    let done = post(&mut liar.queues.out, more, now_ns() + 5_000_000_000);
    assert_ne!(
        done,
        Some(Ok(())),
        "the device still serves a peer whose key was revoked"
    );
    assert_eq!(memory(base), before);
}

#[test]
fn impossible_counts_records_and_heads_end_the_link() {
    // A count of consumed messages, although nothing was sent.
    let (mut honest, mut liar, _) = honest_and_liar();
    let _ = perform(&mut liar.queues.incoming, Request::Tag(1));
    let end = loop {
        if let Err(error) = honest.0.send(1, watchdog(), &mut |_| {}) {
            break error;
        }
    };
    let what = "an impossible count of consumed messages";
    assert_eq!(end, End::Protocol { what }.into());

    // A message on the queue pair for counts, and a count on the queue pair for messages.
    let (mut honest, mut liar, _) = honest_and_liar();
    let request = Request::WriteWithTag(write(&liar, 8, 0), 0);
    let _ = perform(&mut liar.queues.incoming, request);
    let end = loop {
        if let Err(error) = honest.0.send(1, watchdog(), &mut |_| {}) {
            break error;
        }
    };
    let what = "a message out of order";
    assert_eq!(end, End::Protocol { what }.into());
    let (mut honest, mut liar, _) = honest_and_liar();
    let _ = perform(&mut liar.queues.out, Request::Tag(1));
    let what = "a count of consumed messages where a message was expected";
    assert_eq!(next(&mut honest), protocol(what));

    let (mut honest, liar, _) = honest_and_liar();
    liar.side.tell(Record::Ready).unwrap();
    assert_eq!(next(&mut honest), protocol("a record out of order"));
    let (mut honest, liar, _) = honest_and_liar();
    let mut sent = liar.side.sent.lock().unwrap();
    sealed::send(&mut &liar.side.stream, &liar.side.keys, &mut sent, &[99]).unwrap();
    assert_eq!(next(&mut honest), protocol("an unknown record"));

    // The value is in a slot that does not exist, or is longer than agreed.
    for words in [[1 << 2 | 3, 1, 8], [1 << 2, 1, 33], [1 << 2, 1, u64::MAX]] {
        let (mut honest, liar, _) = honest_and_liar();
        let (out, _in, _memory) = liar.memory.halves();
        let (heads, _) = out.heads();
        let set = heads.iter().zip(words);
        set.for_each(|(head, word)| head.store(word, Ordering::SeqCst));
        let read = honest.1.read(watchdog(), &mut |_| panic!("it is none"));
        let what = "a value whose header has an impossible slot or length";
        assert_eq!(read, Err(End::Protocol { what }), "{words:?}");
    }
}
