//! Tests that the tables of a trace have the figures of its model.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use onbeat_document::dist::Dist;
use onbeat_document::schema::Run;
use onbeat_document::Model;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_tables::{
    export_mcap, export_tables, stream_table, TableFormat, TableOptions, TimingTable,
};
use onbeat_trace::{generate, text, Manifest, Reader, Writer, WriterOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn run(reader: &Reader) -> Run {
    Run {
        id: reader.manifest().id.clone(),
        host: "robot".into(),
        boot: String::new(),
        mode: "default".into(),
        distribution: Vec::new(),
        start: 0,
        duration_ns: 0,
        lost: BTreeMap::new(),
        events: 0,
    }
}

fn options(run: Run, progress: &mut dyn FnMut(u64)) -> TableOptions<'_> {
    TableOptions {
        run,
        columns: BTreeSet::new(),
        progress,
    }
}

fn export(trace: &Path, directory: &Path) {
    let mut reader = Reader::open(trace).expect("opened");
    let run = run(&reader);
    let progress = &mut |_| {};
    let (all, format) = (BTreeSet::from(TimingTable::ALL), TableFormat::Parquet);
    let options = options(run, progress);
    export_tables(&mut reader, directory, &all, format, options).expect("exported");
}

fn model(trace: &Path) -> Model {
    let mut reader = Reader::open(trace).expect("opened");
    let mut options = SynthOptions::new(run(&reader));
    options.shortened = !reader.has_beginning();
    let mut synth = Synth::new(options);
    reader.events().for_each(|event| synth.push(&event));
    synth.finish()
}

#[derive(Debug, Default, Clone)]
struct Row {
    int: BTreeMap<String, i64>,
    text: BTreeMap<String, String>,
}

impl Row {
    fn text(&self, name: &str) -> &str {
        self.text.get(name).map_or("", String::as_str)
    }

    fn int(&self, name: &str) -> Option<i64> {
        self.int.get(name).copied()
    }
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let mut rows = vec![Row::default(); batch.num_rows()];
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        for (i, row) in rows.iter_mut().enumerate().filter(|r| column.is_valid(r.0)) {
            let name = field.name().clone();
            if let Some(column) = column.as_string_opt::<i32>() {
                row.text.insert(name, column.value(i).to_string());
            } else if let Some(column) = column.as_primitive_opt::<Int64Type>() {
                row.int.insert(name, column.value(i));
            } else if let Some(column) = column.as_primitive_opt::<Int32Type>() {
                row.int.insert(name, column.value(i).into());
            } else if let Some(column) = column.as_boolean_opt() {
                row.int.insert(name, column.value(i).into());
            }
        }
    }
    rows
}

fn read(directory: &Path, table: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut files: Vec<_> = fs::read_dir(directory.join(table))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    for file in files {
        let file = fs::File::open(file).expect("opened");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a table");
        for batch in reader.build().expect("built") {
            rows.extend(rows_of(&batch.expect("a batch")));
        }
    }
    rows
}

fn table_columns(table: &str) -> Vec<String> {
    let mut documented = documented();
    documented.remove(table).expect("a documented table")
}

fn dist(values: impl Iterator<Item = Option<i64>>) -> Dist {
    let mut all = Dist::new();
    for value in values.flatten() {
        all.record(u64::try_from(value).expect("no time is negative"));
    }
    all
}

