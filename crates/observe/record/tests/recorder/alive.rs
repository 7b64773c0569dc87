//! Tests that a recorded program runs on unharmed, however its recorder ends.
//!
//! The programs are compiled here, so that the instructions below the probes are known.

use super::{ended, is_recording, signal, wait_until, Harness, Test};
use onbeat_trace::{Event, EventKind};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const TESTS: &[Test] = tests![
    a_program_that_forks_survives_probes_on_its_nops,
    bpf_links_and_perf_events_record_the_same_calls,
];

/// Tests that keep every CPU busy. No other test runs beside them.
pub const ALONE: &[Test] = tests![
    a_started_program_is_seen_from_its_first_call_on,
    a_recorder_killed_while_it_attaches_or_detaches_leaves_no_probe,
];

/// The number of processes that have the library mapped. The kernel inserts each breakpoint into
/// all of them.
const PROCESSES: usize = 40;

/// Functions that look like those of libtracetools. Each begins with a 5-byte nop, which the kernel
/// turns into a call when it is probed (Linux 6.18).
const TRACETOOLS: &str = r#"
.macro function name
    .globl \name
    .type \name, @function
    .balign 16
\name:
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    mov %rdi, %rax
    ret
    .size \name, . - \name
.endm
.text
.irp name, rcl_init, rcl_node_init, rcl_publisher_init, rcl_subscription_init, rcl_service_init
    function ros_trace_\name
.endr
.irp name, rcl_client_init, rcl_timer_init, rcl_publish, rclcpp_publish, rmw_publish, rmw_take
    function ros_trace_\name
.endr
.irp name, rclcpp_timer_link_node, rclcpp_timer_callback_added, rclcpp_subscription_init
    function ros_trace_\name
.endr
.irp name, callback_start, callback_end, rclcpp_executor_execute, rclcpp_executor_get_next_ready
    function ros_trace_\name
.endr
.irp name, rclcpp_executor_wait_for_work, rclcpp_service_callback_added
    function ros_trace_\name
.endr
.section .note.GNU-stack,"",@progbits
"#;

/// A program `caller ROUNDS CHILDREN CALLS`. In each round it forks all children at once. The
/// program and each child call a function CALLS times. The program's exit code is 3 if a child
/// died.
const CALLER: &str = "
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
long ros_trace_callback_start(long, long);
int main(int count, char **words) {
    int rounds = atoi(words[1]), children = atoi(words[2]), calls = atoi(words[3]);
    int status = 0, died = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < children; i++)
            if (fork() == 0) {
                for (int n = 0; n < calls; n++, usleep(5000))
                    if (ros_trace_callback_start(7, 0) != 7) abort();
                _exit(0);
            }
        for (int n = 0; n < calls; n++, usleep(5000)) ros_trace_callback_start(1, 0);
        for (int i = 0; i < children; i++) {
            wait(&status);
            died += status != 0;
        }
    }
    return died ? 3 : 0;
}
";

fn compiled(harness: &Harness, name: &str) -> PathBuf {
    let dir = harness.dir.path().join(name);
    std::fs::create_dir(&dir).expect("a folder");
    std::fs::write(dir.join("tracetools.S"), TRACETOOLS).expect("a file");
    std::fs::write(dir.join("caller.c"), CALLER).expect("a file");
    let library = ["-shared", "tracetools.S", "-o", "libtracetools.so"];
    let caller = "-O1 caller.c -o caller -L. -ltracetools -Wl,-rpath,$ORIGIN";
    for words in [library.to_vec(), caller.split(' ').collect()] {
        let status = Command::new("cc").args(words).current_dir(&dir).status();
        assert!(status.expect("cc, which builds libbpf too").success());
    }
    dir
}

fn a_program_that_forks_survives_probes_on_its_nops(harness: &Harness) {
    let dir = compiled(harness, "alive-forks");
    let caller = dir.join("caller").display().to_string();
    let (rounds, children, calls) = (4, 4, 100);
    let words = [rounds, children, calls].map(|n: usize| n.to_string());
    let command: Vec<String> = [caller].into_iter().chain(words).collect();
    let (output, trace) = harness.record("forks", None, &command);
    assert!(output.status.success());
    assert_eq!(starts(&trace), rounds * (children + 1) * calls);
}

fn bpf_links_and_perf_events_record_the_same_calls(harness: &Harness) {
    let dir = compiled(harness, "alive-links");
    let caller = dir.join("caller").display().to_string();
    let (children, calls) = (2, 300);
    for (name, kind, other) in [
        ("links", "uprobe_multi", "perf"),
        ("events", "perf", "uprobe_multi"),
    ] {
        let mut recorder = harness.recorder(name, None);
        recorder.args([
            "--",
            &caller,
            "1",
            &children.to_string(),
            &calls.to_string(),
        ]);
        if name == "events" {
            recorder.env("ONBEAT_PERF_EVENTS", "1");
        } else if !has_links() {
            println!("        not tested: this kernel has no BPF links for uprobes (Linux 6.12)");
            continue;
        }
        let mut recorder = recorder.spawn().expect("the recorder starts");
        let mut found = Vec::new();
        wait_until("its probes are attached", || {
            let has_ended = recorder.try_wait().expect("our child").is_some();
            assert!(
                !has_ended,
                "{name}: the recorder has ended, its links were {found:?}"
            );
            found = links_of(recorder.id());
            assert!(!found.iter().any(|f| f == other), "{name}: {found:?}");
            found.iter().filter(|f| *f == kind).count() > 10
        });
        assert!(ended(&mut recorder).success());
        let trace = harness.dir.path().join(name);
        assert_eq!(starts(&trace), (children + 1) * calls, "{name}");
    }
}

