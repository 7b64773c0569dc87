//! Tests every export of example models: each is complete, and safe for hostile names.
#[path = "../../document/examples/models/generate.rs"]
mod generate;

use onbeat_document::file;
use onbeat_document::Model;
use onbeat_views::export::{caret, csv, dot, svg};
use onbeat_views::layout::{layout, Rect};
use onbeat_views::report;
use std::collections::BTreeSet;
use yaml_rust2::{Yaml, YamlLoader};

fn with_modes() -> Model {
    let mut model = generate::parking(2);
    model.runs[0].mode = "urban".into();
    model.runs[1].mode = "highway".into();
    for c in &mut model.callbacks {
        c.modes.insert("urban".into(), Box::new(c.figures.clone()));
        c.modes
            .insert("highway".into(), Box::new(c.figures.clone()));
    }
    for e in &mut model.edges {
        e.modes.insert("urban".into(), Box::new(e.figures.clone()));
    }
    for c in &mut model.chains {
        c.modes.insert("urban".into(), Box::new(c.figures.clone()));
    }
    model
}

#[test]
fn models_match_the_json_schema() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/model.schema.json")).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for (name, model) in generate::all().into_iter().chain([("modes", with_modes())]) {
        let value = serde_json::to_value(&model).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        // A written model must be equal after reading.
        assert_eq!(
            file::read(value.to_string().as_bytes()).unwrap(),
            model,
            "{name}"
        );
    }
    // The schema is strict: every field is in it, and required fields may not be missing.
    let good = serde_json::to_value(generate::parking(1)).unwrap();
    for path in [
        "/runs/0",
        "/callbacks/0",
        "/edges/0",
        "/junctions/0",
        "/chains/0",
        "/callbacks/0/exec_ns",
        "/callbacks/0/threads/0",
        "/chains/0/shares/0",
        "",
    ] {
        let mut more = good.clone();
        let object = more.pointer_mut(path).unwrap().as_object_mut().unwrap();
        object.insert("surprise".into(), 1.into());
        assert!(
            !validator.is_valid(&more),
            "a further field in '{path}' is not noticed"
        );
        let fields: Vec<String> = good
            .pointer(path)
            .unwrap()
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        for field in fields {
            let mut less = good.clone();
            less.pointer_mut(path)
                .unwrap()
                .as_object_mut()
                .unwrap()
                .remove(&field);
            let readable = file::read(less.to_string().as_bytes()).is_ok();
            assert!(
                readable || !validator.is_valid(&less),
                "'{path}' without '{field}' cannot be read, but the schema allows it"
            );
        }
    }
}

#[test]
fn damaged_and_foreign_model_files_are_refused_in_one_line() {
    let good = serde_json::to_string_pretty(&generate::parking(1)).unwrap();
    let message = |bytes: &[u8]| {
        let text = file::read(bytes).unwrap_err().to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains("onbeat model TRACE"),
            "names the way out: {text}"
        );
        text
    };
    assert!(message(b" \n").contains("empty"));
    assert!(message(b"\0\0\0\0").contains("not valid JSON"));
    assert!(message(b"[1, 2]").contains("not an onbeat model"));
    assert!(message(b"{\"schema\": 7}").contains("not an onbeat model"));
    assert!(message(b"{\"schema\": \"onbeat-model/99\"}").contains("onbeat-model/99"));
    assert!(message(b"{\"schema\": \"onbeat-model/1\"}").contains("missing field"));
    assert!(message(
        good.replace("\"bracket\": \"inferred\"", "\"bracket\": 3")
            .as_bytes()
    )
    .contains("line"));
    for edge in [
        r#""from": "/lidar_front:timer(100ms)""#,
        r#""to": "/voxel_grid:subscription(/lidars/points_fused)""#,
    ] {
        let (key, _) = edge.split_once(':').unwrap();
        let broken = good.replacen(edge, &format!("{key}: \"/nowhere\""), 1);
        assert_ne!(broken, good);
        assert!(message(broken.as_bytes()).contains("/nowhere"));
    }
    // A truncated file gives an error at any length, never a panic or a smaller model.
    for cut in (0..good.len() - 2).step_by(4999) {
        let text = message(&good.as_bytes()[..cut]);
        assert!(
            text.contains("cut off") || text.contains("empty"),
            "{cut}: {text}"
        );
    }
    // Changed bytes never cause a panic.
    let mut random = generate::Random::new(11);
    for _ in 0..100 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..3 {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        if let Ok(model) = file::read(&bytes) {
            report::html(&model, "x", none());
            svg::svg(&model);
            csv::tables(&model);
            caret::caret(&model);
            dot::dot(&model);
        }
    }
}

