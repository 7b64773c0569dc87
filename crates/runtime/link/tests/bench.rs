//! Runs a bench between two ends over each backend, and checks counts and sizes but no times.

use onbeat_link::bench::{measure, serve, Amount, BenchError, Series};
use onbeat_link::interface::{Backend, SetupError};
use onbeat_link::{Key, Shm, Tcp};
use std::time::Duration;

const SIZES: [usize; 3] = [8, 5_000, 300_000];
const AMOUNT: Amount = Amount {
    runs: 12,
    time: Duration::from_secs(60),
};

type Maker = Box<dyn FnMut(Option<Series>) -> Result<Box<dyn Backend>, SetupError> + Send>;

fn shm(side: fn(&str) -> Shm) -> Maker {
    let name = format!("bench-test-{}", std::process::id());
    Box::new(move |series| {
        let part = if series.is_some() { "series" } else { "ask" };
        Ok(Box::new(side(&format!("{name}/{part}"))))
    })
}

/// Returns an address whose port stays free until it is used. The port is below 32768, where the
/// kernel begins to choose, and differs between runs.
fn free_address() -> std::net::SocketAddr {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = ([127, 0, 0, 1], 16_384 + (next % 16_384) as u16).into();
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

fn tcp(address: std::net::SocketAddr, listens: bool) -> Maker {
    let key = Key::from_bytes([9; 32]);
    Box::new(move |series| {
        let end = match listens {
            true => Tcp::listen(address, key.clone())?,
            false => Tcp::connect(address, key.clone()),
        };
        Ok(match series {
            Some(series) if !series.sealed => Box::new(end.in_clear()),
            _ => Box::new(end),
        })
    })
}

fn check(mut listening: Maker, mut connecting: Maker) {
    let serving = std::thread::spawn(move || {
        let mut began = Vec::new();
        for _ in 0..2 {
            serve(&mut listening, &mut |series| began.push(series))?;
        }
        Ok::<_, BenchError>(began)
    });
    let mut asked = Vec::new();
    for sealed in [true, false] {
        let series = Series {
            sealed,
            credits: 2,
            most_bytes: 300_000,
            further: usize::from(sealed),
        };
        asked.push(series);
        let mut progress = Vec::new();
        let mut report = |done, runs| progress.push((done, runs));
        let measured =
            measure(&mut connecting, series, &SIZES, AMOUNT, &mut report).expect("it runs");
        assert_eq!(measured.iter().map(|m| m.bytes).collect::<Vec<_>>(), SIZES);
        for m in &measured {
            assert_eq!((m.round_trips_ns.len(), m.messages), (12, 12));
            assert!(m.round_trips_ns.is_sorted() && m.round_trips_ns[0] > 0);
            assert!(m.bytes_per_second() > 0.0);
        }
        assert_eq!(progress.last(), Some(&(2, 11)));
    }
    assert_eq!(serving.join().expect("no panic").expect("it serves"), asked);
}

#[test]
fn a_bench_series_runs_in_shared_memory() {
    check(shm(Shm::listen), shm(Shm::connect));
}

#[test]
fn a_bench_series_runs_over_tcp_sealed_and_in_clear_through_one_port() {
    let address = free_address();
    check(tcp(address, true), tcp(address, false));
}
