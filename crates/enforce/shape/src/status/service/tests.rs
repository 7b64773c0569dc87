//! Tests with clients that ask, and with clients that misbehave.

use super::*;
use crate::status::{ask, Outcome, Reloaded, State};
use std::fs;

struct Scene {
    dir: tempfile::TempDir,
    board: Arc<Board>,
    _service: Service,
}

impl Scene {
    fn set() -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let board = Arc::new(Board::default());
        board.publish(Status {
            pid: 7,
            state: State::Shaping,
            notes: vec!["x".repeat(4 << 20)],
            ..Status::default()
        });
        let service =
            Service::start(dir.path(), board.clone(), Duties::default()).expect("it listens");
        Scene {
            dir,
            board,
            _service: service,
        }
    }

    fn ask(&self, request: &[u8]) -> io::Result<String> {
        let answers = ask(self.dir.path(), None, request, Duration::from_secs(60));
        let mut answers = answers.expect("it is ours");
        assert_eq!(answers.len(), 1, "{answers:?}");
        let answer = answers.remove(0);
        assert_eq!(answer.pid, std::process::id());
        answer.text
    }

    fn connect(&self) -> UnixStream {
        let name = sockets::name(std::process::id());
        UnixStream::connect(self.dir.path().join(name)).expect("it listens")
    }
}

#[test]
fn a_session_answers_requests_for_status_and_metrics() {
    let scene = Scene::set();
    let status: serde_json::Value =
        serde_json::from_str(&scene.ask(b"status").expect("an answer")).expect("JSON");
    assert_eq!(
        (&status["pid"], &status["state"]),
        (&7.into(), &"shaping".into())
    );
    assert!(scene
        .ask(b"metrics")
        .expect("an answer")
        .contains("onbeat_cycles_total 0"));
    assert!(scene.ask(b"sesame").expect("an answer").contains("error"));
}

#[test]
fn misbehaving_clients_do_not_disturb_the_status_service() {
    let scene = Scene::set();
    let board = &scene.board;
    // One set of clients for all places asks nothing, another never reads; one sends without end,
    // others send garbage.
    let silent: Vec<UnixStream> = (0..MAX_CLIENTS).map(|_| scene.connect()).collect();
    let deaf: Vec<UnixStream> = (0..MAX_CLIENTS)
        .map(|_| {
            let mut stream = scene.connect();
            stream.write_all(b"status\n").expect("sent");
            stream
        })
        .collect();
    let mut flood = scene.connect();
    let flooding = std::thread::spawn(move || while flood.write_all(&[b'x'; 4096]).is_ok() {});
    for seed in 0..50u8 {
        let bytes: Vec<u8> = (0..=255u8).map(|b| b.wrapping_mul(seed)).collect();
        let _ = scene.connect().write_all(&bytes);
    }
    // The session never waits for these clients. A new client gets an answer when their time is
    // over.
    for pid in 0..1000 {
        board.publish(Status {
            pid,
            ..Status::default()
        });
    }
    assert!(scene
        .ask(b"status")
        .expect("an answer")
        .contains("\"pid\":999"));
    flooding.join().expect("it was left");
    drop((silent, deaf));
}

fn last_process_id() -> u32 {
    let mut child = std::process::Command::new("true").spawn().expect("started");
    child.wait().expect("ended");
    child.id()
}

#[test]
fn the_status_socket_is_private_and_ends_with_the_session() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = dir.path().join("open");
    fs::create_dir(&open).expect("made");
    let mode = |m| <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(m);
    fs::set_permissions(&open, mode(0o777)).expect("chmod");
    let refused = Service::start(&open, Arc::default(), Duties::default())
        .expect_err("other users may write to the directory");
    assert!(refused.to_string().contains("open"), "{refused}");
    // A link in the socket's place is replaced, not followed.
    let own = dir.path().join("own");
    fs::create_dir(&own).expect("made");
    fs::set_permissions(&own, mode(0o700)).expect("chmod");
    let victim = dir.path().join("victim");
    fs::write(&victim, "kept").expect("written");
    let socket = own.join(sockets::name(std::process::id()));
    std::os::unix::fs::symlink(&victim, &socket).expect("linked");
    let service = Service::start(&own, Arc::default(), Duties::default()).expect("it listens");
    assert_eq!(fs::read(&victim).expect("it is there"), b"kept");
    drop(service);
    assert!(!socket.exists());
    let none = ask(&own, None, b"status", Duration::from_secs(60)).expect("it is ours");
    assert!(none.is_empty());
    // Nobody listens on a socket that a killed session has left.
    drop(UnixListener::bind(own.join("status-1.sock")).expect("bound"));
    let none = ask(&own, None, b"status", Duration::from_secs(60)).expect("it is ours");
    assert!(none.is_empty(), "{none:?}");
    // The next session removes it. It keeps the sockets of living processes, and other files.
    let gone = last_process_id();
    let dead = own.join(sockets::name(gone));
    drop(UnixListener::bind(&dead).expect("bound"));
    let ours = own.join(sockets::name(1));
    let other = own.join("ledger-1");
    fs::write(&other, "kept").expect("written");
    let _service = Service::start(&own, Arc::default(), Duties::default()).expect("it listens");
    assert!(!dead.exists());
    assert!(ours.exists(), "process 1 lives");
    assert!(other.exists());
}

#[test]
fn a_reload_reads_the_plan_and_returns_the_outcome() {
    let dir = tempfile::tempdir().expect("a directory");
    let board = Arc::new(Board::default());
    let text = include_bytes!("../../../../plan/tests/golden/plan.yaml");
    let hangup = Arc::<AtomicBool>::default();
    let duties = Duties {
        load: Some(Box::new(|| {
            onbeat_plan::file::read(text).map_err(|e| e.to_string())
        })),
        hangup: hangup.clone(),
        ..Duties::default()
    };
    let _service = Service::start(dir.path(), board.clone(), duties).expect("it listens");
    let asked = || ask(dir.path(), None, b"reload", Duration::from_secs(60));
    let taken = |board: &Board| loop {
        match board.reloads().take() {
            Some(taken) => break taken,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    std::thread::scope(|scope| {
        let asked = scope.spawn(asked);
        let (number, plan) = taken(&board);
        assert!(plan.is_ok());
        let said = "Plan 2 is in force now.".to_owned();
        let outcome = Outcome::Taken;
        board.reloads().done(number, Reloaded { outcome, said });
        let answers = asked.join().expect("it ends").expect("it is ours");
        let text = answers[0].text.as_ref().expect("an answer");
        let answer: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(
            (&answer["outcome"], &answer["said"]),
            (&"taken".into(), &"Plan 2 is in force now.".into())
        );
    });
    // The flag of the signal has the same effect.
    hangup.store(true, Relaxed);
    assert!(taken(&board).1.is_ok());
    // If the session takes no plans, only a few are queued.
    let many = (0..100).filter(|_| board.reloads().bring(Err(String::new())).is_some());
    assert!(many.count() <= 16);
}
