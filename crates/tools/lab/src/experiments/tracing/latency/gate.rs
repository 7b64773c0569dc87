//! A gate before onbeat's preloaded library: a library of the lab that bypasses onbeat's in a
//! running program, and lets calls in again.

use crate::frame::{Context, LabError, Result};
use crate::measure::native;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = include_str!("../../../../native/gate.c");

pub struct Gate {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Gate {
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

    /// Makes a command of `onbeat record --preload` load the lab's gate before onbeat's library.
    /// The gate is a library that can make calls bypass onbeat's library. It comes first, because
    /// the command appends onbeat's library to existing entries of LD_PRELOAD.
    pub fn enter(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("ONBEAT_LAB_GATE", &self.path);
    }

    /// Opens or closes the lab's gate. While the gate is open, calls go to onbeat's library;
    /// otherwise they bypass it. Takes effect at once in running processes, because they have
    /// mapped the file.
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

    /// The functions whose calls always reach onbeat's library, because the lab's gate does not
    /// wrap them and so cannot bypass onbeat's library. The first function has more than six
    /// arguments. The other two are C++ functions.
    const WITHOUT: [&str; 3] = [
        "rcl_wait_set_init",
        "_ZN6rclcpp8Executor14execute_clientESt10shared_ptrINS_10ClientBaseEE",
        "_ZN6rclcpp8Executor14execute_clientERKSt10shared_ptrINS_10ClientBaseEE",
    ];

    fn named<'t>(text: &'t str, heads: &[&str]) -> BTreeSet<&'t str> {
        let of = |line: &'t str| {
            let (head, rest) = line.trim().split_once('(')?;
            let name = rest.split([',', ')']).next()?;
            heads.contains(&head).then_some(name)
        };
        text.lines().filter_map(of).collect()
    }

    #[test]
    fn every_function_recorded_per_message_can_be_bypassed_in_the_lab() {
        let functions = include_str!("../../../../../../observe/record/src/preload/functions.h");
        // Functions that create objects stand before the empty line; these have no gate.
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
