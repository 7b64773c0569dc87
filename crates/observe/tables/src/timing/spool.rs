//! Keeps rows as numbers in a temporary file until the names behind the numbers are known.
//!
//! The ids of callbacks are known only at the end of a recording. Rows wait until then in a file
//! without a name, so memory stays bounded, and a killed program leaves nothing behind.

use arrow_array::builder::Int64Builder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

const BATCH_ROWS: usize = 1 << 14;

pub(crate) struct Rows {
    columns: Vec<Int64Builder>,
    count: usize,
}

impl Rows {
    pub(crate) fn new(width: usize) -> Rows {
        let column = |_| Int64Builder::with_capacity(BATCH_ROWS);
        Rows {
            columns: (0..width).map(column).collect(),
            count: 0,
        }
    }

    /// Adds a row of as many numbers as there are columns. Returns whether the batch is full, so that the
    /// caller must take it.
    pub(crate) fn push(&mut self, row: &[Option<i64>]) -> bool {
        debug_assert_eq!(self.columns.len(), row.len());
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.append_option(*value);
        }
        self.count += 1;
        self.count >= BATCH_ROWS
    }

    /// Returns the columns and removes the rows. Returns `None` without rows.
    pub(crate) fn take(&mut self) -> Option<Vec<Int64Array>> {
        if std::mem::take(&mut self.count) == 0 {
            return None;
        }
        Some(self.columns.iter_mut().map(Int64Builder::finish).collect())
    }
}

pub(crate) struct Spool {
    schema: SchemaRef,
    out: StreamWriter<BufWriter<File>>,
}

impl Spool {
    pub(crate) fn create(directory: Option<&Path>, width: usize) -> Result<Spool, ArrowError> {
        let file = match directory {
            Some(directory) => tempfile::tempfile_in(directory)?,
            None => tempfile::tempfile()?,
        };
        let field = |i: usize| Field::new(i.to_string(), DataType::Int64, true);
        let schema = Arc::new(Schema::new((0..width).map(field).collect::<Vec<_>>()));
        Ok(Spool {
            out: StreamWriter::try_new(BufWriter::new(file), &schema)?,
            schema,
        })
    }

    pub(crate) fn write(&mut self, columns: Vec<Int64Array>) -> Result<(), ArrowError> {
        let columns = columns.into_iter().map(|c| Arc::new(c) as ArrayRef);
        let batch = RecordBatch::try_new(self.schema.clone(), columns.collect())?;
        self.out.write(&batch)
    }

    pub(crate) fn read(
        self,
        mut visit: impl FnMut(&[Int64Array]) -> Result<(), ArrowError>,
    ) -> Result<(), ArrowError> {
        let mut file = self
            .out
            .into_inner()?
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        for batch in StreamReader::try_new(BufReader::new(file), None)? {
            let batch = batch?;
            let columns = batch.columns().iter();
            let numbers = columns.filter_map(|c| c.as_any().downcast_ref::<Int64Array>().cloned());
            visit(&numbers.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
