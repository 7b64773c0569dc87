//! Tests the command as a person uses it: on example models, on damaged files, at several terminal
//! widths.
#[path = "../../../observe/document/examples/models/generate.rs"]
mod generate;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn directory() -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, model) in generate::all() {
        let text = serde_json::to_string(&model).unwrap();
        fs::write(dir.path().join(format!("{name}.json")), text).unwrap();
    }
    dir
}

fn onbeat(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onbeat"))
        .args(args)
        .current_dir(dir)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn good(dir: &Path, args: &[&str], code: i32) -> String {
    let out = onbeat(dir, args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert!(!err.contains("panicked"), "{err}");
    String::from_utf8(out.stdout).unwrap()
}

fn fails(dir: &Path, args: &[&str], code: i32) -> String {
    let out = onbeat(dir, args);
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("onbeat: "), "{err}");
    err
}

#[test]
fn the_help_of_every_command_has_examples() {
    let dir = TempDir::new().unwrap();
    for command in [
        "record", "model", "merge", "redact", "show", "chains", "why", "modes", "export", "report",
        "plan", "shape",
    ] {
        let text = good(dir.path(), &[command, "--help"], 0);
        assert!(
            text.contains("Examples:") && text.contains("onbeat "),
            "{command}: {text}"
        );
        assert!(text.contains("Exit codes"), "{command}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
    assert!(good(dir.path(), &["--help"], 0).contains("Exit codes"));
    let out = onbeat(dir.path(), &["shwo"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn output_of_show_and_chains_fits_the_terminal_and_agrees_with_its_json() {
    let dir = directory();
    for name in ["parking", "sixty", "hostile"] {
        let file = format!("{name}.json");
        for columns in ["60", "100", "160"] {
            for command in [&["show", "--edges", "--threads"][..], &["chains"]] {
                let out = Command::new(env!("CARGO_BIN_EXE_onbeat"))
                    .args(command)
                    .arg(&file)
                    .current_dir(dir.path())
                    .env("COLUMNS", columns)
                    .output()
                    .unwrap();
                assert!(out.status.success());
                let text = String::from_utf8(out.stdout).unwrap();
                assert!(
                    !text.contains('\x1b'),
                    "no colours and no escapes from names in a pipe"
                );
                // Tables with many numbers are never shortened, so they may exceed a narrow screen.
                let limit = if columns == "60" {
                    90
                } else {
                    columns.parse().unwrap()
                };
                for line in text.lines().filter(|l| !l.starts_with("note:")) {
                    assert!(
                        line.chars().count() <= limit,
                        "{name} {command:?} {columns}: {line}"
                    );
                }
            }
        }
    }
    let json: serde_json::Value =
        serde_json::from_str(&good(dir.path(), &["show", "parking.json", "--json"], 0)).unwrap();
    assert_eq!(json["callbacks"].as_array().unwrap().len(), 9);
    let json: serde_json::Value =
        serde_json::from_str(&good(dir.path(), &["chains", "parking.json", "--json"], 0)).unwrap();
    let chains = json["chains"].as_array().unwrap();
    let text = good(dir.path(), &["chains", "parking.json"], 0);
    assert_eq!(chains.len(), 2);
    for chain in chains {
        assert!(text.contains(chain["id"].as_str().unwrap()));
        assert!(text.contains(&format!("{} executions", chain["executions"])));
    }
    // An empty model is reported, with an exit code of its own.
    assert!(good(dir.path(), &["show", "empty.json"], 3).contains("No callback"));
    assert!(good(dir.path(), &["chains", "empty.json"], 3).contains("has no chain"));
}

#[test]
fn merged_models_keep_the_figures_of_each_mode() {
    let dir = TempDir::new().unwrap();
    let mut model = generate::parking(2);
    model.runs[0].mode = "urban".into();
    model.runs[1].mode = "highway".into();
    for c in &mut model.callbacks {
        let mut urban = c.figures.clone();
        urban.exec_ns = onbeat_document::Dist::new();
        urban.exec_ns.record(123_000_000_000);
        c.modes.insert("urban".into(), Box::new(urban));
        c.modes
            .insert("highway".into(), Box::new(c.figures.clone()));
    }
    fs::write(
        dir.path().join("model.json"),
        serde_json::to_string(&model).unwrap(),
    )
    .unwrap();
    let urban = good(dir.path(), &["show", "--mode", "urban"], 0);
    assert!(urban.contains("123 s"), "{urban}");
    assert!(!good(dir.path(), &["show", "--mode", "highway"], 0).contains("123 s"));
    let error = fails(dir.path(), &["show", "--mode", "rural"], 1);
    assert!(error.contains("highway, urban"), "{error}");
}

#[test]
fn exports_and_reports_are_written_whole_or_not_at_all() {
    let dir = directory();
    let here = dir.path();
    for (format, start) in [
        ("dot", "digraph"),
        ("svg", "<svg "),
        ("caret", "# Made by onbeat"),
    ] {
        let text = good(here, &["export", "parking.json", "--to", format], 0);
        assert!(text.starts_with(start), "{format}");
        let file = format!("out.{format}");
        good(
            here,
            &["export", "parking.json", "--to", format, "-o", &file],
            0,
        );
        assert_eq!(
            fs::read_to_string(here.join(file)).unwrap(),
            text,
            "{format}"
        );
        good(here, &["export", "empty.json", "--to", format], 3);
    }
    good(
        here,
        &["export", "parking.json", "--to", "csv", "-o", "tables"],
        0,
    );
    let callbacks = fs::read_to_string(here.join("tables/callbacks.csv")).unwrap();
    assert_eq!(callbacks.lines().count(), 10, "a head and nine callbacks");
    good(here, &["report", "hostile.json", "-o", "r.html"], 0);
    let page = fs::read_to_string(here.join("r.html")).unwrap();
    assert!(page.ends_with("</html>\n") && !page.contains("<script"));
    assert_eq!(
        good(here, &["report", "parking.json", "-o", "-"], 0)
            .matches("<h1>")
            .count(),
        1
    );
    good(here, &["report", "empty.json"], 3);
    // No temporary file stays, neither after a success nor after a failure.
    fails(
        here,
        &["report", "parking.json", "-o", "no/such/place.html"],
        1,
    );
    fails(here, &["report", "parking.json", "-o", "tables"], 1);
    for entry in fs::read_dir(here).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".tmp"), "{name}");
    }
    // A failure leaves the old file as it was.
    fs::write(here.join("old.html"), "old").unwrap();
    fails(here, &["report", "nothere.json", "-o", "old.html"], 1);
    assert_eq!(fs::read_to_string(here.join("old.html")).unwrap(), "old");
    // A symbolic link is replaced, wherever it leads, so that others cannot redirect the output.
    // Temporary names cannot be guessed either.
    for target in ["old.html", "/dev/full"] {
        let _ = fs::remove_file(here.join("link.html"));
        symlink(target, here.join("link.html")).unwrap();
        good(here, &["report", "parking.json", "-o", "link.html"], 0);
        assert!(fs::symlink_metadata(here.join("link.html"))
            .unwrap()
            .is_file());
    }
    assert_eq!(fs::read_to_string(here.join("old.html")).unwrap(), "old");
    // Devices are written to, not replaced.
    good(here, &["report", "parking.json", "-o", "/dev/null"], 0);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let full = fails(here, &["report", "parking.json", "-o", "/dev/full"], 1);
    assert!(full.contains("/dev/full") && full.contains("-o"), "{full}");
}

#[test]
fn unusable_files_are_refused_with_their_names_and_advice() {
    let dir = directory();
    let here = dir.path();
    let text = fs::read(here.join("parking.json")).unwrap();
    fs::write(here.join("cut.json"), &text[..text.len() / 2]).unwrap();
    fs::write(here.join("none.json"), "").unwrap();
    fs::write(here.join("foreign.json"), "{\"a\": 1}").unwrap();
    fs::write(here.join("later.json"), "{\"schema\": \"onbeat-model/9\"}").unwrap();
    fs::write(here.join("bytes.bin"), [0x7f, 0x45, 0x4c, 0x46, 0, 1, 2]).unwrap();
    fs::create_dir(here.join("directory")).unwrap();
    for command in [
        &["show"][..],
        &["chains"],
        &["report"],
        &["merge"],
        &["plan"],
        &["export", "--to", "dot"],
    ] {
        for (file, word) in [
            ("cut.json", "cut off"),
            ("none.json", "empty"),
            ("foreign.json", "not an onbeat model"),
            ("later.json", "onbeat-model/9"),
            ("bytes.bin", "not valid JSON"),
            ("directory", "onbeat model directory"),
            ("missing.json", "no such file"),
        ] {
            let line = fails(here, &[command, &[file]].concat(), 1);
            assert!(
                line.contains(file) && line.contains(word),
                "{command:?} {file}: {line}"
            );
        }
    }
    // The default is model.json, which does not exist.
    assert!(fails(here, &["show"], 1).contains("onbeat model TRACE"));
    // The command names a model given for a trace, and files that are neither.
    let line = fails(here, &["model", "parking.json"], 1);
    assert!(
        line.contains("is a model") && line.contains("onbeat merge"),
        "{line}"
    );
    for format in ["perfetto", "parquet", "tables", "arrow", "mcap"] {
        let line = fails(here, &["export", "parking.json", "--to", format], 1);
        assert!(
            line.contains("is a model") && line.contains("trace directory"),
            "{line}"
        );
        assert!(fails(here, &["export", "--to", format], 2).contains("TRACE"));
    }
    for path in ["directory", "bytes.bin"] {
        let line = fails(here, &["model", path], 1);
        assert!(
            line.contains(path) && line.contains("onbeat record"),
            "{line}"
        );
    }
    let line = fails(here, &["model", "directory", "--link", "a to b"], 2);
    assert!(line.contains("->"), "{line}");
}

fn trace(path: &Path, seed: u64) {
    let options = onbeat_trace::WriterOptions::default();
    let mut writer = onbeat_trace::Writer::create(path, options).unwrap();
    let manifest = onbeat_trace::generate::generate(&mut writer, 20_000, seed).unwrap();
    writer.finish(manifest).unwrap();
}

#[test]
fn models_of_several_traces_are_merged() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("one"), 1);
    trace(&here.join("two"), 2);
    let said = good(here, &["model", "one"], 0);
    assert!(
        said.contains("model.json") && said.contains("callbacks"),
        "{said}"
    );
    good(
        here,
        &["model", "two", "-o", "two.json", "--mode", "rain"],
        0,
    );
    good(
        here,
        &[
            "merge",
            "model.json",
            "two.json",
            "-o",
            "both.json",
            "--mode",
            "all",
        ],
        0,
    );
    good(
        here,
        &[
            "merge",
            "two.json",
            "model.json",
            "-o",
            "back.json",
            "--mode",
            "all",
        ],
        0,
    );
    good(
        here,
        &["model", "one", "two", "-o", "at-once.json", "--mode", "all"],
        0,
    );
    let both = fs::read_to_string(here.join("both.json")).unwrap();
    for other in ["back.json", "at-once.json"] {
        let other = fs::read_to_string(here.join(other)).unwrap();
        let difference = both.lines().zip(other.lines()).find(|(a, b)| a != b);
        assert_eq!(difference, None);
        assert_eq!(both.len(), other.len());
    }
    let schema = include_str!("../../../../docs/model.schema.json");
    let validator = jsonschema::draft202012::new(&serde_json::from_str(schema).unwrap()).unwrap();
    for file in ["model.json", "both.json"] {
        let model = fs::read_to_string(here.join(file)).unwrap();
        let model: serde_json::Value = serde_json::from_str(&model).unwrap();
        let error = validator.iter_errors(&model).next();
        let error = error.map(|e| format!("{}: {e}", e.instance_path()));
        assert_eq!(error, None, "{file} is not as docs/model.schema.json says");
    }
    assert!(fails(here, &["merge", "model.json", "model.json"], 1).contains("more than one"));
    let report = good(
        here,
        &["report", "both.json", "--trace", "one", "-o", "-"],
        0,
    );
    assert!(report.contains("id=\"growth\"") && report.contains("Recorder of run"));
}

#[test]
fn a_trace_is_exported_as_a_timeline_for_perfetto() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("one"), 1);
    good(here, &["model", "one"], 0);
    let text = good(here, &["export", "one", "--to", "perfetto"], 0);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let model = fs::read(here.join("model.json")).unwrap();
    let model = onbeat_document::file::read(&model).unwrap();
    let of = |phase: &str, category: &str| -> Vec<&serde_json::Value> {
        events
            .iter()
            .filter(|e| e["ph"] == phase && e["cat"] == category)
            .collect()
    };
    let slices = of("X", "callback");
    for c in model
        .callbacks
        .iter()
        .filter(|c| c.figures.exec_ns.count() > 0)
    {
        let n = slices.iter().filter(|s| s["name"] == c.id.as_str()).count() as u64;
        // An execution that is cut off by the end of the recording has a slice, but no figures.
        assert!(
            (0..=1).contains(&(n - c.figures.exec_ns.count())),
            "{}: {n}",
            c.id
        );
    }
    // Both ends of each arrow lie in slices, and each arrow begins at a publication.
    let starts = of("s", "item");
    let ends = of("f", "item");
    let taken: u64 = model
        .edges
        .iter()
        .map(|e| e.figures.latency_ns.count())
        .sum();
    assert!(!ends.is_empty() && ends.len() as u64 <= taken);
    for end in &ends {
        let same = |s: &&&serde_json::Value| s["id"] == end["id"] && s["name"] == end["name"];
        assert!(starts.iter().any(|s| same(&s)), "{end} begins nowhere");
    }
    for arrow in starts.iter().chain(&ends) {
        let at = arrow["ts"].as_f64().unwrap();
        let inside = slices.iter().any(|s| {
            let from = s["ts"].as_f64().unwrap();
            s["tid"] == arrow["tid"]
                && from - 0.002 <= at
                && at <= from + s["dur"].as_f64().unwrap() + 0.002
        });
        assert!(inside, "{arrow} lies in no slice");
    }
    assert!(!of("X", "sched").is_empty());
}

