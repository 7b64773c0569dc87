//! Compiles and runs programs in a ROS 2 environment that consists of Python wheels.

use crate::frame::{LabError, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

pub fn loader_path(env: &Path) -> String {
    let mut dirs = vec![env.join("lib")];
    if let Ok(pythons) = fs::read_dir(env.join("lib")) {
        for site in pythons
            .filter_map(Result::ok)
            .map(|e| e.path().join("site-packages"))
        {
            let Ok(entries) = fs::read_dir(&site) else {
                continue;
            };
            let mut libs: Vec<_> = entries
                .filter_map(Result::ok)
                .map(|e| e.path())
                .filter(|p| p.extension().is_some_and(|e| e == "libs"))
                .collect();
            libs.sort();
            dirs.extend(libs);
        }
    }
    dirs.iter()
        .map(|d| d.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(":")
}

pub const STD_MSGS: [&str; 2] = [
    "std_msgs__rosidl_typesupport_c",
    "std_msgs__rosidl_generator_c",
];

pub fn link_arguments(env: &Path, libraries: &[&str]) -> Result<Vec<String>> {
    let include = env.join("include");
    let mut arguments: Vec<String> =
        vec!["-pthread".into(), "-fno-builtin".into(), "-rdynamic".into()];
    // Every package has its own include folder.
    let packages = fs::read_dir(&include).map_err(LabError::file("reading", &include))?;
    let mut folders: Vec<_> = packages
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.is_dir())
        .collect();
    folders.sort();
    for folder in folders {
        arguments.extend(["-isystem".into(), folder.display().to_string()]);
    }
    arguments.push(format!("-L{}", env.join("lib").display()));
    // RPATH, unlike RUNPATH, also applies to the dependencies of the libraries.
    arguments.push("-Wl,--disable-new-dtags,--allow-shlib-undefined,--unresolved-symbols=ignore-in-shared-libs".into());
    arguments.extend(
        loader_path(env)
            .split(':')
            .map(|dir| format!("-Wl,-rpath,{dir}")),
    );
    let always = [
        "rcl",
        "rmw_fastrtps_cpp",
        "rmw",
        "rcutils",
        "rosidl_runtime_c",
        "tracetools",
    ];
    arguments.extend(always.iter().chain(libraries).map(|l| format!("-l{l}")));
    Ok(arguments)
}

/// Appends empty definitions of Python's symbols to a C source. The librcl of the wheels needs
/// these symbols for Python type support, which no compiled program calls.
pub fn with_python_symbols(source: &str, env: &Path) -> Result<String> {
    let lib = env.join("lib");
    let libraries = fs::read_dir(&lib)
        .map_err(LabError::file("reading", &lib))?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.to_string_lossy().ends_with("generator_py.so"));
    let output = Command::new("nm")
        .args(["-D", "--undefined-only"])
        .args(libraries)
        .output()
        .map_err(|e| LabError::program("nm", format!("{e}; install binutils")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let symbols: BTreeSet<&str> = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("U "))
        .map(|s| s.split('@').next().unwrap_or(s))
        .filter(|s| s.starts_with("Py") || s.starts_with("_Py"))
        .collect();
    let stubs: String = symbols.iter().map(|s| format!("char {s}[64];\n")).collect();
    Ok(format!("{source}\n{stubs}"))
}

pub fn enter(command: &mut Command, env: &Path) {
    command
        .env("LD_LIBRARY_PATH", loader_path(env))
        .env("AMENT_PREFIX_PATH", env)
        .env("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp");
}
