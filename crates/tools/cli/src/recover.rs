//! `onbeat recover`: restores what a killed `onbeat shape` has changed.

use onbeat_shape::{FoundLedger, GroupStanding, Recovery, Standing};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use serde_json::{json, Value};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Restore the threads and cgroups that a killed `onbeat shape` has changed
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat recover --dry-run       what would be restored
  sudo onbeat recover                 restores it
  ExecStopPost=onbeat recover --leave-living         in a unit of systemd

When `onbeat shape` ends or is killed, it or its guard restores the policies, priorities, CPUs and
cgroups of threads. Only if both are killed, changes stay. This command restores them, and so does
the next `onbeat shape`. It can be repeated safely.

The changes of a running session stay; end that session instead (kill PID). Only cgroups named
onbeat-... are thawed, emptied and removed.

Exit codes: 0 nothing is left; 1 something could not be restored, one line each; 2 wrong command
line; 4 not allowed: this needs root, or a session is running (0 with --leave-living).")]
pub struct Args {
    /// Only print which threads and cgroups would be restored
    #[arg(long)]
    pub dry_run: bool,
    /// Succeed even if a session is running. Use this option in a systemd unit
    #[arg(long)]
    pub leave_living: bool,
    /// Print the result as JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Directory of the ledgers from which threads are restored [default: /run/onbeat]
    #[arg(long, value_name = "DIR")]
    pub ledgers: Option<PathBuf>,
}

const GUARD: Duration = Duration::from_secs(10);

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    if !onbeat_rights::is_root() || onbeat_rights::is_elevated() {
        let how = "only root can restore threads: sudo onbeat recover";
        return Err(CliError::Refused(how.into()));
    }
    onbeat_rights::raise();
    let dir = args.ledgers.clone().unwrap_or_else(onbeat_shape::ledgers);
    let how = Recovery {
        dry_run: args.dry_run,
        wait_for_guard: GUARD,
    };
    let found = onbeat_shape::recover_in(&dir, how).map_err(|e| {
        CliError::Failed(format!(
            "cannot read {}: {e}. The directory must belong to root, and nobody else may write to it",
            dir.display()
        ))
    })?;
    match args.json {
        true => print_json(&found, args.dry_run)?,
        false => print(&found, args.dry_run)?,
    }
    let failed: usize = found.iter().map(|l| failures(l).len()).sum();
    if failed > 0 {
        return Err(CliError::Failed(format!(
            "{failed} changes could not be restored (see above). Run `onbeat recover` again"
        )));
    }
    match found.iter().find_map(living) {
        Some(why) if !args.leave_living => Err(CliError::Refused(why)),
        _ => Ok(ExitStatus::Success),
    }
}

/// Returns the reason why a ledger must not be changed: its session or its guard still runs.
/// Returns `None` otherwise.
fn living(ledger: &FoundLedger) -> Option<String> {
    match ledger.standing {
        Standing::Held { owner } => Some(format!(
            "a session is running (process {owner}), so its changes stay. End it with \
             kill {owner}, which restores everything"
        )),
        Standing::Guarded => Some(format!(
            "a guard (process gate-keeper) is still restoring the threads in {}. Try again later",
            ledger.path.display()
        )),
        Standing::Abandoned | Standing::NotBelieved => None,
    }
}

fn failures(ledger: &FoundLedger) -> &[String] {
    let restored = ledger.restored.as_ref();
    restored.map_or(&[], |r| &r.failures)
}

fn remarks(ledger: &FoundLedger) -> &[String] {
    let restored = ledger.restored.as_ref();
    restored.map_or(&[], |r| &r.remarks)
}

fn print(found: &[FoundLedger], dry_run: bool) -> Result<(), CliError> {
    let (screen, mut out) = (Screen::of_stdout(), io::stdout());
    for ledger in found.iter().filter(|l| !l.threads.is_empty()) {
        let mut table = Table::new()
            .column("thread", Align::Right)
            .column("process", Align::Right)
            .names("name", 1)
            .column("scheduling", Align::Left)
            .column("CPUs", Align::Left);
        for thread in &ledger.threads {
            let name = thread.name.clone();
            table.row(vec![
                thread.tid.to_string(),
                thread.process.to_string(),
                name.unwrap_or_else(|| "(has ended)".into()),
                thread.scheduling.clone(),
                cpus(&thread.cpus),
            ]);
        }
        table.write(&mut out, &screen)?;
    }
    let mut say =
        |line: String| writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout);
    for ledger in found {
        for (dir, standing) in &ledger.groups {
            let dir = dir.display();
            say(match (standing, dry_run) {
                (GroupStanding::There, true) => {
                    format!("onbeat would thaw, empty and remove cgroup {dir}")
                }
                (GroupStanding::There, false) => {
                    format!("onbeat has thawed, emptied and removed cgroup {dir}")
                }
                (GroupStanding::Gone, _) => format!("cgroup {dir} is gone already"),
                (GroupStanding::Refused, _) => {
                    format!("cgroup {dir} does not belong to a reservation, so onbeat leaves it as it is")
                }
            })?;
        }
        let torn = ledger.torn;
        if torn > 0 && dry_run {
            let path = ledger.path.display();
            say(format!(
                "note: {path}: {torn} lines are incomplete and cannot be read"
            ))?;
        }
        let notes = failures(ledger).iter().chain(remarks(ledger));
        notes
            .cloned()
            .chain(living(ledger))
            .try_for_each(|n| say(format!("note: {n}")))?;
    }
    say(sentence(found, dry_run))
}

