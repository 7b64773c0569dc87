//! Tests the recorder under sudo: the owner of the trace, and files that must keep their owners.

use super::{Harness, Test};
use onbeat_trace::{Reader, State};
use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, symlink, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

pub const TESTS: &[Test] = tests![
    under_sudo_the_trace_and_the_command_are_the_users,
    under_sudo_existing_files_keep_their_owner,
    under_sudo_a_link_instead_of_the_directory_is_refused,
    under_sudo_planted_links_are_not_followed,
    under_sudo_a_link_swapped_for_the_directory_is_not_followed,
    under_sudo_root_writes_only_where_nobody_else_can_change_the_path,
    under_sudo_outputs_are_written_with_the_users_rights,
    under_sudo_the_users_files_do_not_get_roots_group,
    a_sudo_with_its_callers_real_user_id_is_recognised,
    sudo_variables_without_a_sudo_process_are_refused,
];

const NOBODY: u32 = 65534;
const PRECIOUS: &str = "root's";

struct Scene {
    root: PathBuf,
    home: PathBuf,
}

impl Scene {
    fn set(harness: &Harness, name: &str) -> Option<Scene> {
        // SAFETY: geteuid cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            println!("        not tested: this test needs root");
            return None;
        }
        let everybody = Permissions::from_mode(0o755);
        fs::set_permissions(harness.dir.path(), everybody.clone()).expect("a directory");
        let root = harness.dir.path().join(name);
        let home = root.join("home");
        fs::create_dir_all(&home).expect("a directory");
        fs::set_permissions(&root, everybody).expect("a directory");
        chown(&home, Some(NOBODY), Some(NOBODY)).expect("given");
        Some(Scene { root, home })
    }

    fn victims(&self) -> PathBuf {
        let victims = self.root.join("victims");
        fs::create_dir(&victims).expect("a directory");
        fs::write(victims.join("victim"), PRECIOUS).expect("written");
        victims
    }

    /// Records a command as sudo does. A shell named `caller` plays sudo: it starts with the user's
    /// environment, and passes only little of it on.
    fn record_as(&self, caller: &str, output: &str, command: &str) -> Output {
        self.call(
            caller,
            &format!("record {output} -- /bin/sh -c '{command}'"),
        )
    }

    fn call(&self, caller: &str, words: &str) -> Output {
        self.called(caller, words)
            .output()
            .expect("the shell starts")
    }

    fn called(&self, caller: &str, words: &str) -> Command {
        let sudo = self.root.join(caller);
        let _ = symlink("/bin/sh", &sudo);
        let recorder = std::env::current_exe().expect("this program");
        let script = format!(
            "env -i PATH=/usr/bin:/bin SUDO_UID=65534 SUDO_GID=65534 SUDO_USER=nobody HOME=/root \
             setpriv --reuid 0 {} {words}; exit $?",
            recorder.display()
        );
        let mut command = Command::new(&sudo);
        command
            .args(["-p", "-c", &script])
            .env("MARK", "the user's own")
            .env("HOME", "/home/nobody")
            .current_dir(&self.home)
            .stdin(Stdio::null());
        command
    }

    fn record(&self, output: &str, command: &str) -> Output {
        self.record_as("sudo", output, command)
    }
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path);
    let meta = meta.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (meta.uid(), meta.gid())
}

fn is_untouched(victims: &Path) {
    assert_eq!(owner(victims), (0, 0));
    assert_eq!(owner(&victims.join("victim")), (0, 0));
    let text = fs::read_to_string(victims.join("victim")).expect("read");
    assert_eq!(text, PRECIOUS);
    assert_eq!(fs::read_dir(victims).expect("listed").count(), 1);
}

fn refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains(why) && said.lines().count() == 1, "{said}");
}

fn is_trace_of(trace: &Path, uid: u32) {
    let reader = Reader::open(trace).expect("a trace");
    assert_eq!(reader.manifest().state, State::Complete);
    assert_eq!(owner(trace), (uid, uid));
    for file in fs::read_dir(trace).expect("listed") {
        let path = file.expect("a file").path();
        if !path.is_symlink() {
            assert_eq!(owner(&path), (uid, uid), "{}", path.display());
        }
    }
    let mode = fs::metadata(trace).expect("it is there").mode();
    assert_eq!(mode & 0o022, 0, "nobody else may write there: {mode:o}");
}

/// The test imitates sudo, which gives a program another environment, root's rights, and the user's
/// ids in variables.
fn under_sudo_the_trace_and_the_command_are_the_users(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "sudo") else {
        return;
    };
    let says = "id -u; id -G; echo $MARK; echo $HOME; sleep 1";
    let output = scene.record("new/trace", says);
    let said = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = said.lines().collect();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said.first(), Some(&"65534"), "{said:?}");
    let groups: Vec<&str> = said[1].split(' ').collect();
    assert!(!groups.contains(&"0"), "{said:?}");
    assert_eq!(said[2..], ["the user's own", "/home/nobody"]);
    is_trace_of(&scene.home.join("new/trace"), NOBODY);
    assert_eq!(owner(&scene.home.join("new")), (NOBODY, NOBODY));
    // This directory exists, is empty, and belongs to the user.
    let there = scene.home.join("there");
    fs::create_dir(&there).expect("a directory");
    chown(&there, Some(NOBODY), Some(NOBODY)).expect("given");
    assert!(scene.record("there", "true").status.success());
    is_trace_of(&there, NOBODY);
}