fn compare(trace: &Path) -> (Model, tempfile::TempDir) {
    let held = tempfile::tempdir().expect("directory");
    export(trace, held.path());
    let model = model(trace);
    let ids: BTreeSet<&str> = model.callbacks.iter().map(|c| c.id.as_str()).collect();
    let callbacks = read(held.path(), "callbacks");
    let in_table: BTreeSet<&str> = callbacks.iter().map(|c| c.text("callback")).collect();
    assert_eq!(in_table, ids);

    let executions = read(held.path(), "executions");
    for callback in &model.callbacks {
        let of_it = || {
            executions
                .iter()
                .filter(|e| e.text("callback") == callback.id)
        };
        let figures = &callback.figures;
        let column = |name: &'static str| dist(of_it().map(move |e| e.int(name)));
        assert_eq!(column("exec_ns"), figures.exec_ns, "{}", callback.id);
        if of_it().all(|e| e.int("scheduled") == Some(1)) {
            assert_eq!(column("preempted_ns"), figures.preempted_ns);
            assert_eq!(column("blocked_ns"), figures.blocked_ns);
        }
        let response = of_it().map(|e| {
            let timed = matches!(e.text("reason"), "" | "missing_event");
            let since = e.int("end_ns")? - e.int("start_ns")?;
            Some(since + e.int("queued_ns")?).filter(|_| timed)
        });
        assert_eq!(dist(response), figures.response_ns, "{}", callback.id);
    }
    let chain_rows = read(held.path(), "chains");
    let chain_ids: BTreeSet<&str> = chain_rows.iter().map(|c| c.text("chain")).collect();
    let in_model: BTreeSet<&str> = model.chains.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(chain_ids, in_model);
    for (table, column, ids) in [
        ("executions", "callback", &ids),
        ("items", "publisher", &ids),
        ("items", "subscription", &ids),
        ("chain_executions", "chain", &chain_ids),
        ("stretches", "chain", &chain_ids),
    ] {
        for row in read(held.path(), table) {
            let id = row.text(column);
            assert!(id.is_empty() || ids.contains(id), "{table}.{column}: {id}");
        }
        let mut names = table_columns(table).into_iter();
        let has_column = names.any(|described| described.split(' ').next() == Some(column));
        assert!(has_column, "{table} has no column {column}");
    }
    let known = |e: &Row| e.int("exec_ns").is_some() != e.text.contains_key("reason");
    assert!(executions.iter().all(known), "a null has its reason");

    let chains = read(held.path(), "chain_executions");
    for chain in &model.chains {
        let of_it = || chains.iter().filter(|e| e.text("chain") == chain.id);
        let latency = dist(of_it().map(|e| e.int("latency_ns")));
        assert_eq!(latency, chain.figures.latency_ns, "{}", chain.id);
        let age = dist(of_it().map(|e| e.int("age_ns")));
        let expected = chain.figures.age_ns.as_ref();
        assert_eq!(&age, expected.unwrap_or(&chain.figures.latency_ns));
    }
    let listed: u64 = model.chains.iter().map(|c| c.figures.executions).sum();
    let counted = chains.iter().filter(|e| e.int("latency_ns").is_some());
    assert_eq!(counted.count() as u64, listed);
    compare_stretches(held.path(), &chains);
    compare_topics(trace, held.path(), &chains);
    (model, held)
}

/// The key of a message: its chain, the kind of its topic, the number of its execution, and the
/// number of its stretch.
type Key = (String, String, i64, i64);

