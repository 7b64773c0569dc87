//! The library that holds outputs back inside the application's processes, and the files by which
//! it and its owner exchange the table of slots and the reports.
//!
//! The library itself is `inside/library.c`. Each process finds the directory of the files in
//! [`DIRECTORY`].

use crate::page::PageWriter;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// The library, which processes load through `LD_PRELOAD`.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libonbeat_hold.so"));
/// The environment variable with the directory of the files.
pub const DIRECTORY: &str = "ONBEAT_HOLD";
/// The name of the named pipe on which processes write a [`crate::report::Record`] per item.
pub const REPORTS: &str = "reports";
/// The name of the library's thread.
pub const THREAD: &str = "onbeat-hold";

const PAGE: &str = "page";
const OUTPUTS: &str = "outputs";

/// An output that the library holds back: a topic of a node, both with their full names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The index of the output's slots in the page.
    pub number: usize,
    /// The full name of the node that publishes the output.
    pub node: String,
    /// The full name of the topic.
    pub topic: String,
}

/// Writes the page and the list of outputs to a directory. Returns the page's writer. Until the
/// owner writes a table and a heartbeat, messages are not held.
pub fn write(directory: &Path, outputs: &[Output]) -> io::Result<PageWriter> {
    let mut list = String::new();
    for Output {
        number,
        node,
        topic,
    } in outputs
    {
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{number} {node} {topic}");
    }
    std::fs::write(directory.join(OUTPUTS), list)?;
    let page = PageWriter::in_file(&directory.join(PAGE))?;
    page.set_pass_through(true);
    Ok(page)
}
