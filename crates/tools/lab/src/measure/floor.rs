//! The machine's floor: how late a real-time thread wakes up on this machine under any scheduler.

use crate::frame::children::Guarded;
use crate::frame::report::{Figure, Report};
use crate::frame::{Context, LabError, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A histogram of the machine's wake-up latencies in us, and the longest latency, which may be too
/// long for the histogram.
#[derive(Default, Clone)]
pub struct Floor {
    counts: BTreeMap<u64, u64>,
    longest_us: u64,
}

impl Floor {
    pub fn add(&mut self, other: &Floor) {
        for (us, count) in &other.counts {
            *self.counts.entry(*us).or_default() += count;
        }
        self.longest_us = self.longest_us.max(other.longest_us);
    }

    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let rank = (q * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += *count;
            seen >= rank
        });
        found.map(|(us, _)| *us as f64 / 1000.0)
    }

    pub fn longest_ms(&self) -> f64 {
        self.longest_us as f64 / 1000.0
    }

    /// Parses the output of cyclictest.
    ///
    /// Its lines are `000012 000345 000007` (a latency in us, then the number of times that each
    /// thread had this latency) and `# Max Latencies: 00123 00045` (us, one for each thread).
    fn read(text: &str) -> Floor {
        let mut floor = Floor::default();
        let numbers = |text: &str| -> Vec<u64> {
            let words = text.split_whitespace().map(str::parse);
            words.map_while(Result::ok).collect()
        };
        for line in text.lines() {
            if let Some(max) = line.strip_prefix("# Max Latencies:") {
                floor.longest_us = numbers(max).into_iter().max().unwrap_or(0);
            } else if !line.starts_with('#') {
                if let [us, counts @ ..] = &numbers(line)[..] {
                    let count = counts.iter().sum::<u64>();
                    if count > 0 {
                        *floor.counts.entry(*us).or_default() += count;
                    }
                }
            }
        }
        floor
    }
}

/// A run of cyclictest while an arm is measured. On each CPU, one thread with priority 99 wakes up
/// every 2 ms.
pub struct Cyclictest {
    child: Guarded,
    out: PathBuf,
}

impl Cyclictest {
    pub fn start(context: &Context) -> Option<Cyclictest> {
        let out = context.dir().join("cyclictest.new");
        let file = File::create(&out).ok()?;
        let mut command = Command::new("cyclictest");
        command.args([
            "-m", "-q", "-p", "99", "-a", "-t", "-i", "2000", "-h", "10000",
        ]);
        command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::null());
        let child = context.spawn(&mut command).ok()?;
        Some(Cyclictest { child, out })
    }

    pub fn end(mut self, floor: &mut Floor) {
        // cyclictest prints its histogram when it is interrupted.
        let _ = self.child.end(libc::SIGINT);
        let text = std::fs::read_to_string(&self.out).unwrap_or_default();
        let _ = std::fs::remove_file(&self.out);
        floor.add(&Floor::read(&text));
    }
}

/// Runs cyclictest on an otherwise idle machine. If cyclictest is not installed, the report lists
/// this part as skipped.
pub fn measure(context: &mut Context, report: &mut Report) -> Result<()> {
    context.step(
        "the machine's own wake-up latency, its floor (cyclictest)",
        120,
    );
    let seconds = context.pick_of_three("20", "10", "3");
    let mut command = Command::new("cyclictest");
    command.args([
        "-m", "-q", "-p", "98", "-a", "1", "-t", "1", "-i", "1000", "-h", "10000", "-D", seconds,
    ]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            report.skip("cyclictest", output.status);
            return Ok(());
        }
        Err(error) => {
            report.skip("cyclictest", format!("{error}. Install rt-tests"));
            return Ok(());
        }
    };
    let floor = Floor::read(&String::from_utf8_lossy(&output.stdout));
    if floor.count() == 0 {
        return Err(LabError::unexpected(
            "cyclictest's histogram",
            "it is empty",
        ));
    }
    figures(report, "floor", &floor);
    Ok(())
}

pub fn figures(report: &mut Report, name: &str, floor: &Floor) {
    for (what, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        if let Some(ms) = floor.quantile_ms(q) {
            let figure = Figure::new(format!("{name}.{what}"), ms * 1000.0, "us");
            report.figure(figure.samples(floor.count()));
        }
    }
    let longest = Figure::new(format!("{name}.max"), floor.longest_ms() * 1000.0, "us");
    report.figure(longest.samples(floor.count()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latencies_in_cyclictest_output_are_parsed() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n000004 000090\n000009 000010\n# Total: 000000100\n# Max Latencies: 00612\n";
        let mut floor = Floor::read(text);
        assert_eq!(floor.count(), 100);
        assert_eq!(floor.quantile_ms(0.9), Some(0.004));
        assert_eq!(floor.quantile_ms(0.91), Some(0.009));
        assert_eq!(floor.longest_ms(), 0.612);
        // The second text has a column for each CPU.
        let two = Floor::read("000004 000030\t000070\n# Max Latencies: 00007 00300\n");
        assert_eq!((two.count(), two.longest_ms()), (100, 0.3));
        floor.add(&two);
        assert_eq!((floor.count(), floor.longest_ms()), (200, 0.612));
        assert_eq!(Floor::default().quantile_ms(0.5), None);
    }
}