/// Checks that the topics of an MCAP file have the rows of the tables, at the rows' times and in
/// their order.
fn compare_topics(trace: &Path, tables: &Path, chains: &[Row]) {
    let mut expected: BTreeMap<Key, (i64, Row)> = BTreeMap::new();
    let mut at: BTreeMap<i64, i64> = BTreeMap::new();
    let key = |row: &Row, topic: &str, number| {
        let execution = row.int("execution").expect("a number");
        (row.text("chain").into(), topic.into(), execution, number)
    };
    for row in chains {
        at.insert(row.int["execution"], row.int["start_ns"]);
        expected.insert(key(row, "latency", 0), (row.int["end_ns"], row.clone()));
    }
    for row in read(tables, "stretches") {
        let begin = at.get_mut(&row.int["execution"]).expect("an execution");
        expected.insert(
            key(&row, "stretches", row.int["number"]),
            (*begin, row.clone()),
        );
        *begin += row.int["ns"];
    }
    let (bytes, topics) = topics(trace);
    let manifest = Reader::open(trace).expect("opened").manifest().clone();
    let before = manifest.span.start_realtime_ns as i64 - manifest.span.start_monotonic_ns as i64;
    let (mut last, mut count) = (0, 0);
    for message in mcap::MessageStream::new(&bytes).expect("an MCAP file") {
        let message = message.expect("a message");
        let json: serde_json::Value = serde_json::from_slice(&message.data).expect("JSON");
        let topic = message
            .channel
            .topic
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_string();
        let number = |name: &str| json.get(name).and_then(serde_json::Value::as_i64);
        let chain = message.channel.metadata["chain"].clone();
        let of = (
            chain,
            topic,
            number("execution").expect("a number"),
            number("number").unwrap_or(0),
        );
        let (time, row) = expected
            .remove(&of)
            .unwrap_or_else(|| panic!("{of:?} is not in the tables"));
        assert_eq!(message.log_time as i64, before + time, "{of:?}");
        assert!(
            message.log_time >= last,
            "{of:?} is not in the order of time"
        );
        (last, count) = (message.log_time, count + 1);
        let ms = |name: &str| json.get(name).and_then(serde_json::Value::as_f64);
        let of_row = |name: &str| row.int(name).map(|ns| ns as f64 / 1e6);
        assert_eq!(ms("latency_ms"), of_row("latency_ns"), "{of:?}");
        assert_eq!(ms("age_ms"), of_row("age_ns"), "{of:?}");
        assert_eq!(ms("length_ms"), of_row("ns"), "{of:?}");
        for name in [
            "kind",
            "place",
            "culprit_kind",
            "culprit",
            "during",
            "during_culprit",
            "reason",
        ] {
            let text = json.get(name).and_then(serde_json::Value::as_str);
            assert_eq!(text.unwrap_or_default(), row.text(name), "{name} of {of:?}");
        }
    }
    assert!(
        expected.is_empty(),
        "not in the file: {:?}",
        expected.first_key_value()
    );
    assert_eq!(topics, count);
}

fn topics(trace: &Path) -> (Vec<u8>, u64) {
    let mut reader = Reader::open(trace).expect("opened");
    let (run, progress) = (run(&reader), &mut |_| {});
    let mut bytes = Vec::new();
    let topics = export_mcap(&mut reader, &mut bytes, options(run, progress));
    let messages = topics.expect("exported").iter().map(|t| t.messages).sum();
    (bytes, messages)
}

fn compare_stretches(directory: &Path, chains: &[Row]) {
    let mut sums: BTreeMap<i64, i64> = BTreeMap::new();
    let mut next: BTreeMap<i64, i64> = BTreeMap::new();
    for stretch in read(directory, "stretches") {
        let execution = stretch.int("execution").expect("an execution");
        *sums.entry(execution).or_default() += stretch.int("ns").expect("a length");
        let number = next.entry(execution).or_default();
        assert_eq!(stretch.int("number"), Some(*number));
        *number += 1;
    }
    for execution in chains.iter().filter(|e| e.int("latency_ns") > Some(0)) {
        let number = execution.int("execution").expect("a number");
        assert_eq!(sums.remove(&number), execution.int("latency_ns"));
    }
    assert!(sums.values().all(|sum| *sum == 0), "{sums:?}");
}

fn compare_edges(model: &Model, directory: &Path) -> usize {
    let items = read(directory, "items");
    let mut compared = 0;
    for edge in &model.edges {
        let of_it = |i: &&Row| {
            (i.text("publisher"), i.text("subscription"), i.text("topic"))
                == (edge.from.as_str(), edge.to.as_str(), edge.topic.as_str())
        };
        let fate = |fate: &'static str| {
            items
                .iter()
                .filter(of_it)
                .filter(move |i| i.text("fate") == fate)
        };
        let figures = &edge.figures;
        // The edges of synchronisers are conclusions. The items have the callbacks around them.
        let is_sync = |id: &String| model.junctions.iter().any(|j| j.callback == *id);
        if edge.assumed.is_some() || is_sync(&edge.to) || is_sync(&edge.from) {
            continue;
        }
        let taken = fate("taken").count() + fate("read").count();
        let of = (&edge.from, &edge.to, &edge.topic);
        assert_eq!(taken as u64, figures.taken, "{of:?}");
        assert_eq!(fate("lost").count() as u64, figures.lost, "{of:?}");
        assert_eq!(fate("overwritten").count() as u64, figures.overwritten);
        let between = |to: &'static str| {
            let times = move |i: &Row| Some(i.int(to)? - i.int("published_ns")?);
            dist(fate("taken").map(times))
        };
        assert_eq!(between("taken_ns"), figures.latency_ns, "{of:?}");
        assert_eq!(between("available_ns"), figures.transport_ns, "{of:?}");
        compared += 1;
    }
    compared
}

