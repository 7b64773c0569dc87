//! Tests `onbeat monitor` on traces with planted violations: incidents, lines, metrics, exit codes.

use onbeat_trace::manifest::{Manifest, Span};
use onbeat_trace::{text, Reader, Writer, WriterOptions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const RECORDED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../demos/recorded/parking"
);

const SYSTEM: &str = "
1ms cpu0 10/10 process command=/opt/talker distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 thread comm=talker
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/chatter
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
2ms cpu1 20/20 process command=/opt/fusion distribution=kilted rmw=rmw_fastrtps_cpp
2ms cpu1 20/20 thread comm=fusion
2ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=fusion
2ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/chatter
2ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
2ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
2ms cpu1 20/20 publisher_init publisher=0x11 node=0x1 rmw=0x1030 topic=/out
3ms cpu1 20/20 executor_wait_for_work timeout_ns=0
3ms cpu1 20/20 wait
3ms cpu1 20/20 switch_out state=1
";

const REQUIREMENTS: &str = "
chains:
  - {from: /talker, to: /out, latency: {max: 10ms}}
callbacks:
  - {node: /fusion, response: {max: 12ms}}
";

/// The reason why an execution in a test's trace takes 15 ms longer than usual. `None` stands for
/// an execution of the usual length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    None,
    Neighbour,
    Slow,
}