#[test]
fn a_perfetto_timeline_has_the_stretches_of_each_chain() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("one"), 1);
    preempted(&here.join("late"), 1_000, 6_000);
    for name in ["one", "late"] {
        let text = good(here, &["export", name, "--to", "perfetto"], 0);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let events = value["traceEvents"].as_array().unwrap();
        let all = |key: &str, is: &str| -> Vec<&serde_json::Value> {
            events.iter().filter(|e| e[key] == is).collect()
        };
        let (wholes, parts) = (all("cat", "chain"), all("cat", "stretch"));
        let ns = |e: &serde_json::Value, key: &str| (e[key].as_f64().unwrap() * 1e3).round() as u64;
        let range = |e: &serde_json::Value| (ns(e, "ts"), ns(e, "ts") + ns(e, "dur"));
        // The stretches of an execution follow it in the file, and cover it without gap or overlap.
        let of_chains = |e: &&serde_json::Value| e["cat"] == "chain" || e["cat"] == "stretch";
        let (mut at, mut end) = (0, 0);
        for slice in events.iter().filter(of_chains) {
            let (from, to) = range(slice);
            if slice["cat"] == "chain" {
                assert_eq!(at, end, "before {slice}");
                (at, end) = (from, to);
            } else {
                assert_eq!(from, at, "{slice}");
                assert!(slice["args"]["place"].is_string(), "{slice}");
                at = to;
            }
        }
        assert_eq!(at, end, "{name}");
        for track in wholes.chunk_by(|a, b| a["tid"] == b["tid"]) {
            assert!(track.is_sorted_by(|a, b| range(a).1 <= range(b).0));
        }
        good(here, &["model", name], 0);
        let chains = json(here, &["chains", "model.json", "--json"], 0);
        for chain in chains["chains"].as_array().unwrap() {
            let id = chain["id"].as_str().unwrap();
            let names = all("name", "thread_name").into_iter();
            let tracks: Vec<_> = names
                .filter(|t| t["args"]["name"].as_str().unwrap().contains(id))
                .map(|t| (&t["pid"], &t["tid"]))
                .collect();
            let of = wholes
                .iter()
                .filter(|w| tracks.contains(&(&w["pid"], &w["tid"])));
            let count = chain["latency_ns"]["count"].as_u64().unwrap();
            assert!(count > 0);
            assert_eq!(of.count() as u64, count, "{id}");
        }
        let culprit = |p: &&&serde_json::Value| p["args"]["by"] == "neighbour (burn)";
        let preempted = parts.iter().filter(culprit);
        if name == "late" {
            assert_eq!(preempted.count(), 399);
            let late = |w: &&&serde_json::Value| w["args"]["late"] == "true";
            assert_eq!(wholes.iter().filter(late).count(), 19);
        }
    }
}

