//! Copies a trace and shifts its monotonic clock, as if another machine had recorded it. Use it to
//! try how `onbeat` joins traces of several hosts: `shift TRACE COPY NS [PPM]`.
use onbeat_trace::{Reader, Writer, WriterOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, ahead, rest @ ..] = &words[..] else {
        return Err("usage: shift TRACE COPY NS [PPM]".into());
    };
    let ahead: i64 = ahead.parse()?;
    let ppm: f64 = rest.first().map_or(Ok(0.0), |t| t.parse())?;
    let mut reader = Reader::open(from)?;
    let mut manifest = reader.manifest().clone();
    let first = manifest.span.start_monotonic_ns;
    let shifted = |time_ns: u64| {
        let since = time_ns as f64 - first as f64;
        time_ns.saturating_add_signed(ahead + (since * ppm / 1e6) as i64)
    };
    let mut writer = Writer::create(to.as_ref(), WriterOptions::default())?;
    for mut event in reader.events() {
        event.time_ns = shifted(event.time_ns);
        writer.push(&event)?;
    }
    manifest.span.start_monotonic_ns = shifted(first);
    manifest.machine.hostname = "arm".into();
    manifest.machine.boot_id = "another boot".into();
    writer.finish(manifest)?;
    Ok(())
}
