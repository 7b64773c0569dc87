//! How programs run within a ROS 2 environment made of wheels.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The loader path of an environment: its libraries, and those that its wheels bring along.
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

/// Sets what a compiled ROS 2 program needs to run in an environment.
pub fn enter(command: &mut Command, env: &Path) {
    command
        .env("LD_LIBRARY_PATH", loader_path(env))
        .env("AMENT_PREFIX_PATH", env)
        .env("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp");
}
