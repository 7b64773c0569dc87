//! All models that fit a query as one, so that a new model costs the logarithm of their number.
//!
//! The models are the leaves of a tree with four branches at each node: which one a model is in, two bits of its
//! name say at each level. So a set of models has one tree, whatever was there before, and a new model changes
//! only the nodes above it. A node's merge is kept under a name made of the models below it, and used again by
//! every merge that has this node. Merging is associative and commutative, so the result is, byte for byte, that
//! of all models merged at once (thesis section 3.6).

use crate::error::StoreError;
use crate::id::Id;
use crate::index::Kind;
use crate::query::Found;
use crate::store::Store;
use onbeat_document::merge::ModelMergeError;
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

/// In the names of kept merges: to be counted up when merging gives other results.
const FORM: &str = concat!("onbeat-merge/1 ", env!("CARGO_PKG_VERSION"));

/// Most bytes of a kept merge, unpacked.
const MOST: u64 = 4 << 30;

/// The model of all that fits, and what it cost.
#[derive(Debug)]
pub struct Merged {
    /// All models as one. None if there is none left.
    pub model: Option<Model>,
    /// Models that it is made of.
    pub models: usize,
    /// Models that were read.
    pub models_read: usize,
    /// Merges of before that were read.
    pub merges_read: usize,
    /// Merges that were made and kept.
    pub merges_made: usize,
    /// Models that are left out because they are damaged, a line each.
    pub damaged: Vec<String>,
    /// Why merges could not be kept, the first time.
    pub not_kept: Option<String>,
}

/// Merges the models among what was found. What is damaged is left out, and named.
///
/// # Errors
///
/// Two of them have a run in common, or cannot be merged; the store cannot be read.
pub fn merge(store: &Store, found: &Found) -> Result<Merged, StoreError> {
    let mut runs: BTreeMap<Id, BTreeSet<String>> = BTreeMap::new();
    for row in found.rows.iter().filter(|r| r.kind == Kind::Model) {
        runs.entry(row.object).or_default().insert(row.run.clone());
    }
    same_run(&runs)?;
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
                // A model alone is concluded anew, as `onbeat merge` does it.
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

/// Refuses a run that is in two models, with the names of both.
fn same_run(runs: &BTreeMap<Id, BTreeSet<String>>) -> Result<(), StoreError> {
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

/// Why a node has no model.
enum Failed {
    /// A model below it is damaged.
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

/// Bits of a name that one level of the tree looks at.
const BITS: usize = 2;

/// Which branch of a node of this level the model is in.
fn branch(id: &Id, level: usize) -> usize {
    let bit = level * BITS;
    let byte = id.0.get(bit / 8).copied().unwrap_or(0);
    usize::from(byte >> (8 - BITS - bit % 8)) & ((1 << BITS) - 1)
}

/// The name of the merge of these models, in order.
fn name(models: &[Id]) -> Id {
    let mut text = String::from(FORM);
    for id in models {
        text.push('\n');
        text.push_str(&id.to_string());
    }
    Id::of(text.as_bytes())
}

impl Work<'_> {
    /// The model of these models, sorted, which agree in all levels before this one.
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
            match is_of(&model, [&id].into_iter(), self.runs) {
                true => Ok(model),
                false => Err(self
                    .store
                    .damaged(&id.key("objects"), "the index names other runs of it")),
            }
        });
        read.map_err(|e| match e.is_damage() {
            true => Failed::Leaf(id, e.to_string()),
            false => Failed::All(e),
        })
    }

    /// A merge of before. One that is damaged is as good as none: it is made anew.
    fn kept(&self, key: &str, models: &[Id]) -> Option<Model> {
        let bytes = self.store.read(key, MOST).ok()??;
        let (sum, packed) = bytes.split_at_checked(32)?;
        if Id::of(packed).0[..] != *sum {
            return None;
        }
        let mut text = Vec::new();
        let unpacked = zstd::stream::read::Decoder::new(packed).ok()?;
        unpacked.take(MOST).read_to_end(&mut text).ok()?;
        let model = onbeat_document::file::read(&text).ok()?;
        is_of(&model, models.iter(), self.runs).then_some(model)
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

/// Whether a model is of exactly the runs that the index names for these models.
fn is_of<'a>(
    model: &Model,
    models: impl Iterator<Item = &'a Id>,
    runs: &BTreeMap<Id, BTreeSet<String>>,
) -> bool {
    let named: BTreeSet<&String> = models.filter_map(|id| runs.get(id)).flatten().collect();
    let has: BTreeSet<&String> = model.runs.iter().map(|r| &r.id).collect();
    named == has
}