#[test]
fn the_tables_of_every_recorded_trace_have_the_figures_of_its_model() {
    let recorded = fs::read_dir(root().join("demos/recorded")).expect("recordings");
    let recorded = recorded.map(|entry| entry.expect("an entry").path());
    let recorded: Vec<PathBuf> = recorded
        .filter(|p| p.join("manifest.json").exists())
        .collect();
    assert!(!recorded.is_empty());
    for trace in recorded {
        let (model, held) = compare(&trace);
        assert!(compare_edges(&model, held.path()) > 0);
        assert!(!model.chains.is_empty());
        let threads = read(held.path(), "threads");
        let pids =
            |rows: &[Row]| -> BTreeSet<i64> { rows.iter().filter_map(|r| r.int("pid")).collect() };
        let executions = read(held.path(), "executions");
        assert!(pids(&executions).is_subset(&pids(&threads)));
        let processes = read(held.path(), "processes");
        assert!(pids(&executions).is_subset(&pids(&processes)));
        assert_eq!(read(held.path(), "runs").len(), 1);
        let on_cpu = threads
            .iter()
            .filter_map(|t| t.int("on_cpu_ns"))
            .sum::<i64>();
        let switches = read(held.path(), "switches");
        let stays = switches
            .iter()
            .filter_map(|s| Some(s.int("end_ns")? - s.int("start_ns")?));
        assert_eq!(stays.sum::<i64>(), on_cpu);
    }
}

fn generated(directory: &Path, events: u64, seed: u64) -> PathBuf {
    let trace = directory.join(format!("trace{seed}"));
    let mut writer = Writer::create(&trace, WriterOptions::default()).expect("created");
    let manifest = generate::generate(&mut writer, events, seed).expect("generated");
    writer.finish(manifest).expect("finished");
    trace
}

#[test]
fn the_tables_of_generated_traces_have_the_figures_of_their_models() {
    let held = tempfile::tempdir().expect("directory");
    for seed in 1..4 {
        let trace = generated(held.path(), 60_000, seed);
        let (model, tables) = compare(&trace);
        assert!(compare_edges(&model, tables.path()) > 5);
    }
}

const PAIR: &str = "
    1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker
    1ms cpu0 11/11 node_init node=0x2 rmw=0x1002 name=listener
    1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/t depth=9
    1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
    1ms cpu0 10/10 timer_node timer=0x50 node=0x1
    1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
    1ms cpu0 11/11 subscription_init subscription=0x20 node=0x2 rmw=0x1020 topic=/t depth=9
    1ms cpu0 11/11 subscription_object subscription=0x20 object=0x25
    1ms cpu0 11/11 subscription_callback object=0x25 callback=0x61
";

fn talk(us: u64) -> String {
    format!(
        "{us}us cpu0 10/10 timer_call timer=0x50
        {us}us cpu0 10/10 callback_start callback=0x60
        {us}us cpu0 10/10 publish rmw=0x1010 source_ns={us}us
        {us}us cpu0 10/10 callback_end callback=0x60
"
    )
}

fn listen(us: u64, stamp: u64) -> String {
    format!(
        "{us}us cpu1 11/11 take rmw=0x1020 source_ns={stamp}us taken=yes
        {us}us cpu1 11/11 callback_start callback=0x61
        {us}us cpu1 11/11 callback_end callback=0x61
"
    )
}