#[test]
fn traces_are_exported_as_parquet() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("one"), 1);
    good(
        here,
        &["export", "one", "--to", "parquet", "-o", "events.parquet"],
        0,
    );
    assert_eq!(
        &fs::read(here.join("events.parquet")).unwrap()[..4],
        b"PAR1"
    );
}

#[test]
fn a_trace_is_exported_as_parquet_tables_and_arrow_streams() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    for (name, seed) in [("one", 1), ("two", 2)] {
        trace(&here.join(name), seed);
        good(here, &["export", name, "--to", "tables", "-o", "all"], 0);
    }
    let runs: Vec<_> = fs::read_dir(here.join("all/executions")).unwrap().collect();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(&fs::read(run.unwrap().path()).unwrap()[..4], b"PAR1");
    }
    let stream = |table: &str| {
        let words = ["export", "one", "--to", "arrow", "--table", table];
        good(here, &[&words[..], &["-o", "stream"]].concat(), 0);
        fs::read(here.join("stream")).unwrap()
    };
    // A message of the stream begins with this mark.
    assert_eq!(&stream("items")[..4], [0xff; 4]);
    assert_ne!(stream("items"), stream("switches"));
    let two = ["--table", "items,switches", "-o", "some"];
    good(
        here,
        &[&["export", "one", "--to", "arrow"], &two[..]].concat(),
        0,
    );
    let files = |table: &str| fs::read_dir(here.join("some").join(table)).map(Iterator::count);
    assert_eq!(
        (files("items").unwrap(), files("switches").unwrap()),
        (1, 1)
    );
    assert!(files("executions").is_err());
    good(
        here,
        &[
            "export", "one", "--to", "tables", "--table", "items", "-o", "few",
        ],
        0,
    );
    assert_eq!(fs::read_dir(here.join("few")).unwrap().count(), 1);
    let twice = [
        "export", "one", "--to", "arrow", "--table", "a,b", "-o", "-",
    ];
    assert!(fails(here, &twice, 2).contains("-o"));
    good(here, &["export", "one", "--to", "mcap"], 0);
    assert_eq!(
        &fs::read(here.join("trace.mcap")).unwrap()[..5],
        b"\x89MCAP"
    );
    let out = onbeat(here, &["export", "one", "--to", "arrow", "--table", "x"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("chain_executions"), "{said}");
    let line = fails(
        here,
        &["export", "one", "--to", "text", "--table", "items"],
        2,
    );
    assert!(line.contains("--to arrow"), "{line}");
    fs::write(here.join("file"), "in the way").unwrap();
    let line = fails(here, &["export", "one", "--to", "tables", "-o", "file"], 1);
    assert!(line.contains("-o"), "{line}");
}

