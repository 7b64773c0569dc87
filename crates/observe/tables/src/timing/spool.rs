//! Keeps rows as numbers in a temporary file until the names behind the numbers are known.
//!
//! The ids of callbacks are known only at the end of a recording. Rows wait until then in a file
//! without a name. Memory therefore stays bounded, and a killed program leaves no file behind.
//!
//! The file consists of blocks. A block is the number of its bytes (`u32`), followed by its rows. A row
//! begins with a mask of the columns that have a value. For each of these columns, the difference to
//! the column's previous value follows. All numbers of a row are varints, so most values need one to
//! three bytes.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

const BLOCK_BYTES: usize = 1 << 16;

pub(crate) struct Spool {
    file: File,
    block: Vec<u8>,
    last: Vec<i64>,
    /// The number of bytes in the file.
    bytes: u64,
}

impl Spool {
    /// Creates a file for rows of `width` columns, at most 64, in `directory` or in the system's
    /// directory for temporary files.
    pub(crate) fn create(directory: Option<&Path>, width: usize) -> io::Result<Spool> {
        let file = match directory {
            Some(directory) => tempfile::tempfile_in(directory)?,
            None => tempfile::tempfile()?,
        };
        Ok(Spool {
            file,
            block: Vec::with_capacity(BLOCK_BYTES + 1024),
            last: vec![0; width],
            bytes: 0,
        })
    }

    /// Adds a row, which must have a value or `None` for each column.
    pub(crate) fn push(&mut self, row: &[Option<i64>]) -> io::Result<()> {
        debug_assert_eq!(self.last.len(), row.len());
        let mask = (0..).zip(row);
        let mask = mask.fold(0, |mask, (i, value)| mask | u64::from(value.is_some()) << i);
        put(&mut self.block, mask);
        for (last, value) in self.last.iter_mut().zip(row) {
            let Some(value) = *value else { continue };
            let difference = value.wrapping_sub(*last);
            // Small differences become small numbers, whatever their sign.
            put(
                &mut self.block,
                ((difference << 1) ^ (difference >> 63)) as u64,
            );
            *last = value;
        }
        match self.block.len() < BLOCK_BYTES {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let length = self.block.len() as u32;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(&self.block)?;
        self.bytes += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }

    /// Returns the number of bytes of all rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.block.len() as u64
    }

    /// Calls `visit` with each row, in the order in which they were added.
    pub(crate) fn read<E: From<io::Error>>(
        mut self,
        mut visit: impl FnMut(&[Option<i64>]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.write()?;
        self.file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::with_capacity(BLOCK_BYTES, self.file);
        let mut row = vec![None; self.last.len()];
        let mut last = vec![0; self.last.len()];
        let mut block = Vec::new();
        let mut length = [0; 4];
        loop {
            match file.read_exact(&mut length) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            }
            block.resize(u32::from_le_bytes(length) as usize, 0);
            file.read_exact(&mut block)?;
            let mut bytes = block.as_slice();
            while !bytes.is_empty() {
                get_row(&mut bytes, &mut last, &mut row).ok_or_else(cut_off)?;
                visit(&row)?;
            }
        }
    }
}

fn cut_off() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a temporary file of the export was changed from outside. Export again",
    )
}

fn get_row(bytes: &mut &[u8], last: &mut [i64], row: &mut [Option<i64>]) -> Option<()> {
    let mut mask = get(bytes)?;
    for (last, value) in last.iter_mut().zip(row) {
        *value = None;
        if mask & 1 != 0 {
            let number = get(bytes)?;
            let difference = (number >> 1) as i64 ^ -((number & 1) as i64);
            *last = last.wrapping_add(difference);
            *value = Some(*last);
        }
        mask >>= 1;
    }
    Some(())
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_returns_rows_in_the_order_in_which_they_were_added() {
        let rows: Vec<[Option<i64>; 3]> = (0..40_000)
            .map(|i: i64| match i % 5 {
                0 => [Some(i64::MIN), None, Some(i64::MAX)],
                1 => [Some(i64::MAX), Some(-i), Some(i64::MIN)],
                2 => [None; 3],
                _ => [Some(i), Some(i << (i % 60)), None],
            })
            .collect();
        let mut spool = Spool::create(None, 3).expect("a file");
        for row in &rows {
            spool.push(row).expect("pushed");
        }
        let mut all = rows.iter();
        let read = spool.read(|row| {
            assert_eq!(Some(row), all.next().map(<[_; 3]>::as_slice));
            Ok::<(), io::Error>(())
        });
        read.expect("read");
        assert_eq!(all.next(), None);
    }
}