fn of_text(directory: &Path, events: &str) -> PathBuf {
    let trace = directory.join("text");
    let mut writer = Writer::create(&trace, WriterOptions::default()).expect("created");
    for event in &text::parse(events).expect("parsed") {
        writer.push(event).expect("pushed");
    }
    writer.finish(Manifest::default()).expect("finished");
    trace
}

#[test]
fn a_lost_item_has_a_row_unless_it_is_taken_after_all() {
    let held = tempfile::tempdir().expect("directory");
    let talks = [11_000, 21_000, 31_000].map(talk).concat();
    let listens = [
        listen(31_200, 11_000),
        listen(31_400, 31_000),
        listen(31_600, 21_000),
    ];
    let fates = |listens: &[String]| {
        let trace = of_text(held.path(), &[PAIR, &talks, &listens.concat()].concat());
        let (model, tables) = compare(&trace);
        assert_eq!(compare_edges(&model, tables.path()), 1);
        fs::remove_dir_all(trace).expect("removed");
        let items = read(tables.path(), "items");
        let fate = |i: &Row| {
            (
                i.int("published_ns").unwrap_or(0),
                i.text("fate").to_string(),
            )
        };
        items.iter().map(fate).collect::<BTreeSet<_>>()
    };
    let row = |us: i64, fate: &str| (us * 1000, fate.to_string());
    let taken = [11_000, 31_000].map(|us| row(us, "taken"));
    let lost = [row(21_000, "lost")];
    assert_eq!(
        fates(&listens[..2]),
        taken.iter().chain(&lost).cloned().collect()
    );
    let late = [row(21_000, "taken")];
    assert_eq!(
        fates(&listens),
        taken.iter().chain(&late).cloned().collect()
    );
}

#[test]
fn a_value_that_was_not_recorded_is_null_in_the_tables() {
    let held = tempfile::tempdir().expect("directory");
    let foreign = listen(12_000, 1);
    let trace = of_text(held.path(), &[PAIR, &talk(11_000), &foreign].concat());
    let (_, tables) = compare(&trace);
    let items = read(tables.path(), "items");
    let item = items
        .iter()
        .find(|i| i.int("source_ns") == Some(1_000))
        .expect("the item");
    assert_eq!(item.int("published_ns"), None);
    assert!(!item.text.contains_key("publisher"));
    // The trace has no scheduler events.
    for execution in read(tables.path(), "executions") {
        assert_eq!(execution.int("scheduled"), Some(0));
        assert_eq!(execution.int("preempted_ns"), None);
        assert_eq!(execution.int("blocked_ns"), None);
    }
    let runs = read(tables.path(), "runs");
    assert_eq!(runs[0].int("start_realtime_ns"), None);
}

#[test]
fn the_tables_of_a_trace_that_is_cut_off_have_the_figures_of_its_model() {
    let held = tempfile::tempdir().expect("directory");
    let cut = held.path().join("cut");
    fs::create_dir(&cut).expect("made");
    for entry in fs::read_dir(root().join("demos/recorded/parking")).expect("a trace") {
        let from = entry.expect("an entry").path();
        let bytes = fs::read(&from).expect("readable");
        let is_segment = from.extension().is_some_and(|e| e == "obt");
        let kept = if is_segment {
            bytes.len() / 2
        } else {
            bytes.len()
        };
        let to = cut.join(from.file_name().expect("a name"));
        fs::write(to, &bytes[..kept]).expect("written");
    }
    let (model, _held) = compare(&cut);
    let (whole, _held) = compare(&root().join("demos/recorded/parking"));
    let executions = |model: &Model| -> u64 {
        let all = model.callbacks.iter();
        all.map(|callback| callback.figures.executions()).sum()
    };
    assert!((1..executions(&whole)).contains(&executions(&model)));
}

