//! Reads valid files, damaged ones, and ones that were made to harm their reader.
use super::*;
use std::cell::Cell;
use std::time::Instant;

struct Image {
    bytes: Vec<u8>,
}

const SEGMENTS: usize = 64;
const SECTIONS: usize = 128;
const SYMBOLS: usize = 512;
const NAMES: usize = 1024;
const CODE: usize = 2048;

impl Image {
    fn new() -> Image {
        let mut image = Image {
            bytes: vec![0x90; 4096],
        };
        image.bytes[..CODE].fill(0);
        image.put(0, b"\x7fELF\x02\x01\x01");
        image.half(16, 3).half(18, 62); // ET_DYN, EM_X86_64
        image.word(32, SEGMENTS as u64).word(40, SECTIONS as u64);
        image.half(52, 64).half(54, 56).half(56, 1); // one segment
        image.half(58, 64).half(60, 4).half(62, 3); // four sections, the fourth has names
        image.half(SEGMENTS, 1); // PT_LOAD: offset 0 at address 0x1000
        image.word(SEGMENTS + 8, 0).word(SEGMENTS + 16, 0x1000);
        image.word(SEGMENTS + 32, 4096).word(SEGMENTS + 40, 4096);
        image.section(1, 11, SYMBOLS as u64, 48, 2); // SHT_DYNSYM, names in section 2
        image.section(2, 3, NAMES as u64, 64, 0);
        image.section(3, 3, NAMES as u64 + 64, 64, 0);
        image.put(NAMES, b"\0ros_trace_callback_start\0");
        image.put(NAMES + 64, b"\0.dynsym\0.note.onbeat\0");
        image.half(SECTIONS + 64, 1); // the name of section 1
        image.symbol(1, 1, 0x1000 + CODE as u64, 16);
        image
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Image {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn half(&mut self, at: usize, value: u16) -> &mut Image {
        self.put(at, &value.to_le_bytes())
    }

    fn word(&mut self, at: usize, value: u64) -> &mut Image {
        self.put(at, &value.to_le_bytes())
    }

    fn section(&mut self, index: usize, kind: u16, at: u64, size: u64, link: u16) {
        let head = SECTIONS + index * 64;
        self.half(head + 4, kind)
            .word(head + 24, at)
            .word(head + 32, size);
        self.half(head + 40, link);
    }

    fn symbol(&mut self, index: usize, name: u16, address: u64, size: u64) {
        let at = SYMBOLS + index * 24;
        self.half(at, name).put(at + 4, &[0x12]).half(at + 6, 1);
        self.word(at + 8, address).word(at + 16, size);
    }

    fn read(&self) -> Result<Symbols, Malformed> {
        Symbols::of(&self.bytes[..], true, |_| true)
    }
}

const NAME: &str = "ros_trace_callback_start";

#[test]
fn files_that_are_not_libraries_are_refused_with_their_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("librcl.so");
    let mut of_another_processor = Image::new();
    of_another_processor.half(18, 243);
    for content in [
        &b""[..],
        b"\x7fELF",
        b"#!/bin/sh\n",
        &[
            0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
        ],
        &of_another_processor.bytes,
    ] {
        std::fs::write(&path, content).unwrap();
        let error = Symbols::read(&path, true, |_| true).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("librcl.so") && !error.contains('\n'),
            "{error}"
        );
    }
}

#[test]
fn the_test_binarys_own_functions_are_found() {
    let own = std::env::current_exe().unwrap();
    let symbols = Symbols::read(&own, true, |name| name == "main").unwrap();
    assert!(symbols
        .get("main")
        .is_some_and(|f| !f.code.is_empty() && f.file_offset > 0));
    let own = Reach::Here(own).open().unwrap();
    assert!(has_section(&own, ".text") && !has_section(&own, ".note.onbeat"));
    assert!(!has_section(&b"Name:\tcat"[..], ".text"));
}

#[test]
fn the_functions_of_a_small_library_are_read() {
    let image = Image::new();
    let symbols = image.read().unwrap();
    let function = symbols.get(NAME).expect("it is there");
    assert_eq!(function.file_offset, CODE as u64);
    assert_eq!(function.code, [0x90; 16]);
    assert!(has_section(&image.bytes[..], ".dynsym"));
    assert!(!has_section(&image.bytes[..], ".note.onbeat"));
}

#[test]
fn a_fifo_is_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("librcl.so");
    let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the text ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
    let error = Symbols::read(&path, true, |_| true).unwrap_err();
    assert!(error.to_string().contains("regular file"), "{error}");
}

