//! Compiles the BPF programs and turns kinds.h into Rust constants.
use std::{env, fs, path::PathBuf, process::Command};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");

    // The C enum and these constants come from the same list.
    let list = fs::read_to_string("src/bpf/kinds.h").expect("kinds.h is part of the crate");
    let mut consts = String::new();
    let mut names = String::from("/// Name of a kind, as it stands in manifests.\npub fn name(kind: u16) -> &'static str {\n    match kind {\n");
    for line in list.lines() {
        let Some(inner) = line.strip_prefix("KIND(").and_then(|l| l.strip_suffix(')')) else {
            continue;
        };
        let (name, number) = inner.split_once(", ").expect("KIND(name, number)");
        consts += &format!("/// Record kind.\npub const {name}: u16 = {number};\n");
        names += &format!("        {number} => \"{}\",\n", name.to_lowercase());
    }
    names += "        _ => \"unknown\",\n    }\n}\n";
    fs::write(out.join("kinds.rs"), consts + &names).expect("OUT_DIR can be written");

    let (target_arch, triplet) = match arch.as_str() {
        "x86_64" => ("x86", "x86_64-linux-gnu"),
        "aarch64" => ("arm64", "aarch64-linux-gnu"),
        other => panic!("onbeat-record has probes for x86_64 and aarch64, not for {other}"),
    };
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let object = out.join("onbeat.bpf.o");
    let status = Command::new(&clang)
        .args([
            "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
        ])
        .arg(format!("-D__TARGET_ARCH_{target_arch}"))
        // The target's own headers, and where a cross compiler's package puts them.
        .arg(format!("-I/usr/include/{triplet}"))
        .arg(format!("-I/usr/{triplet}/include"))
        .args(["-c", "src/bpf/onbeat.bpf.c", "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("{clang} could not compile src/bpf/onbeat.bpf.c ({s})"),
        Err(e) => panic!("{clang}: {e}: install clang and libbpf-dev (apt-get install clang libbpf-dev libelf-dev zlib1g-dev)"),
    }
    // DWARF is of no use at run time; BTF is, and stays.
    let _ = Command::new("llvm-strip").arg("-g").arg(&object).status();
}
