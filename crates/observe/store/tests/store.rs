//! Tests of a store on a disk and in an S3 bucket.
//!
//! Queries find what was put, a merge equals a merge of all models at once, and damage loses only
//! the damaged files.

mod server;

use onbeat_document::schema::Run;
use onbeat_document::Model;
use onbeat_store::{encode, Id, Kind, Query, Row, Store, StoreError};
use onbeat_synth::Synth;
use onbeat_synth::SynthOptions;
use proptest::prelude::*;
use server::Server;
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const BEGINNING: &str = "
1ms cpu0 10/10 process command=/opt/talker distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker namespace=/
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/chatter
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
2ms cpu1 20/20 process command=/opt/listener distribution=kilted rmw=rmw_fastrtps_cpp
2ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=listener namespace=/
2ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/chatter
2ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
2ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
";

/// Returns the JSON of a model of one run, whose callbacks have these execution times in us.
fn model(run: &str, mode: &str, start: u64, times: &[u16]) -> String {
    let mut trace = BEGINNING.to_string();
    for (i, time) in times.iter().enumerate() {
        let t = 100_000 * (i as u64 + 1);
        let (p, e) = (t + 10 + u64::from(*time), t + 20 + u64::from(*time));
        trace += &format!(
            "{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{p}us cpu0 10/10 rcl_publish publisher=0x10 message=0x99
{p}us cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={p}us
{e}us cpu0 10/10 callback_end callback=0x60
{}us cpu1 20/20 take rmw=0x1020 source_ns={p}us
{}us cpu1 20/20 callback_start callback=0x60
{}us cpu1 20/20 callback_end callback=0x60
",
            e + 10,
            e + 11,
            e + 12 + u64::from(*time) / 3,
        );
    }
    let run = Run {
        host: "robot".into(),
        boot: String::new(),
        id: run.into(),
        mode: mode.into(),
        distribution: vec!["kilted".into()],
        start,
        duration_ns: 1_000,
        lost: Default::default(),
        events: 0,
    };
    let mut synth = Synth::new(SynthOptions::new(run));
    for event in &onbeat_trace::text::parse(&trace).expect(&trace) {
        synth.push(event);
    }
    let model = synth.finish();
    assert_eq!((model.callbacks.len(), model.edges.len()), (2, 1));
    text(&model)
}

fn text(model: &Model) -> String {
    serde_json::to_string_pretty(model).expect("a model") + "\n"
}

#[derive(Clone, Copy)]
enum On {
    Directory,
    S3,
}

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
static BUCKETS: AtomicUsize = AtomicUsize::new(0);

fn variable(name: &str) -> Option<String> {
    let mut all = SERVER.variables().into_iter();
    all.find(|v| v.0 == name).map(|v| v.1)
}

struct Place {
    dir: TempDir,
    root: PathBuf,
    store: Store,
}

impl Place {
    fn new(on: On) -> Place {
        let dir = TempDir::new().expect("a directory");
        let (place, root) = match on {
            On::Directory => {
                let root = dir.path().join("store");
                (root.to_str().expect("UTF-8").to_string(), root)
            }
            On::S3 => {
                let bucket = format!("runs-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
                let root = SERVER.bucket(&bucket).join("robots/a b");
                (format!("s3://{bucket}/robots/a b/"), root)
            }
        };
        assert!(Store::init_with(&place, &variable).expect("made"));
        let store = Store::open_with(&place, &variable).expect("a store");
        Place { dir, root, store }
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn put(&self, texts: &[String], build: &str) -> Vec<Id> {
        let mut paths = Vec::new();
        for text in texts {
            paths.push(self.dir.path().join(Id::of(text.as_bytes()).short()));
            fs::write(paths.last().expect("one"), text).expect("written");
        }
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let put = onbeat_store::put(&self.store, &paths, build, |_| {}).expect("put");
        put.iter().map(|p| p.object).collect()
    }

    fn merge(&self, query: &Query) -> onbeat_store::Merged {
        let found = query.of(&self.store.index().expect("an index").rows);
        onbeat_store::merge(&self.store, &found).expect("merged")
    }

    fn files(&self, below: &str) -> Vec<PathBuf> {
        fn walk(at: &Path, all: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(at).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => walk(&path, all),
                    false => all.push(path),
                }
            }
        }
        let mut all = Vec::new();
        walk(&self.root().join(below), &mut all);
        all.sort();
        all
    }

