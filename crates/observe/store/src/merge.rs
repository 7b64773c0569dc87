//! Merges all models that fit a query. The cost of one more model is logarithmic in their number.
//!
//! The models are the leaves of a tree with four branches at each node. Two bits of a model's id
//! choose the branch at each level. A set of models therefore always has the same tree, and a new
//! model changes only the nodes above it.
//!
//! The merge of a node is kept under a name made of the models below it. Each later merge with this
//! node reuses it. Merging is associative and commutative, so the result equals, byte for byte, a
//! merge of all models at once (thesis section 3.6).

use crate::error::StoreError;
use crate::id::Id;
use crate::index::Kind;
use crate::query::Found;
use crate::store::Store;
use onbeat_document::merge::ModelMergeError;
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

/// The prefix of the names of stored merges. Increase the number in it when merging gives other
/// results.
const FORM: &str = concat!("onbeat-merge/1 ", env!("CARGO_PKG_VERSION"));

const MAX_MERGE_BYTES: u64 = 4 << 30;

/// The merged model, with the number of models and merges that were read for it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug)]
pub struct Merged {
    /// The merge of all models, or `None` if no undamaged model is left.
    pub model: Option<Model>,
    /// The number of models that were merged, including those in reused merges.
    pub models: usize,
    pub models_read: usize,
    /// The number of earlier merges that were read from the store and reused.
    pub merges_read: usize,
    /// The number of new merges that were made and written to the store for reuse.
    pub merges_made: usize,
    /// A line for each model that was left out because it is damaged.
    pub damaged: Vec<String>,
    /// The first error that occurred when a new merge was written to the store. `None` if all new
    /// merges could be written.
    pub not_kept: Option<String>,
}

/// Merges the models among the found objects. Leaves out damaged models and lists them in the
/// result.
///
/// # Errors
///
/// Fails if two models contain the same run, if models cannot be merged, or if the store cannot be
/// read.
pub fn merge(store: &Store, found: &Found) -> Result<Merged, StoreError> {
    let mut runs: BTreeMap<Id, BTreeSet<String>> = BTreeMap::new();
    for row in found.rows.iter().filter(|r| r.kind == Kind::Model) {
        runs.entry(row.object).or_default().insert(row.run.clone());
    }
    refuse_common_run(&runs)?;
    let mut left: Vec<Id> = runs.keys().copied().collect();
    let mut work = Work {
        store,
        runs: &runs,
        counts: Merged {
            model: None,
            models: 0,
            models_read: 0,
            merges_read: 0,
            merges_made: 0,
            damaged: Vec::new(),
            not_kept: None,
        },
    };
    while !left.is_empty() {
        match work.node(&left, 0) {
            Ok(model) => {
                // A single model is concluded again, as `onbeat merge` does.
                let alone = left.len() == 1;
                work.counts.model = Some(match alone {
                    true => onbeat_document::merge(vec![model])?,
                    false => model,
                });
                break;
            }
            Err(Failed::Leaf(id, line)) => {
                left.retain(|other| *other != id);
                work.counts.damaged.push(line);
            }
            Err(Failed::All(error)) => return Err(error),
        }
    }
    work.counts.models = left.len();
    Ok(work.counts)
}

fn refuse_common_run(runs: &BTreeMap<Id, BTreeSet<String>>) -> Result<(), StoreError> {
    let mut seen: BTreeMap<&str, Id> = BTreeMap::new();
    for (model, runs) in runs {
        for run in runs {
            if let Some(other) = seen.insert(run, *model) {
                return Err(StoreError::SameRun {
                    run: run.clone(),
                    a: *model,
                    b: other,
                });
            }
        }
    }
    Ok(())
}

enum Failed {
    Leaf(Id, String),
    All(StoreError),
}

impl From<ModelMergeError> for Failed {
    fn from(error: ModelMergeError) -> Failed {
        Failed::All(error.into())
    }
}

struct Work<'s> {
    store: &'s Store,
    runs: &'s BTreeMap<Id, BTreeSet<String>>,
    counts: Merged,
}

