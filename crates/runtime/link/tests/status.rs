//! Tests status pages: `onbeat link status` shows the true counts, pages disappear with their
//! processes, and damaged pages do no harm.

use nix::sys::memfd::{memfd_create, MFdFlags};
use onbeat_link::interface::{Backend, End, Memory, Sizes};
use onbeat_link::qos::OnBreach;
use onbeat_link::status::{parse, survey, Found, State, Steps};
use onbeat_link::{Key, Qos, Shm, Tcp};
use proptest::prelude::*;
use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZES: Sizes = Sizes {
    credits: 4,
    message_bytes: 256,
    value_bytes: 16,
};
const WATCHDOG: Duration = Duration::from_secs(120);

fn ends(name: &str, as_expected: impl Fn(&[Found]) -> bool) -> Vec<Found> {
    let since = Instant::now();
    loop {
        let mut links = survey().links;
        links.retain(|found| found.status.name == name);
        if as_expected(&links) {
            return links;
        }
        assert!(since.elapsed() < WATCHDOG, "{links:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_status_page_counts_messages_and_values() {
    let key = || Key::from_bytes([7; 32]);
    let listening = Tcp::listen("127.0.0.1:0".parse().unwrap(), key()).unwrap();
    let address = listening.address();
    let name = address.to_string();
    let peer = std::thread::spawn(move || {
        let stranger = Tcp::connect(address, Key::from_bytes([8; 32]));
        let refused = stranger.initialize(SIZES, Memory::Allot, None).err();
        assert!(refused.is_some());
        let link = Tcp::connect(address, key());
        link.initialize(SIZES, Memory::Allot, None).unwrap()
    });
    let (mut out, mut incoming) = listening.initialize(SIZES, Memory::Allot, None).unwrap();
    let (mut peer_out, mut peer_incoming) = peer.join().unwrap();
    for _ in 0..3 {
        out.send_copy(&[1; 100]).unwrap();
        assert!(peer_incoming.receive(None, &mut |_, _| ()).unwrap());
    }
    for _ in 0..4 {
        out.send_copy(&[1; 10]).unwrap();
    }
    // No credit is left, since four messages are not consumed.
    assert!(out.send(1, Some(1), &mut |_| ()).is_err());
    peer_out.publish(3, &mut |slot| slot.fill(1)).unwrap();
    assert!(incoming.read(None, &mut |_| ()).unwrap());

    let links = ends(&name, |links| links.len() == 2);
    let end = |listens| links.iter().find(|l| l.status.listens == listens).unwrap();
    let (here, there) = (&end(true).status, &end(false).status);
    assert_eq!(end(true).pid, std::process::id());
    assert_eq!(
        (here.state, there.state),
        (State::Connected, State::Connected)
    );
    assert_eq!((here.sizes, there.peer.as_str()), (SIZES, name.as_str()));
    let passed = |p: onbeat_link::status::Passed| (p.messages, p.bytes, p.values);
    assert_eq!(here.passed.map(passed), [(7, 340, 0), (0, 0, 1)]);
    assert_eq!(there.passed.map(passed), [(0, 0, 1), (3, 300, 0)]);
    assert!(here.passed[0].last_ns >= Some(here.since_ns[0]));
    assert_eq!(here.credit, (Some(4), 1));
    // Only the stranger was refused.
    assert_eq!(here.resumed_refused, [0, 1]);
    assert_eq!(here.qos, None);

    drop((out, incoming, peer_out, peer_incoming));
    ends(&name, <[Found]>::is_empty);
}

#[test]
fn a_link_with_promises_shows_their_counts() {
    let name = format!("status/qos/{}", std::process::id());
    let with = |shm| Qos::new().checked(OnBreach::Warn).around(shm);
    let (here, there) = (with(Shm::listen(&name)), with(Shm::connect(&name)));
    let peer = std::thread::spawn(move || there.initialize(SIZES, Memory::Allot, None).unwrap());
    let (mut out, _incoming) = here.initialize(SIZES, Memory::Allot, None).unwrap();
    let mut peer = peer.join().unwrap();
    out.send_copy(b"ahead").unwrap();
    assert!(peer.1.receive(None, &mut |_, _| ()).unwrap());
    let links = ends(&name, |links| links.len() == 2);
    let count = |listens, name| {
        let end = links.iter().find(|l| l.status.listens == listens).unwrap();
        let qos = end.status.qos.as_ref().unwrap();
        let of_name = qos.named().find(|(n, _)| *n == name);
        of_name.unwrap().1
    };
    assert_eq!((count(true, "sent"), count(false, "received")), (1, 1));
    assert_eq!(count(false, "corrupt"), 0);
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_status_page_disappears_with_its_process() {
    if let Ok(name) = std::env::var("ONBEAT_TEST_STATUS_NAME") {
        let link = Shm::connect(&name).initialize(SIZES, Memory::Allot, None);
        let (_out, mut incoming) = link.unwrap();
        let _ = incoming.receive(None, &mut |_, _| ());
        return;
    }
    let name = format!("status/killed/{}", std::process::id());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "a_status_page_disappears_with_its_process"])
        .env("ONBEAT_TEST_STATUS_NAME", &name)
        .stdout(Stdio::null());
    let mut child = Running(child.spawn().unwrap());
    let link = Shm::listen(&name).initialize(SIZES, Memory::Allot, None);
    let (_out, mut incoming) = link.unwrap();
    let connected = |l: &Found| l.status.state == State::Connected;
    let links = ends(&name, |links| {
        links.len() == 2 && links.iter().all(connected)
    });
    assert!(links.iter().any(|found| found.pid == child.0.id()));

    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let end = incoming.receive(None, &mut |_, _| ());
    assert!(matches!(end, Err(End::Gone { .. })), "{end:?}");
    let left = ends(&name, |links| links.len() == 1);
    assert_eq!(left[0].pid, std::process::id());
    assert_eq!(left[0].status.state, State::Ended);
}

#[test]
fn foreign_status_pages_are_counted_and_do_no_harm() {
    let page = |bytes: &[u8]| {
        let file = memfd_create("onbeat-link-status", MFdFlags::MFD_CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(bytes).unwrap();
        file
    };
    // The pages are empty, short, nonsense, and as large as a file can be.
    let _pages = [page(b""), page(&[1; 10]), page(&[0xFF; 4096])];
    let sparse = page(b"onbeatLS");
    sparse.set_len(1 << 40).unwrap();
    assert!(survey().foreign >= 4);
}

fn page(numbers: &[u64], tail: &[u8]) -> Vec<u8> {
    let mut page = vec![0; 4096];
    page[..8].copy_from_slice(b"onbeatLS");
    page[8] = 2;
    for (place, number) in page[16..512].chunks_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let length = tail.len().min(3584);
    page[512..][..length].copy_from_slice(&tail[..length]);
    page
}

proptest! {
    #[test]
    fn parsing_a_status_page_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn a_status_page_with_any_numbers_and_texts_is_parsed(
        backend in 0_u64..5,
        state in 0_u64..6,
        numbers in prop::collection::vec(any::<u64>(), 59),
        tail in prop::collection::vec(any::<u8>(), 3584),
    ) {
        let mut all = vec![backend, 1, state];
        all.extend(&numbers);
        let status = parse(&page(&all, &tail));
        prop_assert_eq!(status.is_some(), backend < 3 && state < 4);
        if let Some(status) = status {
            prop_assert!(status.name.chars().count() <= 254);
            prop_assert_eq!(status.passed[0].messages, numbers[5]);
            let Steps { histogram, stalls, worst, recent } = status.steps;
            let word = |at: usize| u64::from_le_bytes(tail[8 * (at - 64)..][..8].try_into().unwrap());
            prop_assert_eq!([histogram[0][0], histogram[5][15], stalls], [128, 223, 240].map(word));
            prop_assert!(!worst.is_empty() && worst.len() <= 16);
            prop_assert!(!recent.is_empty() && recent.len() <= 256);
            prop_assert!(worst.is_sorted_by(|one, next| one.took_ns >= next.took_ns));
        }
    }
}
