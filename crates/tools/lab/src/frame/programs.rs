//! Running programs to their end, and the reason if one fails.

use super::children::{Ended, Guarded};
use super::{machine, Context, LabError, Result};
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
}

/// Runs a program that must succeed and returns its standard output. Error messages call the
/// program `what`. `fix` says how to get the program if it is missing.
pub fn output(command: &mut Command, what: &str, fix: &str) -> Result<String> {
    let output = command
        .output()
        .map_err(|e| LabError::program(what, format!("{e}; {fix}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|l| l.contains("error"));
    let line = line.or(said.lines().last()).unwrap_or("no message");
    Err(LabError::program(what, line))
}

impl Context {
    /// Starts on each CPU a program that uses all the time that it gets. Dropping the returned
    /// children ends the programs.
    pub fn busy_cpus(&self) -> Result<Vec<Guarded>> {
        let busy = |_| self.spawn(Command::new("sh").args(["-c", "while :; do :; done"]));
        (0..machine::cpus()).map(busy).collect()
    }

    /// Runs a program that must succeed within `limit`. Returns the resources that it used. The
    /// error contains the last line of the program's piped standard error.
    pub fn succeed(&self, command: &mut Command, what: &str, limit: Duration) -> Result<Ended> {
        let mut child = self.spawn(command)?;
        let ended = child.wait(limit).map_err(|e| LabError::program(what, e))?;
        let why = match ended {
            Some(ended) if ended.status.success() => return Ok(ended),
            Some(ended) => format!("{}{}", ended.status, child.last_error()),
            None => format!("the program did not end within {} s", limit.as_secs()),
        };
        Err(LabError::program(what, why))
    }
}
