//! Tests the suspension of processes while probes are attached: every process must go on in the
//! end.

use super::{ended, processes_with, signal, Harness, Test, WATCHDOG};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = tests![
    a_process_that_suspends_itself_with_its_child_is_resumed,
    a_recorder_that_is_suspended_with_its_command_is_resumed,
    jobs_of_a_shell_are_not_suspended,
    a_stopped_recorder_keeps_no_process_suspended,
    a_process_stopped_by_another_program_stays_stopped,
];

/// A script that treats its suspended child as su, sudo and nsenter do.
///
/// When the script sees that its child is suspended, it suspends itself or, with `group`, its
/// process group. When the script is continued, it continues the child. The child is a new program,
/// so the recorder suspends it at its start. The script stops the recorder for half a second:
/// otherwise the recorder may resume the child before the script looks.
const FOLLOWS: &str = "
import os, shutil, signal, sys, time
program, suspends, stops, recorder = sys.argv[1], sys.argv[2], 0, os.getppid()
for n in range(20):
    copy = program + str(n)
    shutil.copy('/bin/true', copy)
    os.kill(recorder, signal.SIGSTOP)
    going = os.fork()
    if not going:
        os.setsid()
        time.sleep(0.5)
        os.kill(recorder, signal.SIGCONT)
        os._exit(0)
    child = os.fork()
    if not child:
        os.execv(copy, [copy])
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        stops += 1
        if suspends == 'group':
            os.killpg(os.getpgrp(), signal.SIGSTOP)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
        os.kill(child, signal.SIGCONT)
    os.unlink(copy)
    os.waitpid(going, 0)
    if stops:
        break
print('stopped' if stops else 'not stopped', flush=True)
";

fn directory(harness: &Harness, name: &str) -> PathBuf {
    let dir = harness.dir.path().join(format!("in-{name}"));
    fs::create_dir(&dir).expect("a directory");
    dir
}

fn start(harness: &Harness, name: &str, script: &[String]) -> Child {
    let mut recorder = harness.recorder(name, None);
    recorder.arg("--").args(script).process_group(0);
    recorder.stdout(Stdio::piped());
    recorder.spawn().expect("the recorder starts")
}

fn output(mut recorder: Child, mark: &str) -> String {
    let begin = Instant::now();
    while recorder.try_wait().expect("our child").is_none() {
        if begin.elapsed() > WATCHDOG {
            let left = processes_with(mark);
            end(&left);
            let _ = recorder.kill();
            panic!("it does not end: {left:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = recorder.wait_with_output().expect("its output");
    String::from_utf8(output.stdout).expect("text")
}

fn end(processes: &[(u32, char)]) {
    for (pid, _) in processes {
        // SAFETY: plain system call that ends a process of this test.
        unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
    }
}

fn follows(harness: &Harness, name: &str, suspends: &str) {
    let program = directory(harness, name).join("program");
    let program = program.display().to_string();
    let script = harness.script(FOLLOWS, &[&program, suspends]);
    let said = output(start(harness, name, &script), &program);
    assert_eq!(said.trim(), "stopped");
}

fn a_process_that_suspends_itself_with_its_child_is_resumed(harness: &Harness) {
    follows(harness, "follows", "itself");
}

fn a_recorder_that_is_suspended_with_its_command_is_resumed(harness: &Harness) {
    follows(harness, "follows-all", "group");
}

fn jobs_of_a_shell_are_not_suspended(harness: &Harness) {
    let program = directory(harness, "job").join("program");
    let program = program.display().to_string();
    let script = "set -m; cp /bin/true \"$0\"; \"$0\"; echo status $?";
    let words = ["bash", "-c", script, &program].map(str::to_owned);
    let said = output(start(harness, "job", &words), &program);
    assert_eq!(said.trim(), "status 0");
}

fn a_stopped_recorder_keeps_no_process_suspended(harness: &Harness) {
    let dir = directory(harness, "stopped").display().to_string();
    let script = "
        touch \"$0/begun\"; while ! [ -e \"$0/go\" ]; do sleep 0.1; done
        cp /bin/true \"$0/a\"; cp /bin/true \"$0/b\"; \"$0/a\"; \"$0/b\"; touch \"$0/done\"";
    let words = ["sh", "-c", script, &dir].map(str::to_owned);
    let recorder = start(harness, "stopped", &words);
    let wait = |name: &str| {
        let begin = Instant::now();
        while !PathBuf::from(&dir).join(name).exists() {
            if begin.elapsed() > WATCHDOG {
                let left = processes_with(&dir);
                signal(&recorder, libc::SIGCONT);
                end(&left);
                panic!("not {name}: {left:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("begun");
    signal(&recorder, libc::SIGSTOP);
    fs::write(format!("{dir}/go"), "").expect("a file");
    wait("done");
    signal(&recorder, libc::SIGCONT);
    output(recorder, &dir);
}

fn a_process_stopped_by_another_program_stays_stopped(harness: &Harness) {
    let mark = directory(harness, "other").display().to_string();
    // The process is in its own session, because the kernel continues the stopped processes of an
    // orphaned process group.
    let script = "
        setsid sh -c 'kill -STOP $$; sleep 60' \"$0\" &
        while ! ps -eo stat,args | grep -q \"^T.*$0$\"; do sleep 0.1; done";
    let words = ["sh", "-c", script, &mark].map(str::to_owned);
    let mut recorder = start(harness, "other", &words);
    assert!(ended(&mut recorder).success());
    let left = processes_with(&mark);
    end(&left);
    let states: String = left.iter().map(|(_, state)| *state).collect();
    assert_eq!(states, "T");
}
