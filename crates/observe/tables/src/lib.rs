//! Exports a trace for DuckDB, pandas, polars and Spark: as one Parquet table of its events, or as
//! tables of what onbeat finds in them (executions, items, chains, threads).
//!
//! `docs/trace-format.md` describes the columns of the events, `docs/tables.md` the others.
mod names;
mod table;
mod timing;

pub use timing::{
    export_mcap, export_tables, stream_table, Table as TimingTable, TableFormat, TableOptions,
    TableWritten, TablesError, TopicWritten,
};

use names::Names;
use onbeat_trace::Reader;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{Column, Table};

const GROUP_ROWS: usize = 1 << 17;

#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot write {}: {source}. Choose another file with -o.", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write the table {}: {source}. Check the free space.", path.display())]
    Table { path: PathBuf, source: ParquetError },
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    pub path: PathBuf,
    /// The number of rows. The table has one row for each event.
    pub rows: u64,
}

/// Writes all events to the Parquet file `path`. If `path` is a directory, writes them to
/// `events.parquet` in this directory. Replaces an existing file only when the new one is complete.
pub fn export_parquet(reader: &mut Reader, path: &Path) -> Result<Exported, ExportError> {
    let path = if path.is_dir() {
        path.join("events.parquet")
    } else {
        path.to_path_buf()
    };
    let manifest = serde_json::to_string(reader.manifest()).ok();
    let mut rows = Ok(0);
    let saved = onbeat_files::replace(&path, |file| {
        rows = write_table(reader, file.try_clone()?, manifest);
        match &rows {
            Ok(_) => Ok(()),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        }
    });
    match (rows, saved) {
        (Err(source), _) => Err(ExportError::Table { path, source }),
        (Ok(_), Err(source)) => Err(ExportError::File { path, source }),
        (Ok(rows), Ok(())) => Ok(Exported { path, rows }),
    }
}

fn write_table(
    reader: &mut Reader,
    file: File,
    manifest: Option<String>,
) -> Result<u64, ParquetError> {
    let mut table = Table::new();
    let fields = table.columns.iter().map(Column::schema);
    let schema = Type::group_type_builder("events")
        .with_fields(fields.collect::<Result<_, _>>()?)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(format!("onbeat {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![KeyValue::new(
            "onbeat.manifest".to_string(),
            manifest,
        )]))
        .build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut names = Names::default();
    let mut rows = 0;
    for event in reader.events() {
        names.learn(&event);
        table.row(&event, &names);
        rows += 1;
        if table.rows == GROUP_ROWS {
            table.write(writer.next_row_group()?)?;
        }
    }
    if table.rows > 0 {
        table.write(writer.next_row_group()?)?;
    }
    writer.close()?;
    Ok(rows)
}