fn under_sudo_existing_files_keep_their_owner(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "there") else {
        return;
    };
    let victims = scene.victims();
    let trace = scene.home.join("trace");
    fs::create_dir(&trace).expect("a directory");
    fs::write(trace.join("file"), "").expect("written");
    symlink(victims.join("victim"), trace.join("link")).expect("a link");
    // The directory belongs first to root, as after an earlier recording, then to the user.
    for uid in [0, NOBODY] {
        chown(&trace, Some(uid), Some(uid)).expect("given");
        let output = scene.record("trace", "true");
        is_untouched(&victims);
        assert_eq!(owner(&trace), (uid, uid));
        assert_eq!(owner(&trace.join("file")), (0, 0));
        let why = ["belongs to another user", "is not empty"][usize::from(uid != 0)];
        refused(&output, why);
        refused(&output, "Name a directory that does not exist yet");
    }
}

fn under_sudo_a_link_instead_of_the_directory_is_refused(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "link") else {
        return;
    };
    let victims = scene.victims();
    symlink(&victims, scene.home.join("trace")).expect("a link");
    let output = scene.record("trace", "true");
    is_untouched(&victims);
    refused(&output, "symbolic link");
    // After following the link, the user's rights decide. This directory belongs to root.
    let output = scene.record("trace/new", "true");
    is_untouched_but_for(&victims, "new", &output);
}

fn is_untouched_but_for(victims: &Path, name: &str, output: &Output) {
    assert!(output.status.success(), "{output:?}");
    is_trace_of(&victims.join(name), 0);
    fs::remove_dir_all(victims.join(name)).expect("removed");
    is_untouched(victims);
}

fn under_sudo_planted_links_are_not_followed(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "planted") else {
        return;
    };
    let victims = scene.victims();
    // The command runs as the user, who owns the directory.
    let plant = "for name in manifest.json.tmp init.obt.tmp segment-000009.obt other; \
                 do ln -s ../../victims/victim trace/$name || exit 9; done; sleep 0.5";
    let output = scene.record("trace", plant);
    assert!(output.status.success(), "{output:?}");
    is_untouched(&victims);
    assert_eq!(owner(&scene.home.join("trace")), (NOBODY, NOBODY));
    assert_eq!(
        owner(&scene.home.join("trace/manifest.json")),
        (NOBODY, NOBODY)
    );
}

fn under_sudo_a_link_swapped_for_the_directory_is_not_followed(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "swapped") else {
        return;
    };
    let victims = scene.victims();
    let swap = "mv trace aside && ln -s ../victims trace || exit 9; sleep 0.5";
    let output = scene.record("trace", swap);
    is_untouched(&victims);
    assert!(output.status.success(), "{output:?}");
    is_trace_of(&scene.home.join("aside"), NOBODY);
}

fn under_sudo_root_writes_only_where_nobody_else_can_change_the_path(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "led") else {
        return;
    };
    // The user may not write here, and only root can change the path, so the trace belongs to root.
    let output = scene.record("../of-root", "true");
    assert!(output.status.success(), "{output:?}");
    is_trace_of(&scene.root.join("of-root"), 0);
    // The user may not write here, and a third user could change the path.
    let theirs = scene.root.join("theirs");
    fs::create_dir(&theirs).expect("a directory");
    chown(&theirs, Some(1), Some(1)).expect("given");
    refused(&scene.record("../theirs/trace", "true"), "ermission denied");
    assert_eq!(fs::read_dir(&theirs).expect("listed").count(), 0);
}

pub fn write_for_user(path: &str) -> ExitCode {
    let user = onbeat_record::user_behind_sudo().expect("under sudo");
    let written = user.act(|| fs::write(path, "an output"));
    match written.expect("as the user") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn under_sudo_outputs_are_written_with_the_users_rights(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "outputs") else {
        return;
    };
    let victims = scene.victims();
    refused(
        &scene.call("sudo", "write ../victims/victim"),
        "ermission denied",
    );
    refused(
        &scene.call("sudo", "write ../victims/new"),
        "ermission denied",
    );
    is_untouched(&victims);
    let output = scene.call("sudo", "write own");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(owner(&scene.home.join("own")), (NOBODY, NOBODY));
}

fn under_sudo_the_users_files_do_not_get_roots_group(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "group") else {
        return;
    };
    let trace = scene.home.join("trace");
    fs::create_dir(&trace).expect("a directory");
    chown(&trace, Some(NOBODY), Some(NOBODY)).expect("given");
    fs::set_permissions(&trace, Permissions::from_mode(0o2755)).expect("chmod");
    let output = scene.record("trace", "mkdir trace/mine; stat -c %g trace/mine");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "65534");
    assert_eq!(fs::metadata(&trace).expect("there").mode() & 0o7777, 0o2755);
}

fn a_sudo_with_its_callers_real_user_id_is_recognised(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "real") else {
        return;
    };
    let mut sudo = scene.called("sudo", "record trace -- /usr/bin/id -u");
    let as_started = || {
        // SAFETY: plain system call.
        match unsafe { libc::setresuid(NOBODY, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec there is only a system call.
    unsafe { sudo.pre_exec(as_started) };
    let output = sudo.output().expect("the shell starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "65534");
    is_trace_of(&scene.home.join("trace"), NOBODY);
}

fn sudo_variables_without_a_sudo_process_are_refused(harness: &Harness) {
    let Some(scene) = Scene::set(harness, "doubt") else {
        return;
    };
    refused(&scene.record_as("shell", "trace", "true"), "Unset SUDO_UID");
    assert!(!scene.home.join("trace").exists());
}
