//! Checks the output of the fusion in the example `hosts`.

use std::process::Output;

pub fn check(output: &Output) {
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let sums: Vec<f64> = lines
        .lines()
        .map(|line| line.strip_prefix("Some(").unwrap().trim_end_matches(')'))
        .map(|sum| sum.parse().unwrap())
        .collect();
    assert_eq!(sums.len(), 50, "{lines}{errors}");
    let wrong = |(step, sum): (usize, &f64)| (sum - step as f64 * 1.01).abs() > 0.006;
    assert!(!sums.iter().enumerate().any(wrong), "{lines}");
}
