//! The pages of `onbeat why` beside a report.

use super::Args;
use crate::late::{self, Wanted};
use crate::why::Pages;
use onbeat_document::Model;
use onbeat_terminal::{files, CliError};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// The maximum number of chains that get a page: the slowest ones.
const PAGES_MAX: usize = 20;

const EXECUTIONS_MAX: usize = 1000;

/// The ids of chains, each with a text about the chain.
type OfChains = Vec<(String, String)>;

/// Returns the directory for the pages, such as `report.why` for `report.html`.
pub(super) fn directory(args: &Args) -> Result<PathBuf, CliError> {
    if args.trace.len() != 1 {
        return Err(CliError::Usage(
            "--pages needs exactly one --trace: a page shows the executions of one recording"
                .into(),
        ));
    }
    if args.output.as_os_str() == "-" {
        return Err(CliError::Usage(
            "--pages writes into a directory beside the report: name the report's file with -o"
                .into(),
        ));
    }
    let directory = args.output.with_extension("why");
    if directory == args.output {
        return Err(CliError::Usage(
            "--pages writes a directory whose name ends in .why: give the report another name with -o"
                .into(),
        ));
    }
    Ok(directory)
}

/// Writes the pages of the slowest chains. Returns sentences about late executions, and the links of
/// the pages relative to the report.
pub(super) fn write(
    model: &Model,
    trace: &Path,
    directory: &Path,
) -> Result<(OfChains, OfChains), CliError> {
    let mut slowest: Vec<_> = model.chains.iter().collect();
    slowest.sort_by_key(|chain| (Reverse(chain.figures.latency_ns.max()), &chain.id));
    let ranked = slowest.iter().enumerate().map(|(rank, chain)| Wanted {
        id: chain.id.clone(),
        over_ns: None,
        kept: if rank < PAGES_MAX { EXECUTIONS_MAX } else { 0 },
    });
    let wanted: Vec<Wanted> = ranked.collect();
    let explained = late::explained(trace, "--trace", &wanted)?;
    let pages = Pages::of(trace, &explained.model)?;
    std::fs::create_dir_all(directory).map_err(|source| CliError::Write {
        path: directory.into(),
        source,
    })?;
    remove_old(directory)?;
    let (mut late, mut links) = (Vec::new(), Vec::new());
    for (chain, explanation) in wanted.iter().zip(&explained.of) {
        let Some(explanation) = explanation else {
            continue;
        };
        if let Some(comparison) = &explanation.comparison {
            late.push((chain.id.clone(), comparison.sentence()));
        }
        if chain.kept == 0 || !is_plain(&chain.id) {
            continue;
        }
        if let Some(page) = pages.page(&chain.id, explanation)? {
            let name = format!("{}.html", chain.id);
            files::write_whole(&directory.join(&name), |out| out.write_all(page.as_bytes()))?;
            links.push((chain.id.clone(), link(directory, &name)));
        }
    }
    Ok((late, links))
}

/// Removes the pages of an earlier report, which may show another recording.
fn remove_old(directory: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::Write {
        path: directory.into(),
        source,
    };
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("chain-") && name.ends_with(".html") {
            std::fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

/// Reports whether an id, which comes from a file, can be the name of a file.
fn is_plain(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=64).contains(&id.len()) && id.chars().all(is_plain)
}

/// Returns a page's address relative to the report, which lies beside the directory.
fn link(directory: &Path, name: &str) -> String {
    let bytes = directory
        .file_name()
        .map(|name| name.as_encoded_bytes().to_vec())
        .unwrap_or_default();
    let coded = bytes.iter().map(|&byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    format!("{}/{name}", coded.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_file_names_hold_with_unusual_names() {
        assert_eq!(
            link(Path::new("/a b/my \u{e9} report.why"), "chain-1.html"),
            "my%20%C3%A9%20report.why/chain-1.html"
        );
        assert!(is_plain("chain-664e64ef4c8d"));
        for id in ["", "../x", "a/b", "a.b", "\u{e9}"] {
            assert!(!is_plain(id), "{id}");
        }
    }
}