#[test]
fn exported_executions_add_up_to_the_figures_of_the_model() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    good(here, &["model", trace], 0);
    let model = fs::read(here.join("model.json")).unwrap();
    let model = onbeat_document::file::read(&model).unwrap();
    let table = good(here, &["export", trace, "--to", "executions"], 0);
    let mut times: std::collections::BTreeMap<&str, Vec<u64>> = Default::default();
    let mut untimed: std::collections::BTreeMap<&str, u64> = Default::default();
    for line in table.lines().skip(1) {
        let mut cells = line.rsplitn(6, ',');
        let exec_ns = cells.next().unwrap();
        let end: u64 = cells.next().unwrap().parse().unwrap();
        let start: u64 = cells.next().unwrap().parse().unwrap();
        let callback = cells.last().unwrap();
        if exec_ns.is_empty() {
            *untimed.entry(callback).or_default() += 1;
            continue;
        }
        let exec_ns: u64 = exec_ns.parse().unwrap();
        assert!(exec_ns <= end - start, "{line}");
        times.entry(callback).or_default().push(exec_ns);
    }
    for c in model
        .callbacks
        .iter()
        .filter(|c| c.figures.exec_ns.count() > 0)
    {
        let times = times.remove(c.id.as_str()).unwrap_or_default();
        let exec = &c.figures.exec_ns;
        assert_eq!(times.len() as u64, exec.count(), "{}", c.id);
        assert_eq!(times.iter().max(), Some(&exec.max()), "{}", c.id);
        let untimed = untimed.get(c.id.as_str()).copied().unwrap_or(0);
        assert_eq!(c.figures.untimed, untimed, "{}", c.id);
        assert_eq!(
            times.iter().map(|t| u128::from(*t)).sum::<u128>(),
            exec.sum()
        );
    }
    assert!(times.is_empty(), "not in the model: {times:?}");
}

fn json(dir: &Path, args: &[&str], code: i32) -> serde_json::Value {
    serde_json::from_str(&good(dir, args, code)).unwrap()
}

#[test]
fn why_explains_late_executions_to_the_nanosecond() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("t"), 3);
    good(here, &["model", "t"], 0);
    let chains = json(here, &["chains", "--json"], 0);
    let chains = chains["chains"].as_array().unwrap();
    assert!(chains.len() > 1);
    for chain in chains {
        let id = chain["id"].as_str().unwrap();
        let all = json(here, &["why", "t", "--chain", id, "--all", "--json"], 0);
        let latency = &chain["latency_ns"];
        assert_eq!(all["count"], latency["count"], "{id}");
        assert_eq!(all["longest_ns"], latency["max"], "{id}");
        let executions = all["executions"].as_array().unwrap();
        let sum = |list: &serde_json::Value| {
            let ns = list
                .as_array()
                .unwrap()
                .iter()
                .map(|s| s["ns"].as_u64().unwrap());
            ns.sum::<u64>()
        };
        for execution in executions {
            assert_eq!(execution["latency_ns"], sum(&execution["stretches"]));
        }
        let longest = executions.iter().map(|e| e["latency_ns"].as_u64()).max();
        let worst = json(
            here,
            &["why", "t", "--chain", id, "--worst", "2", "--json"],
            0,
        );
        let worst = worst["executions"].as_array().unwrap();
        assert_eq!(Some(worst[0]["latency_ns"].as_u64()), longest);
        assert_eq!(worst.len(), executions.len().min(2));
        // The execution that ran at an instant.
        let at = worst[0]["since_start_ns"].as_u64().unwrap() as f64 / 1e9 + 1e-4;
        let at = format!("{at:.6}s");
        let at = json(here, &["why", "t", "--chain", id, "--at", &at, "--json"], 0);
        let starts = at["executions"].as_array().unwrap().iter();
        assert!(starts
            .clone()
            .any(|e| e["start_ns"] == worst[0]["start_ns"]));
    }
    let text = good(here, &["why", "t"], 0);
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(text.contains("executions, the longest took"), "{text}");
    assert!(text.contains("runs"), "{text}");
    // Each stretch has a line of its own.
    let more = good(here, &["why", "t", "--stretches"], 0);
    assert!(more.lines().count() > text.lines().count());
    let id = "/locate:subscription(/filtered)";
    let callback = json(here, &["why", "t", "--callback", id, "--json"], 0);
    assert_eq!(callback["of"]["callback"], id);
    let part = ["why", "t", "--from", "/filter", "--to", "/pose", "--json"];
    let part = json(here, &part, 0);
    assert_eq!(part["of"]["callbacks"][0], "/filter:subscription(/points)");
}

#[test]
fn names_from_a_trace_cannot_control_the_terminal_in_why() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    let name = r#""evil\u{1b}[31m<b>\u{202e}""#;
    let mut text = format!(
        "1ms cpu0 10/10 thread comm={name}
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name={name}
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic={name}
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 30/31 bystander comm={name} process={name} kernel=no
"
    );
    for round in 1..20u64 {
        let t = 10_000 * round;
        let end = t + if round == 9 { 5_000 } else { 1_000 };
        text += &format!(
            "{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{}us cpu0 10/10 switch_out next_tid=31 state=0
{}us cpu0 10/10 switch_in prev_tid=31
{end}us cpu0 10/10 publish rmw=0x1010 source_ns={end}us
{end}us cpu0 10/10 callback_end callback=0x60
",
            t + 100,
            end - 100
        );
    }
    let options = onbeat_trace::WriterOptions::default();
    let mut writer = onbeat_trace::Writer::create(&here.join("t"), options).unwrap();
    for event in onbeat_trace::text::parse(&text).unwrap() {
        writer.push(&event).unwrap();
    }
    writer.finish(onbeat_trace::Manifest::default()).unwrap();
    for more in [&[][..], &["--stretches"], &["--all"]] {
        let shown = good(here, &[&["why", "t"], more].concat(), 0);
        assert!(shown.contains("preempted by"), "{shown}");
        assert!(!shown.contains(['\x1b', '\u{202e}']), "{shown:?}");
    }
    let callback = ["why", "t", "--callback", ")"];
    assert!(good(here, &callback, 0).contains("u{1b}"));
    let json = json(here, &["why", "t", "--json"], 0);
    let by = &json["comparison"]["findings"][0]["by"]["thread"]["process"];
    assert_eq!(by, "evil\u{1b}[31m<b>\u{202e}");
}

/// Writes a trace in which another process preempts each execution of a timer. One execution in
/// twenty is preempted for longer. An execution takes `usual_us` or `late_us`.
fn preempted(path: &Path, usual_us: u64, late_us: u64) {
    let mut text = String::from(
        "1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=/a
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/points
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 20/20 node_init node=0x2 rmw=0x1002 name=/b
1ms cpu0 20/20 subscription_init subscription=0x70 node=0x2 rmw=0x1070 topic=/points
1ms cpu0 20/20 subscription_object subscription=0x70 object=0x75
1ms cpu0 20/20 subscription_callback object=0x75 callback=0x80
1ms cpu0 30/31 bystander comm=burn process=neighbour kernel=no
",
    );
    for round in 1..400u64 {
        let t = 10_000 * round;
        let end = t + if round % 20 == 0 { late_us } else { usual_us };
        text += &format!(
            "{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{}us cpu0 10/10 switch_out next_tid=31 state=0
{}us cpu0 10/10 switch_in prev_tid=31
{end}us cpu0 10/10 publish rmw=0x1010 source_ns={end}us
{end}us cpu0 10/10 callback_end callback=0x60
{}us cpu0 20/20 take rmw=0x1070 source_ns={end}us
{}us cpu0 20/20 callback_start callback=0x80
{}us cpu0 20/20 callback_end callback=0x80
",
            t + 100,
            end - 100,
            end + 50,
            end + 60,
            end + 260,
        );
    }
    let options = onbeat_trace::WriterOptions::default();
    let mut writer = onbeat_trace::Writer::create(path, options).unwrap();
    for event in onbeat_trace::text::parse(&text).unwrap() {
        writer.push(&event).unwrap();
    }
    writer.finish(onbeat_trace::Manifest::default()).unwrap();
}