    fn object(&self, id: Id) -> PathBuf {
        let name = id.to_string();
        self.root().join("objects").join(&name[..2]).join(&name)
    }
}

fn at_once(texts: &[String]) -> String {
    let read = |text: &String| onbeat_document::file::read(text.as_bytes()).expect("a model");
    text(&onbeat_document::merge(texts.iter().map(read).collect()).expect("merged"))
}

macro_rules! everywhere {
    ($($name:ident),*) => {
        mod directory {
            $(#[test] fn $name() { super::$name(super::On::Directory) })*
        }
        mod s3 {
            $(#[test] fn $name() { super::$name(super::On::S3) })*
        }
    };
}

everywhere!(
    merging_one_more_model_reads_only_its_path_to_the_root,
    queries_find_exactly_the_objects_that_fit,
    a_run_in_two_models_is_refused,
    damaged_files_are_named_and_the_rest_is_used,
    tidying_removes_only_unnamed_and_old_files,
    names_from_recordings_never_become_paths,
    an_object_that_is_written_too_slowly_is_not_indexed
);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_incremental_merge_equals_a_merge_of_all_models_at_once(
        runs in prop::collection::vec((prop::collection::vec(1u16..5000, 1..6), any::<bool>()), 1..20),
        steps in prop::collection::vec(1usize..8, 1..20),
    ) {
        let texts: Vec<String> = runs.iter().enumerate().map(|(i, (times, urban))| {
            let mode = if *urban { "urban" } else { "highway" };
            model(&format!("run{i}"), mode, i as u64, times)
        }).collect();
        let place = Place::new(On::Directory);
        let mut there = 0;
        for step in steps {
            let until = (there + step).min(texts.len());
            place.put(&texts[there..until], "1");
            there = until;
            let merged = place.merge(&Query::default());
            prop_assert_eq!(merged.models, there);
            prop_assert_eq!(text(&merged.model.expect("a model")), at_once(&texts[..there]));
        }
        let again = place.merge(&Query::default());
        prop_assert_eq!(again.models_read + again.merges_read, 1);
        // The models of one mode are another set, which shares some merges with the first.
        let urban: Vec<String> = texts[..there].iter().zip(&runs)
            .filter(|(_, (_, urban))| *urban).map(|(text, _)| text.clone()).collect();
        let query = Query { modes: vec!["urban".into()], ..Query::default() };
        let merged = place.merge(&query);
        prop_assert_eq!(merged.models, urban.len());
        if let Some(model) = merged.model {
            prop_assert_eq!(text(&model), at_once(&urban));
        }
    }
}

/// Merges many models, then one more. The second merge reads only the merges beside the path from
/// the new model to the root of the tree.
fn merging_one_more_model_reads_only_its_path_to_the_root(on: On) {
    let count: u64 = match on {
        On::Directory => 256,
        On::S3 => 64,
    };
    let last = count as usize;
    let texts: Vec<String> = (0..=count)
        .map(|i| model(&format!("run{i}"), "default", i, &[i as u16 + 1]))
        .collect();
    let place = Place::new(on);
    place.put(&texts[..last], "1");
    let first = place.merge(&Query::default());
    assert_eq!((first.models_read, first.merges_read), (last, 0));
    place.put(&texts[last..], "1");
    let next = place.merge(&Query::default());
    // The path has three neighbours at each of four levels, and the model itself. Models whose ids
    // begin alike add some more.
    let read = next.models_read + next.merges_read;
    assert!(
        next.models_read >= 1 && read <= 3 * 4 + 1 + 8,
        "{read} read"
    );
    assert_eq!(text(&next.model.expect("a model")), at_once(&texts));
}

/// A model that is put twice counts once. If it is put under two builds, queries for either build
/// find it. A query finds a model only if all runs of the model fit the query.
fn queries_find_exactly_the_objects_that_fit(on: On) {
    let place = Place::new(on);
    let urban = model("a", "urban", 100, &[5]);
    let both = at_once(&[
        model("b", "urban", 200, &[6]),
        model("c", "highway", 300, &[7]),
    ]);
    let [urban, both] = place.put(&[urban.clone(), both.clone()], "1")[..] else {
        panic!("two")
    };
    let parts = place.files("index");
    let texts = [urban, both].map(|id| fs::read_to_string(place.object(id)).expect("there"));
    place.put(&texts, "1");
    assert_eq!(place.files("index"), parts);
    place.put(&texts[..1], "2");
    let rows = place.store.index().expect("an index").rows;
    assert_eq!(rows.len(), 4);
    let found = |query: Query| {
        let found = query.of(&rows);
        (
            found.objects().into_iter().collect::<Vec<_>>(),
            found.partly.len(),
        )
    };
    let of = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
    let mut all = vec![urban, both];
    all.sort();
    assert_eq!(found(Query::default()), (all, 0));
    assert_eq!(
        found(Query {
            builds: of(&["2", "3"]),
            ..Query::default()
        }),
        (vec![urban], 0)
    );
    assert_eq!(
        found(Query {
            modes: of(&["urban"]),
            ..Query::default()
        }),
        (vec![urban], 1)
    );
    assert_eq!(
        found(Query {
            hosts: of(&["other"]),
            ..Query::default()
        }),
        (vec![], 0)
    );
    assert_eq!(
        found(Query {
            kind: Some(Kind::Trace),
            ..Query::default()
        }),
        (vec![], 0)
    );
    let within = |from, to| Query {
        from_ns: Some(from),
        to_ns: Some(to),
        ..Query::default()
    };
    assert_eq!(found(within(100, 200)), (vec![urban], 0));
    assert_eq!(found(within(101, 301)), (vec![both], 0));
    assert_eq!(found(within(101, 300)), (vec![], 1));
    assert_eq!(
        found(Query {
            without: vec![urban],
            ..Query::default()
        }),
        (vec![both], 0)
    );
}

fn a_run_in_two_models_is_refused(on: On) {
    let place = Place::new(on);
    let (a, b) = (
        model("a", "default", 1, &[5]),
        model("b", "default", 2, &[6]),
    );
    place.put(&[a.clone(), at_once(&[a, b])], "1");
    let rows = place.store.index().expect("an index").rows;
    let refused = onbeat_store::merge(&place.store, &Query::default().of(&rows));
    let Err(StoreError::SameRun { run, a, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(run, "a");
    let query = Query {
        without: vec![a],
        ..Query::default()
    };
    assert_eq!(place.merge(&query).models, 1);
}

fn cut(path: &Path) {
    let bytes = fs::read(path).expect("there");
    fs::write(path, &bytes[..bytes.len() / 2]).expect("cut");
}

fn damaged_files_are_named_and_the_rest_is_used(on: On) {
    let place = Place::new(on);
    let texts: Vec<String> = (0..6)
        .map(|i| model(&format!("run{i}"), "default", i, &[i as u16 + 1]))
        .collect();
    let ids = place.put(&texts[..5], "1");
    place.put(&texts[5..], "1");
    place.merge(&Query::default());
    // A kept merge that is cut, or that belongs to other models, is made again.
    let kept = place.files("merges");
    assert!(kept.len() > 1);
    kept.iter().for_each(|path| cut(path));
    assert_eq!(place.merge(&Query::default()).models_read, 6);
    fs::copy(&kept[0], &kept[1]).expect("copied");
    fs::copy(&kept[1], &kept[0]).expect("copied");
    let merged = place.merge(&Query::default());
    assert_eq!(text(&merged.model.expect("a model")), at_once(&texts));
    // A model with one changed word is still valid. Only its id shows the damage, and it is left
    // out.
    place
        .files("merges")
        .iter()
        .for_each(|p| fs::remove_file(p).expect("removed"));
    let other = texts[2].replace("kilted", "jilted");
    assert!(onbeat_document::file::read(other.as_bytes()).is_ok() && other != texts[2]);
    fs::write(place.object(ids[2]), other).expect("written");
    let merged = place.merge(&Query::default());
    assert_eq!((merged.models, merged.damaged.len()), (5, 1));
    assert!(
        merged.damaged[0].contains(&ids[2].to_string()),
        "{:?}",
        merged.damaged
    );
    let rest: Vec<String> = texts
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != 2)
        .map(|(_, t)| t.clone())
        .collect();
    assert_eq!(text(&merged.model.expect("a model")), at_once(&rest));
    // The damage: tables of another model, a cut part, a part that is not Parquet, and a part with
    // another schema. The cut part may be that of any model, so the tables of all are damaged.
    let tables = place.files("tables/edges");
    for table in &tables[1..] {
        fs::copy(&tables[0], table).expect("copied");
    }
    let parts = place.files("index");
    let columns = fs::read(&tables[0]).expect("there");
    cut(&parts[0]);
    for bytes in [&columns[..], b"PAR1 nothing PAR1"] {
        fs::write(
            place
                .root()
                .join(format!("index/{}.parquet", Id::of(bytes))),
            bytes,
        )
        .expect("written");
    }
    fs::write(place.root().join("index/evil\n.parquet"), "x").expect("written");
    let index = place.store.index().expect("an index");
    assert_eq!((index.damaged.len(), index.rows.is_empty()), (4, false));
    let checked = onbeat_store::check(&place.store).expect("checked");
    for line in checked.damaged.iter().chain(&index.damaged) {
        assert!(
            !line.chars().any(char::is_control) && line.contains("damaged"),
            "{line:?}"
        );
    }
    assert!(checked.damaged.len() > 4, "{:?}", checked.damaged);
    // While damage hides which objects are needed, tidying removes none.
    let objects = place.files("objects");
    make_old(&objects, 100);
    let tidied = onbeat_store::tidy(&place.store, Duration::ZERO).expect("tidied");
    assert_eq!((tidied.removed, place.files("objects")), (0, objects));
}

fn make_old(paths: &[PathBuf], hours: u64) {
    for path in paths {
        let file = fs::File::options().append(true).open(path).expect("there");
        let old = SystemTime::now() - Duration::from_secs(hours * 3600);
        file.set_modified(old).expect("set");
    }
}

fn tidying_removes_only_unnamed_and_old_files(on: On) {
    let place = Place::new(on);
    for i in 0..5 {
        let text = model(&format!("run{i}"), "default", i, &[i as u16 + 1]);
        place.put(&[text], "1");
    }
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    onbeat_store::put(&place.store, &[Path::new(trace)], "1", |_| {}).expect("put");
    place.merge(&Query::default());
    let rows = place.store.index().expect("an index").rows;
    let needed = place.files("objects");
    let left = [
        place.object(Id::of(b"of a killed writer")),
        place.root().join("objects/.half.0123456789abcdef.tmp"),
        place.object(Id::of(b"of one at work")),
    ];
    for path in &left {
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(path, "x").expect("written");
    }
    // A directory has a lock that keeps tidying out while a writer works, so an age of one hour is
    // enough. In a bucket, a writer may take half a day.
    let (young, old) = match on {
        On::Directory => (0, 2),
        On::S3 => (23, 25),
    };
    make_old(&left[..2], old);
    make_old(&left[2..], young);
    make_old(&needed, old);
    let tidied = onbeat_store::tidy(&place.store, Duration::from_secs(3600)).expect("tidied");
    assert_eq!((tidied.parts_before, tidied.parts_after), (6, 1));
    assert_eq!((tidied.removed, tidied.merges_removed), (2, 0));
    assert_eq!(place.store.index().expect("an index").rows, rows);
    assert!(left[2].exists() && needed.iter().all(|p| p.exists()));
    let tidied = onbeat_store::tidy(&place.store, Duration::ZERO).expect("tidied");
    assert!(tidied.merges_removed > 0 && place.files("merges").is_empty());
    assert_eq!(
        onbeat_store::check(&place.store).expect("checked").damaged,
        Vec::<String>::new()
    );
}

fn names_from_recordings_never_become_paths(on: On) {
    let place = Place::new(on);
    let evil = "../../evil\n\u{1b}[31m";
    place.put(&[model(evil, evil, 1, &[5])], evil);
    for path in place.files("") {
        let name = path
            .strip_prefix(place.root())
            .expect("within")
            .to_str()
            .expect("UTF-8");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/.-".contains(c);
        assert!(name.chars().all(plain) && !name.contains(".."), "{name}");
    }
    let rows = place.store.index().expect("an index").rows;
    assert_eq!(
        (&rows[0].run[..], &rows[0].mode[..], &rows[0].build[..]),
        (evil, evil, evil)
    );
    // This list of files leads out of its directory.
    let inner = Id::of(b"x");
    let list = |name: &str| {
        format!(
            r#"{{"schema":"onbeat-trace-files/1","files":[{{"name":"{name}","bytes":1,"object":"{inner}"}}]}}"#
        )
    };
    fs::create_dir_all(place.object(inner).parent().expect("one")).expect("made");
    fs::write(place.object(inner), "x").expect("written");
    for (name, good) in [
        ("../evil", false),
        ("/etc/evil", false),
        ("segment-../../1.obt", false),
        ("manifest.json", true),
    ] {
        let content = list(name);
        let id = Id::of(content.as_bytes());
        fs::create_dir_all(place.object(id).parent().expect("one")).expect("made");
        fs::write(place.object(id), &content).expect("written");
        let out = place.dir.path().join("out");
        let got = onbeat_store::get(&place.store, id, Kind::Trace, &out);
        assert_eq!((got.is_ok(), out.exists()), (good, good), "{name}: {got:?}");
    }
    assert!(!place.dir.path().join("evil").exists());
}

#[test]
fn index_rows_survive_encoding_and_decoding() {
    let row = |n: u64, text: &str| Row {
        object: Id::of(text.as_bytes()),
        kind: if n < 50 { Kind::Model } else { Kind::Trace },
        run: text.into(),
        build: text.repeat(2),
        mode: String::new(),
        host: "ö\0".into(),
        distribution: "jazzy,kilted".into(),
        start_ns: n,
        duration_ns: i64::MAX as u64,
        events: n * 2,
        lost: 0,
        bytes: 1,
    };
    let mut rows: Vec<Row> = (0..100).map(|n| row(n, &format!("r{n}\n"))).collect();
    rows.sort();
    let bytes = encode(&rows).expect("encoded");
    assert_eq!(onbeat_store::decode(&bytes), Ok(rows.clone()));
    rows.reverse();
    assert_eq!(encode(&rows), Ok(bytes));
    assert_eq!(
        encode(&[]).map(|b| onbeat_store::decode(&b)),
        Ok(Ok(vec![]))
    );
}

#[test]
fn a_server_refusal_is_reported_in_one_line_without_the_secret() {
    let place = Place::new(On::S3);
    let at = place.store.place().to_string();
    let with = |name: &'static str, value: &'static str| {
        move |asked: &str| match asked == name {
            true => Some(value.to_string()),
            false => variable(asked),
        }
    };
    let said = |at: &str, variables: onbeat_store::Variables<'_>| {
        let error = Store::open_with(at, variables).err().expect("refused");
        let line = error.to_string();
        assert!(
            !line.contains(server::SECRET) && !line.contains("ignature="),
            "{line}"
        );
        assert!(!line.contains('\n'), "{line}");
        line
    };
    let line = said(&at, &with("AWS_SECRET_ACCESS_KEY", "another"));
    assert!(
        line.ends_with(
            "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID (403 SignatureDoesNotMatch)"
        ),
        "{line}"
    );
    let line = said(&at, &with("AWS_ACCESS_KEY_ID", "nobody"));
    assert!(line.contains("403"), "{line}");
    let line = said("s3://no-such-bucket/x", &variable);
    assert!(line.contains("no-such-bucket"), "{line}");
    // No process listens on this port.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let line = said(&at, &|name| match name {
        "AWS_ENDPOINT_URL" => Some(nobody.clone()),
        name => variable(name),
    });
    assert!(line.contains("refused"), "{line}");
}