#[test]
fn a_sparse_file_needs_memory_only_for_its_symbols() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("librcl.so");
    for (kind, size) in [(3, 64), (3, 1 << 39), (11, 1 << 39)] {
        let mut image = Image::new();
        match kind {
            3 => image.section(2, kind, NAMES as u64, size, 0),
            _ => image.section(1, kind, SYMBOLS as u64, size, 2),
        }
        std::fs::write(&path, &image.bytes).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let read = Symbols::read(&path, true, |_| true);
        match size {
            64 => assert!(read.unwrap().get(NAME).is_some()),
            _ => {
                let error = read.unwrap_err().to_string();
                assert!(error.contains("exceed the number or the size"), "{error}");
            }
        }
    }
}

#[test]
fn elf_parts_with_impossible_positions_or_sizes_are_refused() {
    let refused = |change: &dyn Fn(&mut Image)| {
        let mut image = Image::new();
        change(&mut image);
        image.read().map(|s| s.functions.len())
    };
    for value in [u64::MAX, 1 << 63, 4097, u64::MAX - 63] {
        assert!(
            refused(&|i| {
                i.word(32, value);
            })
            .is_err(),
            "segments at {value}"
        );
        assert!(
            refused(&|i| {
                i.word(40, value);
            })
            .is_err(),
            "sections at {value}"
        );
        assert!(
            refused(&|i| i.section(1, 11, value, 48, 2)).is_err(),
            "symbols at {value}"
        );
        assert!(
            refused(&|i| i.section(2, 3, value, 64, 0)).is_err(),
            "names at {value}"
        );
        assert!(refused(&|i| i.section(1, 11, SYMBOLS as u64, value, 2)).is_err());
        assert!(refused(&|i| i.section(2, 3, NAMES as u64, value, 0)).is_err());
        // The number of sections is in the first section.
        let in_first = |i: &mut Image| {
            i.half(60, 0).word(SECTIONS + 32, value);
        };
        assert!(refused(&in_first).is_err(), "{value} sections");
        // A symbol whose address lies in no segment is skipped.
        assert_eq!(refused(&|i| i.symbol(1, 1, value.max(0x2000), 16)), Ok(0));
        // A function is longer than its file.
        assert_eq!(refused(&|i| i.symbol(1, 1, 0x1fff, value)), Ok(1));
        // A segment begins outside of the file.
        assert!(refused(&|i| {
            i.word(SEGMENTS + 8, value);
        })
        .is_ok());
    }
    for (at, value) in [
        (54, 0),
        (54, 1),
        (58, 0),
        (58, 63),
        (56, 0xffff),
        (60, 0xffff),
    ] {
        assert!(
            refused(&|i| {
                i.half(at, value);
            })
            .is_err(),
            "{value} at {at}"
        );
    }
    // The names come from a section that does not exist.
    assert!(refused(&|i| i.section(1, 11, SYMBOLS as u64, 48, 9)).is_err());
    assert_eq!(refused(&|i| i.symbol(1, u16::MAX, 0x1000, 16)), Ok(0));
}

/// Two million names share the same 16 KiB. A reader that reads each name fully would read 32 GiB.
#[test]
fn reading_of_overlapping_names_is_limited() {
    let (names, symbols) = (1u64 << 14, 2_000_000u64);
    let mut image = Image::new();
    image.section(2, 3, 4096, names, 0);
    image.section(1, 11, 4096 + names, symbols * 24, 2);
    let symbol = image.bytes[SYMBOLS + 24..SYMBOLS + 48].to_vec();
    image.bytes.resize(4096 + names as usize, b'a');
    image.bytes.extend(symbol.repeat(symbols as usize));
    let begin = Instant::now();
    assert_eq!(
        image.read().unwrap_err(),
        Malformed::TooLarge("names of symbols")
    );
    println!("refused after {:?}", begin.elapsed());
}

#[test]
fn more_symbols_than_any_program_has_are_refused() {
    let count = WANTED_MAX + 1;
    let mut image = Image::new();
    image.section(2, 3, 4096, count as u64 * 8, 0);
    image.section(1, 11, 4096 + count as u64 * 8, count as u64 * 24, 2);
    let symbol = image.bytes[SYMBOLS + 24..SYMBOLS + 48].to_vec();
    let names: Vec<u8> = (0..count)
        .flat_map(|n| format!("n{n:06}\0").into_bytes())
        .collect();
    image.bytes.extend(names);
    for n in 0..count {
        let mut symbol = symbol.clone();
        symbol[..4].copy_from_slice(&(n as u32 * 8).to_le_bytes());
        image.bytes.extend(symbol);
    }
    assert_eq!(image.read().unwrap_err(), Malformed::TooLarge("symbols"));
}

