//! Writes rows as Parquet and reads them back. Cells may be empty. Bytes that are read are
//! untrusted.

use crate::guard;
use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::sync::Arc;

pub(crate) const MAX_ROWS: i64 = 4_000_000;
pub(crate) const MAX_BYTES: u64 = 256 << 20;
const MAX_UNPACKED: i64 = 512 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellType {
    Text,
    Int,
    Time,
    Real,
}

/// The value of one row in one column. Numbers above `i64::MAX` are stored as `i64::MAX`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    None,
    Text(String),
    Int(u64),
    Real(f64),
}

pub(crate) type Column = (String, CellType);

impl CellType {
    fn schema(self, name: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            CellType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            CellType::Int => (Physical::INT64, None),
            CellType::Time => (
                Physical::INT64,
                Some(LogicalType::timestamp(true, TimeUnit::NANOS)),
            ),
            CellType::Real => (Physical::DOUBLE, None),
        };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()
    }
}

/// Encodes rows as a Parquet file. Each row must have one cell for each column. Equal rows give
/// equal bytes.
pub(crate) fn write(columns: &[Column], rows: &[Vec<Cell>]) -> Result<Vec<u8>, ParquetError> {
    let fields: Result<Vec<_>, _> = columns
        .iter()
        .map(|(name, cell_type)| cell_type.schema(name).map(Arc::new))
        .collect();
    let schema = Type::group_type_builder("onbeat")
        .with_fields(fields?)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by("onbeat".into())
        .build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for (at, (_, cell_type)) in columns.iter().enumerate() {
        let mut column = group
            .next_column()?
            .ok_or_else(|| ParquetError::General("a column is missing".into()))?;
        let cells = rows.iter().map(|row| &row[at]);
        let present: Vec<i16> = cells.clone().map(|c| i16::from(*c != Cell::None)).collect();
        match cell_type {
            CellType::Text => {
                let cells: Vec<ByteArray> = cells.filter_map(text).collect();
                let out = column.typed::<ByteArrayType>();
                out.write_batch(&cells, Some(&present), None)?;
            }
            CellType::Int | CellType::Time => {
                let cells: Vec<i64> = cells.filter_map(int).collect();
                let out = column.typed::<Int64Type>();
                out.write_batch(&cells, Some(&present), None)?;
            }
            CellType::Real => {
                let cells: Vec<f64> = cells.filter_map(real).collect();
                let out = column.typed::<DoubleType>();
                out.write_batch(&cells, Some(&present), None)?;
            }
        }
        column.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn text(cell: &Cell) -> Option<ByteArray> {
    match cell {
        Cell::Text(text) => Some(ByteArray::from(text.as_str())),
        _ => None,
    }
}

fn int(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Int(n) => Some(i64::try_from(*n).unwrap_or(i64::MAX)),
        _ => None,
    }
}

fn real(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Real(n) => Some(*n),
        _ => None,
    }
}

/// Decodes the rows of a Parquet file that has at least these columns. The bytes are untrusted.
///
/// # Errors
///
/// Returns one line if the bytes are not Parquet, are damaged, lack a column or exceed the limits.
pub(crate) fn read(bytes: &[u8], columns: &[Column]) -> Result<Vec<Vec<Cell>>, String> {
    // The Parquet library panics at some inconsistent files. The panic drops everything that it has
    // built.
    let read = guard::catch_panic(|| read_rows(bytes, columns));
    read.unwrap_or_else(|| Err("parts of the file contradict one another".into()))
}

