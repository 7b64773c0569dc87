//! Shared parts of the test harnesses in this directory: the program under test, and a runner that
//! lists skipped tests with the reason.

use std::path::PathBuf;

pub type Test<H> = (&'static str, fn(&H));

macro_rules! tests {
    ($($name:ident),+ $(,)?) => { &[$((stringify!($name), $name as fn(&Harness))),+] };
}

/// Returns the path of the program under test. The environment variable `ONBEAT` replaces it with
/// the path of another build.
pub fn program() -> PathBuf {
    let other = std::env::var_os("ONBEAT").map(PathBuf::from);
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_onbeat").into())
}

/// Runs the tests that the command line names, or all tests. Exits with 1 if one fails. Skips all
/// tests if `harness` is an error, and skips a test for which `missing` returns a reason.
pub fn run<H>(
    tests: &[Test<H>],
    harness: &Result<H, String>,
    missing: impl Fn(&str) -> Option<String>,
) {
    let words = std::env::args().skip(1);
    let filter: Vec<String> = words.filter(|word| !word.starts_with('-')).collect();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in tests {
        if !filter.is_empty() && !filter.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let harness = harness.as_ref().map_err(String::clone);
        let harness = harness.and_then(|harness| missing(name).map_or(Ok(harness), Err));
        let harness = match harness {
            Ok(harness) => harness,
            Err(reason) => {
                println!("skipped {name}: {reason}");
                skipped += 1;
                continue;
            }
        };
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(harness))) {
            Ok(()) => {
                println!("ok      {name}");
                passed += 1;
            }
            Err(_) => {
                println!("FAILED  {name}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        std::process::exit(1);
    }
}