/// Returns the events of one execution that begins at `t` us, in the text format of events.
fn round(t: u64, plant: Plant) -> String {
    let run = match plant {
        Plant::None => 2_000,
        Plant::Neighbour | Plant::Slow => 17_000,
    };
    let (publish, talked, begin) = (t + 510, t + 1_010, t + 580);
    let end = begin + run;
    let mut lines = format!(
        "{t}us cpu0 10/10 wake waker_tid=0
{t}us cpu0 10/10 switch_in
{t}us cpu0 10/10 executor_next_ready
{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{publish}us cpu0 10/10 publish rmw=0x1010 source_ns={publish}us
{talked}us cpu0 10/10 callback_end callback=0x60
{talked}us cpu0 10/10 executor_wait_for_work timeout_ns=0
{talked}us cpu0 10/10 wait
{talked}us cpu0 10/10 switch_out state=1
{}us cpu1 20/20 wake waker_tid=0
{}us cpu1 20/20 switch_in prev_tid=0
{begin}us cpu1 20/20 executor_next_ready
{begin}us cpu1 20/20 executor_execute handle=0x20
{begin}us cpu1 20/20 take rmw=0x1020 source_ns={publish}us
{begin}us cpu1 20/20 callback_start callback=0x60
{end}us cpu1 20/20 publish rmw=0x1030 source_ns={end}us
{end}us cpu1 20/20 callback_end callback=0x60
{end}us cpu1 20/20 executor_wait_for_work timeout_ns=0
{end}us cpu1 20/20 wait
{end}us cpu1 20/20 switch_out state=1
",
        t + 550,
        t + 560
    );
    if plant == Plant::Neighbour {
        lines += &format!(
            "{}us cpu1 20/20 switch_out next_tid=31 state=0\n{}us cpu1 20/20 switch_in prev_tid=31\n",
            t + 1_000,
            t + 16_000
        );
    }
    lines
}

/// Writes a trace of `seconds`. A normal execution begins every 100 ms. `plants` contains more
/// executions: the begin of each in us, and the reason why it is late. Returns the ends of the late
/// executions in ns.
fn planted(path: &Path, seconds: u64, plants: &BTreeMap<u64, Plant>) -> Vec<u64> {
    let regular = (1..10 * seconds).map(|i| (100_000 * i, Plant::None));
    let mut rounds: BTreeMap<u64, Plant> = regular.collect();
    rounds.extend(plants.iter().map(|(t, plant)| (*t, *plant)));
    let mut lines = SYSTEM.to_string();
    // The recorder repeats the names of other programs.
    for s in (0..seconds).step_by(10) {
        let at = 1_000_000 * s + 3_000;
        lines += &format!("{at}us cpu1 30/31 bystander comm=worker process=neighbour kernel=no\n");
    }
    for (t, plant) in &rounds {
        lines += &round(*t, *plant);
    }
    let mut events = text::parse(&lines).unwrap_or_else(|e| panic!("{e}"));
    events.sort_by_key(|e| e.time_ns);
    let options = WriterOptions {
        id: Some([7; 16]),
        ..WriterOptions::default()
    };
    let mut writer = Writer::create(path, options).unwrap();
    events.iter().for_each(|e| writer.push(e).unwrap());
    let span = Span {
        start_realtime_ns: 1_769_868_000_000_000_000,
        start_monotonic_ns: 1,
        duration_ns: seconds * 1_000_000_000,
    };
    let manifest = Manifest {
        span,
        ..Manifest::default()
    };
    writer.finish(manifest).unwrap();
    let late = plants.iter().filter(|(_, plant)| **plant != Plant::None);
    late.map(|(t, _)| (t + 17_580) * 1000).collect()
}

/// Copies a trace from [`planted`] and adds a reading of CLOCK_REALTIME for every second of it.
/// From `step_ns` on, these readings are ahead by `ahead_ns`, as if somebody had set the clock.
fn with_clock(from: &Path, to: &Path, step_ns: u64, ahead_ns: i64) {
    let mut reader = Reader::open(from).unwrap();
    let manifest = reader.manifest().clone();
    let offset_ns = manifest.span.start_realtime_ns as i64 - 1;
    let mut writer = Writer::create(to, WriterOptions::default()).unwrap();
    let mut next_ns = 0;
    for event in reader.events() {
        while next_ns <= event.time_ns {
            let ahead_ns = if next_ns >= step_ns { ahead_ns } else { 0 };
            let line = format!(
                "{next_ns}ns cpu0 0/0 clock_offset realtime_minus_monotonic_ns={}ns\n",
                offset_ns + ahead_ns
            );
            let reading = text::parse(&line).unwrap_or_else(|e| panic!("{e}"));
            writer.push(&reading[0]).unwrap();
            next_ns += 1_000_000_000;
        }
        writer.push(&event).unwrap();
    }
    writer.finish(manifest).unwrap();
}

fn monitor(at: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onbeat-monitor"));
    command.args(words).current_dir(at).stdin(Stdio::null());
    command.env_remove("JOURNAL_STREAM").output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn incidents(at: &Path) -> Vec<(PathBuf, Value)> {
    let entries = fs::read_dir(at).unwrap().map(|e| e.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(path.join("incident.json")).unwrap();
        (path, serde_json::from_slice(&bytes).unwrap())
    };
    paths.into_iter().map(read).collect()
}

fn ends(figures: &Value) -> Vec<u64> {
    let executions = figures["executions"].as_array().unwrap();
    executions
        .iter()
        .map(|e| e["end_ns"].as_u64().unwrap())
        .collect()
}

const ALL: &[&str] = &[
    "requirements.yaml",
    "trace",
    "--window",
    "10s",
    "--incidents",
    "incidents",
    "--saves-per-hour",
    "100000",
    "--before",
    "10s",
    "--textfile",
    "onbeat.prom",
];

#[test]
fn each_planted_violation_is_in_exactly_one_saved_incident_with_its_cause() {
    let held = tempfile::tempdir().unwrap();
    let at = held.path();
    fs::write(at.join("requirements.yaml"), REQUIREMENTS).unwrap();
    let mut plants = BTreeMap::new();
    // Single ones, twenty in one second, and some for a minute.
    for i in 0..12 {
        let plant = match i % 2 {
            0 => Plant::Neighbour,
            _ => Plant::Slow,
        };
        plants.insert(20_050_000 + 31_400_000 * i, plant);
    }
    let dense = 420_000_000;
    for i in 0..20 {
        plants.insert(dense + 50_000 * i, Plant::Neighbour);
    }
    for i in 0..60 {
        plants.insert(dense + 40_000_000 + 1_000_000 * i, Plant::Slow);
    }
    let truth = planted(&at.join("trace"), 560, &plants);
    let output = monitor(at, ALL);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let lines = stdout(&output);
    let saved = incidents(&at.join("incidents"));
    assert_eq!(saved.len(), 14, "{lines}");
    let mut found: Vec<u64> = saved
        .iter()
        .flat_map(|(_, figures)| ends(figures))
        .collect();
    found.sort_unstable();
    assert_eq!(found, truth);
    for (i, (path, figures)) in saved.iter().enumerate() {
        let late = ends(figures).len();
        let expected = match i {
            12 => 20,
            13 => 60,
            _ => 1,
        };
        assert_eq!(late, expected, "{path:?}");
        assert_eq!(figures["late_executions"], expected, "{path:?}");
        assert!(figures["end_ns"].is_u64(), "{path:?}: it has ended");
        let why = fs::read_to_string(path.join("why.txt")).unwrap();
        let cause = match plants
            .values()
            .nth(i.min(12) + i.saturating_sub(12) * 20)
            .unwrap()
        {
            Plant::Neighbour => {
                "preemptions of /fusion:subscription(/chatter) by neighbour (worker)"
            }
            _ => "execution of /fusion:subscription(/chatter)",
        };
        // The planted cause comes first, with its whole length.
        let first = format!("15 ms are {cause}");
        let sentence = figures["sentence"].as_str().unwrap();
        assert!(
            sentence.contains(&first),
            "{i}: {first} is not in {sentence}"
        );
        assert!(why.contains(sentence));
        let model = fs::read(path.join("model.json")).unwrap();
        let model = onbeat_document::file::read(&model).unwrap();
        assert!(!model.chains.is_empty());
        let events: Vec<_> = Reader::open(path.join("trace")).unwrap().events().collect();
        let end = ends(figures)[0];
        let last = events.last().unwrap().time_ns;
        assert!(last > end + 4_500_000_000 && last < end + 6_500_000_000);
        let page = fs::read_to_string(path.join("why.html")).unwrap();
        assert!(page.contains("/fusion:subscription(/chatter)"));
    }
    assert_eq!(lines.matches(" begins: ").count(), 14, "{lines}");
    assert_eq!(lines.matches(" is saved in ").count(), 14, "{lines}");
    assert_eq!(lines.matches(" ends after ").count(), 14, "{lines}");
    let metrics = fs::read_to_string(at.join("onbeat.prom")).unwrap();
    for expected in [
        "onbeat_incidents_total 14\n",
        "onbeat_late_executions_total 92\n",
        "onbeat_incidents_saved_total 14\n",
        "onbeat_incidents_open 0\n",
    ] {
        assert!(metrics.contains(expected), "{expected} is not in {metrics}");
    }
    // Everything is the same each time.
    fs::rename(at.join("incidents"), at.join("before")).unwrap();
    let again = monitor(at, ALL);
    assert_eq!(stdout(&again), lines);
    assert_eq!(fs::read_to_string(at.join("onbeat.prom")).unwrap(), metrics);
    let figures = |all: Vec<(PathBuf, Value)>| -> Vec<Value> {
        all.into_iter().map(|(_, figures)| figures).collect()
    };
    assert_eq!(
        figures(incidents(&at.join("incidents"))),
        figures(incidents(&at.join("before")))
    );
}

#[test]
fn a_step_of_the_clock_changes_only_the_times_of_later_incidents() {
    let held = tempfile::tempdir().unwrap();
    let at = held.path();
    fs::write(at.join("requirements.yaml"), REQUIREMENTS).unwrap();
    let plants = BTreeMap::from([(10_050_000, Plant::Slow), (50_050_000, Plant::Neighbour)]);
    planted(&at.join("plain"), 80, &plants);
    let day: i64 = 86_400_000_000_000;
    let run = |step_ns: u64, ahead_ns: i64| {
        with_clock(&at.join("plain"), &at.join("trace"), step_ns, ahead_ns);
        let output = monitor(at, ALL);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        // The names of the directories differ.
        let text = stdout(&output);
        let without_name = |line: &str| {
            let (before, after) = line.split_once(" in incidents/").unwrap_or((line, ""));
            format!(
                "{before}{}",
                after.split_once(':').map_or("", |(_, why)| why)
            )
        };
        let lines: Vec<String> = text.lines().map(without_name).collect();
        let metrics = fs::read_to_string(at.join("onbeat.prom")).unwrap();
        let saved: Vec<(String, u64, u64)> = incidents(&at.join("incidents"))
            .into_iter()
            .map(|(path, figures)| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let begin = figures["begin_realtime_ns"].as_u64().unwrap();
                let span = Reader::open(path.join("trace"))
                    .unwrap()
                    .manifest()
                    .span
                    .clone();
                (
                    name,
                    begin,
                    span.start_realtime_ns - span.start_monotonic_ns,
                )
            })
            .collect();
        for made in ["trace", "incidents"] {
            fs::remove_dir_all(at.join(made)).unwrap();
        }
        (lines, metrics, saved)
    };
    let (lines, metrics, plain) = run(u64::MAX, 0);
    assert_eq!(plain.len(), 2, "{lines:?}");
    assert!(
        plain[1].0.starts_with("incident-20260131-140050"),
        "{plain:?}"
    );
    for ahead_ns in [day, -day, 3_600_000_000_000 - 7] {
        let stepped = run(30_000_000_000, ahead_ns);
        assert_eq!((&stepped.0, &stepped.1), (&lines, &metrics));
        let mut saved = stepped.2;
        saved.sort_by_key(|incident| (incident.1 != plain[0].1, incident.1));
        assert_eq!(saved[0], plain[0]);
        let moved = |ns: u64| ns.saturating_add_signed(ahead_ns);
        assert_eq!(
            (saved[1].1, saved[1].2),
            (moved(plain[1].1), moved(plain[1].2))
        );
        assert_ne!(saved[1].0, plain[1].0);
    }
}

#[test]
fn a_system_that_keeps_its_requirements_has_no_incident() {
    let held = tempfile::tempdir().unwrap();
    let at = held.path();
    fs::write(at.join("requirements.yaml"), REQUIREMENTS).unwrap();
    planted(&at.join("trace"), 120, &BTreeMap::new());
    let output = monitor(at, ALL);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(stdout(&output), "");
    assert!(incidents(&at.join("incidents")).is_empty());
    let metrics = fs::read_to_string(at.join("onbeat.prom")).unwrap();
    assert!(metrics.contains("onbeat_incidents_total 0\n"), "{metrics}");
    let passed = "onbeat_requirement_violated{requirement=\"chains[0].latency.max\"";
    let line = metrics.lines().find(|l| l.starts_with(passed)).unwrap();
    assert!(line.ends_with(" 0"), "{line}");
}

#[test]
fn saved_incidents_are_limited_and_the_users_program_gets_each_incident() {
    let held = tempfile::tempdir().unwrap();
    let at = held.path();
    fs::write(at.join("requirements.yaml"), REQUIREMENTS).unwrap();
    let script = "#!/bin/sh\necho \"$1 $ONBEAT_INCIDENT $ONBEAT_REQUIREMENT $ONBEAT_DIRECTORY\" >> \"$(dirname \"$0\")/told\"\n";
    let program = at.join("program");
    fs::write(&program, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    let times = (0..4).map(|i| (20_050_000 + 30_000_000 * i, Plant::Slow));
    planted(&at.join("trace"), 150, &times.collect());
    let mut words = ALL[..6].to_vec();
    let path = program.to_str().unwrap();
    words.extend(["--saves-per-hour", "2", "--exec", path]);
    let output = monitor(at, &words);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let lines = stdout(&output);
    assert_eq!(
        lines.matches("too many incidents were saved").count(),
        2,
        "{lines}"
    );
    let saved = incidents(&at.join("incidents"));
    assert_eq!(saved.len(), 2);
    let told = fs::read_to_string(at.join("told")).unwrap();
    let mut expected = String::new();
    for i in 1..=4 {
        let requirement = "chains[0].latency.max";
        expected += &format!("began {i} {requirement} \n");
        if let Some((directory, _)) = saved.get(i - 1) {
            let directory = directory.display();
            expected += &format!("saved {i} {requirement} {directory}\n");
        }
        expected += &format!("ended {i} {requirement} \n");
    }
    assert_eq!(told, expected);
}

#[test]
fn requirements_of_every_kind_are_judged_on_a_recorded_trace_as_check_judges_them() {
    let held = tempfile::tempdir().unwrap();
    let at = held.path();
    let requirements = "
chains:
  - {to: /localization/ndt_pose, latency: {max: 80ms, p50: 70ms}, jitter: 100ms, loss: 50%}
topics:
  - {topic: /localization/ndt_pose, loss: 50%}
  - {topic: /no/such, rate: 10Hz..}
cpus:
  - {cpu: 0, load: 100%}
";
    fs::write(at.join("r.yaml"), requirements).unwrap();
    let output = monitor(at, &["r.yaml", RECORDED, "--textfile", "m"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let lines = stdout(&output);
    assert!(
        lines.contains("begins: chains[0].latency.max of "),
        "{lines}"
    );
    let metrics = fs::read_to_string(at.join("m")).unwrap();
    for requirement in [
        "chains[0].jitter",
        "chains[0].loss",
        "topics[1]",
        "cpus[0].load",
    ] {
        let start = format!("onbeat_requirement_violated{{requirement=\"{requirement}");
        assert!(metrics.contains(&start), "{requirement}: {metrics}");
    }
    assert!(metrics.contains("onbeat_chain_latency_seconds_count{id=\"chain-"));
}

#[test]
fn wrong_options_give_one_line_of_error_and_an_exit_code() {
    let held = tempfile::tempdir().unwrap();
    let at = held.path();
    fs::write(at.join("r.yaml"), REQUIREMENTS).unwrap();
    fs::write(at.join("wrong.yaml"), "chains:\n  - {from: /a}\n").unwrap();
    std::os::unix::fs::symlink("/tmp", at.join("link")).unwrap();
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    for (words, code, expected) in [
        (
            &["nowhere.yaml", RECORDED][..],
            1,
            "nowhere.yaml: no such file",
        ),
        (
            &["wrong.yaml", RECORDED],
            1,
            "chains[0]: the rule limits nothing",
        ),
        (&["r.yaml", "nowhere"], 1, "nowhere: no such file"),
        (
            &["r.yaml", RECORDED, "--incidents", "link"],
            1,
            "the path is a symbolic link or a file",
        ),
        (
            &["r.yaml", RECORDED, "--http", &port],
            1,
            "Choose another port",
        ),
        (&["r.yaml", RECORDED, "--http", "here"], 2, "write a port"),
        (
            &["r.yaml", RECORDED, "--window", "30s"],
            2,
            "write 10s or 60s",
        ),
        (
            &["r.yaml", RECORDED, "--exec", "program"],
            2,
            "begins with /",
        ),
        (&["r.yaml", RECORDED, "--before", "9h"], 2, "at most 1h"),
        (
            &["r.yaml", RECORDED, "--otlp", "https://collector"],
            2,
            "Run a collector on this machine",
        ),
    ] {
        let output = monitor(at, words);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(expected), "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

/// Receives one HTTP request and answers with success. Returns the head and the body of the
/// request.
fn collect(listener: &std::net::TcpListener) -> (String, Value) {
    use std::io::{Read, Write};
    let (mut stream, _) = listener.accept().unwrap();
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut part).unwrap();
        bytes.extend(&part[..count]);
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = head.split("Content-Length: ").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        if bytes.len() >= end + 4 + length {
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{\"partialSuccess\":{}}";
            stream.write_all(answer.as_bytes()).unwrap();
            return (head, serde_json::from_slice(&bytes[end + 4..]).unwrap());
        }
    }
}

fn as_lines(metric: &Value) -> Vec<String> {
    let name = metric["name"].as_str().unwrap();
    let (kind, suffix) = ["sum", "gauge", "summary"]
        .into_iter()
        .find(|kind| metric[*kind].is_object())
        .map(|kind| (kind, if kind == "sum" { "_total" } else { "" }))
        .unwrap();
    let labels = |point: &Value, more: Option<String>| {
        let all = point["attributes"].as_array().unwrap().iter();
        let pair = |a: &Value| {
            let value = a["value"]["stringValue"].as_str().unwrap();
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{}=\"{value}\"", a["key"].as_str().unwrap())
        };
        let all: Vec<String> = all.map(pair).chain(more).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", all.join(",")),
        }
    };
    let mut lines = Vec::new();
    for point in metric[kind]["dataPoints"].as_array().unwrap() {
        let (own, start) = (labels(point, None), &point["startTimeUnixNano"]);
        assert!(start.as_str().unwrap() < point["timeUnixNano"].as_str().unwrap());
        if kind != "summary" {
            let integer = point["asInt"].as_str().map(str::to_string);
            let value = integer.unwrap_or_else(|| point["asDouble"].as_f64().unwrap().to_string());
            lines.push(format!("{name}{suffix}{own} {value}"));
            continue;
        }
        for q in point["quantileValues"].as_array().unwrap() {
            let quantile = format!("quantile=\"{}\"", q["quantile"].as_f64().unwrap());
            let labels = labels(point, Some(quantile));
            lines.push(format!("{name}{labels} {}", q["value"].as_f64().unwrap()));
        }
        lines.push(format!(
            "{name}_count{own} {}",
            point["count"].as_str().unwrap()
        ));
        lines.push(format!(
            "{name}_sum{own} {}",
            point["sum"].as_f64().unwrap()
        ));
    }
    lines
}

#[test]
fn a_collector_gets_the_same_metrics_as_prometheus() {
    let held = tempfile::tempdir().unwrap();
    let at = held.path();
    fs::write(at.join("r.yaml"), REQUIREMENTS).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || collect(&listener));
    let output = monitor(at, &["r.yaml", RECORDED, "--textfile", "m", "--otlp", &url]);
    assert_eq!(stdout(&output), "", "nothing went wrong");
    let (head, message) = serving.join().unwrap();
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/json"), "{head}");
    let resource = &message["resourceMetrics"][0];
    let attributes = resource["resource"]["attributes"].to_string();
    assert!(
        attributes.contains("{\"key\":\"service.name\",\"value\":{\"stringValue\":\"onbeat\"}}")
    );
    let metrics = resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let latency = metrics
        .iter()
        .find(|m| m["name"] == "onbeat_chain_latency_seconds");
    assert_eq!(latency.unwrap()["unit"], "s");
    let mut sent: Vec<String> = metrics.iter().flat_map(as_lines).collect();
    let text = fs::read_to_string(at.join("m")).unwrap();
    // Without values in the window, the message has no quantiles, and the text has NaN.
    let is_value = |line: &&str| !line.starts_with('#') && !line.ends_with(" NaN");
    let mut shown: Vec<&str> = text.lines().filter(is_value).collect();
    sent.sort();
    shown.sort();
    assert!(shown.len() > 100, "{text}");
    assert_eq!(sent, shown);
}
