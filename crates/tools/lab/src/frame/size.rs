//! Message sizes as people write them.

pub fn size_name(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

pub fn size_id(bytes: usize) -> String {
    size_name(bytes).replace(' ', "").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_in_binary_units() {
        let names = [64, 1024, 65_536, 1 << 20, 4 << 20].map(size_name);
        assert_eq!(names, ["64 B", "1 KiB", "64 KiB", "1 MiB", "4 MiB"]);
        assert_eq!(size_id(262_144), "256kib");
    }
}