/// Writes a trace in which `/a` publishes `/t` every 10 ms. A timer of `/b` blocks the subscription
/// for so long that two of eleven items are overwritten.
fn overwriting(path: &Path) {
    let mut text = String::from(
        "1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=a
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/t depth=10
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
2ms cpu1 20/20 thread comm=b
2ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=b
2ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/t depth=1
2ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
2ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
2ms cpu1 20/20 timer_init timer=0x51 period_ns=90ms
2ms cpu1 20/20 timer_callback timer=0x51 callback=0x61
2ms cpu1 20/20 timer_node timer=0x51 node=0x1
",
    );
    for t in (10..=110).step_by(10) {
        text += &format!(
            "{t}ms cpu0 10/10 timer_call timer=0x50
{t}ms cpu0 10/10 callback_start callback=0x60
{t}ms cpu0 10/10 publish rmw=0x1010 source_ns={t}ms
{t}ms cpu0 10/10 callback_end callback=0x60
"
        );
        text += match t {
            80 => "80ms cpu1 20/20 timer_call timer=0x51\n80ms cpu1 20/20 callback_start callback=0x61\n",
            100 => "101ms cpu1 20/20 callback_end callback=0x61\n",
            _ => "",
        };
        if !matches!(t, 80 | 90) {
            let at = t + 2;
            text += &format!(
                "{at}ms cpu1 20/20 take rmw=0x1020 source_ns={t}ms taken=yes
{at}ms cpu1 20/20 callback_start callback=0x60
{at}ms cpu1 20/20 callback_end callback=0x60
"
            );
        }
    }
    let options = onbeat_trace::WriterOptions::default();
    let mut writer = onbeat_trace::Writer::create(path, options).unwrap();
    for event in onbeat_trace::text::parse(&text).unwrap() {
        writer.push(&event).unwrap();
    }
    writer.finish(onbeat_trace::Manifest::default()).unwrap();
}

#[test]
fn check_and_report_say_why_items_were_lost() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    overwriting(&here.join("t"));
    good(here, &["model", "t"], 0);
    let said =
        "2 of 11 items of /t to /b were overwritten: the history of the subscription holds 1 item, and \
                /b:timer(90ms) ran for 10 ms while an item waited (2 of 2).";
    let lost = json(here, &["why", "t", "--lost", "/t", "--json"], 0);
    assert_eq!(lost["topics"][0]["sentences"][0], said);
    assert_eq!(lost["topics"][0]["causes"][0]["meanwhile"][0]["count"], 2);
    let text = good(here, &["why", "t", "--lost"], 0);
    assert!(text.contains("overwritten in the history"), "{text}");
    let line = fails(here, &["why", "t", "--lost", "/tt"], 1);
    assert!(line.contains("Name one of these: /t"), "{line}");
    let rules = "topics:\n- topic: /t\n  overwritten: 1%\n  loss: 50%\n";
    fs::write(here.join("wanted.yaml"), rules).unwrap();
    let check = ["check", "model.json", "wanted.yaml"];
    let text = good(here, &check, 5);
    assert!(text.contains("`onbeat why TRACE --lost /t`"), "{text}");
    let with = [&check[..], &["--trace", "t"]].concat();
    let text = good(here, &with, 5);
    assert_eq!(text.matches(said).count(), 1, "{text}");
    let out = json(here, &[&with[..], &["--json"]].concat(), 5);
    let findings = out["findings"].as_array().unwrap();
    let lost: Vec<_> = findings.iter().filter_map(|f| f["lost"].as_str()).collect();
    assert_eq!(lost, [said]);
    good(here, &["report", "--trace", "t"], 0);
    let page = fs::read_to_string(here.join("report.html")).unwrap();
    assert!(page.contains(said), "no sentence");
}

#[test]
fn check_diff_and_report_say_what_late_executions_have_in_common() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    preempted(&here.join("t"), 1_000, 6_000);
    preempted(&here.join("slow"), 1_500, 6_500);
    preempted(&here.join("before"), 1_000, 1_000);
    good(here, &["model", "t"], 0);
    for other in ["slow", "before"] {
        good(here, &["model", other, "-o", &format!("{other}.json")], 0);
    }
    let model = json(here, &["chains", "model.json", "--json"], 0);
    let id = model["chains"][0]["id"].as_str().unwrap();
    let rules = format!("chains:\n- chain: {id}\n  latency: {{p50: 9ms, max: 2500us}}\n");
    fs::write(here.join("wanted.yaml"), rules).unwrap();
    let said =
        "that of the other 380. Of this difference, 5 ms are preemptions of /a:timer(10ms) by \
                neighbour (burn) (longer than usual in 19 of 19 late executions and in 0 of 380 others)";
    let check = ["check", "model.json", "wanted.yaml"];
    let text = good(here, &check, 5);
    let command = format!("`onbeat why TRACE --chain {id} --over 2.5ms`");
    assert!(text.contains(&command), "{text}");
    let with = [&check[..], &["--trace", "t"]].concat();
    let text = good(here, &with, 5);
    assert!(text.contains(said) && !text.contains(&command), "{text}");
    // The recording from before has no late execution.
    let other = [&check[..], &["--trace", "before"]].concat();
    let text = good(here, &other, 5);
    assert!(
        text.contains("before does not show what distinguishes late"),
        "{text}"
    );
    let out = json(here, &[&with[..], &["--json"]].concat(), 5);
    let findings = out["findings"].as_array().unwrap();
    let late: Vec<_> = findings.iter().map(|f| f["late"].as_str()).collect();
    assert!(
        late[0].is_none() && late[1].unwrap().contains(said),
        "{late:?}"
    );
    good(
        here,
        &[&with[..], &["--junit", "j", "--sarif", "s"]].concat(),
        5,
    );
    for file in ["j", "s"] {
        let text = fs::read_to_string(here.join(file)).unwrap();
        assert!(text.contains("by neighbour (burn)"), "{text}");
    }
    let line = fails(here, &[&check[..], &["--trace", "model.json"]].concat(), 1);
    assert!(line.contains("needs a trace"), "{line}");
    good(here, &["report", "--trace", "t"], 0);
    let page = fs::read_to_string(here.join("report.html")).unwrap();
    assert!(page.contains(said), "no sentence");
    assert!(
        !page.contains(".why/"),
        "a link to a page that is not there"
    );
    fs::create_dir(here.join("report.why")).unwrap();
    fs::write(here.join("report.why/chain-of-before.html"), "old").unwrap();
    good(here, &["report", "--trace", "t", "--pages"], 0);
    let page = fs::read_to_string(here.join("report.html")).unwrap();
    let link = format!("href=\"report.why/{id}.html\"");
    assert!(page.contains(said) && page.contains(&link), "no link");
    assert!(!here.join("report.why/chain-of-before.html").exists());
    let of_chain = fs::read_to_string(here.join(format!("report.why/{id}.html"))).unwrap();
    assert!(of_chain.contains("id=\"data\"") && of_chain.contains("neighbour (burn)"));
    for wrong in [
        &["report", "--trace", "t", "--trace", "slow", "--pages"][..],
        &["report", "--trace", "t", "--pages", "-o", "-"],
        &["report", "--trace", "t", "--pages", "-o", "report.why"],
    ] {
        let line = fails(here, wrong, 2);
        assert!(line.contains("--pages"), "{line}");
    }
    good(here, &["report"], 0);
    let page = fs::read_to_string(here.join("report.html")).unwrap();
    assert!(!page.contains("Of this difference"));
    let diff = ["diff", "before.json", "slow.json", "--run-spread", "0%"];
    let text = good(here, &[&diff[..], &["--trace", "slow"]].concat(), 7);
    assert_eq!(text.matches(said).count(), 1, "{text}");
    let text = good(here, &diff, 7);
    assert!(!text.contains("late executions"), "{text}");
}

