//! Runs the conformance suite of the interface layer on every backend.

mod backends;

use backends::Pair;
use onbeat_link::interface::Backend;
use onbeat_link::port::{Port, Settings};
use onbeat_link::qos::OnBreach;
use onbeat_link::{Auto, Key, Qos, Shm, Tcp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("backend-{}-{number}", std::process::id())
}

fn shm() -> Pair {
    let name = fresh_name();
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

fn tcp_on_ports(sealed: bool, resume_within: Duration) -> Pair {
    let port = || {
        let settings = Settings::of_rate(100_000_000_000).chunk_bytes(backends::CHUNK);
        Port::alone(settings).unwrap()
    };
    let first = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = first.address();
    let first = options(first, sealed, resume_within).on_port(&port(), 1);
    let second = options(Tcp::connect(address, key()), sealed, resume_within).on_port(&port(), 1);
    Pair {
        first: Box::new(first),
        second: Box::new(second),
        for_child: format!("tcp {address} {sealed}"),
    }
}

backends::backends!(in_shared_memory, shm(), shm());
backends::backends!(over_tcp, tcp(true, NEVER), tcp(true, SOON));
backends::backends!(over_tcp_in_clear, tcp(false, NEVER), tcp(false, SOON));

fn promised(backend: impl Backend + Send + 'static) -> Box<dyn Backend + Send> {
    let qos = Qos::new()
        .fresh_for(NEVER, OnBreach::Fail)
        .checked(OnBreach::Fail)
        .send_every(NEVER, OnBreach::Fail)
        .receive_every(NEVER, OnBreach::Fail);
    Box::new(qos.around(backend))
}

fn assured(backend: impl Backend + Send + 'static) -> Box<dyn Backend + Send> {
    let qos = Qos::new()
        .fresh_for(NEVER, OnBreach::Fail)
        .checked(OnBreach::Fail)
        .acknowledged(Duration::from_secs(20), 3, OnBreach::Fail)
        .alive_within(NEVER, OnBreach::Fail);
    Box::new(qos.around(backend))
}

fn shm_assured() -> Pair {
    let name = fresh_name();
    Pair {
        first: assured(Shm::listen(&name)),
        second: assured(Shm::connect(&name)),
        for_child: format!("shm {name} assured"),
    }
}

fn tcp_assured(resume_within: Duration) -> Pair {
    let first = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = first.address();
    let second = Tcp::connect(address, key());
    Pair {
        first: assured(options(first, false, resume_within)),
        second: assured(options(second, false, resume_within)),
        for_child: format!("tcp {address} false assured"),
    }
}

backends::backends!(assured_in_shared_memory, shm_assured(), shm_assured());
backends::backends!(assured_over_tcp, tcp_assured(NEVER), tcp_assured(SOON));

fn shm_promised() -> Pair {
    let name = fresh_name();
    Pair {
        first: promised(Shm::listen(&name)),
        second: promised(Shm::connect(&name)),
        for_child: format!("shm {name} promised"),
    }
}

fn tcp_promised(resume_within: Duration) -> Pair {
    let first = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = first.address();
    let second = Tcp::connect(address, key());
    Pair {
        first: promised(options(first, false, resume_within)),
        second: promised(options(second, false, resume_within)),
        for_child: format!("tcp {address} false promised"),
    }
}

backends::backends!(with_qos_in_shared_memory, shm_promised(), shm_promised());
backends::backends!(with_qos_over_tcp, tcp_promised(NEVER), tcp_promised(SOON));

backends::backends!(
    over_tcp_on_ports,
    tcp_on_ports(true, NEVER),
    tcp_on_ports(true, SOON)
);

fn auto() -> Pair {
    let first = Auto::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = first.address();
    Pair {
        first: Box::new(first),
        second: Box::new(Auto::connect(address, key())),
        for_child: format!("auto {address}"),
    }
}

// Auto uses shared memory, except where the application gives the memory.
backends::backends!(by_the_best_way, auto(), auto());

#[test]
fn the_peer_process_does_nothing_unless_a_test_starts_it() {
    let Ok(place) = std::env::var("ONBEAT_PEER") else {
        return;
    };
    let words: Vec<_> = place.split(' ').collect();
    let tcp = |address: &str, sealed| {
        let tcp = Tcp::connect(address.parse().unwrap(), key());
        options(tcp, sealed == "true", SOON)
    };
    let backend: Box<dyn Backend> = match words[..] {
        ["shm", name] => Box::new(Shm::connect(name)),
        ["tcp", address, sealed] => Box::new(tcp(address, sealed)),
        ["auto", address] => Box::new(Auto::connect(address.parse().unwrap(), key())),
        ["shm", name, "promised"] => promised(Shm::connect(name)),
        ["tcp", address, sealed, "promised"] => promised(tcp(address, sealed)),
        ["shm", name, "assured"] => assured(Shm::connect(name)),
        ["tcp", address, sealed, "assured"] => assured(tcp(address, sealed)),
        _ => panic!("{place}"),
    };
    backends::child(&*backend, &std::env::var("ONBEAT_STEP").unwrap());
}
