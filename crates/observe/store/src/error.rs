//! The errors of a store. Each message is one line and says what to do.

use onbeat_document::text::visible;
use std::path::PathBuf;

/// The reason why a store operation failed. `place` is the directory or URL of the store, as the
/// user gave it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum StoreError {
    #[error("{0} is not a store. Create one with `onbeat store init {0}`.")]
    NoStore(String),
    #[error("{place} is a store of format '{form}'; this onbeat reads format '{own}'. Use another version of onbeat.")]
    Form {
        place: String,
        form: String,
        own: &'static str,
    },
    #[error("{0} contains files that do not belong to a store. Choose an empty or new directory or prefix.")]
    Occupied(String),
    #[error("'{place}' is not a valid place for a store: {what}")]
    Place { place: String, what: String },
    #[error("cannot {action} {key} of {place}: {what}")]
    Access {
        action: &'static str,
        place: String,
        /// The path of the file within the store, with `/` as the separator.
        key: String,
        what: String,
    },
    #[error("{key} of {place} is damaged: {what}. List all damage with `onbeat store check`.")]
    Damaged {
        place: String,
        /// The path of the damaged file within the store, with `/` as the separator.
        key: String,
        what: String,
    },
    #[error("{}: {what}", path.display())]
    Input { path: PathBuf, what: String },
    #[error(
        "{what} '{}' in {place}. List the objects with `onbeat store list`.",
        visible(name)
    )]
    Name {
        place: String,
        /// The digits of an id that the user gave.
        name: String,
        /// The beginning of the message: it says whether no object or several objects have an id
        /// that begins with these digits.
        what: &'static str,
    },
    #[error("run '{run}' is in the models {a} and {b} and would count twice. Leave one of them out with --without {a}.", run = visible(run), a = a.short(), b = b.short())]
    SameRun {
        run: String,
        a: crate::Id,
        b: crate::Id,
    },
    #[error("{0}")]
    Merge(#[from] onbeat_document::merge::ModelMergeError),
}

impl StoreError {
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, StoreError::Damaged { .. })
    }
}