#[test]
fn why_writes_an_html_page_with_all_executions() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("t"), 3);
    let all = json(here, &["why", "t", "--all", "--json"], 0);
    let head = good(here, &["why", "t", "--html"], 0);
    assert!(head.contains("executions, the longest took"), "{head}");
    assert!(!head.contains("share"), "only the head is printed: {head}");
    let page = fs::read_to_string(here.join("why.html")).unwrap();
    let data = page.split_once("id=\"data\">").unwrap().1;
    let data = data.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let packed: Vec<u64> = serde_json::from_value(data["executions"].clone()).unwrap();
    let executions = all["executions"].as_array().unwrap();
    assert!(executions.len() > 1);
    assert_eq!(packed.len(), 3 * executions.len());
    for (packed, execution) in packed.chunks(3).zip(executions) {
        assert_eq!(execution["since_start_ns"], packed[0]);
        assert_eq!(execution["latency_ns"], packed[1]);
        assert_eq!(
            execution["stretches"].as_array().unwrap().len() as u64,
            packed[2]
        );
    }
    // The page of a part, of a callback, at an instant, on standard output.
    let id = "/locate:subscription(/filtered)";
    let page = good(here, &["why", "t", "--callback", id, "--html", "-"], 0);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let opens = |page: &str| page.contains("\"at_ns\":1500000000,");
    assert!(!opens(&page));
    assert!(opens(&good(
        here,
        &["why", "t", "--at", "1.5s", "--html", "-"],
        0
    )));
    let worst = good(here, &["why", "t", "--worst", "1", "--html", "-"], 0);
    assert!(worst.contains("The stretches of 1 executions are on this page"));
    fails(here, &["why", "t", "--html", "no/such/place.html"], 1);
    let out = onbeat(here, &["why", "t", "--html", "x.html", "--json"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn an_unknown_subject_of_why_is_refused_with_advice() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("t"), 3);
    let line = fails(here, &["why", "t", "--chain", "lidar -> planer"], 1);
    assert!(
        line.contains("Name one of these: chain-") && line.contains("(lidar ->"),
        "{line}"
    );
    let line = fails(here, &["why", "t", "--chain", "chain"], 1);
    assert!(line.contains("Write one id"), "{line}");
    let line = fails(here, &["why", "t", "--callback", "locat\x1b[1m"], 1);
    assert!(
        line.contains("\\u{1b}") && line.contains("/locate:"),
        "{line}"
    );
    let line = fails(here, &["why", "t", "--callback", "/camera"], 1);
    assert!(line.contains("/camera:timer(33ms)"), "{line}");
    let line = fails(here, &["why", "t", "--from", "/nowhere"], 1);
    assert!(line.contains("--from: '/nowhere' is not"), "{line}");
    let line = fails(here, &["why", "t", "--at", "noon"], 2);
    assert!(line.contains("14:03:07"), "{line}");
    let text = good(here, &["why", "t", "--over", "1h"], 3);
    assert!(
        text.contains("No execution took longer than 60 min. The longest took"),
        "{text}"
    );
    let text = good(here, &["why", "t", "--at", "1h"], 3);
    assert!(text.contains("The nearest one began at"), "{text}");
    good(here, &["model", "t"], 0);
    let line = fails(here, &["why", "model.json"], 1);
    assert!(line.contains("needs a trace"), "{line}");
}

#[test]
fn a_trace_exported_as_text_has_every_event_of_the_trace() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    trace(&here.join("one"), 1);
    let text = good(here, &["export", "one", "--to", "text"], 0);
    let mut reader = onbeat_trace::Reader::open(here.join("one")).unwrap();
    let events: Vec<_> = reader.events().collect();
    assert!(events.len() > 10_000);
    assert!(onbeat_trace::text::parse(&text).unwrap() == events);
}

#[test]
fn a_model_is_checked_against_requirements() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    good(here, &["model", trace, "-o", "parking.json"], 0);
    good(here, &["check", "parking.json", "--init", "wanted.yaml"], 0);
    let text = good(here, &["check", "parking.json", "wanted.yaml", "--all"], 0);
    assert!(text.contains("lidar_rear") && text.contains(" passed, 0 not known, 0 violated"));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    // 200 executions show neither that 99.9 % satisfy a limit, nor that the mean satisfies this
    // one.
    let own = "chains:\n  - from: lidar_rear\n    latency: {p50: 1s, p99.9: 1s}\n    loss: 5%\n";
    fs::write(here.join("own.yaml"), own).unwrap();
    let text = good(here, &["check", "parking.json", "own.yaml"], 6);
    assert!(
        text.contains("not known") && text.contains("needs 2995 values"),
        "{text}"
    );
    fs::write(here.join("own.yaml"), own.replace("p50: 1s", "p50: 1ms")).unwrap();
    let args = [
        "check",
        "parking.json",
        "own.yaml",
        "--json",
        "--junit",
        "j.xml",
        "--sarif",
        "s.json",
    ];
    let json: serde_json::Value = serde_json::from_str(&good(here, &args, 5)).unwrap();
    assert_eq!(
        (&json["violated"], &json["not_known"]),
        (&1.into(), &1.into())
    );
    let xml = fs::read_to_string(here.join("j.xml")).unwrap();
    assert!(xml.contains("failures=\"1\" errors=\"1\""), "{xml}");
    let sarif: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(here.join("s.json")).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 2);
    fs::write(here.join("own.yaml"), own.replace("1s", "1")).unwrap();
    let line = fails(here, &["check", "parking.json", "own.yaml"], 1);
    assert!(
        line.contains("own.yaml: line 3") && line.contains("unit"),
        "{line}"
    );
    assert!(fails(here, &["check", "parking.json", "none.yaml"], 1).contains("no such file"));
}

