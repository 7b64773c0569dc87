//! Names and headers of the files in a trace directory.
use std::path::{Path, PathBuf};

/// The first bytes of every trace file. They include line ends, so that a transfer that changed
/// line ends is detected.
pub(crate) const MAGIC: [u8; 8] = *b"\x89OBT\r\n\x1a\n";
pub(crate) const VERSION: u16 = 6;

/// The oldest format version that onbeat reads. Its only difference from later versions is that it
/// lacks some kinds of events.
pub(crate) const OLDEST: u16 = 2;
pub(crate) const HEADER_LEN: usize = 44;
pub(crate) const INIT_FILE: &str = "init.obt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Segment,
    Init,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub version: u16,
    pub content: Content,
    /// The number of the segment. In init.obt, the number of the first segment that was not
    /// deleted.
    pub number: u32,
    pub id: [u8; 16],
    pub created_realtime_ns: u64,
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&self.version.to_le_bytes());
        out[10] = match self.content {
            Content::Segment => 0,
            Content::Init => 1,
        };
        out[12..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..32].copy_from_slice(&self.id);
        out[32..40].copy_from_slice(&self.created_realtime_ns.to_le_bytes());
        let crc = crc32fast::hash(&out[..40]);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Option<FileHeader> {
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        let mut created = [0; 8];
        created.copy_from_slice(&bytes[32..40]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[0..8] != MAGIC || crc32fast::hash(&bytes[..40]) != u32_at(40) {
            return None;
        }
        Some(FileHeader {
            version: u16::from_le_bytes([bytes[8], bytes[9]]),
            content: if bytes[10] == 0 {
                Content::Segment
            } else {
                Content::Init
            },
            number: u32_at(12),
            id,
            created_realtime_ns: u64::from_le_bytes(created),
        })
    }
}

pub(crate) fn name(number: u32) -> String {
    format!("segment-{number:06}.obt")
}

pub(crate) fn list(dir: &Path) -> std::io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|n| n.strip_prefix("segment-")?.strip_suffix(".obt"))
            .and_then(|n| n.parse().ok());
        if let Some(number) = number {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn id_text(id: &[u8; 16]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}