fn tags(text: &str) -> BTreeSet<String> {
    let mut rest = text;
    let mut found = BTreeSet::new();
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let name: String = rest
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric())
            .collect();
        if name == "style" {
            rest = rest.split_once("</style>").expect("style is closed").1;
        }
        found.insert(name);
    }
    found
}

#[test]
fn hostile_names_are_only_text_in_every_export() {
    let model = generate::hostile();
    let known: BTreeSet<String> = [
        tags(&report::html(&generate::parking(2), "x", none())),
        tags(&report::html(&generate::sixty(), "x", none())),
        tags(&report::html(&with_modes(), "x", none())),
    ]
    .concat_sets();
    let page = report::html(&model, "<script>alert(0)</script>", none());
    // The page has only elements that harmless models also have, and so no script and no image.
    assert_eq!(
        tags(&page).difference(&known).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    assert!(!known.contains("script") && !known.contains("img") && !known.contains("link"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for text in [&page, &svg::svg(&model)] {
        assert!(!text.contains("<script"));
        assert!(!text.contains("<img"));
        let controls = text
            .chars()
            .filter(|c| c.is_control() && *c != '\n')
            .count();
        assert_eq!(controls, 0, "control characters");
        assert!(!text.contains('\u{202e}'), "turned writing direction");
    }
    // The page loads nothing from elsewhere.
    for page in [
        report::html(&model, "x", none()),
        report::html(&generate::parking(2), "x", none()),
    ] {
        assert!(page.contains("default-src 'none'"));
        for word in [
            " src=",
            "url(",
            "@import",
            "refresh",
            "href=\"h",
            "javascript:",
        ] {
            assert!(
                !page.contains(word) || page.contains(&format!("&lt;img{word}")),
                "{word}"
            );
        }
    }
    // Spreadsheets must not take a cell for a formula.
    for (name, table) in csv::tables(&model) {
        let mut heads = 0;
        for (i, row) in csv_rows(&table).iter().enumerate() {
            if i == 0 {
                heads = row.len();
            }
            assert_eq!(row.len(), heads, "{name}: {row:?}");
            for cell in row {
                let first = cell.chars().next();
                assert!(
                    !matches!(first, Some('=' | '+' | '-' | '@')),
                    "{name}: {cell}"
                );
            }
        }
    }
    assert!(
        csv::tables(&model)[1].1.contains("'=cmd|"),
        "the formula is there, as text"
    );
    // YAML must return the names unchanged.
    let yaml = YamlLoader::load_from_str(&caret::caret(&model)).unwrap();
    let names: BTreeSet<&str> = yaml[0]["nodes"]
        .as_vec()
        .unwrap()
        .iter()
        .map(|n| n["node_name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        model.callbacks.iter().map(|c| c.node.as_str()).collect()
    );
    // Every quote in DOT must be closed by the export.
    for line in dot::dot(&model).lines() {
        let unescaped = line.replace("\\\\", "").replace("\\\"", "");
        assert_eq!(unescaped.matches('"').count() % 2, 0, "{line}");
    }
}

trait ConcatSets {
    fn concat_sets(self) -> BTreeSet<String>;
}

impl<const N: usize> ConcatSets for [BTreeSet<String>; N] {
    fn concat_sets(self) -> BTreeSet<String> {
        self.into_iter().flatten().collect()
    }
}

fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (vec![], vec![], String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            ('"', _) => quoted = !quoted,
            (',', false) => row.push(std::mem::take(&mut cell)),
            ('\r', false) => {}
            ('\n', false) => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            (c, _) => cell.push(c),
        }
    }
    assert!(
        cell.is_empty() && row.is_empty() && !quoted,
        "ends with a line"
    );
    rows
}

fn overlap(a: Rect, b: Rect) -> bool {
    a.x < b.x + b.w - 0.1 && b.x < a.x + a.w - 0.1 && a.y < b.y + b.h - 0.1 && b.y < a.y + a.h - 0.1
}

fn inside(inner: Rect, outer: Rect) -> bool {
    inner.x >= outer.x
        && inner.y >= outer.y
        && inner.x + inner.w <= outer.x + outer.w
        && inner.y + inner.h <= outer.y + outer.h
}

fn tangle(seed: u64, nodes: usize, callbacks: usize, edges: usize) -> Model {
    use onbeat_document::schema::CallbackType::{Subscription, Timer};
    let mut random = generate::Random::new(seed);
    let mut b = generate::Builder::new(seed, 1, 3);
    let mut ids = Vec::new();
    for i in 0..callbacks {
        let node = format!("/node{}", random.below(nodes));
        let kind = if random.below(4) == 0 {
            Timer
        } else {
            Subscription
        };
        ids.push(b.callback(&node, kind, &format!("/t{i}"), Some(10), 1.0, &[]));
    }
    for _ in 0..edges {
        let (from, to) = (random.below(ids.len()), random.below(ids.len()));
        b.edge(&ids[from], &ids[to], &format!("/topic{}", random.below(9)));
    }
    b.finish()
}

#[test]
fn drawings_of_models_have_no_overlaps() {
    let mut models: Vec<Model> = generate::all().into_iter().map(|m| m.1).collect();
    models
        .extend((0..12).map(|s| tangle(s, 2 + s as usize, 3 + 4 * s as usize, 2 + 5 * s as usize)));
    for model in &models {
        let placed = layout(model);
        assert_eq!(placed.callbacks.len(), model.callbacks.len());
        let page = Rect {
            x: 0.0,
            y: 0.0,
            w: placed.width,
            h: placed.height,
        };
        for (i, node) in placed.nodes.iter().enumerate() {
            assert!(inside(node.rect, page), "{} leaves the page", node.name);
            for other in &placed.nodes[i + 1..] {
                assert!(
                    !overlap(node.rect, other.rect),
                    "{} on {}",
                    node.name,
                    other.name
                );
            }
        }
        for (i, cell) in placed.callbacks.iter().enumerate() {
            let callback = &model.callbacks[cell.callback];
            let own = placed
                .nodes
                .iter()
                .find(|n| n.name == callback.node)
                .unwrap();
            assert!(
                inside(cell.rect, own.rect),
                "{} leaves its node",
                callback.id
            );
            for other in &placed.callbacks[i + 1..] {
                assert!(!overlap(cell.rect, other.rect));
            }
        }
        // Labels overlap neither callbacks nor other labels.
        let labels: Vec<Rect> = placed
            .nets
            .iter()
            .filter_map(|n| {
                let (x, y) = n.label?;
                Some(Rect {
                    x,
                    y: y - 12.0,
                    w: n.label_width,
                    h: 11.0,
                })
            })
            .collect();
        for (i, label) in labels.iter().enumerate() {
            assert!(
                placed.callbacks.iter().all(|c| !overlap(*label, c.rect)),
                "label on a callback"
            );
            assert!(
                labels[i + 1..].iter().all(|l| !overlap(*label, *l)),
                "label on a label"
            );
        }
        // Every edge has a wire that ends at its callback.
        for (e, edge) in model.edges.iter().enumerate() {
            let to = model
                .callbacks
                .iter()
                .position(|c| c.id == edge.to)
                .unwrap();
            let cell = placed.callbacks.iter().find(|c| c.callback == to).unwrap();
            let wires: Vec<_> = placed
                .nets
                .iter()
                .flat_map(|n| &n.wires)
                .filter(|w| w.edges.contains(&e))
                .collect();
            assert_eq!(wires.len(), 1, "{edge:?}");
            let x: f64 = wires[0].path.rsplit_once('H').unwrap().1.parse().unwrap();
            assert!(
                (x - cell.rect.x).abs() < 0.1,
                "wire of {} ends elsewhere",
                edge.topic
            );
        }
    }
}

#[test]
fn a_graph_of_900_callbacks_gets_a_finite_drawing() {
    let model = tangle(99, 120, 900, 2500);
    let placed = layout(&model);
    assert_eq!(placed.callbacks.len(), 900);
    assert!(placed.width.is_finite() && placed.height.is_finite());
}

#[test]
fn the_graph_of_the_parking_demo_matches_figure_3_8b_of_the_thesis() {
    let model = generate::parking(2);
    let text = dot::dot(&model);
    assert_eq!(text.matches("subgraph cluster_").count(), 7);
    assert_eq!(text.matches(" -> ").count(), 8);
    assert_eq!(text.matches("shape=circle").count(), 1, "one AND vertex");
    let page = report::html(&model, "Parking", none());
    for id in [
        "graph",
        "chains",
        "callbacks",
        "times",
        "edges",
        "junctions",
        "growth",
        "coverage",
    ] {
        assert!(page.contains(&format!("id=\"{id}\"")), "section {id}");
    }
    assert_eq!(page.matches("<section class=\"chain\">").count(), 2);
    assert!(
        page.contains("12 events of this recording were lost"),
        "losses stand at the top"
    );
    // A single run has no growth chart.
    assert!(!report::html(&generate::parking(1), "Parking", none()).contains("id=\"growth\""));
    // CARET's path from the front lidar to the localiser contains the fusion node once.
    let yaml = YamlLoader::load_from_str(&caret::caret(&model)).unwrap();
    let paths = yaml[0]["named_paths"].as_vec().unwrap();
    let steps = |p: &Yaml| -> Vec<(String, String, String)> {
        let word = |s: &Yaml, k: &str| s[k].as_str().unwrap().to_string();
        p["node_chain"]
            .as_vec()
            .unwrap()
            .iter()
            .map(|s| {
                (
                    word(s, "subscribe_topic_name"),
                    word(s, "node_name"),
                    word(s, "publish_topic_name"),
                )
            })
            .collect()
    };
    let front = paths
        .iter()
        .map(steps)
        .find(|s| s[0].1 == "/lidar_front")
        .unwrap();
    let expected = [
        ("UNDEFINED", "/lidar_front", "/lidars/front/points"),
        (
            "/lidars/front/points",
            "/filter_transform_front",
            "/lidars/front/points_filtered",
        ),
        (
            "/lidars/front/points_filtered",
            "/point_cloud_fusion",
            "/lidars/points_fused",
        ),
        (
            "/lidars/points_fused",
            "/voxel_grid",
            "/lidars/points_downsampled",
        ),
        ("/lidars/points_downsampled", "/ndt_localizer", "UNDEFINED"),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_string(), b.to_string(), c.to_string()));
    assert_eq!(front, expected);
    let fusion = yaml[0]["nodes"]
        .as_vec()
        .unwrap()
        .iter()
        .find(|n| n["node_name"].as_str() == Some("/point_cloud_fusion"))
        .unwrap();
    assert_eq!(
        fusion["publishes"][0]["callback_names"]
            .as_vec()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        fusion["message_contexts"][0]["context_type"].as_str(),
        Some("use_latest_message")
    );
}

#[test]
fn the_caret_file_has_a_chains_measured_times_as_a_comment() {
    let mut model = generate::parking(2);
    let ms = |values: &[u64]| {
        let mut dist = onbeat_document::Dist::default();
        values.iter().for_each(|v| dist.record(v * 1_000_000));
        dist
    };
    let chain = &mut model.chains[0];
    chain.figures.latency_ns = ms(&[10, 20, 30]);
    chain.figures.age_ns = Some(ms(&[90]));
    chain.figures.reaction_ns = ms(&[80]);
    let id = chain.id.clone();
    let text = caret::caret(&model);
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|l| l.contains(&id)).unwrap();
    assert_eq!(
        lines[at - 1].trim(),
        "# Measured latency: median 20.000 ms, at most 30.000 ms; data age: median 90.000 ms, at most \
         90.000 ms; reaction time: median 80.000 ms, at most 80.000 ms"
    );
    // Without separate values, data age equals the latency. Figures that were not measured are left
    // out.
    model.chains[0].figures.age_ns = None;
    model.chains[0].figures.reaction_ns = ms(&[]);
    let text = caret::caret(&model);
    let said = "  # Measured latency: median 20.000 ms, at most 30.000 ms; data age: median 20.000 ms, at most 30.000 ms";
    assert!(text.lines().any(|l| l == said), "{text}");
    // A comment must not appear as a field of the file.
    let yaml = YamlLoader::load_from_str(&text).unwrap();
    let paths = yaml[0]["named_paths"].as_vec().unwrap();
    assert!(paths.iter().any(|p| p["path_name"].as_str() == Some(&id)));
    for path in paths {
        let keys: Vec<_> = path.as_hash().unwrap().keys().map(|k| k.as_str()).collect();
        assert_eq!(keys, [Some("path_name"), Some("node_chain")]);
    }
}

#[test]
fn a_report_shows_command_lines_only_when_asked() {
    let manifest = onbeat_trace::Manifest {
        observed: onbeat_trace::manifest::Observed {
            processes: vec![onbeat_trace::manifest::ProcessInfo {
                command: "/opt/robot/driver --password=hunter2".into(),
                ..Default::default()
            }],
            ..Default::default()
        },
        ..Default::default()
    };
    let page = |process_names| {
        let manifests = std::slice::from_ref(&manifest);
        let recordings = report::Recordings {
            manifests,
            process_names,
            ..report::Recordings::default()
        };
        report::html(&generate::parking(1), "Parking", recordings)
    };
    let programs = page(report::ProcessNames::default());
    assert!(programs.contains(">driver<") && !programs.contains("hunter2"));
    assert!(page(report::ProcessNames::CommandLines).contains("hunter2"));
}

fn none() -> report::Recordings<'static> {
    report::Recordings::default()
}
