//! Turns rows of numbers, and rows that are known only at the end, into the columns of a table.

use super::columns::{Table, Type};
use super::pass;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The names for which the numbers in rows stand. Before the end of the events, only the names of
/// run and host are known.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    pub(crate) run: String,
    pub(crate) host: String,
    pub(crate) ids: Vec<Option<String>>,
    pub(crate) is_in_model: Vec<bool>,
    pub(crate) topics: FxHashMap<u32, String>,
    pub(crate) components: Vec<String>,
    pub(crate) chains: FxHashMap<u32, (String, String)>,
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Share(f64),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Null, Into::into)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        i64::try_from(value).map_or(Cell::Null, Cell::Int)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Flag(value)
    }
}

/// Makes a cell of a name. An empty text stands for an unknown name.
impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        match value {
            "" => Cell::Null,
            text => Cell::Text(text.to_string()),
        }
    }
}

impl From<&[String]> for Cell {
    fn from(value: &[String]) -> Cell {
        Cell::Texts(value.to_vec())
    }
}

impl Lookup {
    /// Returns rows of numbers as a part of the table. Leaves out rows that are not in the model.
    pub(crate) fn numbers(
        &self,
        table: Table,
        columns: &[Int64Array],
    ) -> Result<RecordBatch, ArrowError> {
        let rows = columns.first().map_or(0, |c| c.len());
        let types = || table.columns().iter().map(|c| c.ty).zip(columns);
        let is_kept = |row: &usize| types().all(|(ty, column)| self.has(ty, column, *row));
        let kept: Vec<usize> = (0..rows).filter(is_kept).collect();
        let arrays = types().map(|(ty, column)| {
            let values = kept
                .iter()
                .map(|&row| column.is_valid(row).then(|| column.value(row)));
            self.array(ty, values)
        });
        self.batch(table, kept.len(), arrays.collect())
    }

    pub(crate) fn cells(
        &self,
        table: Table,
        rows: &[Vec<Cell>],
    ) -> Result<RecordBatch, ArrowError> {
        let columns = table.columns().iter().enumerate();
        let arrays = columns.map(|(i, column)| {
            let cells = rows.iter().map(|row| row.get(i).unwrap_or(&Cell::Null));
            cell_array(column.ty, cells)
        });
        self.batch(table, rows.len(), arrays.collect())
    }

    fn batch(
        &self,
        table: Table,
        rows: usize,
        arrays: Vec<ArrayRef>,
    ) -> Result<RecordBatch, ArrowError> {
        let same = |text: &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
                text, rows,
            )))
        };
        let head = [same(&self.run), same(&self.host)];
        let all = head.into_iter().chain(arrays).collect();
        RecordBatch::try_new(table.schema(), all)
    }

    fn has(&self, ty: Type, column: &Int64Array, row: usize) -> bool {
        let number = || column.value(row);
        match ty {
            Type::Owner => self.owner(number()).is_some(),
            Type::Chain => self.chain(number()).is_some(),
            _ => true,
        }
    }

    fn id(&self, number: i64) -> Option<&str> {
        self.ids.get(usize::try_from(number).ok()?)?.as_deref()
    }

    fn owner(&self, number: i64) -> Option<&str> {
        let place = usize::try_from(number).ok()?;
        let is_in_model = self.is_in_model.get(place).copied().unwrap_or(false);
        self.id(number).filter(|_| is_in_model)
    }

    fn chain(&self, number: i64) -> Option<&(String, String)> {
        self.chains.get(&u32::try_from(number).ok()?)
    }

    fn text(&self, ty: Type, number: i64) -> Option<&str> {
        let place = usize::try_from(number).ok();
        match ty {
            Type::Callback => self.id(number),
            Type::Owner => self.owner(number),
            Type::Topic => Some(self.topics.get(&u32::try_from(number).ok()?)?),
            Type::Chain => self.chain(number).map(|c| c.0.as_str()),
            Type::Source => self.chain(number).map(|c| c.1.as_str()),
            Type::Word(words) => words.get(place?).copied(),
            Type::Culprit => match pass::culprit_of(number)? {
                (pass::CALLBACK, callback) => self.id(callback.into()),
                (_, n) => Some(self.components.get(n as usize)?),
            },
            Type::CulpritKind => {
                let (kind, _) = pass::culprit_of(number)?;
                pass::CULPRITS.get(kind).copied()
            }
            Type::Name => Some(self.names.get(place?)?.as_str()),
            _ => None,
        }
    }

    fn array(&self, ty: Type, values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        match ty {
            Type::Time | Type::SharedTime | Type::Ns | Type::Long => {
                Arc::new(values.collect::<Int64Array>())
            }
            Type::Number => {
                let mut out = Int32Builder::new();
                values.for_each(|v| out.append_option(v.and_then(|v| i32::try_from(v).ok())));
                Arc::new(out.finish())
            }
            Type::Flag => {
                let mut out = BooleanBuilder::new();
                values.for_each(|v| out.append_option(v.map(|v| v != 0)));
                Arc::new(out.finish())
            }
            _ => {
                let mut out = StringBuilder::new();
                values.for_each(|v| out.append_option(v.and_then(|v| self.text(ty, v))));
                Arc::new(out.finish())
            }
        }
    }
}

fn cell_array<'a>(ty: Type, cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
    let int = |cell: &Cell| match cell {
        Cell::Int(value) => Some(*value),
        _ => None,
    };
    match ty {
        Type::Time | Type::SharedTime | Type::Ns | Type::Long => {
            let mut out = Int64Builder::new();
            cells.for_each(|c| out.append_option(int(c)));
            Arc::new(out.finish())
        }
        Type::Number => {
            let mut out = Int32Builder::new();
            cells.for_each(|c| out.append_option(int(c).and_then(|v| i32::try_from(v).ok())));
            Arc::new(out.finish())
        }
        Type::Share => {
            let mut out = Float64Builder::new();
            cells.for_each(|c| match c {
                Cell::Share(value) => out.append_value(*value),
                _ => out.append_null(),
            });
            Arc::new(out.finish())
        }
        Type::Flag => {
            let mut out = BooleanBuilder::new();
            cells.for_each(|c| match c {
                Cell::Flag(value) => out.append_value(*value),
                _ => out.append_null(),
            });
            Arc::new(out.finish())
        }
        Type::Texts => {
            let mut out = ListBuilder::new(StringBuilder::new());
            for cell in cells {
                match cell {
                    Cell::Texts(texts) => out.append_value(texts.iter().map(Some)),
                    _ => out.append_null(),
                }
            }
            Arc::new(out.finish())
        }
        _ => {
            let mut out = StringBuilder::new();
            cells.for_each(|c| match c {
                Cell::Text(text) => out.append_value(text),
                _ => out.append_null(),
            });
            Arc::new(out.finish())
        }
    }
}
