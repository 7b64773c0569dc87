//! Reads the tables of an ELF file: segments, sections and symbols. Every position and length in
//! them is checked.

use super::{Malformed, Source};
use crate::placement::Machine;
use object::elf;
use object::pod::{self, Pod};
use object::LittleEndian as LE;

/// The largest number of segments that is accepted. A library has about ten.
const SEGMENTS_MAX: u64 = 4096;
/// The largest number of sections that is accepted. A library has about forty.
const SECTIONS_MAX: u64 = 1 << 16;
/// The largest string table that is accepted, in bytes. With debug information, the largest
/// programs of ROS 2 have a few tens of MiB.
const STRINGS_MAX: u64 = 128 << 20;
const SYMBOLS_MAX: u64 = 8 << 20;
const SYMBOLS_AT_ONCE: u64 = 4096;
/// The longest symbol name that is accepted, in bytes. Synchronisers of many types have names of a
/// few thousand bytes.
const NAME_MAX: usize = 16 << 10;
/// The largest number of name bytes that are read in total. Names may overlap, so a table of one
/// MiB can have a million names of one MiB each.
const NAMES_MAX: usize = 256 << 20;

type Header = elf::FileHeader64<LE>;
type ProgramHeader = elf::ProgramHeader64<LE>;
type Section = elf::SectionHeader64<LE>;
type Sym = elf::Sym64<LE>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// The symbols that the dynamic linker uses (`.dynsym`).
    Dynamic,
    /// All symbols (`.symtab`), unless the file was stripped.
    Full,
}

#[derive(Debug, Clone, Copy)]
pub struct Segment {
    pub address: u64,
    pub size: u64,
    pub offset: u64,
    pub in_file: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Symbol {
    pub address: u64,
    pub size: u64,
    pub is_code: bool,
}

pub struct Tables {
    machine: Machine,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    names: u32,
    unwind: Option<Segment>,
}

impl Tables {
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Tables, Malformed> {
        let header: Header = one(source, 0).ok_or(Malformed::NoElf)?;
        let ident = header.e_ident;
        if ident.magic != elf::ELFMAG
            || ident.class != elf::ELFCLASS64
            || ident.data != elf::ELFDATA2LSB
        {
            return Err(Malformed::NoElf);
        }
        let machine = match header.e_machine.get(LE) {
            elf::EM_X86_64 => Machine::X86_64,
            elf::EM_AARCH64 => Machine::Aarch64,
            other => return Err(Malformed::Machine(other)),
        };
        let segments: Vec<ProgramHeader> = table(
            source,
            header.e_phoff.get(LE),
            header.e_phnum.get(LE).into(),
            (header.e_phentsize.get(LE).into(), SEGMENTS_MAX),
            "segments",
        )?;
        let at = header.e_shoff.get(LE);
        // Counts that do not fit into the header are in the first section.
        let first: Option<Section> = (at != 0).then(|| one(source, at)).flatten();
        let count = match (header.e_shnum.get(LE), &first) {
            (0, Some(first)) => first.sh_size.get(LE),
            (count, _) => count.into(),
        };
        let names = match (header.e_shstrndx.get(LE), &first) {
            (elf::SHN_XINDEX, Some(first)) => first.sh_link.get(LE),
            (index, _) => index.into(),
        };
        let size = header.e_shentsize.get(LE).into();
        let count = if at == 0 { 0 } else { count };
        let unwind = of_type(&segments, elf::PT_GNU_EH_FRAME).next();
        Ok(Tables {
            machine,
            segments: of_type(&segments, elf::PT_LOAD).collect(),
            unwind,
            sections: table(source, at, count, (size, SECTIONS_MAX), "sections")?,
            names,
        })
    }

    pub fn machine(&self) -> Machine {
        self.machine
    }

    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub fn unwind_table(&self) -> Option<Segment> {
        self.unwind
    }

    pub fn has_section(&self, source: &(impl Source + ?Sized), name: &str) -> bool {
        let Some(Ok(names)) = self.section(self.names).map(|s| strings(source, s)) else {
            return false;
        };
        // Names may overlap here too. So this only looks for the wanted name at each place.
        let wanted = [name.as_bytes(), &[0]].concat();
        self.sections.iter().any(|section| {
            let at = section.sh_name.get(LE) as usize;
            names
                .get(at..)
                .is_some_and(|rest| rest.starts_with(&wanted))
        })
    }

    fn section(&self, index: u32) -> Option<&Section> {
        self.sections.get(index as usize)
    }

