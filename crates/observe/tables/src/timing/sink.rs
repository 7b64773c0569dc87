//! Writes the parts of a table as Parquet or as a stream of Arrow IPC.

use super::columns::{Table, Type};
use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::fs::File;
use std::io::Write;

/// The number of rows in a group of a Parquet file. The writer keeps one group in memory.
const GROUP_ROWS: usize = 1 << 17;

/// The maximum number of bytes in a page of a Parquet file. Each column of a group fits one page.
/// If the bytes of numbers are split into streams, each stream is then one block of zstd, and zstd
/// chooses a code for each block.
const PAGE_BYTES: usize = GROUP_ROWS * 16;

pub(crate) struct Sink<W: Write> {
    out: Out<W>,
    rows: u64,
}

enum Out<W: Write> {
    Parquet(Box<ArrowWriter<File>>),
    Stream(Box<StreamWriter<W>>),
}

impl<W: Write> Sink<W> {
    pub(crate) fn parquet(table: Table, file: File) -> Result<Sink<W>, ParquetError> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
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
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, table.schema(), options)?;
        Ok(Sink {
            out: Out::Parquet(Box::new(writer)),
            rows: 0,
        })
    }

    pub(crate) fn stream(table: Table, out: W) -> Result<Sink<W>, ArrowError> {
        Ok(Sink {
            out: Out::Stream(Box::new(StreamWriter::try_new(out, &table.schema())?)),
            rows: 0,
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.rows += batch.num_rows() as u64;
        match &mut self.out {
            Out::Parquet(writer) => Ok(writer.write(batch)?),
            Out::Stream(writer) => writer.write(batch),
        }
    }

    pub(crate) fn finish(self) -> Result<u64, ArrowError> {
        match self.out {
            Out::Parquet(writer) => {
                writer.close()?;
            }
            Out::Stream(mut writer) => {
                writer.finish()?;
                writer.get_mut().flush()?;
            }
        }
        Ok(self.rows)
    }
}