#[test]
fn two_models_are_compared_and_the_exit_code_says_whether_they_differ() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    good(here, &["model", trace, "-o", "a.json"], 0);
    let text = good(here, &["diff", "a.json", "a.json"], 0);
    assert!(text.contains("nothing changed; 2"), "{text}");
    let text = fs::read_to_string(here.join("a.json")).unwrap();
    let mut model: serde_json::Value = serde_json::from_str(&text).unwrap();
    model["edges"].as_array_mut().unwrap().pop();
    fs::write(here.join("b.json"), model.to_string()).unwrap();
    let text = good(here, &["diff", "a.json", "b.json", "--html", "d.html"], 7);
    assert!(
        text.contains("edge removed") && text.contains("1 change;"),
        "{text}"
    );
    for line in text
        .lines()
        .filter(|l| !l.starts_with("note") && !l.starts_with("1 change"))
    {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(fs::read_to_string(here.join("d.html"))
        .unwrap()
        .contains("<td>edge removed</td>"));
    let json = good(here, &["diff", "a.json", "b.json", "--json"], 7);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["causes"], 1);
    assert!(fails(here, &["diff", "a.json", "none.json"], 1).contains("no such file"));
}

#[test]
fn plans_are_made_compared_and_checked() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    good(here, &["model", trace, "-o", "parking.json"], 0);
    // The model has two chains, so one must be named by enough of its id.
    let line = fails(here, &["plan", "parking.json"], 1);
    assert!(
        line.contains("2 chains") && line.contains("--chain"),
        "{line}"
    );
    let chains = good(here, &["chains", "parking.json", "--json"], 0);
    let chains: serde_json::Value = serde_json::from_str(&chains).unwrap();
    let id = chains["chains"][0]["id"].as_str().unwrap();
    let chain = &id["chain-".len()..id.len() - 2];
    assert!(fails(here, &["plan", "parking.json", "--chain", "nonsense"], 1).contains(id));
    let nowhere = fails(here, &["plan", "parking.json", "--from", "nowhere"], 1);
    assert!(nowhere.contains("'nowhere' is not a callback, node or topic on a chain"));

    let of = |more: &[&'static str]| [&["plan", "parking.json", "--chain", chain], more].concat();
    let text = good(here, &of(&["--bands", "3"]), 0);
    assert!(
        text.contains("delta") && text.contains("average") && text.contains("plan.yaml"),
        "{text}"
    );
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let written = fs::read_to_string(here.join("plan.yaml")).unwrap();
    assert!(written.starts_with("# ") && written.contains("\nschema: onbeat-plan/1\n"));
    assert_eq!(good(here, &of(&["--bands", "3", "-o", "-"]), 0), written);
    assert!(good(here, &["plan", "--check", "plan.yaml"], 0).contains("delta"));
    let json = good(here, &["plan", "--check", "plan.yaml", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["promises"]["bands"].as_array().unwrap().len(), 3);

    // A refusal leaves the old plan, and a misspelled key is named.
    assert!(fails(here, &of(&["--slot", "99"]), 1).contains("does not fit into its period"));
    assert_eq!(fs::read_to_string(here.join("plan.yaml")).unwrap(), written);
    fs::write(
        here.join("plan.yaml"),
        written.replace("name: gamma", "name: delta"),
    )
    .unwrap();
    let line = fails(here, &["plan", "--check", "plan.yaml"], 1);
    assert!(
        line.contains("plan.yaml: line") && line.contains("'delta'"),
        "{line}"
    );
    assert!(fails(here, &["plan", "--check", "missing.yaml"], 1).contains("no such file"));

    for strategy in [
        "fifo",
        "server-per-chain",
        "let-per-chain",
        "let-per-callback",
    ] {
        let args = [
            &["plan", "parking.json", "--chain", chain, "--strategy"][..],
            &[strategy],
        ]
        .concat();
        assert!(good(here, &args, 0).contains(strategy));
    }
    let table = good(here, &of(&["--compare"]), 0);
    assert!(
        table.contains("fifo") && table.contains("bands --bands 8"),
        "{table}"
    );
    assert_eq!(
        fails(here, &of(&["--strategy", "fifo", "--bands", "2"]), 2)
            .lines()
            .count(),
        1
    );
    assert_eq!(onbeat(here, &of(&["--cpu", "much"])).status.code(), Some(2));
}

#[test]
fn a_plan_says_which_executions_it_leaves_out_and_what_it_promises() {
    let dir = TempDir::new().unwrap();
    let here = dir.path();
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    good(here, &["model", trace, "-o", "whole.json"], 0);
    let bytes = fs::read(here.join("whole.json")).unwrap();
    let with_slow = |slow_ms: &[u64]| {
        let mut model = onbeat_document::file::read(&bytes).unwrap();
        for chain in &mut model.chains {
            for &ms in slow_ms {
                chain.figures.latency_ns.record(ms * 1_000_000);
                // The model of one run has no figures per run.
                assert!(chain.per_run.is_empty());
            }
        }
        let mut out = Vec::new();
        onbeat_document::file::write(&mut out, &model).unwrap();
        fs::write(here.join("slow.json"), out).unwrap();
    };
    with_slow(&[392]);
    let plan = ["plan", "slow.json", "--chain", "664e"];
    let text = good(here, &plan, 0);
    let sentence = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "left out of the plan: the slowest execution (0.5 % of all; took 392 ms, the other executions at most 88.",
        "99.5 % of executions have a latency within [96.6, 98.6] ms",
        "At most 2.34 % of later executions miss the last slot (95 % confidence; 201 executions",
    ] {
        assert!(sentence.contains(part), "{part}: {text}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let json = good(here, &[&plan[..], &["--json"]].concat(), 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["promises"]["left_out"]["executions"], 1);
    assert_eq!(json["promises"]["miss"]["rate"], 0.0234);
    assert!(good(here, &["plan", "--check", "plan.yaml"], 0).contains("left out of the plan:"));

    // Whoever wants all executions, or a strategy without bands, gets no promise about a share.
    let all = fails(here, &[&plan[..], &["--miss", "0"]].concat(), 1);
    assert!(all.contains("does not fit into its period"), "{all}");
    // The machine was so busy that too many do not fit.
    with_slow(&[120; 60]);
    let line = fails(here, &plan, 1);
    assert!(
        line.contains("the 60 slowest of 260 executions (23 %)")
            && line.contains("fits into a period of 140 ms"),
        "{line}"
    );
    assert!(
        line.contains("measure it again under --strategy fifo"),
        "{line}"
    );
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let dir = directory();
    for command in [
        &["show", "sixty.json"][..],
        &["chains", "sixty.json"],
        &["export", "sixty.json", "--to", "svg"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onbeat"))
            .args(command)
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{command:?}");
        assert_eq!(out.status.code(), Some(0), "{command:?}");
    }
}

/// Returns the sequences of four or more printable bytes in a file, in lower case, as the program
/// `strings` finds them.
fn strings(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap();
    let runs = bytes.split(|b| !(*b == b'\t' || (0x20..0x7f).contains(b)));
    let runs = runs.filter(|run| run.len() >= 4);
    runs.map(|run| String::from_utf8_lossy(run).to_lowercase())
        .collect()
}

/// Returns the names that a redaction of the model must hide: the last parts of the names of nodes,
/// topics, symbols and threads. Parts that the visible topic contains are left out.
fn hidden_names(model: &Path, visible: &str) -> BTreeSet<String> {
    let model: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(model).unwrap()).unwrap();
    let mut names = BTreeSet::new();
    let mut add = |value: &serde_json::Value| {
        let name = value.as_str().unwrap_or_default().to_lowercase();
        let last = name.rsplit('/').next().unwrap_or_default().to_string();
        if last.len() >= 4 && !visible.contains(&last) {
            names.insert(last);
        }
    };
    for c in model["callbacks"].as_array().unwrap() {
        [&c["node"], &c["input"], &c["symbol"]]
            .into_iter()
            .for_each(&mut add);
        c["outputs"]
            .as_array()
            .into_iter()
            .flatten()
            .for_each(&mut add);
        c["threads"]
            .as_array()
            .unwrap()
            .iter()
            .for_each(|t| add(&t["comm"]));
    }
    model["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .for_each(|e| {
            add(&e["node"]);
            add(&e["topic"]);
        });
    names
}

const VISIBLE: &str =
    "visible:\n  topics: [/lidar_front/points_raw, /lidar_rear/points_raw, /localization/ndt_pose]\n";
const REDACT: [&str; 6] = [
    "redact",
    "model.json",
    "--policy",
    "policy.yaml",
    "-o",
    "out.json",
];

/// Writes the model of the recorded parking demo to `model.json`, and its redaction with the key in
/// `key` to `out.json`. Returns the text of `out.json`.
fn redacted(d: &Path) -> String {
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    fs::write(d.join("policy.yaml"), VISIBLE).unwrap();
    fs::write(d.join("key"), [42; 32]).unwrap();
    good(d, &["model", trace, "--policy", "policy.yaml"], 0);
    let said = good(d, &[&REDACT[..], &["--key", "key"]].concat(), 0);
    assert!(!said.contains("no distribution"), "{said}");
    fs::read_to_string(d.join("out.json")).unwrap()
}

fn rear_chain(text: &str) -> String {
    let model: serde_json::Value = serde_json::from_str(text).unwrap();
    let chains = model["chains"].as_array().unwrap();
    let is_rear =
        |c: &&serde_json::Value| c["cut"].is_null() && c["topics"][0] == "/lidar_rear/points_raw";
    let chain = chains.iter().find(is_rear).unwrap();
    chain["id"].as_str().unwrap().into()
}

#[test]
fn all_commands_read_a_redacted_model_with_the_same_answers() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let text = redacted(d);
    let limits = "chains:\n  - {to: /localization/ndt_pose, latency: {p50: 200ms, max: 1ms}}\n\
        topics:\n  - {topic: /lidar_front/points_raw, rate: 5Hz.., latency: {p50: 50ms}, loss: 50%}\n";
    fs::write(d.join("limits.yaml"), limits).unwrap();
    let verdicts = |model: &str| {
        let out = onbeat(d, &["check", model, "limits.yaml", "--json"]);
        let found: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let all = found["findings"].as_array().unwrap().clone();
        let mut all: Vec<String> = all
            .iter()
            .map(|f| format!("{} {} {}", f["requirement"], f["verdict"], f["measured"]))
            .collect();
        all.sort();
        (out.status.code(), all)
    };
    assert_eq!(verdicts("out.json"), verdicts("model.json"));
    assert!(verdicts("out.json").1.len() >= 5);
    good(d, &["show", "out.json", "--edges"], 0);
    good(d, &["chains", "out.json"], 0);
    let chain = rear_chain(&text);
    let plan = ["plan", "out.json", "--chain", &chain, "-o", "plan.yaml"];
    let plan = good(d, &plan, 0);
    assert!(plan.contains("The model is redacted"), "{plan}");
    let fault = fails(d, &["merge", "out.json"], 1);
    assert!(fault.contains("redacted"), "{fault}");
}

