//! Tests with links and directories that another user puts in the way.

use onbeat_files::{Directory, MakeError, Meta, Owner};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};

fn is_root() -> bool {
    let root = Meta::of(fs::File::open("/proc/self/status").unwrap())
        .unwrap()
        .uid
        == 0;
    if !root {
        println!("skipped: only root can give files away");
    }
    root
}

fn write(text: &'static str) -> impl FnOnce(&mut fs::File) -> std::io::Result<()> {
    move |file| file.write_all(text.as_bytes())
}

#[test]
fn an_output_directory_must_be_new_or_empty() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(Directory::make(&at("a/b/new")).is_ok());
    assert!(Directory::make(&at("a/b/new/")).is_ok(), "empty");
    fs::write(at("a/b/new/file"), "x").unwrap();
    let made = Directory::make(&at("a/b/new"));
    assert!(matches!(made, Err(MakeError::NotEmpty(_))), "{made:?}");
    fs::create_dir(at("target")).unwrap();
    symlink(at("target"), at("link")).unwrap();
    let made = Directory::make(&at("link"));
    assert!(matches!(made, Err(MakeError::Link(_))), "{made:?}");
    let made = Directory::make(&at("a/b/new/file"));
    assert!(matches!(made, Err(MakeError::System { .. })), "{made:?}");
    for error in [
        Directory::make(&at("a/b/new")),
        Directory::make(&at("link")),
        Directory::make(&at("a/b/new/file")),
    ] {
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains(". Name ") && text.lines().count() == 1,
            "{text}"
        );
    }
}

#[test]
fn links_are_neither_followed_nor_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let out = Directory::make(&dir.path().join("out")).unwrap();
    for name in ["file", "file.tmp", ".file.tmp"] {
        symlink(&victim, dir.path().join("out").join(name)).unwrap();
        assert!(out.create_new(name, 0o666).is_err(), "{name}");
        assert!(out.open_file(name).is_err(), "{name}");
    }
    out.replace("file", write("new")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(
        fs::read_to_string(dir.path().join("out/file")).unwrap(),
        "new"
    );
    let mut names = out.names().unwrap();
    names.sort();
    assert_eq!(
        names,
        [".file.tmp", "file", "file.tmp"],
        "no temporary file is left"
    );
    out.remove("file.tmp").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_directory_that_replaces_an_open_one_receives_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, aside) = (dir.path().join("out"), dir.path().join("aside"));
    let out = Directory::make(&path).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(&path, &aside).unwrap();
    symlink(&elsewhere, &path).unwrap();
    out.create_new("a", 0o666).unwrap();
    out.replace("b", write("b")).unwrap();
    out.set_mode(0o700).unwrap();
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(aside.join("a").exists() && aside.join("b").exists());
}

#[test]
fn a_failed_replace_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    onbeat_files::replace(&path, write("old")).unwrap();
    let failed = onbeat_files::replace(&path, |file| {
        file.write_all(b"ne")?;
        Err(std::io::Error::other("full"))
    });
    assert!(failed.is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn only_files_that_onbeat_creates_get_another_owner() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "").unwrap();
    let owner = Owner {
        uid: 65534,
        gid: 65534,
    };
    let out = Directory::make(&dir.path().join("out"))
        .unwrap()
        .owned_by(Some(owner));
    fs::hard_link(&victim, dir.path().join("out/linked")).unwrap();
    assert!(out.create_new("linked", 0o666).is_err());
    out.replace("file", write("x")).unwrap();
    assert_eq!(fs::metadata(&victim).unwrap().uid(), 0);
    assert_eq!(
        fs::metadata(dir.path().join("out/file")).unwrap().uid(),
        65534
    );
}

#[test]
fn make_trusted_refuses_paths_that_other_users_can_change() {
    if !is_root() {
        return;
    }
    // The directory lies below /tmp, whose sticky bit protects root's files from being renamed.
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    assert!(Directory::make_trusted(&root.join("a/b")).is_ok());
    assert!(Directory::make_trusted(&root.join("a/b")).is_ok(), "empty");
    let open = root.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for way in ["open/x", "open/x/y"] {
        let made = Directory::make_trusted(&root.join(way));
        assert!(made.as_ref().is_err_and(MakeError::is_denied), "{made:?}");
    }
    let theirs = root.join("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
    assert!(Directory::make_trusted(&theirs.join("x")).is_err());
    let made = Directory::make_trusted(&theirs);
    assert!(
        matches!(made, Err(MakeError::Foreign { uid: 65534, .. })),
        "{made:?}"
    );
    assert!(!open.join("x").exists() && !theirs.join("x").exists());
}
