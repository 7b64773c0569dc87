//! A library of the lab's own that takes onbeat's library out of a running program's way, and lets
//! it in again.

use crate::frame::{Context, LabError, Result};
use crate::measure::native;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = include_str!("../../../../native/gate.c");

/// The library, and the byte that it reads at each call. The file is removed when this is dropped.
pub struct Gate {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Gate {
    /// Compiles the library. The gate is open.
    pub fn make(context: &Context) -> Result<Gate> {
        let arguments = ["-shared", "-fPIC", "-ldl"].map(String::from);
        let library = native::compile("gate", SOURCE, &arguments)?;
        let path = context.dir().join("latency.gate");
        let file = File::create(&path).map_err(LabError::file("writing", &path))?;
        let gate = Gate {
            library,
            path,
            file,
        };
        gate.set(true)?;
        Ok(gate)
    }

    /// Puts the gate before the library of a command of `onbeat record --preload`, which keeps what
    /// is preloaded already before its own.
    pub fn enter(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("ONBEAT_LAB_GATE", &self.path);
    }

    /// Whether calls go to onbeat's library from now on. The processes have the file in their
    /// memory.
    pub fn set(&self, open: bool) -> Result<()> {
        self.file
            .write_all_at(&[u8::from(open)], 0)
            .map_err(LabError::file("writing", &self.path))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::SOURCE;
    use std::collections::BTreeSet;

    /// One with more arguments than six, and one of C++.
    const WITHOUT: [&str; 2] = [
        "rcl_wait_set_init",
        "_ZN6rclcpp8Executor14execute_clientESt10shared_ptrINS_10ClientBaseEE",
    ];

    /// Names in lines such as `ENTRY(name, ...)`.
    fn named<'t>(text: &'t str, heads: &[&str]) -> BTreeSet<&'t str> {
        let of = |line: &'t str| {
            let (head, rest) = line.trim().split_once('(')?;
            let name = rest.split([',', ')']).next()?;
            heads.contains(&head).then_some(name)
        };
        text.lines().filter_map(of).collect()
    }

    #[test]
    fn whatever_onbeat_records_while_messages_go_round_has_a_gate() {
        let functions = include_str!("../../../../../../observe/record/src/preload/functions.h");
        // Behind the functions that make things, after an empty line.
        let (_, running) = functions
            .split_once("\n\nENTRY(ros_trace_callback_start,")
            .expect("functions that are called while a program runs");
        let mut wanted = named(running, &["ENTRY", "INNER", "AROUND"]);
        wanted.insert("ros_trace_callback_start");
        for without in WITHOUT {
            wanted.remove(without);
        }
        assert_eq!(named(SOURCE, &["ONE"]), wanted);
    }
}
