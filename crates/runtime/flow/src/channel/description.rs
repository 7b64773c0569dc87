//! Stores a channel's options in its memory, so that every process that attaches can check them.

use super::layout::head;
use super::options::{CreateError, ItemType, OnDeath, Options, Policy};
use crate::memory::atomics::Ordering;
use crate::memory::Memory;
use thiserror::Error;

const MAGIC: u64 = u64::from_le_bytes(*b"onbeat\xff\x01");
const VERSION: u64 = 1;

mod word {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const POLICY: usize = 2;
    pub(super) const POLICY_ITEMS: usize = 3;
    pub(super) const POLICY_FLUSH: usize = 4;
    pub(super) const PAYLOAD_BYTES: usize = 5;
    pub(super) const CONSUMERS: usize = 6;
    pub(super) const BORROWED: usize = 7;
    pub(super) const EXPECTED: usize = 8;
    pub(super) const ON_DEATH: usize = 9;
    pub(super) const ITEM_SIZE: usize = 10;
    pub(super) const ITEM_ALIGN: usize = 11;
    pub(super) const NAME_HASH: usize = 12;
    pub(super) const NAME_BYTES: usize = 13;
}

/// The reason why the memory of an existing channel could not be used.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    #[error("the channel is not complete: another process is still creating it, or died before it had finished. Try again, or create it again.")]
    Unfinished,
    #[error("this memory contains no channel. Check which program has created it.")]
    Foreign,
    #[error("the channel has format {theirs}, but this program uses format {ours}. Build both programs with the same onbeat.")]
    Version { theirs: u64, ours: u64 },
    #[error(
        "the channel's {what} is not valid, because its memory was overwritten. Create the channel again."
    )]
    Nonsense { what: &'static str },
    #[error("the options stored in the channel's memory are impossible: {0}")]
    Impossible(#[from] CreateError),
    #[error(
        "{what} {theirs} where the channel was created, and {ours} here. Use the same options in both programs."
    )]
    Differs {
        what: &'static str,
        theirs: String,
        ours: String,
    },
}

fn encode(options: &Options) -> [u64; head::WORDS] {
    let (kind, items, flush) = match options.policy {
        Policy::Latest => (0, 0, 0),
        Policy::DropOldest { depth } => (1, depth, 0),
        Policy::Credit { credits } => (2, credits, 0),
        Policy::Swap { length, flush } => (3, length, u64::from(flush)),
    };
    let on_death = match options.on_death {
        OnDeath::Continue => 0,
        OnDeath::Pause => 1,
        OnDeath::Fail => 2,
    };
    let ItemType { name, size, align } = options.item;
    let mut words = [0; head::WORDS];
    words[word::MAGIC] = MAGIC;
    words[word::VERSION] = VERSION;
    words[word::POLICY] = kind;
    words[word::POLICY_ITEMS] = items as u64;
    words[word::POLICY_FLUSH] = flush;
    words[word::PAYLOAD_BYTES] = options.payload_bytes as u64;
    words[word::CONSUMERS] = options.consumers as u64;
    words[word::BORROWED] = options.borrowed as u64;
    words[word::EXPECTED] = options.expected as u64;
    words[word::ON_DEATH] = on_death;
    words[word::ITEM_SIZE] = size as u64;
    words[word::ITEM_ALIGN] = align as u64;
    words[word::NAME_HASH] = name_hash(name);
    words[word::NAME_BYTES] = name.len().min(head::NAME_BYTES) as u64;
    words
}

/// Writes the options into memory. The magic number comes last, so that no process reads incomplete
/// options.
pub(crate) fn write(options: &Options, memory: &Memory) {
    let name = options.item.name.as_bytes();
    for (i, bytes) in name.chunks(8).take(head::NAME_BYTES / 8).enumerate() {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        memory
            .u64(head::NAME + 8 * i)
            .store(word, Ordering::Relaxed);
    }
    for (i, word) in encode(options).into_iter().enumerate().rev() {
        memory
            .u64(head::DESCRIPTION + 8 * i)
            .store(word, Ordering::Release);
    }
}

fn read_word(memory: &Memory, index: usize) -> u64 {
    memory
        .u64(head::DESCRIPTION + 8 * index)
        .load(Ordering::Acquire)
}

