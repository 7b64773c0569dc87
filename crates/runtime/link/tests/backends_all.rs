//! The conformance suite of the interface layer on every backend.

mod backends;

use backends::Pair;
use onbeat_link::interface::Backend;
use onbeat_link::{Key, Shm, Tcp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn shm() -> Pair {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("backend-{}-{number}", std::process::id());
    Pair {
        first: Box::new(Shm::listen(&name)),
        second: Box::new(Shm::connect(&name)),
        for_child: format!("shm {name}"),
    }
}

fn key() -> Key {
    Key::from_bytes([7; 32])
}

fn options(tcp: Tcp, sealed: bool, resume_within: Duration) -> Tcp {
    let tcp = tcp
        .chunk_bytes(backends::CHUNK)
        .resume_within(resume_within);
    if sealed {
        tcp
    } else {
        tcp.in_clear()
    }
}

const SOON: Duration = Duration::from_millis(500);
const NEVER: Duration = Duration::from_secs(1000);

fn tcp(sealed: bool, resume_within: Duration) -> Pair {
    let first = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = first.address();
    Pair {
        first: Box::new(options(first, sealed, resume_within)),
        second: Box::new(options(Tcp::connect(address, key()), sealed, resume_within)),
        for_child: format!("tcp {address} {sealed}"),
    }
}

backends::backends!(in_shared_memory, shm(), shm());
backends::backends!(over_tcp, tcp(true, NEVER), tcp(true, SOON));
backends::backends!(over_tcp_in_clear, tcp(false, NEVER), tcp(false, SOON));

/// Not a test: the other end for those that let a peer die.
#[test]
fn a_peer_in_a_process_of_its_own() {
    let Ok(place) = std::env::var("ONBEAT_PEER") else {
        return;
    };
    let words: Vec<_> = place.split(' ').collect();
    let backend: Box<dyn Backend> = match words[..] {
        ["shm", name] => Box::new(Shm::connect(name)),
        ["tcp", address, sealed] => {
            let tcp = Tcp::connect(address.parse().unwrap(), key());
            Box::new(options(tcp, sealed == "true", SOON))
        }
        _ => panic!("{place}"),
    };
    backends::child(&*backend, &std::env::var("ONBEAT_STEP").unwrap());
}
