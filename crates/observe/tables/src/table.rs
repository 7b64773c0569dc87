//! Collects events in memory as the columns of the Parquet table.
use super::names::Names;
use onbeat_trace::event::{Event, Name};
use onbeat_trace::table::{self, FieldSink, FieldType, KINDS};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::Type;
use std::fs::File;
use std::sync::Arc;

enum Cells {
    U64(Vec<i64>),
    I64(Vec<i64>),
    U32(Vec<i32>),
    Flag(Vec<bool>),
    Text(Vec<ByteArray>),
}

pub(super) struct Column {
    name: String,
    cells: Cells,
    /// One value per row: 1 if the row has a cell, else 0. Rows after the last cell have no value.
    present: Vec<i16>,
}

impl Column {
    fn new(name: &str, cells: Cells) -> Column {
        Column {
            name: name.to_string(),
            cells,
            present: Vec::new(),
        }
    }

    pub(super) fn schema(&self) -> Result<Arc<Type>, ParquetError> {
        let (physical, logical) = match self.cells {
            Cells::U64(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Cells::I64(_) => (Physical::INT64, None),
            Cells::U32(_) => (Physical::INT32, Some(LogicalType::integer(32, false))),
            Cells::Flag(_) => (Physical::BOOLEAN, None),
            Cells::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let column = Type::primitive_type_builder(&self.name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL);
        Ok(Arc::new(column.build()?))
    }
}

pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    places: Vec<Vec<usize>>,
    by_code: [usize; 256],
    event_names: Vec<ByteArray>,
    pub(super) rows: usize,
    kind: usize,
    field: usize,
}

const TIME: usize = 0;
const CPU: usize = 1;
const PID: usize = 2;
const TID: usize = 3;
const EVENT: usize = 4;
const OF_NODE: usize = 5;
const OF_TOPIC: usize = 6;

impl Table {
    pub(super) fn new() -> Table {
        let mut columns = vec![
            Column::new("time_ns", Cells::I64(Vec::new())),
            Column::new("cpu", Cells::U32(Vec::new())),
            Column::new("pid", Cells::U32(Vec::new())),
            Column::new("tid", Cells::U32(Vec::new())),
            Column::new("event", Cells::Text(Vec::new())),
            Column::new("of_node", Cells::Text(Vec::new())),
            Column::new("of_topic", Cells::Text(Vec::new())),
        ];
        let mut places = Vec::new();
        let mut by_code = [0; 256];
        for (place, kind) in KINDS.iter().enumerate() {
            by_code[usize::from(kind.code)] = place;
            let fields = kind.fields.iter().map(|field| {
                let cells = cells(field.ty);
                // Only this name has two meanings: a handle, and the name of a middleware.
                let name = match (field.name, &cells) {
                    ("rmw", Cells::Text(_)) => "rmw_name",
                    (name, _) => name,
                };
                let known = columns.iter().position(|c| c.name == name);
                known.unwrap_or_else(|| {
                    columns.push(Column::new(name, cells));
                    columns.len() - 1
                })
            });
            places.push(fields.collect());
        }
        Table {
            columns,
            places,
            by_code,
            event_names: KINDS.iter().map(|k| ByteArray::from(k.name)).collect(),
            rows: 0,
            kind: 0,
            field: 0,
        }
    }

    pub(super) fn row(&mut self, event: &Event, names: &Names) {
        self.kind = self.by_code[usize::from(table::code(&event.kind))];
        self.field = 0;
        self.set_i64(TIME, event.time_ns as i64);
        self.set_u32(CPU, u32::from(event.cpu));
        self.set_u32(PID, event.pid);
        self.set_u32(TID, event.tid);
        let name = self.event_names[self.kind].clone();
        self.set_text(EVENT, name);
        if let Some(entity) = names.of(event) {
            if let Some(node) = &entity.node {
                self.set_text(OF_NODE, node.clone());
            }
            if let Some(topic) = &entity.topic {
                self.set_text(OF_TOPIC, topic.clone());
            }
        }
        table::put(&event.kind, self);
        self.rows += 1;
    }

    fn next(&mut self) -> usize {
        self.field += 1;
        self.places[self.kind][self.field - 1]
    }

    fn mark(&mut self, column: usize) -> &mut Cells {
        let column = &mut self.columns[column];
        column.present.resize(self.rows, 0);
        column.present.push(1);
        &mut column.cells
    }

    fn set_i64(&mut self, column: usize, value: i64) {
        match self.mark(column) {
            Cells::I64(cells) | Cells::U64(cells) => cells.push(value),
            _ => unreachable!("{}", self.columns[column].name),
        }
    }

