//! Ledgers that others wrote, or put links in the place of: root must not do what is in them.

mod common;

use common::{alone, server, MS};
use onbeat_reserve::{Entry, Group, Options, Reservation, StartError, Warning};
use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::path::{Path, PathBuf};

const NOBODY: u32 = 65534;

/// A state directory as a reservation makes it, beside a directory that a ledger would remove.
struct Scene {
    _dir: tempfile::TempDir,
    state: PathBuf,
    victim: PathBuf,
    /// Text of a ledger that removes the victim.
    text: String,
}

impl Scene {
    fn set() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let (state, victim) = (dir.path().join("state"), dir.path().join("victim"));
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(&victim).unwrap();
        let group = Entry::Group(Group {
            thaw: None,
            members: victim.join("members"),
            home: victim.join("home"),
            dir: victim.clone(),
        });
        let text = serde_json::to_string(&group).unwrap() + "\n";
        Scene {
            _dir: dir,
            state,
            victim,
            text,
        }
    }

    /// Starts a reservation without gates, which needs no freezer.
    fn start(&self) -> Result<Reservation, StartError> {
        let mut options = Options::new(0);
        options.state_dir = self.state.clone();
        options.dispatcher_priority = 1;
        Reservation::start(100 * MS, &[server("r", 0, &[(0, 100 * MS)])], 0, options)
    }

    /// What a reservation does not undo, one line each.
    fn not_recovered(&self) -> Vec<String> {
        let reservation = self.start().expect("it starts");
        let lines = reservation.warnings().iter().filter_map(|w| match w {
            Warning::NotRecovered(line) => Some(line.clone()),
            _ => None,
        });
        lines.collect()
    }
}

fn is_root(test: &str) -> bool {
    // SAFETY: cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        println!("skipped: {test}: needs root");
    }
    is_root
}

fn refuses(scene: &Scene, ledger: &Path, why: &str) {
    let lines = scene.not_recovered();
    assert!(scene.victim.exists(), "{lines:?}");
    assert!(
        ledger.symlink_metadata().is_ok(),
        "it is left to be looked at"
    );
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    let name = ledger.display().to_string();
    assert!(line.contains(&name) && line.contains(why), "{line}");
}

#[test]
fn a_ledger_of_ours_is_done() {
    let _alone = alone();
    if !is_root("a_ledger_of_ours_is_done") {
        return;
    }
    let scene = Scene::set();
    fs::write(scene.state.join("a.json"), &scene.text).unwrap();
    assert_eq!(scene.not_recovered(), Vec::<String>::new());
    assert!(!scene.victim.exists(), "so that the other tests can fail");
}

#[test]
fn a_ledger_that_another_user_wrote_is_refused() {
    let _alone = alone();
    if !is_root("a_ledger_that_another_user_wrote_is_refused") {
        return;
    }
    let scene = Scene::set();
    let ledger = scene.state.join("a.json");
    fs::write(&ledger, &scene.text).unwrap();
    chown(&ledger, Some(NOBODY), None).unwrap();
    refuses(&scene, &ledger, "somebody else");
    chown(&ledger, Some(0), None).unwrap();
    fs::set_permissions(&ledger, Permissions::from_mode(0o666)).unwrap();
    refuses(&scene, &ledger, "somebody else");
}

#[test]
fn a_link_in_the_place_of_a_ledger_is_refused_and_holds_nobody_up() {
    let _alone = alone();
    if !is_root("a_link_in_the_place_of_a_ledger_is_refused_and_holds_nobody_up") {
        return;
    }
    let scene = Scene::set();
    let elsewhere = scene.victim.with_file_name("elsewhere");
    fs::write(&elsewhere, &scene.text).unwrap();
    let ledger = scene.state.join("a.json");
    symlink(&elsewhere, &ledger).unwrap();
    refuses(&scene, &ledger, "symbolic link");
    fs::remove_file(&ledger).unwrap();
    // Whoever opens a pipe without care waits for its other end.
    let path = std::ffi::CString::new(ledger.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with NUL and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    refuses(&scene, &ledger, "it is no file");
}

#[test]
fn a_directory_of_ledgers_that_others_can_fill_is_refused() {
    let _alone = alone();
    if !is_root("a_directory_of_ledgers_that_others_can_fill_is_refused") {
        return;
    }
    let scene = Scene::set();
    fs::write(scene.state.join("a.json"), &scene.text).unwrap();
    let refused = |scene: &Scene| {
        let error = scene.start().expect_err("refused").to_string();
        assert!(scene.victim.exists(), "{error}");
        assert!(error.lines().count() == 1, "{error}");
    };
    fs::set_permissions(&scene.state, Permissions::from_mode(0o770)).unwrap();
    refused(&scene);
    fs::set_permissions(&scene.state, Permissions::from_mode(0o700)).unwrap();
    chown(&scene.state, Some(NOBODY), None).unwrap();
    refused(&scene);
    chown(&scene.state, Some(0), None).unwrap();
    let real = scene.state.with_file_name("real");
    fs::rename(&scene.state, &real).unwrap();
    symlink(&real, &scene.state).unwrap();
    refused(&scene);
}

#[test]
fn a_directory_that_was_swapped_is_not_looked_at() {
    let _alone = alone();
    if !is_root("a_directory_that_was_swapped_is_not_looked_at") {
        return;
    }
    let scene = Scene::set();
    let reservation = scene.start().expect("it starts");
    let (aside, theirs) = (
        scene.state.with_file_name("aside"),
        scene.state.with_file_name("theirs"),
    );
    let ledgers = |dir: &Path| {
        let files = fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name());
        files.filter(|n| n != "lock").collect::<Vec<_>>()
    };
    let names = ledgers(&scene.state);
    assert_eq!(names.len(), 1);
    fs::rename(&scene.state, &aside).unwrap();
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join(&names[0]), "theirs").unwrap();
    symlink(&theirs, &scene.state).unwrap();
    reservation.stop();
    assert_eq!(ledgers(&theirs), names, "nothing was removed there");
    assert_eq!(ledgers(&aside).len(), 0, "its own ledger is gone");
}