#[test]
fn tables_of_several_traces_share_a_directory() {
    let held = tempfile::tempdir().expect("directory");
    let (one, two) = (
        generated(held.path(), 5_000, 1),
        generated(held.path(), 5_000, 2),
    );
    let tables = held.path().join("tables");
    let count = || read(&tables, "executions").len();
    export(&one, &tables);
    let first = count();
    export(&two, &tables);
    let both = count();
    assert!(both > first);
    export(&one, &tables);
    assert_eq!(count(), both, "the same trace is replaced");
    let runs = read(&tables, "runs");
    let ids: BTreeSet<&str> = runs.iter().map(|r| r.text("run")).collect();
    assert_eq!(ids.len(), 2);
    for table in TimingTable::ALL {
        let rows = read(&tables, table.name());
        assert!(rows.iter().all(|r| ids.contains(r.text("run"))));
    }
}

#[test]
fn a_failed_table_export_leaves_no_file() {
    let held = tempfile::tempdir().expect("directory");
    let trace = generated(held.path(), 5_000, 1);
    let tables = held.path().join("tables");
    fs::create_dir_all(&tables).expect("made");
    // The last file that is opened.
    fs::write(tables.join("callbacks"), "in the way").expect("written");
    let mut reader = Reader::open(&trace).expect("opened");
    let run = run(&reader);
    let progress = &mut |_| {};
    let (all, format) = (BTreeSet::from(TimingTable::ALL), TableFormat::Parquet);
    let options = options(run, progress);
    let failed = export_tables(&mut reader, &tables, &all, format, options);
    let said = failed.expect_err("it fails").to_string();
    assert!(said.contains("tables/callbacks"), "{said}");
    for table in TimingTable::ALL.iter().skip(1) {
        let left = fs::read_dir(tables.join(table.name())).expect("a directory");
        assert_eq!(left.count(), 0, "{}", table.name());
    }
}

fn rows_in(stream: impl std::io::Read) -> Vec<Row> {
    let stream = arrow_ipc::reader::StreamReader::try_new(stream, None).expect("a stream");
    let batches = stream.map(|batch| batch.expect("a batch"));
    batches.flat_map(|batch| rows_of(&batch)).collect()
}

#[test]
fn an_exported_stream_has_the_same_rows_as_the_file() {
    let held = tempfile::tempdir().expect("directory");
    let trace = generated(held.path(), 20_000, 1);
    let tables = held.path().join("tables");
    export(&trace, &tables);
    for table in TimingTable::ALL {
        let mut reader = Reader::open(&trace).expect("opened");
        let run = run(&reader);
        let mut bytes = Vec::new();
        let progress = &mut |_| {};
        let options = options(run, progress);
        let written = stream_table(&mut reader, table, &mut bytes, options).expect("streamed");
        let rows = rows_in(&*bytes);
        assert_eq!(written.rows, rows.len() as u64);
        let file = read(&tables, table.name());
        let show = |rows: &[Row]| rows.iter().map(|r| format!("{r:?}")).collect::<Vec<_>>();
        assert_eq!(show(&rows), show(&file), "{}", table.name());
    }
}

#[test]
fn several_tables_in_one_pass_have_the_same_rows_as_all_tables() {
    let held = tempfile::tempdir().expect("directory");
    let trace = generated(held.path(), 20_000, 1);
    let (all, some) = (held.path().join("all"), held.path().join("some"));
    export(&trace, &all);
    let mut reader = Reader::open(&trace).expect("opened");
    let (run, progress) = (run(&reader), &mut |_| {});
    let chosen = BTreeSet::from([TimingTable::Items, TimingTable::ChainExecutions]);
    let options = options(run, progress);
    let written = export_tables(&mut reader, &some, &chosen, TableFormat::Arrow, options);
    let written = written.expect("exported");
    let tables: BTreeSet<_> = written.iter().map(|one| one.table).collect();
    assert_eq!(tables, chosen);
    assert_eq!(fs::read_dir(&some).expect("a directory").count(), 2);
    for one in written {
        let path = one.path.expect("a path");
        let rows = rows_in(fs::File::open(&path).expect("a file"));
        assert_eq!(one.rows, rows.len() as u64);
        assert!(one.rows > 100, "{}", path.display());
        let parquet = read(&all, one.table.name());
        let show = |rows: &[Row]| rows.iter().map(|r| format!("{r:?}")).collect::<Vec<_>>();
        assert_eq!(show(&rows), show(&parquet), "{}", one.table.name());
    }
}

