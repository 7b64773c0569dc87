//! Tests the example `hosts`: sensors in one process, fusion in another, over shared memory and TCP
//! by one changed word. Over RDMA the example is built here, and needs a device to run.

mod sums;

use onbeat_link::Key;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use sums::check;

fn start(part: &str, place: &str) -> Child {
    // Cargo builds examples next to its tests.
    let tests = std::env::current_exe().unwrap();
    let hosts: PathBuf = tests.ancestors().nth(2).unwrap().join("examples/hosts");
    let mut command = Command::new(hosts);
    let command = command.args([part, place]).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

fn run(place: &str) -> (Output, Output) {
    let (sense, fuse) = (start("sense", place), start("fuse", place));
    let fuse = fuse.wait_with_output().unwrap();
    (sense.wait_with_output().unwrap(), fuse)
}

#[test]
fn the_link_address_alone_chooses_the_transport() {
    let (sense, fuse) = run(&format!("shm://hosts-{}", std::process::id()));
    check(&fuse);
    assert!(sense.status.success());

    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("link.key");
    Key::generate().create_file(&key).unwrap();
    // Another program may take a port meanwhile; then the test tries others.
    for attempt in 0.. {
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        if free.port() == u16::MAX {
            continue;
        }
        let (sense, fuse) = run(&format!("tcp://{free}?key={}", key.display()));
        let errors = String::from_utf8_lossy(&sense.stderr);
        if errors.contains("AddrInUse") && attempt < 10 {
            continue;
        }
        assert!(sense.status.success(), "{errors}");
        check(&fuse);
        return;
    }
}

#[test]
fn the_death_of_a_host_is_reported() {
    let place = format!("shm://hosts-killed-{}", std::process::id());
    let (mut sense, mut fuse) = (start("sense", &place), start("fuse", &place));
    let pid = fuse.id() as libc::pid_t;
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(60));
        // SAFETY: only a call; the test has not ended, so it still waits for this process.
        unsafe { libc::kill(pid, libc::SIGKILL) }
    });
    let mut sums = BufReader::new(fuse.stdout.take().unwrap()).lines();
    assert!(sums.next().unwrap().unwrap().starts_with("Some("));
    sense.kill().unwrap();
    sense.wait().unwrap();
    let output = fuse.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("is gone"),
        "{errors}"
    );
}

#[test]
fn the_example_of_two_hosts_has_at_most_66_lines() {
    let source = include_str!("../examples/hosts.rs");
    assert!(source.lines().count() <= 66, "{}", source.lines().count());
}

#[test]
fn an_address_without_a_key_is_refused_with_the_reason() {
    let output = start("sense", "tcp://127.0.0.1:1")
        .wait_with_output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("NoKey"),
        "{errors}"
    );
}