fn files_of(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.into()];
    }
    let entries = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries.flat_map(|path| files_of(&path)).collect()
}

#[test]
fn a_redacted_model_and_its_exports_contain_no_hidden_name() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let chain = rear_chain(&redacted(d));
    let hidden = hidden_names(&d.join("model.json"), VISIBLE);
    assert!(hidden.len() >= 9, "{hidden:?}");
    for name in ["filter_transform_vlp16_rear", "voxel_grid_cloud_node"] {
        assert!(hidden.contains(name), "{hidden:?}");
    }
    let found = |path: &Path| {
        let lines = strings(path);
        let found = hidden
            .iter()
            .filter(|name| lines.iter().any(|l| l.contains(*name)));
        found.cloned().collect::<BTreeSet<_>>()
    };
    // The search finds the names in the original model.
    assert_eq!(found(&d.join("model.json")), hidden);
    good(d, &["report", "out.json", "-o", "out.html"], 0);
    good(
        d,
        &["plan", "out.json", "--chain", &chain, "-o", "plan.yaml"],
        0,
    );
    let mut made = vec!["out.json", "out.html", "plan.yaml"];
    for format in ["dot", "svg", "caret", "csv"] {
        good(d, &["export", "out.json", "--to", format, "-o", format], 0);
        made.push(format);
    }
    let files: Vec<PathBuf> = made
        .iter()
        .flat_map(|name| files_of(&d.join(name)))
        .collect();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        assert_eq!(found(&file), BTreeSet::new(), "{}", file.display());
    }
}

#[test]
fn redact_gives_equal_names_for_equal_keys_and_errors_in_one_line() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let text = redacted(d);
    let mut again = REDACT;
    again[5] = "again.json";
    good(d, &[&again[..], &["--key", "key"]].concat(), 0);
    assert_eq!(fs::read_to_string(d.join("again.json")).unwrap(), text);
    good(d, &REDACT, 0);
    assert_ne!(fs::read_to_string(d.join("out.json")).unwrap(), text);
    fs::write(d.join("short"), "1234").unwrap();
    let fault = fails(d, &[&REDACT[..], &["--key", "short"]].concat(), 1);
    assert!(fault.contains("short: the key has 4 bytes"), "{fault}");
    fs::write(d.join("policy.yaml"), "visibel: {}\n").unwrap();
    let fault = fails(d, &REDACT, 1);
    assert!(fault.contains("policy.yaml: line 1"), "{fault}");
}
