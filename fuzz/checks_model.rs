//! What must hold for any bytes given as a model: shared by the fuzz target and by the test that
//! replays its corpus.
use onbeat_document::file;
use onbeat_views::export;
use onbeat_views::report;

/// A model file of any bytes: refused in one line, or good enough for everything made of it.
pub fn model_json(data: &[u8]) {
    match file::read(data) {
        Ok(model) => {
            serde_json::to_vec(&model).expect("a model can be written");
            export::dot::dot(&model);
            export::svg::svg(&model);
            export::caret::caret(&model);
            export::csv::tables(&model);
            report::html(&model, "title", report::Recordings::default());
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}