const BITS: usize = 2;

fn branch(id: &Id, level: usize) -> usize {
    let bit = level * BITS;
    let byte = id.0.get(bit / 8).copied().unwrap_or(0);
    usize::from(byte >> (8 - BITS - bit % 8)) & ((1 << BITS) - 1)
}

fn name(models: &[Id]) -> Id {
    let mut text = String::from(FORM);
    for id in models {
        text.push('\n');
        text.push_str(&id.to_string());
    }
    Id::of(text.as_bytes())
}

impl Work<'_> {
    /// Returns the merge of `models`, which are sorted by id. Merges form a tree: each level
    /// divides the models by the next two bits of their ids. The ids of `models` agree in the bits
    /// of all levels before `level`.
    fn node(&mut self, models: &[Id], level: usize) -> Result<Model, Failed> {
        if let [only] = models {
            return self.leaf(*only);
        }
        let parts: Vec<&[Id]> = models
            .chunk_by(|a, b| branch(a, level) == branch(b, level))
            .collect();
        if parts.len() == 1 {
            return self.node(models, level + 1);
        }
        let key = name(models).key("merges");
        if let Some(model) = self.kept(&key, models) {
            self.counts.merges_read += 1;
            return Ok(model);
        }
        let mut below = Vec::new();
        for part in parts {
            below.push(self.node(part, level + 1)?);
        }
        let model = onbeat_document::merge(below)?;
        match self.keep(&key, &model) {
            Ok(()) => self.counts.merges_made += 1,
            Err(e) => {
                self.counts.not_kept.get_or_insert(e.to_string());
            }
        }
        Ok(model)
    }

    fn leaf(&mut self, id: Id) -> Result<Model, Failed> {
        self.counts.models_read += 1;
        let read = self.store.object(id).and_then(|bytes| {
            let model = onbeat_document::file::read(&bytes);
            let model = model.map_err(|e| self.store.damaged(&id.key("objects"), e.to_string()))?;
            match has_exactly_the_runs(&model, [&id].into_iter(), self.runs) {
                true => Ok(model),
                false => Err(self.store.damaged(
                    &id.key("objects"),
                    "the index and this model do not list the same runs",
                )),
            }
        });
        read.map_err(|e| match e.is_damage() {
            true => Failed::Leaf(id, e.to_string()),
            false => Failed::All(e),
        })
    }

    /// Reads an earlier merge of `models` from the store. Returns `None` if the merge is missing or
    /// damaged and must be made again.
    fn kept(&self, key: &str, models: &[Id]) -> Option<Model> {
        let bytes = self.store.read(key, MAX_MERGE_BYTES).ok()??;
        let (sum, packed) = bytes.split_at_checked(32)?;
        if Id::of(packed).0[..] != *sum {
            return None;
        }
        let mut text = Vec::new();
        let unpacked = zstd::stream::read::Decoder::new(packed).ok()?;
        unpacked.take(MAX_MERGE_BYTES).read_to_end(&mut text).ok()?;
        let model = onbeat_document::file::read(&text).ok()?;
        has_exactly_the_runs(&model, models.iter(), self.runs).then_some(model)
    }

    fn keep(&self, key: &str, model: &Model) -> Result<(), StoreError> {
        let failed = |e: std::io::Error| self.store.access("write", key, &e);
        let text = serde_json::to_vec(model).map_err(|e| failed(e.into()))?;
        let packed = zstd::stream::encode_all(&text[..], 1).map_err(failed)?;
        let mut bytes = Id::of(&packed).0.to_vec();
        bytes.extend(packed);
        self.store.write(key, &bytes)
    }
}

fn has_exactly_the_runs<'a>(
    model: &Model,
    models: impl Iterator<Item = &'a Id>,
    runs: &BTreeMap<Id, BTreeSet<String>>,
) -> bool {
    let named: BTreeSet<&String> = models.filter_map(|id| runs.get(id)).flatten().collect();
    let has: BTreeSet<&String> = model.runs.iter().map(|r| &r.id).collect();
    named == has
}
