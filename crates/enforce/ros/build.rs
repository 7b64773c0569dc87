//! Compiles the library that holds outputs back inside the application.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const LIBRARY: &str = "src/inside/library.c";

/// Compiles the library that holds messages back inside an application. The library depends only on
/// libc. The variable `CC_<target>` names the compiler, which decides which glibc the library
/// needs.
fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let is_foreign = env::var("HOST").is_ok_and(|host| host != target);
    let named = format!("CC_{}", target.replace('-', "_"));
    println!("cargo:rerun-if-changed=src/inside");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed={named}");
    let compiler = match env::var("RUSTC_LINKER") {
        _ if env::var_os(&named).is_some() => env::var(&named).expect("a path in UTF-8"),
        _ if !is_foreign => env::var("CLANG").unwrap_or_else(|_| "clang".into()),
        Ok(linker) => linker,
        Err(_) => target.replace("-unknown", "") + "-gcc",
    };
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(["-fvisibility=hidden", "-fasynchronous-unwind-tables"])
        .args(["-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-s"])
        .args([LIBRARY, "-pthread", "-ldl", "-o"])
        .arg(out.join("libonbeat_hold.so"))
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => panic!("{compiler} could not compile {LIBRARY} ({s})"),
        Err(e) => panic!("cannot run {compiler}: {e}. Install a C compiler for {target}."),
    }
}
