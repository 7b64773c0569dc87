//! Guarantees of the reader of models, for any bytes. The fuzz target and the test that replays its
//! corpus share this file.
use onbeat_document::file;
use onbeat_views::export;
use onbeat_views::report;

/// Reads any bytes as a model file. Checks that the reader returns a one-line error, or a model
/// from which every export and report can be made.
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
