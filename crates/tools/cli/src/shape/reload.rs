//! `onbeat shape --reload`: makes sessions read their plan file again.

use super::status;
use onbeat_plan::{file, Plan};
use onbeat_record::User;
use onbeat_shape::status::LoadPlan;
use onbeat_terminal::CliError;
use onbeat_terminal::{term, ExitStatus};
use serde_json::{json, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Asks the sessions in `dir` to read their plans again, and prints each answer. Fails if a session
/// refuses its new plan.
pub fn reload(dir: &Path, only: Option<u32>, as_json: bool) -> Result<ExitStatus, CliError> {
    let answers = status::answers(dir, only, b"reload")?;
    let mut out = io::stdout();
    let (mut found, mut not_taken) = (Vec::new(), Vec::new());
    for (pid, text) in &answers {
        let mut answer: Value = serde_json::from_str(text)
            .map_err(|e| CliError::Failed(format!("session {pid} gave an invalid answer: {e}")))?;
        let said = answer["said"].as_str().or(answer["error"].as_str());
        let said = format!("session {pid}: {}", said.unwrap_or("the answer is empty"));
        match answer["outcome"].as_str() {
            Some("taken" | "same") if as_json => {}
            Some("taken" | "same") => {
                writeln!(out, "{}", term::one_line(&said)).map_err(CliError::Stdout)?
            }
            _ => not_taken.push(said),
        }
        answer["pid"] = json!(pid);
        found.push(answer);
    }
    if as_json {
        writeln!(out, "{:#}", json!({"sessions": found})).map_err(CliError::Stdout)?;
    } else if answers.is_empty() {
        writeln!(out, "No session runs.").map_err(CliError::Stdout)?;
    }
    match (not_taken.is_empty(), answers.is_empty()) {
        (false, _) => Err(CliError::Failed(not_taken.join("; "))),
        (true, true) => Ok(ExitStatus::NothingFound),
        (true, false) => Ok(ExitStatus::Success),
    }
}

/// Returns whether this process has a controlling terminal. If it has one, SIGHUP can mean that the
/// terminal was closed.
pub fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Returns a function that reads the session's plan file again. `user` is the user who called sudo,
/// and may own the file.
pub fn loader(path: &Path, user: Option<&User>) -> LoadPlan {
    // The working directory may change later, so the path is made absolute now.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let trusted = [Some(0), Some(own_user()), user.map(|u| u.uid)];
    Box::new(move || load(&path, &trusted))
}

fn own_user() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |m| m.uid())
}

/// Reads a plan. Refuses a file that an untrusted user owns or can change, because a reload happens
/// unattended and nobody checks the file.
fn load(path: &PathBuf, trusted: &[Option<u32>]) -> Result<Plan, String> {
    let at = |what: String| format!("{}: {what}", path.display());
    let mut options = OpenOptions::new();
    // Without O_NONBLOCK, the open of a pipe would wait for a writer.
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let opened = options.open(path).and_then(|f| Ok((f.metadata()?, f)));
    let (about, file) = opened.map_err(|e| at(e.to_string()))?;
    if !about.is_file() {
        return Err(at("the file is not a regular file".into()));
    }
    if !trusted.contains(&Some(about.uid())) || about.mode() & 0o002 != 0 {
        return Err(at(
            "the file must belong to root or to the user who started the session, and others must not write to it"
                .into(),
        ));
    }
    let mut bytes = Vec::new();
    let read = file
        .take(file::MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes);
    read.map_err(|e| at(e.to_string()))?;
    file::read(&bytes).map_err(|e| at(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_plan_is_reloaded_only_if_nobody_else_can_change_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("plan.yaml");
        let mut load = loader(&path, None);
        assert!(load().expect_err("there is none").contains("plan.yaml"));
        let golden = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../enforce/plan/tests/golden/plan.yaml"
        );
        fs::copy(golden, &path).expect("copied");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("chmod");
        assert!(load().is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).expect("chmod");
        assert!(load()
            .expect_err("others write")
            .contains("others must not write"));
        fs::remove_file(&path).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        assert!(load().expect_err("a pipe").contains("not a regular file"));
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "servers: {").expect("written");
        assert!(load().expect_err("no plan").contains("plan.yaml: line 1"));
    }
}