/// Two writers write the same models at the same time. The list of the store's files is longer than
/// one page of the server's answer.
#[test]
fn concurrent_writers_lose_nothing_and_long_lists_of_a_store_are_read_fully() {
    let place = Place::new(On::S3);
    let folder = place.root().join("merges/zz");
    fs::create_dir_all(&folder).expect("made");
    for n in 0..2500 {
        fs::write(folder.join(format!("{n:04}")), "x").expect("written");
    }
    let texts: Vec<String> = (0..8)
        .map(|i| model(&format!("run{i}"), "m", i, &[5]))
        .collect();
    std::thread::scope(|scope| {
        for half in [&texts[..6], &texts[2..]] {
            scope.spawn(|| place.put(half, "1"));
        }
    });
    let merged = place.merge(&Query::default());
    assert_eq!(text(&merged.model.expect("a model")), at_once(&texts));
    let tidied = onbeat_store::tidy(&place.store, Duration::ZERO).expect("tidied");
    assert!(tidied.merges_removed >= 2500, "{tidied:?}");
    assert_eq!(place.files("merges"), Vec::<PathBuf>::new());
    assert_eq!(place.merge(&Query::default()).models, 8);
}

/// If writing a file into a bucket takes too long, no row of the index names the file, because its
/// first parts may be gone. The files that were written before it have their rows.
fn an_object_that_is_written_too_slowly_is_not_indexed(on: On) {
    let place = Place::new(on);
    let texts: Vec<String> = (0..3)
        .map(|i| model(&format!("run{i}"), "m", i, &[5]))
        .collect();
    let paths: Vec<PathBuf> = (0..3)
        .map(|i| place.dir.path().join(format!("{i}")))
        .collect();
    for (path, text) in paths.iter().zip(&texts) {
        fs::write(path, text).expect("written");
    }
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    // The clock shows these minutes each time it is read: before and after each file, and where
    // rows may wait.
    let minutes = [0, 0, 30, 30, 30, 900, 900, 900, 900];
    let (looked, mut done) = (Cell::new(0), Vec::new());
    let now_ns = || {
        let at = looked.get();
        looked.set(at + 1);
        minutes.get(at).unwrap_or(&900) * 60_000_000_000
    };
    let result = onbeat_store::put_by(
        &place.store,
        &paths,
        "1",
        &mut |one| done.push(one.object),
        &now_ns,
    );
    let mut rows = place.store.index().expect("an index").rows;
    rows.sort_by_key(|row| row.run.clone());
    let named: Vec<Id> = rows.iter().map(|row| row.object).collect();
    match on {
        On::Directory => {
            result.expect("there is no limit");
            assert_eq!(named, done);
        }
        On::S3 => {
            let line = result.expect_err("too long").to_string();
            assert!(line.contains("12 hours") && !line.contains('\n'), "{line}");
            // Every file that it reported is named.
            assert_eq!((named.len(), &named), (1, &done));
        }
    }
}

#[test]
fn store_objects_that_tidying_removed_too_early_are_written_again() {
    let place = Place::new(On::S3);
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../demos/recorded/parking"
    );
    let removed = Cell::new(0);
    let remove = &mut |_: &onbeat_store::Put| {
        for path in place.files("objects").iter().take(2) {
            fs::remove_file(path).expect("removed");
            removed.set(removed.get() + 1);
        }
    };
    let put = onbeat_store::put_by(&place.store, &[Path::new(trace)], "1", remove, &|| 0);
    put.expect("put");
    assert_eq!(removed.get(), 2);
    let checked = onbeat_store::check(&place.store).expect("checked");
    assert_eq!((checked.damaged, checked.traces), (Vec::new(), 1));
}
