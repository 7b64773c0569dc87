//! Processes that tests start and talk to, and the guards of such processes.

use super::Worker;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub struct Helper {
    pub child: Child,
    pub input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Helper {
    pub fn start(name: &str, environment: &[(&str, String)], without: Option<i32>) -> Helper {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--ignored", "--nocapture", "-q", name])
            .envs(environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(capability) = without {
            unsafe {
                command.pre_exec(move || {
                    match libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) {
                        0 => Ok(()),
                        _ => Err(std::io::Error::last_os_error()),
                    }
                })
            };
        }
        let mut child = command.spawn().unwrap();
        Helper {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub fn next_output(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended");
            if let Some(at) = line.find("SAYS ") {
                return line[at + 5..].trim().to_owned();
            }
        }
    }

    pub fn kill(&mut self, signal: i32) {
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        // The wait has a limit, because the process may be frozen after a failed test.
        for _ in 0..500 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub fn say(what: &str) {
    println!("SAYS {what}");
    std::io::stdout().flush().unwrap();
}

pub fn wait_for_end_of_input() {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).unwrap() > 0 {}
}

pub fn guard_of(pid: u32) -> Option<u32> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once(") ")?;
        let parent: u32 = rest.split(' ').nth(1)?.parse().ok()?;
        (name.ends_with("(gate-keeper") && parent == pid).then_some(id)
    })
}

pub fn run_target(worker: impl Fn() -> Worker) {
    let workers = [worker(), worker()];
    say(&format!("{} {}", workers[0].tid, workers[1].tid));
    wait_for_end_of_input();
    unsafe { libc::_exit(0) };
}

pub fn target() -> (Helper, String, [u32; 2]) {
    let mut target = Helper::start(
        "a_process_that_other_tests_start_runs_target_threads",
        &[],
        None,
    );
    let said = target.next_output();
    let (a, b) = said.split_once(' ').unwrap();
    let tids = [a.parse().unwrap(), b.parse().unwrap()];
    (target, said, tids)
}