    /// Calls `take` for every function and variable in one of the file's symbol tables. Does
    /// nothing if the file lacks this table. Skips names that are not UTF-8 or have no end.
    pub fn symbols(
        &self,
        source: &(impl Source + ?Sized),
        table: Table,
        take: &mut dyn FnMut(&str, Symbol) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let kind = match table {
            Table::Dynamic => elf::SHT_DYNSYM,
            Table::Full => elf::SHT_SYMTAB,
        };
        let Some(section) = self.sections.iter().find(|s| s.sh_type.get(LE) == kind) else {
            return Ok(());
        };
        let names = self.section(section.sh_link.get(LE));
        let names = strings(source, names.ok_or(Malformed::Outside("names of symbols"))?)?;
        let (at, count) = (
            section.sh_offset.get(LE),
            section.sh_size.get(LE) / SYM_BYTES,
        );
        if count > SYMBOLS_MAX {
            return Err(Malformed::TooLarge("symbols"));
        }
        let mut left = NAMES_MAX;
        let mut done = 0;
        while done < count {
            let next = SYMBOLS_AT_ONCE.min(count - done);
            let at = at
                .checked_add(done * SYM_BYTES)
                .ok_or(Malformed::Outside("symbols"))?;
            let piece: Vec<Sym> =
                self::table(source, at, next, (SYM_BYTES, SYMBOLS_AT_ONCE), "symbols")?;
            for symbol in piece.iter().filter(|s| is_defined(s)) {
                let name = names
                    .get(symbol.st_name.get(LE) as usize..)
                    .unwrap_or_default();
                let name = &name[..name.len().min(NAME_MAX)];
                let end = name.iter().position(|&b| b == 0);
                left = left
                    .checked_sub(end.unwrap_or(name.len()))
                    .ok_or(Malformed::TooLarge("names of symbols"))?;
                let name = end.and_then(|end| std::str::from_utf8(&name[..end]).ok());
                if let Some(name) = name {
                    take(name, symbol_of(symbol))?;
                }
            }
            done += next;
        }
        Ok(())
    }
}

const SYM_BYTES: u64 = std::mem::size_of::<Sym>() as u64;

fn is_defined(symbol: &Sym) -> bool {
    let is_elsewhere = symbol.st_shndx.get(LE) == elf::SHN_UNDEF;
    let kinds = [elf::STT_SECTION, elf::STT_FILE, elf::STT_TLS];
    !is_elsewhere && !kinds.contains(&(symbol.st_info & 0xf))
}

fn symbol_of(symbol: &Sym) -> Symbol {
    let code = [elf::STT_FUNC, elf::STT_GNU_IFUNC];
    Symbol {
        address: symbol.st_value.get(LE),
        size: symbol.st_size.get(LE),
        is_code: code.contains(&(symbol.st_info & 0xf)),
    }
}

fn of_type(headers: &[ProgramHeader], kind: u32) -> impl Iterator<Item = Segment> + '_ {
    let of_type = headers.iter().filter(move |h| h.p_type.get(LE) == kind);
    of_type.map(|header| Segment {
        address: header.p_vaddr.get(LE),
        size: header.p_memsz.get(LE),
        offset: header.p_offset.get(LE),
        in_file: header.p_filesz.get(LE),
    })
}

fn strings(source: &(impl Source + ?Sized), section: &Section) -> Result<Vec<u8>, Malformed> {
    const WHAT: &str = "names";
    let (at, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
    if section.sh_type.get(LE) == elf::SHT_NOBITS {
        return Err(Malformed::Outside(WHAT));
    }
    piece(source, at, size, STRINGS_MAX, WHAT)
}

fn table<T: Pod + Copy>(
    source: &(impl Source + ?Sized),
    at: u64,
    count: u64,
    (size, most): (u64, u64),
    what: &'static str,
) -> Result<Vec<T>, Malformed> {
    let expected = std::mem::size_of::<T>() as u64;
    if count == 0 {
        return Ok(Vec::new());
    }
    if size != expected {
        return Err(Malformed::Outside(what));
    }
    if count > most {
        return Err(Malformed::TooLarge(what));
    }
    let bytes = piece(source, at, count * expected, most * expected, what)?;
    // The bytes are misaligned only if the allocator aligns to less than eight bytes, which none
    // does.
    let entries = pod::slice_from_bytes::<T>(&bytes, count as usize);
    entries
        .map(|(entries, _)| entries.to_vec())
        .map_err(|()| Malformed::Outside(what))
}

fn one<T: Pod + Copy>(source: &(impl Source + ?Sized), at: u64) -> Option<T> {
    let size = std::mem::size_of::<T>() as u64;
    table(source, at, 1, (size, 1), "head")
        .ok()?
        .first()
        .copied()
}

fn piece(
    source: &(impl Source + ?Sized),
    at: u64,
    size: u64,
    most: u64,
    what: &'static str,
) -> Result<Vec<u8>, Malformed> {
    if size > most {
        return Err(Malformed::TooLarge(what));
    }
    if at.checked_add(size).is_none_or(|end| end > source.size()) {
        return Err(Malformed::Outside(what));
    }
    let mut bytes = vec![0; size as usize];
    match source.read_at(&mut bytes, at) {
        true => Ok(bytes),
        false => Err(Malformed::Outside(what)),
    }
}
