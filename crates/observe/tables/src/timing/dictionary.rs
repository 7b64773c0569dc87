//! Columns of names. A column stores each name once, and a number for each row. It is written in this
//! form as a chunk of a Parquet file. The writer of the crate `parquet` would hash and compare the
//! text of each row.

use arrow_array::{ArrayRef, StringArray};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use rustc_hash::FxHashMap;
use std::fs::File;
use std::iter::repeat_n;
use std::sync::Arc;
use zstd::bulk::Compressor;

/// The zstd compression level of all columns.
pub(crate) const ZSTD_LEVEL: i32 = 3;

/// A column of a table in which each row has a name or no value.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<String>,
    by_text: FxHashMap<String, u32>,
    by_number: FxHashMap<i64, Option<u32>>,
    /// The number with which a row was last added, and the index of its name in `texts`.
    last: Option<(i64, Option<u32>)>,
    /// For each row that has a name: the index of the name in `texts`.
    places: Vec<u32>,
    /// One byte for each row, 1 if it has a name and 0 otherwise.
    present: Vec<u8>,
}

impl Names {
    /// Returns a column in which all rows have the same name.
    pub(crate) fn repeated(text: &str, rows: usize) -> Names {
        Names {
            texts: vec![text.to_string()],
            places: vec![0; rows],
            present: vec![1; rows],
            ..Names::default()
        }
    }

