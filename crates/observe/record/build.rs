//! Generates both sides of the record layout, and compiles the BPF programs and the preloaded
//! library.

#[path = "src/records/layout.rs"]
mod layout;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TABLE: &str = "src/records/records.table";
const PROGRAMS: &str = "src/bpf/onbeat.bpf.c";
const LIBRARY: &str = "src/preload/library.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=src/preload");
    println!("cargo:rerun-if-changed=src/records");
    println!("cargo:rerun-if-env-changed=CLANG");
    let text = fs::read_to_string(TABLE).expect("the file records.table is part of the crate");
    let table = layout::Table::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    for (file, content) in [
        ("record_layout.h", table.c_header()),
        ("records.rs", table.rust_module()),
    ] {
        fs::write(out.join(file), content).expect("OUT_DIR can be written");
    }
    compile_programs(&out, "onbeat.bpf.o", &[]);
    compile_programs(&out, "onbeat-raw.bpf.o", &["-DNO_KERNEL_BTF"]);
    compile_library(&out);
}

/// Compiles the preloaded library for the recorder's processor. The library depends only on libc.
/// The variable `CC_<target>` names the compiler. The compiler decides which glibc the library
/// needs.
fn compile_library(out: &Path) {
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let is_foreign = env::var("HOST").is_ok_and(|host| host != target);
    let named = format!("CC_{}", target.replace('-', "_"));
    println!("cargo:rerun-if-env-changed={named}");
    let compiler = match env::var("RUSTC_LINKER") {
        _ if env::var_os(&named).is_some() => env::var(&named).expect("a path in UTF-8"),
        _ if !is_foreign => env::var("CLANG").unwrap_or_else(|_| "clang".into()),
        Ok(linker) => linker,
        Err(_) => target.replace("-unknown", "") + "-gcc",
    };
    let object = out.join("libonbeat_preload.so");
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(["-fvisibility=hidden", "-fasynchronous-unwind-tables"])
        .args(["-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-s"])
        .arg(format!("-I{}", out.display()))
        .args([LIBRARY, "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("{compiler} could not compile {LIBRARY} ({s})"),
        Err(e) => panic!("cannot run {compiler}: {e}. Install a C compiler for {target}."),
    }
}

fn compile_programs(out: &Path, name: &str, defines: &[&str]) {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let (target_arch, triplet) = match arch.as_str() {
        "x86_64" => ("x86", "x86_64-linux-gnu"),
        "aarch64" => ("arm64", "aarch64-linux-gnu"),
        other => panic!("onbeat-record has probes for x86_64 and aarch64, not for {other}"),
    };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let object = out.join(name);
    let status = Command::new(&clang)
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
        ])
        .arg(format!("-D__TARGET_ARCH_{target_arch}"))
        .args(defines)
        .arg(format!("-I{}", out.display()))
        // These are the target's own headers, and the place where a cross compiler's package puts
        // them.
        .arg(format!("-I/usr/include/{triplet}"))
        .arg(format!("-I/usr/{triplet}/include"))
        // The lines of source that the object names are without this machine's folders.
        .arg(format!(
            "-fdebug-prefix-map={}=.",
            env!("CARGO_MANIFEST_DIR")
        ))
        .arg(format!("-fdebug-prefix-map={}=out", out.display()))
        .args(["-c", PROGRAMS, "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("{clang} could not compile {PROGRAMS} ({s})"),
        Err(e) => panic!("cannot run {clang}: {e}. Install clang and libbpf-dev (apt-get install clang libbpf-dev libelf-dev zlib1g-dev)"),
    }
    // The recorder needs the object's BTF, not its DWARF. Without llvm-strip the DWARF stays, which
    // only makes the program larger.
    let _ = Command::new("llvm-strip").arg("-g").arg(&object).status();
    let bytes = fs::read(&object).expect("clang wrote the object file");
    let packed = zstd::bulk::compress(&bytes, 19).expect("memory suffices");
    fs::write(object.with_extension("o.zst"), packed).expect("OUT_DIR can be written");
}