#[test]
fn an_export_of_some_columns_has_the_values_of_an_export_of_all() {
    let held = tempfile::tempdir().expect("directory");
    let trace = generated(held.path(), 20_000, 1);
    let stream = |table, columns: &[&str]| {
        let mut reader = Reader::open(&trace).expect("opened");
        let (run, progress) = (run(&reader), &mut |_| {});
        let mut options = options(run, progress);
        options.columns = columns.iter().map(|c| c.to_string()).collect();
        let mut bytes = Vec::new();
        stream_table(&mut reader, table, &mut bytes, options).expect("streamed");
        let stream = arrow_ipc::reader::StreamReader::try_new(&*bytes, None).expect("a stream");
        let schema = stream.schema();
        let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        (names, rows_in(&*bytes))
    };
    for table in TimingTable::ALL {
        let (names, all) = stream(table, &[]);
        assert!(table.column_names().eq(names.iter().map(String::as_str)));
        // Every other column, in another order and with a column of another table.
        for first in [0, 1] {
            let kept: Vec<&str> = names.iter().skip(first).step_by(2).map(|n| &**n).collect();
            let asked: Vec<&str> = kept.iter().rev().copied().chain(["elsewhere"]).collect();
            let (names, rows) = stream(table, &asked);
            assert_eq!(names, kept, "{}", table.name());
            let is_kept = |name: &String| kept.contains(&name.as_str());
            let expected = all.clone().into_iter().map(|mut row| {
                row.int.retain(|name, _| is_kept(name));
                row.text.retain(|name, _| is_kept(name));
                format!("{row:?}")
            });
            assert!(rows.iter().map(|row| format!("{row:?}")).eq(expected));
        }
    }
}

#[test]
fn an_export_fails_if_its_output_is_full() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let held = tempfile::tempdir().expect("directory");
    let trace = generated(held.path(), 5_000, 1);
    let mut reader = Reader::open(&trace).expect("opened");
    let run = run(&reader);
    let progress = &mut |_| {};
    let options = options(run, progress);
    let failed = stream_table(&mut reader, TimingTable::Runs, Full, options);
    let error = failed.expect_err("it fails").into_io();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

fn documented() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("docs/tables.md")).expect("the document");
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut table = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### `") {
            table = name.trim_end_matches('`').to_string();
        } else if line.starts_with("## ") {
            table.clear();
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", column, ty, ..] = cells[..] {
            if column.starts_with('`') && ty != "meaning" && !table.is_empty() {
                let column = format!("{} {ty}", column.trim_matches('`'));
                tables.entry(table.clone()).or_default().push(column);
            }
        }
    }
    tables
}

#[test]
fn the_format_document_lists_all_tables_and_columns() {
    let held = tempfile::tempdir().expect("directory");
    let trace = generated(held.path(), 5_000, 1);
    let tables = held.path().join("tables");
    export(&trace, &tables);
    let mut found = BTreeMap::new();
    for table in TimingTable::ALL {
        let directory = fs::read_dir(tables.join(table.name())).expect("a directory");
        let file = directory.map(|e| e.expect("an entry").path()).next();
        let file = fs::File::open(file.expect("a file")).expect("opened");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a table");
        let column = |field: &arrow_schema::FieldRef| {
            let ty = match field.data_type() {
                arrow_schema::DataType::Int64 => "int64",
                arrow_schema::DataType::Int32 => "int32",
                arrow_schema::DataType::Float64 => "float64",
                arrow_schema::DataType::Boolean => "bool",
                arrow_schema::DataType::Utf8 => "text",
                _ => "list of text",
            };
            let null = if field.is_nullable() { ", null" } else { "" };
            format!("{} {ty}{null}", field.name())
        };
        // `run` and `host` are documented once.
        let columns = reader.schema().fields().iter().skip(2).map(column);
        found.insert(table.name().to_string(), columns.collect::<Vec<_>>());
    }
    assert_eq!(documented(), found);
}