fn has_links() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split('.').map(|n| n.parse().unwrap_or(0u32));
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

fn links_of(pid: u32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let texts = files.into_iter().flatten().flatten();
    let texts = texts.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let kind = |text: String| {
        let line = text.lines().find_map(|l| l.strip_prefix("link_type:"))?;
        Some(line.trim().to_owned())
    };
    texts.filter_map(kind).collect()
}

/// Tests that a started program waits until its probes are in place, however slow the recorder is.
/// The test starts the program several times, because the fault that it looks for occurs only at
/// some starts. Other processes keep the CPUs busy.
fn a_started_program_is_seen_from_its_first_call_on(harness: &Harness) {
    let dir = compiled(harness, "alive-started");
    let caller = dir.join("caller").display().to_string();
    let others = Programs::busy();
    for round in 0..8 {
        let calls = 8;
        let command = [caller.clone(), "1".into(), "0".into(), calls.to_string()];
        let (_, trace) = harness.record(&format!("started{round}"), None, &command);
        assert_eq!(starts(&trace), calls, "start {round}");
    }
    drop(others);
}

fn starts(trace: &Path) -> usize {
    let is_start = |e: &&Event| matches!(e.kind, EventKind::CallbackStart { .. });
    super::events(trace).iter().filter(is_start).count()
}

fn a_recorder_killed_while_it_attaches_or_detaches_leaves_no_probe(harness: &Harness) {
    let dir = compiled(harness, "alive-killed");
    let mut log = match KernelLog::from_now() {
        Ok(log) => log,
        Err(error) => return println!("        not tested: /dev/kmsg: {error}"),
    };
    let programs = Programs::start(&dir);
    wait_until("all programs run", || programs.children() == PROCESSES);
    let recorder = |name: String| {
        let mut command = harness.recorder(&name, None);
        command.arg(format!("pid={}", programs.0.id()));
        let trace = harness.dir.path().join(name);
        (command.spawn().expect("the recorder starts"), trace)
    };
    for round in 0..6u64 {
        // The first recorder is killed while it detaches, after a signal that ends it properly.
        let (mut child, trace) = recorder(format!("detaching{round}"));
        wait_until("it records", || is_recording(&trace));
        signal(&child, libc::SIGTERM);
        std::thread::sleep(Duration::from_millis(250 + 130 * round));
        signal(&child, libc::SIGKILL);
        ended(&mut child);
        // The second recorder is killed while it attaches.
        let (mut child, _) = recorder(format!("attaching{round}"));
        std::thread::sleep(Duration::from_millis(60 + 50 * round));
        signal(&child, libc::SIGKILL);
        ended(&mut child);
    }
    // Some work of the recorders is left to other processes, which finish later.
    wait_until("no process detaches probes", || !is_detaching());
    let left = log.lines_with("leaking uprobe");
    assert!(left.is_empty(), "{left:#?}");
}

fn is_detaching() -> bool {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|e| std::fs::read_to_string(e.path().join("comm")).ok())
        .any(|name| name.trim_end() == "onbeat-detach")
}

struct KernelLog(File);

impl KernelLog {
    fn from_now() -> std::io::Result<KernelLog> {
        let mut log = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")?;
        log.seek(SeekFrom::End(0))?;
        Ok(KernelLog(log))
    }

    fn lines_with(&mut self, word: &str) -> Vec<String> {
        let mut lines = Vec::new();
        // Each read returns one line.
        let mut line = [0; 8192];
        while let Ok(length) = self.0.read(&mut line) {
            let line = String::from_utf8_lossy(&line[..length]);
            lines.extend(line.contains(word).then(|| line.into_owned()));
        }
        lines
    }
}

struct Programs(Child);

impl Programs {
    fn start(dir: &Path) -> Programs {
        let caller = Command::new(dir.join("caller"))
            .args(["1", &PROCESSES.to_string(), "1000000000"])
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        Programs(caller.expect("the program starts"))
    }

    fn busy() -> Programs {
        let script = "for i in 1 2 3 4; do while :; do :; done & done; wait";
        let shell = Command::new("sh")
            .args(["-c", script])
            .process_group(0)
            .spawn();
        Programs(shell.expect("a shell starts"))
    }

    fn children(&self) -> usize {
        let id = self.0.id();
        let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        text.unwrap_or_default().split_whitespace().count()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // SAFETY: plain system call on the process group of a child of ours.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}