/// Reads options from memory that is not trusted. The caller must check them as it checks options
/// that a user gives.
pub(crate) fn read(memory: &Memory) -> Result<Options, OpenError> {
    let word = |index| read_word(memory, index);
    match word(word::MAGIC) {
        0 => return Err(OpenError::Unfinished),
        MAGIC => {}
        _ => return Err(OpenError::Foreign),
    }
    if word(word::VERSION) != VERSION {
        return Err(OpenError::Version {
            theirs: word(word::VERSION),
            ours: VERSION,
        });
    }
    let number = |index| usize::try_from(word(index)).unwrap_or(usize::MAX);
    let nonsense = |what| OpenError::Nonsense { what };
    let items = number(word::POLICY_ITEMS);
    let policy = match word(word::POLICY) {
        0 => Policy::Latest,
        1 => Policy::DropOldest { depth: items },
        2 => Policy::Credit { credits: items },
        3 => Policy::Swap {
            length: items,
            flush: word(word::POLICY_FLUSH) != 0,
        },
        _ => return Err(nonsense("policy")),
    };
    let on_death = match word(word::ON_DEATH) {
        0 => OnDeath::Continue,
        1 => OnDeath::Pause,
        2 => OnDeath::Fail,
        _ => return Err(nonsense("policy on death")),
    };
    Ok(Options {
        policy,
        payload_bytes: number(word::PAYLOAD_BYTES),
        consumers: number(word::CONSUMERS),
        borrowed: number(word::BORROWED),
        expected: number(word::EXPECTED),
        on_death,
        item: ItemType {
            name: "",
            size: number(word::ITEM_SIZE),
            align: number(word::ITEM_ALIGN),
        },
    })
}

pub(crate) fn compare(options: &Options, memory: &Memory) -> Result<(), OpenError> {
    let theirs = read(memory)?;
    let (ours, item) = (options.item, theirs.item);
    let same_type = read_word(memory, word::NAME_HASH) == name_hash(ours.name)
        && (item.size, item.align) == (ours.size, ours.align);
    let differs =
        |what, theirs: String, ours: String| Err(OpenError::Differs { what, theirs, ours });
    if !same_type {
        let name = read_name(memory);
        let theirs = format!("{name} ({} bytes, aligned to {})", item.size, item.align);
        return differs("items are", theirs, ours.to_string());
    }
    let plain = |o: &Options| {
        [
            ("the policy is", format!("{:?}", o.policy)),
            ("`payload_bytes` is", o.payload_bytes.to_string()),
            ("`consumers` is", o.consumers.to_string()),
            ("`borrowed` is", o.borrowed.to_string()),
            ("`expected` is", o.expected.to_string()),
            ("`on_death` is", format!("{:?}", o.on_death)),
        ]
    };
    for ((what, theirs), (_, ours)) in plain(&theirs).into_iter().zip(plain(options)) {
        if theirs != ours {
            return differs(what, theirs, ours);
        }
    }
    Ok(())
}

fn read_name(memory: &Memory) -> String {
    let length = read_word(memory, word::NAME_BYTES);
    let bytes: Vec<u8> = (0..head::NAME_BYTES / 8)
        .flat_map(|i| {
            let word = memory.u64(head::NAME + 8 * i).load(Ordering::Relaxed);
            word.to_le_bytes()
        })
        .take(usize::try_from(length).unwrap_or(0))
        .collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Computes the FNV-1a hash of the name of the items' type. The hash also covers a name that is too
/// long for the channel's memory.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::region::Heap;

    /// Processes with other builds of this crate read this format. A change needs a new version.
    #[test]
    fn the_format_of_a_channels_description_never_changes() {
        let policy = Policy::Swap {
            length: 5,
            flush: true,
        };
        let options = Options {
            on_death: OnDeath::Fail,
            ..Options::of::<u32>(policy)
        };
        let memory = Memory::new(Box::new(Heap::new(1024, 1).unwrap()));
        write(&options, &memory);
        let words = (0..14).map(|i| memory.u64(192 + 8 * i).load(Ordering::Relaxed));
        let magic = 0x01ff_7461_6562_6e6f;
        let hash = name_hash("u32");
        let expected = [magic, 1, 3, 5, 1, 4, 4, 2, 1, 2, 4, 4, hash, 3];
        assert_eq!(words.collect::<Vec<_>>(), expected);
        assert_eq!(hash, 0x4d2b_df19_3e85_26d1);
        let name = memory.u64(320).load(Ordering::Relaxed);
        assert_eq!(&name.to_le_bytes(), b"u32\0\0\0\0\0");
        let layout = options.layout().unwrap();
        assert_eq!((layout.ring(0), layout.ring(1)), (448, 768));
        assert_eq!((layout.slot(0), layout.slot(1)), (1728, 1856));
        assert_eq!(layout.size, 8512);
    }
}
