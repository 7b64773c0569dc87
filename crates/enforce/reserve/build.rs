//! Compiles the BPF programs of the sched_ext scheduler.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const PROGRAMS: &str = "src/bpf/slots.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let object =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("slots.bpf.o");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let (target_arch, triplet) = match arch.as_str() {
        "x86_64" => ("x86", "x86_64-linux-gnu"),
        "aarch64" => ("arm64", "aarch64-linux-gnu"),
        // Other architectures have no scheduler. The kernel refuses the empty object.
        _ => return fs::write(object, []).expect("OUT_DIR can be written"),
    };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let status = Command::new(&clang)
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
        ])
        .arg(format!("-D__TARGET_ARCH_{target_arch}"))
        // The target's own headers come first, then those of a cross compiler's package.
        .arg(format!("-I/usr/include/{triplet}"))
        .arg(format!("-I/usr/{triplet}/include"))
        // The lines of source that the object names are without this machine's folders.
        .arg(format!(
            "-fdebug-prefix-map={}=.",
            env!("CARGO_MANIFEST_DIR")
        ))
        .args(["-c", PROGRAMS, "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("{clang} could not compile {PROGRAMS} ({s})"),
        Err(e) => panic!("{clang}: {e}: install clang and libbpf-dev (apt-get install clang libbpf-dev libelf-dev zlib1g-dev)"),
    }
    // The loader needs the object's BTF but not its DWARF. See the build script of onbeat-record.
    let _ = Command::new("llvm-strip").arg("-g").arg(&object).status();
}