fn sentence(found: &[FoundLedger], dry_run: bool) -> String {
    let sum = |of: fn(&FoundLedger) -> usize| found.iter().map(of).sum::<usize>();
    let abandoned = found.iter().filter(|l| l.standing == Standing::Abandoned);
    let sessions = match abandoned.count() {
        0 => return "Nothing to restore: no killed session has left any changes.".into(),
        n => count(n, "killed session"),
    };
    let alive = |l: &FoundLedger| l.threads.iter().filter(|t| t.name.is_some()).count();
    let there = |l: &FoundLedger| {
        let there = |(_, s): &&(PathBuf, GroupStanding)| *s == GroupStanding::There;
        l.groups.iter().filter(there).count()
    };
    if dry_run {
        return format!(
            "onbeat would restore {} and remove {}, left by {sessions}.",
            count(sum(alive), "thread"),
            count(sum(there), "cgroup")
        );
    }
    let restored = |of: fn(&onbeat_shape::Restored) -> usize| -> usize {
        found
            .iter()
            .filter_map(|l| l.restored.as_ref())
            .map(of)
            .sum()
    };
    format!(
        "onbeat has restored {} ({} had ended) and removed {}, left by {sessions}.",
        count(restored(|r| r.threads), "thread"),
        restored(|r| r.gone),
        count(restored(|r| r.groups), "cgroup")
    )
}

fn count(n: usize, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

fn cpus(cpus: &[u16]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let [first, ..] = rest {
        let run = rest
            .iter()
            .zip(*first..)
            .take_while(|(a, b)| *a == b)
            .count();
        let last = rest[run - 1];
        if !text.is_empty() {
            text.push(',');
        }
        text += &match run {
            1 => first.to_string(),
            _ => format!("{first}-{last}"),
        };
        rest = &rest[run..];
    }
    text
}

fn print_json(found: &[FoundLedger], dry_run: bool) -> Result<(), CliError> {
    let ledgers: Vec<Value> = found.iter().map(as_json).collect();
    let text = json!({"dry_run": dry_run, "ledgers": ledgers});
    writeln!(io::stdout(), "{text:#}").map_err(CliError::Stdout)
}

fn as_json(ledger: &FoundLedger) -> Value {
    let (standing, owner) = match ledger.standing {
        Standing::Held { owner } => ("held", Some(owner)),
        Standing::Guarded => ("guarded", None),
        Standing::Abandoned => ("abandoned", None),
        Standing::NotBelieved => ("not_believed", None),
    };
    let threads: Vec<Value> = ledger
        .threads
        .iter()
        .map(|t| {
            json!({"tid": t.tid, "pid": t.process, "name": t.name, "scheduling": t.scheduling,
                   "cpus": t.cpus, "cgroup": t.home})
        })
        .collect();
    let groups: Vec<Value> = ledger
        .groups
        .iter()
        .map(|(dir, standing)| {
            let standing = match standing {
                GroupStanding::There => "there",
                GroupStanding::Gone => "gone",
                GroupStanding::Refused => "refused",
            };
            json!({"path": dir, "found": standing})
        })
        .collect();
    let restored = ledger.restored.as_ref();
    let restored =
        restored.map(|r| json!({"threads": r.threads, "gone": r.gone, "groups": r.groups}));
    json!({"ledger": ledger.path, "standing": standing, "owner": owner, "threads": threads,
           "groups": groups, "torn": ledger.torn, "restored": restored,
           "failures": failures(ledger), "remarks": remarks(ledger)})
}

#[cfg(test)]
mod tests {
    use super::cpus;

    #[test]
    fn lists_of_cpus_are_formatted_like_those_of_the_kernel() {
        assert_eq!(cpus(&[]), "");
        assert_eq!(cpus(&[3]), "3");
        assert_eq!(cpus(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
