//! Runs the conformance suite of the interface layer over RDMA.
//!
//! The tests need RDMA devices: see `places`.

mod backends;
mod placed;
mod places;
mod sums;

use backends::{watchdog, Pair};
use onbeat_link::interface::{Backend, Memory};
use onbeat_link::{Auto, Key, Verbs};
use placed::{key, Placed};
use places::{places, Place};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time after which an end gives its peer up: long, because an emulated device is slow.
const PATIENCE: Duration = Duration::from_secs(20);

fn options(verbs: Verbs, polling: bool) -> Verbs {
    let verbs = verbs.gone_after(PATIENCE);
    if polling {
        verbs.polling()
    } else {
        verbs
    }
}

fn connecting(place: Place, address: SocketAddr, polling: bool) -> Placed {
    let verbs = options(Verbs::connect(address, key()), polling);
    Placed { place, verbs }
}

fn pair(polling: bool) -> Pair {
    let [first, second] = places();
    let address = SocketAddr::new(first.address, 0);
    let verbs = first.within(|| Verbs::listen(address, key())).unwrap();
    let address = verbs.address();
    Pair {
        first: Box::new(Placed {
            place: first,
            verbs: options(verbs, polling),
        }),
        second: Box::new(connecting(second, address, polling)),
        for_child: format!("{address} {polling}"),
    }
}

backends::backends!(by_events, pair(false), pair(false));

// Polling differs only in how an end waits. All tests would keep the emulated guest busy for
// minutes.
#[test]
fn polling_an_rdma_link_delivers_messages_once_and_in_order() {
    backends::order(pair(true));
}

#[test]
fn polling_returns_a_credit_when_the_message_is_consumed() {
    backends::credits(pair(true));
}

#[test]
fn polling_delivers_messages_sent_before_the_close() {
    backends::close(pair(true));
}

/// Gives a device to each of two network namespaces. Ends in different namespaces share no memory,
/// so RDMA is the fastest way.
#[test]
fn auto_chooses_rdma_between_rdma_devices() {
    let [first, second] = places();
    let listening = first.within(|| Auto::listen(SocketAddr::new(first.address, 0), key()));
    let listening = listening.unwrap();
    let connecting = Auto::connect(listening.address(), key());
    let initialize = |end: &Auto| end.initialize(backends::SIZES, Memory::Allot, watchdog());
    std::thread::scope(|scope| {
        let a = scope.spawn(|| first.within(|| initialize(&listening)));
        let (_b, mut from_a) = second.within(|| initialize(&connecting)).unwrap();
        let (mut a, _from_b) = a.join().unwrap().unwrap();
        backends::send(&mut *a, 0, 5000).unwrap();
        assert_eq!(backends::receive(&mut *from_a), Ok((0, 5000)));
    });
    for end in [&listening, &connecting] {
        assert_eq!(end.chosen().unwrap().way, onbeat_link::auto::Way::Verbs);
    }
}

/// Runs the example `hosts` with an RDMA address. The program of the example lies beside this
/// test's program, or where Cargo builds it.
#[test]
fn the_example_runs_over_rdma() {
    let here = std::env::current_exe().unwrap();
    let beside = here.with_file_name("hosts");
    let built = here.ancestors().nth(2).unwrap().join("examples/hosts");
    let hosts = if beside.exists() { beside } else { built };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("link.key");
    Key::generate().create_file(&file).unwrap();
    let [first, second] = places();
    let at = format!("verbs://{}:7400?key={}", first.address, file.display());
    let start = |part: &str, place: &Place| {
        let mut command = Command::new(&hosts);
        let command = command.args([part, &at]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process begins in the namespace of the thread that starts it.
        place.within(|| command.spawn()).unwrap()
    };
    let (fuse, sense) = (start("fuse", &second), start("sense", &first));
    let fuse = fuse.wait_with_output().unwrap();
    let sense = sense.wait_with_output().unwrap();
    assert!(sense.status.success(), "{sense:?}");
    sums::check(&fuse);
}

#[test]
fn the_peer_process_does_nothing_unless_a_test_starts_it() {
    let Ok(text) = std::env::var("ONBEAT_PEER") else {
        return;
    };
    let words: Vec<_> = text.split(' ').collect();
    let [_, second] = places();
    let backend = connecting(second, words[0].parse().unwrap(), words[1] == "true");
    backends::child(&backend, &std::env::var("ONBEAT_STEP").unwrap());
}
