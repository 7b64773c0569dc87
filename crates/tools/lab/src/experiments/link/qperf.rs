//! Measures with qperf, as the thesis does: half of a round trip over TCP.

use super::cell::Testbed;
use crate::frame::{LabError, Result};
use crate::measure::hosts::Host;
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn is_installed() -> bool {
    let asked = Command::new("qperf").arg("--version").output();
    asked.is_ok_and(|o| o.status.success())
}

pub fn latency_us(testbed: &Testbed, limited: bool, bytes: usize) -> Result<Option<f64>> {
    if !is_installed() {
        return Ok(None);
    }
    testbed.limit_plain(limited)?;
    let failed = |e| LabError::program("qperf", e);
    let mut server = testbed.hosts.command(Host::Receiver, "qperf");
    let mut server = server
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let asked = ask(testbed, bytes);
    let _ = server.kill();
    let _ = server.wait();
    let said = asked?;
    match microseconds(&said) {
        Some(us) => Ok(Some(us)),
        None => Err(LabError::unexpected("qperf", said.replace('\n', " "))),
    }
}

fn ask(testbed: &Testbed, bytes: usize) -> Result<String> {
    let address = Host::Receiver.address();
    // The server may not listen yet.
    for _ in 0..100 {
        let mut client = testbed.hosts.command(Host::Sender, "qperf");
        client.args([
            "-t",
            "1",
            "-m",
            &bytes.to_string(),
            "-u",
            address,
            "tcp_lat",
        ]);
        let output = client.stdin(Stdio::null()).output();
        let output = output.map_err(|e| LabError::program("qperf", e))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(LabError::program(
        "qperf",
        "the qperf server does not answer",
    ))
}

fn microseconds(said: &str) -> Option<f64> {
    let line = said
        .lines()
        .find(|l| l.trim_start().starts_with("latency"))?;
    let mut words = line.split('=').nth(1)?.split_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    let scale = match words.next()? {
        "ns" => 0.001,
        "us" => 1.0,
        "ms" => 1e3,
        "sec" => 1e6,
        _ => return None,
    };
    Some(value * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_in_qperf_output_is_read() {
        let say = |value: &str| format!("tcp_lat:\n    latency  =  {value}\n");
        assert_eq!(microseconds(&say("37.5 ms")), Some(37_500.0));
        assert_eq!(microseconds(&say("12 us")), Some(12.0));
        assert_eq!(microseconds(&say("12 parsecs")), None);
        assert_eq!(microseconds("tcp_lat:\n"), None);
    }
}
