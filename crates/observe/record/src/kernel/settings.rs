//! Writes the settings of the BPF programs, which are constants once the programs are loaded.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

/// Writes settings into the image of the BPF programs' read-only data. The symbol table of the
/// object file `programs` gives the place of each setting.
pub fn write(programs: &[u8], image: &mut [u8], values: &[(&str, u64)]) -> Result<(), String> {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(programs)
        .map_err(|e| e.to_string())?;
    let section = file.section_by_name(".rodata").ok_or("no .rodata")?.index();
    for (name, value) in values {
        let symbol = file
            .symbols()
            .find(|s| s.name() == Ok(name) && s.section_index() == Some(section))
            .ok_or_else(|| format!("no setting {name}"))?;
        let (at, size) = (symbol.address() as usize, symbol.size() as usize);
        let target = image
            .get_mut(at..at + size)
            .ok_or("a setting lies outside of the data section of the BPF programs")?;
        target.copy_from_slice(&value.to_le_bytes()[..size]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_a_setting_that_the_bpf_programs_do_not_have() {
        let programs: &[u8] = &crate::kernel::PROGRAMS;
        let mut image = vec![0; 4096];
        write(programs, &mut image, &[("wakeup_bytes", 0x0102_0304)]).expect("it is there");
        assert_eq!(image.iter().filter(|&&b| b != 0).count(), 4);
        let error = write(programs, &mut image, &[("no_such_thing", 1)]).unwrap_err();
        assert!(error.contains("no_such_thing"), "{error}");
    }
}
