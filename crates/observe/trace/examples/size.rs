//! Measures size and speed of the trace format on a generated system: `size [EVENTS [BLOCK_KIB
//! [LEVEL]]]`.
use onbeat_trace::{generate, Reader, Writer, WriterOptions};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |n: usize, default: u64| -> Result<u64, std::num::ParseIntError> {
        std::env::args().nth(n).map_or(Ok(default), |a| a.parse())
    };
    let events = number(1, 5_000_000)?;
    let block_bytes = number(2, 256)? as usize * 1024;
    let level = number(3, 3)? as i32;
    let held = tempfile::tempdir()?;
    let dir = held.path().join("trace");
    let options = WriterOptions {
        block_bytes,
        level,
        ..WriterOptions::default()
    };
    let start = Instant::now();
    let mut writer = Writer::create(&dir, options)?;
    let manifest = generate::generate(&mut writer, events, 1)?;
    writer.finish(manifest)?;
    let wrote = start.elapsed().as_secs_f64();

    let mut reader = Reader::open(&dir)?;
    let seconds = reader.manifest().span.duration_ns as f64 / 1e9;
    let bytes = reader.manifest().written.bytes as f64;
    let start = Instant::now();
    let count = reader.events().count() as f64;
    let read = start.elapsed().as_secs_f64();
    println!(
        "{count} events in {seconds:.1} s ({:.0}/s): {:.3} bytes/event, {:.2} MB per 60 s",
        count / seconds,
        bytes / count,
        bytes / seconds * 60.0 / 1e6
    );
    println!(
        "generated and written {:.2} M events/s, read {:.2} M events/s",
        count / wrote / 1e6,
        count / read / 1e6
    );
    Ok(())
}
