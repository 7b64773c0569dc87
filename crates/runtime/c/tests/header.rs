//! Tests that `include/onbeat.h` is the header that cbindgen makes from the sources.

use std::path::Path;

#[test]
fn the_header_matches_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    // cbindgen follows the modules from there. Given one by one, each would be read twice.
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = builder.with_src(root.join("src/lib.rs"));
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
    let declared = |name: &str| {
        let code = header
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        code.filter(|line| line.contains(name)).count()
    };
    for name in [
        "onbeat_now_ns(",
        "onbeat_channel_open(",
        "typedef enum OnbeatCode",
    ] {
        assert!(declared(name) > 0, "{name} is not declared");
    }
    assert_eq!(declared("onbeat_now_ns("), 1, "declared twice");
}