fn read_rows(bytes: &[u8], columns: &[Column]) -> Result<Vec<Vec<Cell>>, String> {
    let one_line = |e: ParquetError| {
        let text = onbeat_document::text::visible(&e.to_string());
        onbeat_document::text::shorten(&text, 200)
    };
    let file = SerializedFileReader::new(Bytes::copy_from_slice(bytes)).map_err(one_line)?;
    let metadata = file.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let mut places = Vec::new();
    for (name, cell_type) in columns {
        let wanted = cell_type
            .schema(name)
            .map_err(one_line)?
            .get_physical_type();
        let place = schema.columns().iter().position(|c| {
            c.path().parts() == [name.clone()]
                && c.physical_type() == wanted
                && c.max_rep_level() == 0
                && c.max_def_level() <= 1
        });
        places
            .push(place.ok_or_else(|| format!("column '{name}' is missing or has another type"))?);
    }
    let mut rows = Vec::new();
    for at in 0..file.num_row_groups() {
        let group = file.get_row_group(at).map_err(one_line)?;
        let count = group.metadata().num_rows();
        if !(0..=MAX_ROWS - rows.len() as i64).contains(&count) {
            return Err(format!(
                "a group of {count} rows exceeds the limit of {MAX_ROWS} rows"
            ));
        }
        let count = count as usize;
        let mut read: Vec<Vec<Cell>> = Vec::new();
        for (place, (name, cell_type)) in places.iter().zip(columns) {
            let cells = column(&*group, *place, *cell_type, count).map_err(one_line)?;
            if cells.len() != count {
                return Err(format!("column '{name}' is shorter than the others"));
            }
            read.push(cells);
        }
        let mut read: Vec<_> = read.into_iter().map(Vec::into_iter).collect();
        rows.extend((0..count).map(|_| {
            let cells = read.iter_mut().map(|c| c.next().unwrap_or(Cell::None));
            cells.collect::<Vec<Cell>>()
        }));
    }
    Ok(rows)
}

fn column(
    group: &dyn RowGroupReader,
    place: usize,
    cell_type: CellType,
    count: usize,
) -> Result<Vec<Cell>, ParquetError> {
    let chunk = group.metadata().column(place);
    let first = chunk.dictionary_page_offset().unwrap_or(0);
    if first < 0 || chunk.data_page_offset() < 0 || chunk.compressed_size() < 0 {
        return Err(ParquetError::General(
            "a column has a negative position or size".into(),
        ));
    }
    if !(0..=MAX_UNPACKED).contains(&chunk.uncompressed_size()) {
        return Err(ParquetError::General("a column is too large".into()));
    }
    match cell_type {
        CellType::Text => cells::<ByteArrayType>(group, place, count, |bytes| {
            let text = std::str::from_utf8(bytes.data())
                .map_err(|_| ParquetError::General("a text is not UTF-8".into()))?;
            Ok(Cell::Text(text.to_string()))
        }),
        CellType::Int | CellType::Time => cells::<Int64Type>(group, place, count, |n| {
            u64::try_from(n)
                .map(Cell::Int)
                .map_err(|_| ParquetError::General("a count is negative".into()))
        }),
        CellType::Real => cells::<DoubleType>(group, place, count, |n| Ok(Cell::Real(n))),
    }
}

fn cells<T: DataType>(
    group: &dyn RowGroupReader,
    place: usize,
    count: usize,
    cell: impl Fn(T::T) -> Result<Cell, ParquetError>,
) -> Result<Vec<Cell>, ParquetError> {
    let optional = group
        .metadata()
        .column(place)
        .column_descr()
        .max_def_level()
        == 1;
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(place)?);
    let (mut values, mut present) = (Vec::new(), Vec::new());
    let mut rows = 0;
    while rows < count {
        let levels = optional.then_some(&mut present);
        let (read, _, _) = reader.read_records(count - rows, levels, None, &mut values)?;
        if read == 0 {
            break;
        }
        rows += read;
    }
    let mut values = values.into_iter().map(cell);
    if !optional {
        return values.collect();
    }
    let cells = present.iter().map(|level| match level {
        0 => Ok(Cell::None),
        _ => values
            .next()
            .unwrap_or_else(|| Err(ParquetError::General("a column lacks cells".into()))),
    });
    cells.collect()
}