struct Shrinking<'a>(&'a [u8], Cell<usize>);

impl Source for Shrinking<'_> {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        let left = self.1.get();
        self.1.set(left.saturating_sub(1));
        left > 0 && self.0.read_at(buffer, offset)
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_refused_or_lacks_its_code() {
    let image = Image::new();
    let mut refused = 0;
    for reads in 0..20 {
        match Symbols::of(&Shrinking(&image.bytes, Cell::new(reads)), true, |_| true) {
            Ok(symbols) => assert!(symbols.get(NAME).is_some()),
            Err(error) => {
                assert!(!error.to_string().contains('\n'));
                refused += 1;
            }
        }
    }
    assert!((4..10).contains(&refused), "{refused}");
    // The same happens on a disk, while another thread shrinks the file.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("librcl.so");
    std::fs::write(&path, &image.bytes).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let (done, running) = std::sync::mpsc::channel::<()>();
    let shrink = std::thread::spawn(move || {
        while running.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            file.set_len(0).unwrap();
            file.write_all_at(&image.bytes, 0).unwrap();
        }
    });
    for _ in 0..2000 {
        let _ = Symbols::read(&path, true, |_| true);
    }
    drop(done);
    shrink.join().unwrap();
}

#[test]
fn functions_begin_only_where_symbols_say_so() {
    let opened = Reach::Here("/proc/self/exe".into()).open().unwrap();
    let symbols = Symbols::of(&opened, true, |name| name.contains("onbeat")).unwrap();
    let functions: Vec<&Function> = symbols
        .iter()
        .map(|(_, f)| f)
        .filter(|f| f.code.len() > 8)
        .collect();
    assert!(functions.len() > 100, "{}", functions.len());
    let begins = |f: &&&Function| begins_function(&opened, f.file_offset);
    let known = functions.iter().filter(begins).count();
    // Some symbols are variables, and some generated code has no unwind entry.
    assert!(
        known > functions.len() / 2,
        "{known} of {}",
        functions.len()
    );
    for f in functions.iter().take(1000) {
        for within in 1..8 {
            let at = f.file_offset + within;
            assert!(!begins_function(&opened, at), "{at:#x}");
        }
    }
}

fn compiled(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("a.cc"), dir.join("a"));
    // The cold part throws an exception. At its start, much lies on the stack.
    let code = r#"
#include <string>
extern "C" __attribute__((noinline)) int hot(int n, char **v) {
  std::string text = std::to_string(n), more = text + v[0];
  if (n > 1000) throw more;
  return text.size() + more.size();
}
int main(int n, char **v) {
  try { return hot(n, v); } catch (std::string &s) { return s.size(); }
}
"#;
    std::fs::write(&source, code).unwrap();
    let mut cc = std::process::Command::new("g++");
    cc.args(["-O2", "-o"]).arg(&program).arg(&source);
    assert!(cc.status().unwrap().success());
    program
}

#[test]
fn entry_points_and_cold_parts_are_not_functions() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path());
    let opened = Reach::Here(program.clone()).open().unwrap();
    let symbols = Symbols::of(&opened, true, |_| true).unwrap();
    let begins = |name: &str| {
        let found = symbols.get(name).unwrap_or_else(|| panic!("{name}"));
        begins_function(&opened, found.file_offset)
    };
    assert!(begins("main") && begins("hot"));
    assert!(!begins("_start"));
    assert!(!begins("hot.cold") && !begins("main.cold"));
    // A stripped file gives the same answer. A file without the table gives none.
    let at = symbols.get("hot").unwrap().file_offset;
    let mut strip = std::process::Command::new("strip");
    assert!(strip.arg(&program).status().unwrap().success());
    let stripped = Reach::Here(program).open().unwrap();
    assert!(begins_function(&stripped, at) && !begins_function(&stripped, at + 4));
    assert!(!begins_function(&Image::new().bytes[..], CODE as u64));
}

#[test]
fn reading_a_damaged_unwind_table_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let good = std::fs::read(compiled(dir.path())).unwrap();
    let symbols = Symbols::of(&good[..], true, |name| name == "hot").unwrap();
    let at = symbols.get("hot").unwrap().file_offset;
    assert!(begins_function(&good[..], at));
    let table = good
        .windows(4)
        .position(|w| w == [1, 0x1b, 3, 0x3b])
        .unwrap();
    for change in 0..64 {
        let mut bytes = good.clone();
        bytes[table + change] ^= 0xff;
        // The result may be anything, but the call must return.
        begins_function(&bytes[..], at);
        bytes.truncate(table + change);
        assert!(!begins_function(&bytes[..], at));
    }
}
