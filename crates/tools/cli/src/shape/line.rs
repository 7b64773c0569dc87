//! Formats the status line that `onbeat shape` updates while it runs.

use onbeat_shape::Live;

pub const WIDTH: usize = 99;

pub fn ms(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

pub fn line(live: &Live) -> String {
    let Some(shaping) = live.shaping else {
        return match live.missing.len() {
            0 => "all callbacks found; waiting until the cycle's start is measured and the shaper is ready".into(),
            1 => format!("looking for {}", live.missing[0]),
            n => format!(
                "looking for {} and {} more callbacks",
                live.missing[0],
                n - 1
            ),
        };
    };
    let s = shaping.as_secs();
    let last = live.judgements.last().map_or(String::new(), |o| {
        let band = o.band.map_or("outside".into(), |b| (b + 1).to_string());
        format!("  {} ms (band {band})", ms(o.execution.latency_ns()))
    });
    let unshaped = live.unshaped_jitter_ns;
    let unshaped = unshaped.map_or(String::new(), |ns| format!(" (unshaped {})", ms(ns)));
    format!(
        "{:02}:{:02}:{:02}  cycle {}{last}  jitter {} ms{unshaped}  of {}: {} late, {} discarded, {} missing  dispatcher p99 {:.0} us",
        s / 3600,
        s / 60 % 60,
        s % 60,
        live.cycle,
        ms(live.jitter_ns),
        live.executions,
        live.late,
        live.dropped,
        live.without,
        live.dispatcher_p99_ns as f64 / 1e3,
    )
}