    fn set_u32(&mut self, column: usize, value: u32) {
        match self.mark(column) {
            Cells::U32(cells) => cells.push(value as i32),
            _ => unreachable!("{}", self.columns[column].name),
        }
    }

    fn set_text(&mut self, column: usize, value: ByteArray) {
        match self.mark(column) {
            Cells::Text(cells) => cells.push(value),
            _ => unreachable!("{}", self.columns[column].name),
        }
    }

    pub(super) fn write(
        &mut self,
        mut group: SerializedRowGroupWriter<'_, File>,
    ) -> Result<(), ParquetError> {
        for column in &mut self.columns {
            column.present.resize(self.rows, 0);
            let Some(mut out) = group.next_column()? else {
                return Err(ParquetError::General(
                    "the table has fewer columns than its schema".into(),
                ));
            };
            let present = Some(column.present.as_slice());
            match &mut column.cells {
                Cells::U64(cells) | Cells::I64(cells) => {
                    out.typed::<Int64Type>().write_batch(cells, present, None)?;
                    cells.clear();
                }
                Cells::U32(cells) => {
                    out.typed::<Int32Type>().write_batch(cells, present, None)?;
                    cells.clear();
                }
                Cells::Flag(cells) => {
                    out.typed::<BoolType>().write_batch(cells, present, None)?;
                    cells.clear();
                }
                Cells::Text(cells) => {
                    out.typed::<ByteArrayType>()
                        .write_batch(cells, present, None)?;
                    cells.clear();
                }
            }
            column.present.clear();
            out.close()?;
        }
        self.rows = 0;
        group.close()?;
        Ok(())
    }
}

fn cells(ty: FieldType) -> Cells {
    match ty {
        FieldType::Handle | FieldType::Message | FieldType::Uint | FieldType::Mask => {
            Cells::U64(Vec::new())
        }
        FieldType::Int | FieldType::Stamp | FieldType::OptStamp => Cells::I64(Vec::new()),
        FieldType::Tid | FieldType::Byte | FieldType::Word => Cells::U32(Vec::new()),
        FieldType::Flag => Cells::Flag(Vec::new()),
        FieldType::Gid
        | FieldType::Text
        | FieldType::Endpoint
        | FieldType::Execute
        | FieldType::Call => Cells::Text(Vec::new()),
    }
}

impl FieldSink for Table {
    fn handle(&mut self, _: &'static str, value: u64) {
        let column = self.next();
        self.set_i64(column, value as i64);
    }
    fn message(&mut self, _: &'static str, value: u64) {
        let column = self.next();
        self.set_i64(column, value as i64);
    }
    fn tid(&mut self, _: &'static str, value: u32) {
        let column = self.next();
        self.set_u32(column, value);
    }
    fn small(&mut self, _: &'static str, value: u16) {
        let column = self.next();
        self.set_u32(column, u32::from(value));
    }
    fn int(&mut self, _: &'static str, value: i64) {
        let column = self.next();
        self.set_i64(column, value);
    }
    fn uint(&mut self, _: &'static str, value: u64) {
        let column = self.next();
        self.set_i64(column, value as i64);
    }
    fn mask(&mut self, _: &'static str, value: u64) {
        let column = self.next();
        self.set_i64(column, value as i64);
    }
    fn gid(&mut self, _: &'static str, value: &[u8; 16]) {
        let column = self.next();
        let text = format!("{:032x}", u128::from_be_bytes(*value));
        self.set_text(column, text.into_bytes().into());
    }
    fn stamp(&mut self, _: &'static str, value: Option<i64>) {
        let column = self.next();
        if let Some(value) = value {
            self.set_i64(column, value);
        }
    }
    fn flag(&mut self, _: &'static str, value: bool) {
        let column = self.next();
        match self.mark(column) {
            Cells::Flag(cells) => cells.push(value),
            _ => unreachable!("{}", self.columns[column].name),
        }
    }
    fn name(&mut self, _: &'static str, value: &Name) {
        let column = self.next();
        self.set_text(column, ByteArray::from(&**value));
    }
    fn choice(&mut self, _: &'static str, words: &'static [&'static str], value: u8) {
        let column = self.next();
        let word = words.get(usize::from(value)).unwrap_or(&"");
        self.set_text(column, ByteArray::from(*word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_fields_of_the_same_name_have_the_same_type() {
        let table = Table::new();
        for (kind, places) in KINDS.iter().zip(&table.places) {
            for (field, place) in kind.fields.iter().zip(places) {
                let column = std::mem::discriminant(&table.columns[*place].cells);
                let own = std::mem::discriminant(&cells(field.ty));
                assert_eq!(column, own, "{} of {}", field.name, kind.name);
            }
        }
    }
}
