//! Replays the fuzzer's corpus of models and plan files without a fuzzer.
#[path = "../../../../fuzz/checks_plan.rs"]
mod checks;

#[test]
fn any_model_file_gives_a_readable_plan_or_an_error_of_one_line() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fuzz/corpus/model_json"
    );
    let mut chains = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        let Ok(mut model) = onbeat_document::file::read(&data) else {
            continue;
        };
        for i in 0..model.chains.len() {
            chains += 1;
            let request = onbeat_plan::Request {
                chains: vec![model.chains[i].id.clone()],
                ..onbeat_plan::Request::default()
            };
            // The model is used as it is, and with the extremes of time.
            for extreme in [None, Some(0), Some(u64::MAX)] {
                if let Some(ns) = extreme {
                    model.callbacks.iter_mut().for_each(|c| {
                        c.period_ns = Some(ns);
                        c.figures.interarrival_ns.record(ns);
                        c.figures.exec_ns.record(ns);
                    });
                    model.chains[i].figures.latency_ns.record(ns);
                }
                if let Ok(plan) = onbeat_plan::plan(&model, &request) {
                    let text = onbeat_plan::file::write(&plan).expect("written");
                    assert_eq!(onbeat_plan::file::read(text.as_bytes()), Ok(plan));
                }
                for (_, row) in onbeat_plan::compare(&model, &request) {
                    if let Err(e) = row {
                        assert_eq!(e.to_string().lines().count(), 1, "{e}");
                    }
                }
            }
        }
    }
    assert!(chains > 0, "no chain in {corpus}");
}

#[test]
fn plan_files_are_read_or_refused_without_a_panic() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/plan");
    let mut accepted = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::plan(&data);
        checks::plan(&data[..data.len() / 2]);
        accepted += usize::from(onbeat_plan::file::read(&data).is_ok());
    }
    assert!(accepted > 0, "no plan in {dir}");
}
