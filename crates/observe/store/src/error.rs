//! The errors of a store. Each message is one line and says what to do.

use onbeat_document::text::visible;
use std::path::PathBuf;

/// The reason why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No store exists at this place.
    #[error("{0} is not a store. Create one with `onbeat store init {0}`.")]
    NoStore(String),
    /// The store has a format that this version of onbeat does not know.
    #[error("{place} is a store of format '{form}'; this onbeat reads format '{own}'. Use another version of onbeat.")]
    Form {
        /// The directory or URL of the store.
        place: String,
        /// The format that the store's own file names.
        form: String,
        /// The format that this version of onbeat knows.
        own: &'static str,
    },
    /// The place for a new store already holds other files.
    #[error("{0} contains files that do not belong to a store. Choose an empty or new directory or prefix.")]
    Occupied(String),
    /// The place is not a valid directory or URL for a store.
    #[error("'{place}' is not a valid place for a store: {what}")]
    Place {
        /// The place that the user gave.
        place: String,
        /// The reason why the place is not valid.
        what: String,
    },
    /// The disk or the network failed.
    #[error("cannot {action} {key} of {place}: {what}")]
    Access {
        /// The action that failed, as a verb: read, write, list, remove and others.
        action: &'static str,
        /// The directory or URL of the store.
        place: String,
        /// The path of the file within the store, separated by `/`.
        key: String,
        /// The reason, as reported by the system or the server.
        what: String,
    },
    /// The content of a file in the store does not match its name or its format.
    #[error("{key} of {place} is damaged: {what}. List all damage with `onbeat store check`.")]
    Damaged {
        /// The directory or URL of the store.
        place: String,
        /// The path of the damaged file within the store, separated by `/`.
        key: String,
        /// The sign by which onbeat noticed the damage.
        what: String,
    },
    /// A file on this machine cannot be read, written, or put into the store.
    #[error("{}: {what}", path.display())]
    Input {
        /// The file on this machine that cannot be used.
        path: PathBuf,
        /// The reason, for example that the file has an unknown format.
        what: String,
    },
    /// The store has no object with this name, or several.
    #[error(
        "{what} '{}' in {place}. List the objects with `onbeat store list`.",
        visible(name)
    )]
    Name {
        /// The directory or URL of the store.
        place: String,
        /// The name that the user gave, or its first digits.
        name: String,
        /// The beginning of the message: none or several objects match.
        what: &'static str,
    },
    /// Two models that fit the query contain the same run.
    #[error("run '{run}' is in the models {a} and {b} and would count twice. Leave one of them out with --without {a}.", run = visible(run), a = a.short(), b = b.short())]
    SameRun {
        /// The id of the run that both models contain.
        run: String,
        /// A model that contains the run.
        a: crate::Id,
        /// Another model that contains the run.
        b: crate::Id,
    },
    /// The models that fit the query cannot be merged.
    #[error("{0}")]
    Merge(#[from] onbeat_document::merge::ModelMergeError),
}

impl StoreError {
    /// Reports whether only one file is damaged, so that the others can still be used.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, StoreError::Damaged { .. })
    }
}
