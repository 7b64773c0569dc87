//! The machine's floor: how late a real-time thread wakes here, whoever schedules it.

use crate::frame::report::{Figure, Report};
use crate::frame::{Context, LabError};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs cyclictest beside the experiment's priorities; skipped, by name, where it is not installed.
pub(super) fn measure(context: &mut Context, report: &mut Report) -> Result<(), LabError> {
    context.step("the machine's floor (cyclictest)", Duration::from_secs(120));
    let seconds = context.pick("20", "3");
    let mut command = Command::new("cyclictest");
    command.args([
        "-m", "-q", "-p", "98", "-a", "1", "-t", "1", "-i", "1000", "-h", "2000", "-D", seconds,
    ]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            report.skip("cyclictest", output.status);
            return Ok(());
        }
        Err(error) => {
            report.skip("cyclictest", format!("{error}; install rt-tests"));
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (histogram, longest) = read(&text);
    let total: u64 = histogram.iter().map(|h| h.1).sum();
    if total == 0 {
        return Err(LabError::unexpected(
            "cyclictest's histogram",
            "it is empty",
        ));
    }
    let quantile = |q: f64| {
        let rank = (q * total as f64).ceil() as u64;
        let mut seen = 0;
        histogram
            .iter()
            .find(|h| {
                seen += h.1;
                seen >= rank
            })
            .map_or(longest, |h| h.0)
    };
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let value = quantile(q) as f64;
        report.figure(Figure::new(format!("floor.{name}"), value, "us").samples(total));
    }
    report.figure(Figure::new("floor.max", longest as f64, "us").samples(total));
    Ok(())
}

/// Lines `000012 000345` (microseconds and how often), and `# Max Latencies: 00123`.
fn read(text: &str) -> (Vec<(u64, u64)>, u64) {
    let mut longest = 0;
    let mut histogram = Vec::new();
    for line in text.lines() {
        if let Some(max) = line.strip_prefix("# Max Latencies:") {
            longest = max
                .split_whitespace()
                .filter_map(|w| w.parse().ok())
                .max()
                .unwrap_or(0);
        } else if !line.starts_with('#') {
            let mut words = line.split_whitespace().map(str::parse);
            if let (Some(Ok(us)), Some(Ok(count))) = (words.next(), words.next()) {
                histogram.push((us, count));
            }
        }
    }
    (histogram, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cyclictest_is_read() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n000004 000090\n000009 000010\n# Total: 000000100\n# Max Latencies: 00612\n";
        assert_eq!(read(text), (vec![(0, 0), (4, 90), (9, 10)], 612));
    }
}
