//! Why a store could not do what was asked of it: one line each, with the way out.

use onbeat_document::text::visible;
use std::path::PathBuf;

/// Why a store could not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no store at this place.
    #[error("{0} is no store: make one there with `onbeat store init {0}`")]
    NoStore(String),
    /// A store of another version.
    #[error("{place} is a store of form '{form}', and this onbeat knows '{own}'")]
    Form {
        /// Where it is.
        place: String,
        /// What it says of itself.
        form: String,
        /// What this version knows.
        own: &'static str,
    },
    /// Something else lies where a store is to be made.
    #[error("{0} has files that are of no store: name an empty or a new place")]
    Occupied(String),
    /// A place that cannot be one.
    #[error("'{place}' is no place for a store: {what}")]
    Place {
        /// What was given.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The disk or the network failed.
    #[error("cannot {action} {key} of {place}: {what}")]
    Access {
        /// What was tried.
        action: &'static str,
        /// Of the store.
        place: String,
        /// The file of the store.
        key: String,
        /// Why it failed.
        what: String,
    },
    /// A file of the store is not what its name says.
    #[error("{key} of {place} is damaged: {what}; `onbeat store check` lists all that is")]
    Damaged {
        /// Of the store.
        place: String,
        /// The file of the store.
        key: String,
        /// How that is known.
        what: String,
    },
    /// A file that is to be put is none of ours, or cannot be read.
    #[error("{}: {what}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Nothing has this name, or several have.
    #[error(
        "{what} '{}' in {place}: `onbeat store list` shows what there is",
        visible(name)
    )]
    Name {
        /// Of the store.
        place: String,
        /// What was asked for.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A run is in two models that fit.
    #[error("run '{run}' is in the models {a} and {b}: it would count twice; leave one out with --without {a}", run = visible(run), a = a.short(), b = b.short())]
    SameRun {
        /// Its id.
        run: String,
        /// A model with it.
        a: crate::Id,
        /// Another one.
        b: crate::Id,
    },
    /// The models that fit cannot be merged.
    #[error("{0}")]
    Merge(#[from] onbeat_document::merge::ModelMergeError),
}

impl StoreError {
    /// Whether one file is at fault, so that the others can be used.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, StoreError::Damaged { .. })
    }
}
