//! `include/onbeat.h` is what cbindgen makes of the sources.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    let mut sources: Vec<_> = std::fs::read_dir(root.join("src"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    sources.sort();
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    let header = String::from_utf8(header).unwrap();
    let path = root.join("include/onbeat.h");
    if std::env::var_os("ONBEAT_WRITE_HEADER").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == header,
        "include/onbeat.h is out of date: ONBEAT_WRITE_HEADER=1 cargo test -p onbeat-c --test header"
    );
}
