//! What was recorded goes on unharmed, however its recorder ends. The programs are compiled here, so
//! that the instructions below the probes are known.

use super::{signal, wait_within, Harness, Test};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = tests![
    a_program_that_forks_survives_probes_behind_its_nops,
    a_recorder_killed_while_it_attaches_or_detaches_leaves_no_probe,
];

/// How many processes have the library mapped: each breakpoint is put into all of them.
const PROCESSES: usize = 40;

/// Functions of libtracetools as it looks to a recorder, with a 5-byte nop at their beginning, which
/// the kernel turns into a call where it is probed (Linux 6.18).
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

/// Calls a function for the given time and forks that many children at once, which call it for the
/// given time too. Ends with 3 when one of them died.
const CALLER: &str = "
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
long ros_trace_callback_start(long, long);
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int count, char **words) {
    double end = now() + atof(words[1]);
    int children = atoi(words[2]), status = 0, died = 0;
    ros_trace_callback_start(1, 0);
    while (now() < end) {
        for (int i = 0; i < children; i++)
            if (fork() == 0) {
                for (double until = now() + atof(words[3]); now() < until; usleep(5000))
                    if (ros_trace_callback_start(7, 0) != 7) abort();
                _exit(0);
            }
        for (double until = now() + 0.2; now() < until; usleep(5000)) ros_trace_callback_start(1, 0);
        for (int i = 0; i < children; i++) {
            wait(&status);
            died += status != 0;
        }
    }
    return died ? 3 : 0;
}
";

/// Compiles the caller and its library into a folder of their own.
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

fn a_program_that_forks_survives_probes_behind_its_nops(harness: &Harness) {
    let dir = compiled(harness, "alive-forks");
    let caller = dir.join("caller").display().to_string();
    let (output, trace) = harness.record(
        "forks",
        None,
        &[caller, "2".into(), "4".into(), "0.5".into()],
    );
    assert!(output.status.success());
    let starts = super::events(&trace)
        .iter()
        .filter(|e| matches!(e.kind, onbeat_trace::EventKind::CallbackStart { .. }))
        .count();
    assert!(starts > 100, "only {starts} calls seen");
}

fn a_recorder_killed_while_it_attaches_or_detaches_leaves_no_probe(harness: &Harness) {
    let dir = compiled(harness, "alive-killed");
    let mut log = match KernelLog::from_now() {
        Ok(log) => log,
        Err(error) => return println!("        not tested: /dev/kmsg: {error}"),
    };
    let programs = Programs::start(&dir);
    std::thread::sleep(Duration::from_millis(200));
    let recorder = |name: String| {
        let mut command = harness.recorder(&name, None);
        command.arg(format!("pid={}", programs.0.id()));
        let manifest = harness.dir.path().join(name).join("manifest.json");
        (command.spawn().expect("the recorder starts"), manifest)
    };
    for round in 0..6u64 {
        // While it detaches: after a signal that ends it properly.
        let (mut child, manifest) = recorder(format!("detaching{round}"));
        let begin = Instant::now();
        let is_recording = || {
            let text = std::fs::read_to_string(&manifest).unwrap_or_default();
            text.contains("ros_trace_callback_start")
        };
        while !is_recording() && begin.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        signal(&child, libc::SIGTERM);
        std::thread::sleep(Duration::from_millis(250 + 130 * round));
        signal(&child, libc::SIGKILL);
        wait_within(&mut child, Duration::from_secs(60));
        // While it attaches.
        let (mut child, _) = recorder(format!("attaching{round}"));
        std::thread::sleep(Duration::from_millis(60 + 50 * round));
        signal(&child, libc::SIGKILL);
        wait_within(&mut child, Duration::from_secs(60));
    }
    // What the recorders left to others is done after them.
    let begin = Instant::now();
    while is_detaching() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = log.lines_with("leaking uprobe");
    assert!(left.is_empty(), "{left:#?}");
}

/// Whether a process runs that detaches probes for a recorder.
fn is_detaching() -> bool {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|e| std::fs::read_to_string(e.path().join("comm")).ok())
        .any(|name| name.trim_end() == "onbeat-detach")
}

/// The kernel's log from a moment on.
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

    /// New lines with a word in them.
    fn lines_with(&mut self, word: &str) -> Vec<String> {
        let mut lines = Vec::new();
        // A line for each read.
        let mut line = [0; 8192];
        while let Ok(length) = self.0.read(&mut line) {
            let line = String::from_utf8_lossy(&line[..length]);
            lines.extend(line.contains(word).then(|| line.into_owned()));
        }
        lines
    }
}

/// A caller and its children, which run until this is dropped.
struct Programs(Child);

impl Programs {
    fn start(dir: &Path) -> Programs {
        let caller = Command::new(dir.join("caller"))
            .args(["100", &PROCESSES.to_string(), "100"])
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        Programs(caller.expect("the program starts"))
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // SAFETY: plain system call on the process group of a child of ours.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}
