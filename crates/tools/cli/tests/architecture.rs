//! Tests that the table in `docs/architecture.md` agrees with the workspace. It must name every
//! crate with its dependencies in the Cargo manifests, and no crate may depend on one above it.
//! Optional dependencies do not count: the feature `whole` alone has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns the crates of the workspace that a manifest depends on. `with_optional` is whether
/// optional dependencies count.
fn dependencies(manifest: &str, with_optional: bool) -> BTreeSet<String> {
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]"
            && (with_optional || !line.contains("optional = true"))
        {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend(name.strip_prefix("onbeat-").map(str::to_string));
        }
    }
    found
}

fn dependencies_in_manifests() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    let folders = |at: &Path| {
        let entries = fs::read_dir(at).unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| p.is_dir()).collect::<Vec<_>>()
    };
    for group in folders(&root().join("crates")) {
        for path in folders(&group) {
            let name = |p: &Path| p.file_name().unwrap().to_str().unwrap().to_string();
            let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else {
                continue;
            };
            let key = format!("{}/{}", name(&group), name(&path));
            let is_command = key == "tools/cli";
            found.insert(key, dependencies(&manifest, !is_command));
        }
    }
    found
}

fn dependencies_in_docs() -> Vec<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `crates/")?.split('|');
        let path = cells.next()?.trim().trim_end_matches('`').to_string();
        let uses = cells
            .next_back()
            .filter(|c| c.is_empty())
            .and(cells.next_back())?;
        let uses = uses.split(',').map(str::trim).filter(|u| *u != "-");
        Some((path, uses.map(str::to_string).collect()))
    });
    rows.collect()
}

#[test]
fn the_documented_dependencies_are_those_of_the_manifests() {
    let documented: BTreeMap<_, _> = dependencies_in_docs().into_iter().collect();
    let built = dependencies_in_manifests();
    assert!(built.len() > 10, "the manifests were not found: {built:?}");
    assert_eq!(
        documented, built,
        "docs/architecture.md (left), Cargo.toml (right)"
    );
}

#[test]
fn the_optional_dependencies_of_the_command_are_the_other_programs() {
    let path = root().join("crates/tools/cli/Cargo.toml");
    let manifest = fs::read_to_string(path).unwrap();
    let all = dependencies(&manifest, true);
    let optional: Vec<_> = all
        .difference(&dependencies(&manifest, false))
        .cloned()
        .collect();
    let programs = [
        "link-cli",
        "monitor-cli",
        "replay-cli",
        "store-cli",
        "top-cli",
    ];
    assert_eq!(optional, programs);
}

#[test]
fn crates_depend_only_on_crates_further_down_the_table() {
    let rows = dependencies_in_docs();
    for (at, (path, uses)) in rows.iter().enumerate() {
        for used in uses {
            let below = rows[at + 1..]
                .iter()
                .any(|(p, _)| p.ends_with(&format!("/{used}")));
            assert!(
                below,
                "{path} depends on {used}, which does not stand below it"
            );
        }
    }
}

/// The libraries that a program with root's rights must not contain, in any version. They parse
/// foreign formats, speak TLS or contain databases.
const NOT_AS_ROOT: [&str; 20] = [
    "arrow",
    "arrow-array",
    "arrow-ipc",
    "etherparse",
    "flatbuffers",
    "idna",
    "libsqlite3-sys",
    "lz4",
    "lz4-sys",
    "mcap",
    "openssl",
    "parquet",
    "pcap-parser",
    "ring",
    "rusqlite",
    "rustls",
    "rusty-s3",
    "snow",
    "ureq",
    "url",
];

const PROGRAMS: [&str; 6] = [
    "onbeat",
    "onbeat-link-cli",
    "onbeat-replay-cli",
    "onbeat-store-cli",
    "onbeat-top-cli",
    "onbeat-monitor-cli",
];

fn compiled(edges: &str, packages: &[&str]) -> BTreeSet<String> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "-e", edges, "--prefix", "none"])
        .args(["-f", "{p} {f}"])
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(|l| l.trim_end_matches(" (*)").to_string());
    lines.filter(|l| !l.is_empty()).collect()
}

#[test]
fn the_program_that_runs_as_root_links_no_parser_of_foreign_formats() {
    let crates = compiled("normal", &["onbeat"]);
    assert!(crates.len() > 50, "{crates:?}");
    let name = |line: &String| line.split(' ').next().unwrap_or_default().to_string();
    let wrong: Vec<String> = crates.iter().map(name).collect();
    let wrong: Vec<&String> = wrong
        .iter()
        .filter(|n| NOT_AS_ROOT.contains(&n.as_str()) || n.starts_with("icu_"))
        .collect();
    assert!(wrong.is_empty(), "onbeat links {wrong:?}");
    // The other programs have these crates, so the search can find them.
    let others = compiled("normal", &PROGRAMS[1..]);
    let others: BTreeSet<String> = others.iter().map(name).collect();
    for known in [
        "rusqlite",
        "mcap",
        "pcap-parser",
        "rustls",
        "url",
        "parquet",
        "arrow-ipc",
        "snow",
    ] {
        assert!(others.contains(known), "no program has {known}");
    }
}

/// Checks that the build script of onbeat-record asks for the same features of zstd as the program.
/// Otherwise its C code, a tenth of a build, would be compiled twice.
#[test]
fn zstd_is_compiled_once() {
    let all = compiled("normal,build", &["onbeat"]);
    let builds: Vec<_> = all.iter().filter(|l| l.starts_with("zstd-sys ")).collect();
    assert_eq!(builds.len(), 1, "{builds:?}");
}

/// Checks that each crate has equal features in all programs. Otherwise `./dev demo` and `./dev
/// build` would compile a crate twice, together with everything that depends on it.
#[test]
fn a_crate_has_the_same_features_in_every_program() {
    let alone = compiled("normal,build", &["onbeat"]);
    let together = compiled("normal,build", &PROGRAMS);
    let twice: Vec<_> = alone.difference(&together).collect();
    assert!(
        twice.is_empty(),
        "with these features onbeat alone has them; crates/tools/terminal/Cargo.toml says what to do: {twice:?}"
    );
}