    /// Adds a row with the name for which `number` stands. Calls `text` for the name if the number
    /// is new.
    pub(crate) fn push<'a>(
        &mut self,
        number: Option<i64>,
        text: impl FnOnce(i64) -> Option<&'a str>,
    ) {
        let place = number.and_then(|number| match self.last {
            Some((last, place)) if last == number => place,
            _ => {
                let place = self.place(number, text);
                self.last = Some((number, place));
                place
            }
        });
        self.present.push(place.is_some().into());
        self.places.extend(place);
    }

    fn place<'a>(&mut self, number: i64, text: impl FnOnce(i64) -> Option<&'a str>) -> Option<u32> {
        if let Some(place) = self.by_number.get(&number) {
            return *place;
        }
        let place = text(number).map(|text| match self.by_text.get(text) {
            Some(place) => *place,
            None => {
                let place = self.texts.len() as u32;
                self.texts.push(text.to_string());
                self.by_text.insert(text.to_string(), place);
                place
            }
        });
        self.by_number.insert(number, place);
        place
    }

    pub(crate) fn array(&self) -> ArrayRef {
        let mut places = self.places.iter();
        let text = |present: &u8| match present {
            0 => None,
            _ => self.texts.get(*places.next()? as usize),
        };
        Arc::new(self.present.iter().map(text).collect::<StringArray>())
    }

    /// Writes the rows as the next column of a row group. `column` describes this column.
    pub(crate) fn write(
        &self,
        group: &mut SerializedRowGroupWriter<'_, File>,
        column: ColumnDescPtr,
        zstd: &mut Compressor<'_>,
    ) -> Result<(), ParquetError> {
        let mut compress = |bytes: &[u8]| zstd.compress(bytes).map(Bytes::from);
        let mut chunk = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut chunk);
        let dictionary = self.dictionary();
        let page = Page::DictionaryPage {
            buf: compress(&dictionary)?,
            num_values: self.texts.len() as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let dictionary = pages.write_page(CompressedPage::new(page, dictionary.len()))?;
        let data = self.data(column.max_def_level() > 0);
        let page = Page::DataPage {
            buf: compress(&data)?,
            num_values: self.present.len() as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let page = pages.write_page(CompressedPage::new(page, data.len()))?;
        let uncompressed = dictionary.uncompressed_size + page.uncompressed_size;
        let bytes = dictionary.bytes_written + page.bytes_written;
        let rows = self.present.len() as u64;
        let mut metadata = ColumnChunkMetaData::builder(column)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings(vec![
                Encoding::PLAIN,
                Encoding::RLE,
                Encoding::RLE_DICTIONARY,
            ])
            .set_total_compressed_size(bytes as i64)
            .set_total_uncompressed_size(uncompressed as i64)
            .set_num_values(rows as i64)
            .set_dictionary_page_offset(Some(0))
            .set_data_page_offset(page.offset as i64);
        // With these statistics, readers skip the files of other runs and hosts. In other columns,
        // nearly every group has nearly every name.
        if let [text] = self.texts.as_slice() {
            let nulls = rows - self.places.len() as u64;
            let text = || Some(ByteArray::from(text.as_str()));
            let statistics = ValueStatistics::new(text(), text(), None, Some(nulls), false);
            metadata = metadata.set_statistics(Statistics::ByteArray(statistics));
        }
        let close = ColumnCloseResult {
            bytes_written: bytes,
            rows_written: rows,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&Bytes::from(chunk.into_inner()?), close)
    }

    fn dictionary(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for text in &self.texts {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    /// Returns the page with all rows. If `with_levels` is set, the page begins with one bit per
    /// row: 1 if the row has a name. The indices of the names follow. Each index takes whole bytes,
    /// because zstd finds no repetitions in smaller units.
    fn data(&self, with_levels: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        if with_levels {
            let mut levels = run_of_eights(self.present.len());
            levels.extend(self.present.chunks(8).map(|eight| {
                let bits = (0..).zip(eight);
                bits.fold(0, |byte, (i, present)| byte | present << i)
            }));
            bytes.extend((levels.len() as u32).to_le_bytes());
            bytes.append(&mut levels);
        }
        let width = match self.texts.len() {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        bytes.push(8 * width as u8);
        bytes.append(&mut run_of_eights(self.places.len()));
        for place in &self.places {
            bytes.extend_from_slice(&place.to_le_bytes()[..width]);
        }
        let padding = self.places.len().next_multiple_of(8) - self.places.len();
        bytes.extend(repeat_n(0, padding * width));
        bytes
    }
}

/// Returns the head of a run of bit-packed values in a Parquet page. The values come in groups of
/// eight.
fn run_of_eights(values: usize) -> Vec<u8> {
    let mut number = values.div_ceil(8) << 1 | 1;
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    /// Writes the names as the only column of a file, and reads the file. Returns the rows and
    /// whether the first group has statistics.
    fn written(names: &Names, repetition: &str) -> (Vec<Option<String>>, bool) {
        let schema = format!("message rows {{ {repetition} binary name (UTF8); }}");
        let schema = Arc::new(parse_message_type(&schema).expect("a schema"));
        let file = tempfile::tempfile().expect("a file");
        let copy = file.try_clone().expect("a file");
        let mut writer = SerializedFileWriter::new(copy, schema, Arc::default()).expect("a writer");
        let column = writer.schema_descr().column(0);
        let mut group = writer.next_row_group().expect("a group");
        let mut zstd = Compressor::new(ZSTD_LEVEL).expect("zstd");
        names.write(&mut group, column, &mut zstd).expect("written");
        group.close().expect("written");
        let metadata = writer.close().expect("written");
        let statistics = metadata.row_group(0).column(0).statistics().cloned();
        let batches = ParquetRecordBatchReader::try_new(file, 1000).expect("a table");
        let rows = batches.flat_map(|batch| {
            let column = batch.expect("rows").column(0).clone();
            let texts = column.as_string::<i32>().iter();
            texts.map(|t| t.map(str::to_string)).collect::<Vec<_>>()
        });
        (rows.collect(), statistics.is_some())
    }

    #[test]
    fn names_are_read_back_as_they_were_added() {
        for (rows, names) in [(1, 1), (9, 2), (1001, 256), (1001, 257), (70_001, 65_537)] {
            // Every fourth row has no name, and two numbers have each name.
            let number = |row: i64| (row % 4 > 0).then_some((row - row / 4) % (2 * names));
            let texts: Vec<String> = (0..names).map(|n| format!("name {n}")).collect();
            let mut column = Names::default();
            for row in 0..rows {
                let text = |n: i64| Some(texts[(n % names) as usize].as_str());
                column.push(number(row), text);
            }
            let expected =
                (0..rows).map(|row| Some(texts[(number(row)? % names) as usize].clone()));
            let expected: Vec<_> = expected.collect();
            assert_eq!(
                column.texts.len() as i64,
                names.min(rows - rows / 4 - 1).max(0)
            );
            let (found, has_statistics) = written(&column, "optional");
            assert!(found == expected, "{rows} {names}");
            assert_eq!(has_statistics, column.texts.len() == 1);
            let array = column.array();
            let array = array.as_string::<i32>().iter();
            assert!(array.map(|t| t.map(str::to_string)).eq(expected));
        }
        let same = Names::repeated("run", 77);
        let rows = vec![Some("run".to_string()); 77];
        assert_eq!(written(&same, "required"), (rows, true));
    }
}
