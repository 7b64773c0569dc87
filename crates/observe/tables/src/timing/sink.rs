//! Writes the parts of a table as Parquet or as a stream of Arrow IPC.

use super::columns::{Shown, Table, Type};
use super::convert::{Filled, Part};
use super::dictionary::ZSTD_LEVEL;
use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::arrow_writer::{compute_leaves, ArrowRowGroupWriterFactory};
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, ColumnPath};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use zstd::bulk::Compressor;

/// The number of rows in a row group of a Parquet file.
const GROUP_ROWS: usize = 1 << 17;

/// The number of rows in a batch of a stream.
const BATCH_ROWS: usize = 1 << 14;

/// The maximum number of bytes in a page of a Parquet file. Each column of a group fits one page.
/// If the bytes of numbers are split into streams, each stream is then one block of zstd, and zstd
/// chooses a code for each block.
const PAGE_BYTES: usize = GROUP_ROWS * 16;

pub(crate) struct Sink<W: Write> {
    out: Out<W>,
    rows: u64,
}

enum Out<W: Write> {
    Parquet(Box<Groups>),
    Stream(Box<StreamWriter<W>>, SchemaRef),
}

struct Groups {
    file: SerializedFileWriter<File>,
    schema: SchemaRef,
    columns: Vec<ColumnDescPtr>,
    count: usize,
    zstd: Compressor<'static>,
}

impl<W: Write> Sink<W> {
    pub(crate) fn parquet(table: Table, file: File) -> Result<Sink<W>, ParquetError> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_data_page_row_count_limit(GROUP_ROWS)
            .set_data_page_size_limit(PAGE_BYTES)
            // Readers choose files and groups by statistics. A group has one page of each column, so an index
            // of pages has no use.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(format!("onbeat {}", env!("CARGO_PKG_VERSION")));
        for column in table.columns() {
            let path = ColumnPath::from(column.name);
            let encoding = match column.ty {
                // Times hardly repeat, so a dictionary would be longer.
                Type::Time | Type::Long => Encoding::DELTA_BINARY_PACKED,
                Type::Ns => Encoding::BYTE_STREAM_SPLIT,
                Type::SharedTime => Encoding::PLAIN,
                Type::Number | Type::Share | Type::Flag | Type::Texts => continue,
                // Nearly every name occurs in every group, so readers cannot skip a group by its first and
                // last name.
                _ => {
                    properties =
                        properties.set_column_statistics_enabled(path, EnabledStatistics::None);
                    continue;
                }
            };
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, encoding);
        }
        let schema = table.schema();
        let columns = ArrowSchemaConverter::new().convert(&schema)?;
        let (root, properties) = (columns.root_schema_ptr(), Arc::new(properties.build()));
        let groups = Groups {
            file: SerializedFileWriter::new(file, root, properties)?,
            schema,
            columns: columns.columns().to_vec(),
            count: 0,
            zstd: Compressor::new(ZSTD_LEVEL)?,
        };
        Ok(Sink {
            out: Out::Parquet(Box::new(groups)),
            rows: 0,
        })
    }

    pub(crate) fn stream(shown: &Shown, out: W) -> Result<Sink<W>, ArrowError> {
        let schema = shown.schema.clone();
        let writer = Box::new(StreamWriter::try_new(out, &schema)?);
        Ok(Sink {
            out: Out::Stream(writer, schema),
            rows: 0,
        })
    }

    /// Returns the number of rows that a part should have.
    pub(crate) fn part_rows(&self) -> usize {
        match &self.out {
            Out::Parquet(_) => GROUP_ROWS,
            Out::Stream(..) => BATCH_ROWS,
        }
    }

    pub(crate) fn write(&mut self, part: Part) -> Result<(), ArrowError> {
        self.rows += part.rows as u64;
        match &mut self.out {
            Out::Parquet(groups) => Ok(groups.write(part)?),
            Out::Stream(writer, schema) => {
                let array = |column| match column {
                    Filled::Values(array) => array,
                    Filled::Names(names) => names.array(),
                };
                let arrays = part.columns.into_iter().map(array).collect();
                writer.write(&RecordBatch::try_new(schema.clone(), arrays)?)
            }
        }
    }

    pub(crate) fn finish(self) -> Result<u64, ArrowError> {
        match self.out {
            Out::Parquet(groups) => {
                groups.file.close()?;
            }
            Out::Stream(mut writer, _) => {
                writer.finish()?;
                writer.get_mut().flush()?;
            }
        }
        Ok(self.rows)
    }
}

impl Groups {
    fn write(&mut self, part: Part) -> Result<(), ParquetError> {
        if part.rows == 0 {
            return Ok(());
        }
        let factory = ArrowRowGroupWriterFactory::new(&self.file, self.schema.clone());
        let writers = factory.create_column_writers(self.count)?;
        let described = self.columns.iter().zip(self.schema.fields());
        let mut group = self.file.next_row_group()?;
        self.count += 1;
        for ((column, mut writer), (description, field)) in
            part.columns.into_iter().zip(writers).zip(described)
        {
            match column {
                Filled::Names(names) => {
                    names.write(&mut group, description.clone(), &mut self.zstd)?
                }
                Filled::Values(array) => {
                    for leaf in compute_leaves(field, &array)? {
                        writer.write(&leaf)?;
                    }
                    writer.close()?.append_to_row_group(&mut group)?;
                }
            }
        }
        group.close()?;
        Ok(())
    }
}
