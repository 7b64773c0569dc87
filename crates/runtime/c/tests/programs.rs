//! Tests that the examples compile as C without a warning, and that two processes exchange
//! messages.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(120);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_path_buf()
}

#[derive(Clone, Copy)]
enum Library {
    Shared,
    Static,
}

fn compile(name: &str, library: Library, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-I",
    ])
    .arg(root().join("include"))
    .arg(root().join(format!("examples/{name}.c")))
    .arg("-o")
    .arg(&program);
    let at = libraries();
    match library {
        Library::Shared => cc
            .arg(at.join("libonbeat_c.so"))
            .arg(format!("-Wl,-rpath,{}", at.display())),
        Library::Static => {
            cc.arg(at.join("libonbeat_c.a"))
                .args(["-lgcc_s", "-lrt", "-lpthread", "-lm", "-ldl"])
        }
    };
    let done = cc.output().expect("a C compiler, which Rust needs too");
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}.c: {text}");
    program
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(program: &Path, words: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(words).stdout(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        // Reads byte by byte, so that the following lines stay in the pipe.
        let output = self.0.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, output)
            .read_line(&mut line)
            .unwrap();
        line.trim().into()
    }

    fn end(mut self) -> String {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < WATCHDOG, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        let output = self.0.stdout.as_mut().unwrap();
        output.read_to_string(&mut text).unwrap();
        assert!(status.success(), "{status}: {text}");
        text.trim().into()
    }
}

fn name(what: &str) -> String {
    format!("c/{what}/{}", std::process::id())
}

#[test]
fn two_processes_exchange_messages_over_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("exchange", Library::Static, folder.path());
    let name = name("exchange");
    let listening = Running::start(&program, &["listen", "shm", &name, "0"]);
    let connecting = Running::start(&program, &["connect", "shm", &name, "500"]);
    assert_eq!(
        connecting.end(),
        "500 answers, the peer's last value is 500"
    );
    assert_eq!(listening.end(), "");
}

#[test]
fn two_processes_exchange_messages_over_tcp() {
    exchange_over_tcp("sealed");
}

#[test]
fn two_processes_exchange_messages_over_unencrypted_tcp() {
    exchange_over_tcp("clear");
}

fn exchange_over_tcp(how: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("exchange", Library::Shared, folder.path());
    let key = folder.path().join("link.key");
    let key = key.to_str().unwrap();
    Running::start(&program, &["key", key]).end();
    let mut listening = Running::start(&program, &["listen", "tcp", "127.0.0.1:0", "0", key, how]);
    let address = listening.line();
    let mut connecting = Running::start(&program, &["connect", "tcp", &address, "500", key, how]);
    assert_eq!(connecting.line(), address);
    assert_eq!(
        connecting.end(),
        "500 answers, the peer's last value is 500"
    );
    assert_eq!(listening.end(), "");
}

#[test]
fn tasks_of_two_processes_lose_no_item() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("tasks", Library::Shared, folder.path());
    let name = name("tasks");
    let fusion = Running::start(&program, &["fusion", &name, "100"]);
    let sensor = Running::start(&program, &["sensor", &name, "100"]);
    assert_eq!(fusion.end(), "100 scans, 0 gaps, 50 fused");
    assert_eq!(sensor.end(), "100 scans, 0 gaps, 0 fused");
}

#[test]
fn the_header_compiles_and_links_as_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("use.cpp");
    // The program is linked as well: without `extern "C"` the linker would find no function.
    let text = r#"
        #include "onbeat.h"
        int main() {
            OnbeatSizes sizes = {4, 1024, 8};
            size_t bytes = 0;
            OnbeatCode code = onbeat_memory_bytes(&sizes, &bytes);
            return code == ONBEAT_CODE_OK && bytes == 2 * 4 * 1024 + 4 * 8 ? 0 : 1;
        }
    "#;
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("use");
    let at = libraries();
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg("-I")
        .arg(root().join("include"))
        .arg(&source)
        .arg(at.join("libonbeat_c.so"))
        .arg(format!("-Wl,-rpath,{}", at.display()))
        .arg("-o")
        .arg(&program)
        .output();
    let Ok(compiled) = compiled else {
        eprintln!("SKIP the_header_compiles_and_links_as_cpp: there is no g++");
        return;
    };
    let text = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{text}");
    Running::start(&program, &[]).end();
}
