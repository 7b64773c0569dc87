//! Tests that need processes of their own: killed writers and full disks.
//!
//! The program has its own `main`, because it starts itself as the writer.
use onbeat_trace::{Event, EventKind, Manifest, Reader, TraceWriteError, Writer, WriterOptions};
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("write") => return write_until_killed(Path::new(&arguments[2]), &arguments[3]),
        Some("fill") => return fill(Path::new(&arguments[2]), &arguments[3]),
        // Test runners use this option to list and filter.
        Some("--list") => return,
        _ => {}
    }
    let run = |name: &str, test: fn()| {
        if arguments[1..]
            .iter()
            .all(|a| a.starts_with("--") || name.contains(a.as_str()))
        {
            test();
            println!("test {name} ... ok");
        }
    };
    run(
        "a_killed_writer_loses_no_flushed_events",
        a_killed_writer_loses_no_flushed_events,
    );
    run(
        "a_file_size_limit_loses_no_earlier_events",
        a_file_size_limit_loses_no_earlier_events,
    );
    run(
        "a_full_disk_loses_no_earlier_events",
        a_full_disk_loses_no_earlier_events,
    );
}

fn numbered(number: u64) -> Event {
    Event {
        time_ns: number * 1000,
        cpu: 0,
        pid: 1,
        tid: 1,
        kind: match number % 20 {
            0 => EventKind::TimerInit {
                timer: number,
                period_ns: 1,
            },
            _ => EventKind::ExecutorExecute { handle: number },
        },
    }
}

fn options(max_segments: Option<usize>) -> WriterOptions {
    WriterOptions {
        segment_bytes: 20_000,
        block_bytes: 4_000,
        max_segments,
        ..WriterOptions::default()
    }
}

fn write_until_killed(dir: &Path, kept: &str) {
    let mut writer = Writer::create(dir, options(kept.parse().ok())).expect("created");
    let mut out = std::io::stdout();
    for number in 0.. {
        writer.push(&numbered(number)).expect("pushed");
        if number % 97 == 0 {
            writer.flush().expect("flushed");
            writeln!(out, "{}", number + 1).expect("said");
            if number % 970 == 0 {
                writer
                    .write_manifest(&Manifest::default())
                    .expect("written");
            }
        }
    }
}

