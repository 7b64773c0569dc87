//! Checks that each BPF program fills every field of its record.
//!
//! The memory of the ring buffer is not cleared, so a forgotten field would contain garbage.

use super::testing::table;
use std::process::Command;

fn expanded() -> String {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let output = Command::new(clang)
        .args(["-E", "-P", "-target", "bpf"])
        .arg(match std::env::consts::ARCH {
            "aarch64" => "-D__TARGET_ARCH_arm64",
            _ => "-D__TARGET_ARCH_x86",
        })
        .arg(format!("-I{}", env!("OUT_DIR")))
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf/onbeat.bpf.c"))
        .output()
        .expect("clang should run, as it does in the build");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Parses the declaration of a variable that points to a record. Returns the record's name, the
/// variable's name, and the source behind the declaration.
fn declaration(source: &str) -> Option<(&str, &str, &str)> {
    let (record, rest) = source.split_once(" *")?;
    let (variable, rest) = rest.split_once(" = ")?;
    let is_word = |text: &str| text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
    (is_word(record) && is_word(variable)).then_some((record, variable, rest))
}

/// Returns the records in a BPF program's source that have fields without a value. Each record
/// comes with the fields that the source does not mention before it submits the record.
fn forgotten(source: &str) -> Vec<(String, Vec<String>)> {
    let table = table();
    let mut found = Vec::new();
    for (at, _) in source.match_indices("struct record_") {
        let rest = &source[at + "struct record_".len()..];
        // The macro that begins a record has a variable `_r` of its own.
        let Some((name, variable, rest)) = declaration(rest).filter(|d| d.1 != "_r") else {
            continue;
        };
        let submit = rest.find(&format!("bpf_ringbuf_submit({variable},"));
        let body = &rest[..submit.unwrap_or_else(|| {
            panic!("a BPF program begins the record {name} and does not submit it")
        })];
        let layout = table.records.iter().find(|r| r.name == name);
        let layout = layout.unwrap_or_else(|| panic!("no record {name}"));
        let fields = layout.fields.iter().filter(|f| f.offset.is_some());
        let missing = fields.filter(|f| {
            let mention = format!("{variable}->{}", f.name);
            let is_field = |(at, _): (usize, &str)| {
                let next = body[at + mention.len()..].bytes().next();
                !next.is_some_and(|b| b == b'_' || b.is_ascii_alphanumeric())
            };
            !body.match_indices(&mention).any(is_field)
        });
        found.push((name.to_owned(), missing.map(|f| f.name.clone()).collect()));
    }
    found
}

#[test]
fn every_program_fills_every_field_of_its_record() {
    let records = forgotten(&expanded());
    assert!(records.len() > 50, "{} records", records.len());
    for (name, missing) in &records {
        assert!(
            missing.is_empty(),
            "{name}: no value is assigned to the fields {missing:?}"
        );
    }
    // Only the preloaded library makes these records.
    let of_library = ["cpu_clock"];
    for record in table().records {
        if of_library.contains(&record.name.as_str()) {
            continue;
        }
        let begun = records.iter().any(|(name, _)| *name == record.name);
        assert!(
            begun,
            "no BPF program writes a record of the kind {}",
            record.name
        );
    }
}

#[test]
fn a_record_field_without_a_value_is_found() {
    let source = "struct record_take *r = ({ struct record_take *_r = x; _r; }); r->rmw = 1; \
                  r->message_count = 2; r->taken = 0; bpf_ringbuf_submit(r, 0);";
    let found = forgotten(source);
    let expected = vec!["message".to_owned(), "source_ns".to_owned()];
    assert_eq!(
        found,
        [("take".to_owned(), expected)].map(|(name, mut fields)| {
            fields.sort();
            (name, fields)
        })
    );
}
