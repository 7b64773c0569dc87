//! Prints a trace's events, one per line: `cargo run --example print -- TRACE`.
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: print TRACE")?;
    let mut reader = onbeat_trace::Reader::open(std::path::Path::new(&path))?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for event in reader.events() {
        writeln!(out, "{}", onbeat_trace::text::print(&event))?;
    }
    Ok(())
}