fn a_killed_writer_loses_no_flushed_events() {
    let program = std::env::current_exe().expect("this program");
    // The delays cover the time that a block, a segment and a rotation take.
    for round in 0..40u64 {
        let kept = ["all", "3"][round as usize % 2];
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("trace");
        let mut child = Command::new(&program)
            .args(["write".as_ref(), path.as_os_str(), kept.as_ref()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = lines.next().expect("a line").expect("read");
        std::thread::sleep(Duration::from_micros(round * round * 97 % 60_000));
        child.kill().expect("killed");
        child.wait().expect("ended");
        let last = lines.map_while(Result::ok).last().unwrap_or(first);
        let safe: u64 = last.parse().expect("a number");

        let mut reader = Reader::open(&path).expect("opened");
        let events: Vec<Event> = reader.events().collect();
        let stats = reader.stats();
        assert_eq!(stats.damaged_blocks, 0, "{:?}", reader.warnings());
        assert!(stats.cut_blocks <= 1, "{:?}", reader.warnings());
        let end = events.last().map_or(0, |e| e.time_ns / 1000 + 1);
        assert!(
            end >= safe,
            "{end} of {safe} flushed events, {:?}",
            reader.warnings()
        );
        if kept == "all" {
            let expected: Vec<Event> = (0..end).map(numbered).collect();
            assert!(events == expected, "{:?}", reader.warnings());
        } else {
            // Each initialisation event occurs once. The latest other events have no gap.
            let (state, rest): (Vec<_>, Vec<_>) = events
                .into_iter()
                .partition(|e| matches!(e.kind, EventKind::TimerInit { .. }));
            let expected: Vec<Event> = (0..end).step_by(20).map(numbered).collect();
            assert!(state == expected, "{:?}", reader.warnings());
            let begin = rest.first().map_or(0, |e| e.time_ns / 1000);
            let expected: Vec<Event> = (begin..end).filter(|n| n % 20 != 0).map(numbered).collect();
            assert!(rest == expected, "{:?}", reader.warnings());
        }
    }
}

fn fill_and_check(dir: &Path, make_room: impl FnOnce()) {
    let trace = dir.join("trace");
    let options = WriterOptions {
        segment_bytes: 1 << 30,
        ..options(None)
    };
    let mut writer = Writer::create(&trace, options).expect("created");
    let mut number = 0;
    let (error, lost) = loop {
        // Full blocks end by themselves.
        match writer.push(&numbered(number)) {
            Ok(()) => number += 1,
            Err(error @ TraceWriteError::DiskFull { lost_events, .. }) => {
                break (error, lost_events)
            }
            Err(error) => panic!("{error}"),
        }
    };
    let text = error.to_string();
    assert!(
        text.contains("no space left") && text.lines().count() == 1,
        "{text}"
    );
    println!("  {text}");
    let check = |expected: Vec<Event>| {
        let mut reader = Reader::open(&trace).expect("opened");
        let events: Vec<Event> = reader.events().collect();
        assert!(events == expected, "{:?}", reader.warnings());
        let stats = reader.stats();
        assert_eq!(
            (stats.damaged_blocks, stats.cut_blocks),
            (0, 0),
            "{:?}",
            reader.warnings()
        );
    };
    let before = writer.events_written();
    assert_eq!(before + lost, number + 1);
    assert!(before > 1000);
    check((0..before).map(numbered).collect());

    make_room();
    for more in number + 1..number + 500 {
        writer.push(&numbered(more)).expect("pushed");
    }
    writer.finish(Manifest::default()).expect("finished");
    check(
        (0..before)
            .chain(number + 1..number + 500)
            .map(numbered)
            .collect(),
    );
}

/// Writes a trace until a limit of the file size stops the writer. Runs in a child process, because
/// the limit applies to a whole process.
fn fill(dir: &Path, limit: &str) {
    let limit_to = |bytes: u64| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the struct outlives the call, which only reads it.
        let result = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    limit_to(limit.parse().expect("a number"));
    fill_and_check(dir, || limit_to(1 << 30));
}

fn a_file_size_limit_loses_no_earlier_events() {
    let program = std::env::current_exe().expect("this program");
    for limit in ["30000", "54321"] {
        let dir = tempfile::tempdir().expect("directory");
        // The child writes into pipes. If this test's output goes to a file, the child's limit
        // would apply to that file.
        let child = Command::new(&program)
            .args(["fill".as_ref(), dir.path().as_os_str(), limit.as_ref()])
            .output()
            .expect("started");
        print!("{}", String::from_utf8_lossy(&child.stdout));
        assert!(
            child.status.success(),
            "{}: {}",
            child.status,
            String::from_utf8_lossy(&child.stderr)
        );
    }
}

fn a_full_disk_loses_no_earlier_events() {
    let dir = tempfile::tempdir().expect("directory");
    let target = CString::new(dir.path().to_str().expect("plain")).expect("plain");
    // SAFETY: all strings end with NUL and outlive the call.
    let mounted = unsafe {
        libc::mount(
            c"onbeat-test".as_ptr(),
            target.as_ptr(),
            c"tmpfs".as_ptr(),
            0,
            c"size=128k".as_ptr().cast(),
        )
    };
    if mounted != 0 {
        let error = std::io::Error::last_os_error();
        println!("  skipped: a small tmpfs cannot be mounted here ({error})");
        return;
    }
    let ballast = dir.path().join("ballast");
    std::fs::write(&ballast, vec![0; 60_000]).expect("written");
    let result = std::panic::catch_unwind(|| {
        fill_and_check(dir.path(), || {
            std::fs::remove_file(&ballast).expect("removed")
        });
    });
    // SAFETY: the string ends with NUL and outlives the call.
    let unmounted = unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    assert_eq!(unmounted, 0, "{}", std::io::Error::last_os_error());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
