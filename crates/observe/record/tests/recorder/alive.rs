//! What was recorded goes on unharmed, however its recorder ends. The programs are compiled here, so
//! that the instructions below the probes are known.

use super::{signal, wait_within, Harness, Test};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = tests![
    a_program_that_forks_survives_probes_behind_its_nops,
    a_recorder_killed_while_it_attaches_or_detaches_leaves_no_breakpoint,
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

fn a_recorder_killed_while_it_attaches_or_detaches_leaves_no_breakpoint(harness: &Harness) {
    let dir = compiled(harness, "alive-killed");
    let programs = Programs::start(&dir);
    std::thread::sleep(Duration::from_millis(200));
    let recorder = |name: String| {
        let mut command = harness.recorder(&name, None);
        command.arg(format!("pid={}", programs.caller.id()));
        let manifest = harness.dir.path().join(name).join("manifest.json");
        (command.spawn().expect("the recorder starts"), manifest)
    };
    let mut left = Vec::new();
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
        end(&mut child, &programs, &mut left);
        // While it attaches.
        let (mut child, _) = recorder(format!("attaching{round}"));
        std::thread::sleep(Duration::from_millis(60 + 50 * round));
        end(&mut child, &programs, &mut left);
    }
    assert!(
        left.is_empty(),
        "changed after the recorder's end: {left:x?}"
    );
}

/// A caller and its children, which run until this is dropped.
struct Programs {
    library: PathBuf,
    caller: Child,
}

impl Programs {
    fn start(dir: &Path) -> Programs {
        let caller = Command::new(dir.join("caller"))
            .args(["100", &PROCESSES.to_string(), "100"])
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        Programs {
            library: dir.join("libtracetools.so"),
            caller: caller.expect("the program starts"),
        }
    }

    fn ids(&self) -> Vec<u32> {
        let caller = self.caller.id();
        let children = format!("/proc/{caller}/task/{caller}/children");
        let children = std::fs::read_to_string(children).expect("its children");
        let children = children
            .split_whitespace()
            .map(|id| id.parse().expect("an id"));
        children.chain([caller]).collect()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // SAFETY: plain system call on the process group of a child of ours.
        unsafe { libc::kill(-(self.caller.id() as i32), libc::SIGKILL) };
        let _ = self.caller.wait();
    }
}

/// Kills the recorder, waits until nothing of it is left, and adds the bytes of the library's code
/// that differ in a program's memory.
fn end(recorder: &mut Child, programs: &Programs, left: &mut Vec<(u64, u8)>) {
    signal(recorder, libc::SIGKILL);
    wait_within(recorder, Duration::from_secs(60));
    let begin = Instant::now();
    loop {
        let ids = programs.ids();
        let changed: Vec<_> = ids
            .into_iter()
            .flat_map(|id| changed(&programs.library, id))
            .collect();
        // What the recorder left to others is done after it.
        if changed.is_empty() || begin.elapsed() > Duration::from_secs(5) {
            left.extend(changed);
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Bytes of the library's code that are not in the program's memory as they are in the file: their
/// offset in the file, and what is in memory.
fn changed(library: &Path, program: u32) -> Vec<(u64, u8)> {
    let file = std::fs::read(library).expect("the library");
    let maps = std::fs::read_to_string(format!("/proc/{program}/maps")).expect("its maps");
    let name = library.display().to_string();
    let is_code = |line: &&str| line.ends_with(&name) && line.contains("r-xp");
    let line = maps.lines().find(is_code).expect("its code");
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let (start, end) = words[0].split_once('-').expect("a range");
    let (start, end, offset) = (number(start), number(end), number(words[2]));
    let mut memory = std::fs::File::open(format!("/proc/{program}/mem")).expect("its memory");
    memory.seek(SeekFrom::Start(start)).expect("its code");
    let mut code = vec![0; (end - start) as usize];
    memory.read_exact(&mut code).expect("its code");
    let pairs = (offset..).zip(code.iter().zip(&file[offset as usize..]));
    pairs
        .filter(|(_, (in_memory, in_file))| in_memory != in_file)
        .map(|(at, (&in_memory, _))| (at, in_memory))
        .collect()
}
