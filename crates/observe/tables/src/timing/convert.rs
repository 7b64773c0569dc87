//! Turns rows of numbers, and rows that are known only at the end, into the columns of a table.

use super::columns::{Shown, Table, Type};
use super::dictionary::Names;
use super::pass;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
};
use arrow_array::ArrayRef;
use onbeat_trace::CallKind;
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

/// Some rows of a table, with the columns that the export writes.
pub(crate) struct Part {
    pub(crate) rows: usize,
    pub(crate) columns: Vec<Filled>,
}

/// A column of a part.
pub(crate) enum Filled {
    Values(ArrayRef),
    Names(Names),
}

/// Rows of numbers that become a part of a table.
pub(crate) struct Columns {
    columns: Vec<Values>,
    /// The columns that have callbacks or chains as values, each with its index and type. A row is
    /// left out if such a value is not in the model.
    required: Vec<(usize, Type)>,
    shown: Shown,
    rows: usize,
    rows_max: usize,
}

struct Values {
    ty: Type,
    out: Out,
}

enum Out {
    /// The export does not write this column.
    Hidden,
    Int(Int64Builder),
    Number(Int32Builder),
    Flag(BooleanBuilder),
    Names(Names),
}

impl Columns {
    /// Creates columns for parts of `rows_max` rows.
    pub(crate) fn new(table: Table, shown: Shown, rows_max: usize) -> Columns {
        let types = || table.columns().iter().map(|column| column.ty);
        let required = types().enumerate();
        let columns = types().zip(&shown.rest);
        Columns {
            columns: columns
                .map(|(ty, shown)| match shown {
                    true => Values::new(ty, rows_max),
                    false => Values::hidden(ty),
                })
                .collect(),
            required: required
                .filter(|(_, ty)| matches!(ty, Type::Owner | Type::Chain))
                .collect(),
            shown,
            rows: 0,
            rows_max,
        }
    }

    /// Adds a row, unless it belongs to a callback or chain that is not in the model. Returns true
    /// if the part is full. The caller must then call [`take`](Columns::take).
    pub(crate) fn push(&mut self, row: &[Option<i64>], lookup: &Lookup) -> bool {
        debug_assert_eq!(self.columns.len(), row.len());
        let mut required = self.required.iter();
        if required.all(|(place, ty)| lookup.has(*ty, row.get(*place).copied().flatten())) {
            for (column, value) in self.columns.iter_mut().zip(row) {
                column.push(*value, lookup);
            }
            self.rows += 1;
        }
        self.rows >= self.rows_max
    }

    /// Returns the rows that were added so far as a part, and begins the next part. Returns `None`
    /// if no row was added.
    pub(crate) fn take(&mut self, lookup: &Lookup) -> Option<Part> {
        let rows = std::mem::take(&mut self.rows);
        let new = |column: &mut Values| match column.out {
            Out::Hidden => None,
            _ => std::mem::replace(column, Values::new(column.ty, self.rows_max)).finish(),
        };
        let columns = self.columns.iter_mut().filter_map(new).collect();
        (rows > 0).then(|| lookup.part(rows, &self.shown, columns))
    }
}

impl Values {
    fn new(ty: Type, rows_max: usize) -> Values {
        let out = match ty {
            Type::Time | Type::SharedTime | Type::Ns | Type::Long => {
                Out::Int(Int64Builder::with_capacity(rows_max))
            }
            Type::Number => Out::Number(Int32Builder::with_capacity(rows_max)),
            Type::Flag => Out::Flag(BooleanBuilder::with_capacity(rows_max)),
            _ => Out::Names(Names::default()),
        };
        Values { ty, out }
    }

    fn hidden(ty: Type) -> Values {
        let out = Out::Hidden;
        Values { ty, out }
    }

    fn push(&mut self, value: Option<i64>, lookup: &Lookup) {
        match &mut self.out {
            Out::Hidden => {}
            Out::Int(out) => out.append_option(value),
            Out::Number(out) => out.append_option(value.and_then(|v| i32::try_from(v).ok())),
            Out::Flag(out) => out.append_option(value.map(|v| v != 0)),
            Out::Names(out) => out.push(value, |v| lookup.text(self.ty, v)),
        }
    }

    fn finish(self) -> Option<Filled> {
        Some(match self.out {
            Out::Hidden => return None,
            Out::Int(mut out) => Filled::Values(Arc::new(out.finish())),
            Out::Number(mut out) => Filled::Values(Arc::new(out.finish())),
            Out::Flag(mut out) => Filled::Values(Arc::new(out.finish())),
            Out::Names(out) => Filled::Names(out),
        })
    }
}

impl Lookup {
    pub(crate) fn cells(&self, table: Table, shown: &Shown, rows: &[Vec<Cell>]) -> Part {
        let columns = table.columns().iter().zip(&shown.rest).enumerate();
        let columns = columns.filter(|(_, (_, shown))| **shown);
        let columns = columns.map(|(i, (column, _))| {
            let cells = rows.iter().map(|row| row.get(i).unwrap_or(&Cell::Null));
            Filled::Values(cell_array(column.ty, cells))
        });
        self.part(rows.len(), shown, columns.collect())
    }

    fn part(&self, rows: usize, shown: &Shown, columns: Vec<Filled>) -> Part {
        let head = [&self.run, &self.host].into_iter().zip(shown.head);
        let head = head.filter(|(_, is_shown)| *is_shown);
        let head = head.map(|(text, _)| Filled::Names(Names::repeated(text, rows)));
        Part {
            rows,
            columns: head.chain(columns).collect(),
        }
    }

    fn has(&self, ty: Type, value: Option<i64>) -> bool {
        match ty {
            Type::Owner => value.is_some_and(|n| self.owner(n).is_some()),
            _ => value.is_some_and(|n| self.chain(n).is_some()),
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

    pub(crate) fn text(&self, ty: Type, number: i64) -> Option<&str> {
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
                (pass::CALL, call) => CallKind::WORDS.get(call as usize).copied(),
                // The name of a component says more than a port's number alone.
                (pass::SOCKET, _) => None,
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
