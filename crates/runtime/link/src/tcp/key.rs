//! The key that both ends of a link share: 32 bytes, in a file that only its owner can read.

use nix::libc;
use snow::params::NoiseParams;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use thiserror::Error;
use zeroize::Zeroizing;

pub(super) const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// A key that both ends share. A program that has the key can act as either end.
#[derive(Clone)]
pub struct Key(pub(super) Zeroizing<[u8; 32]>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// The reason why a key file cannot be used. Control characters in its paths are escaped.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum KeyError {
    #[error("key file {path}: cannot {what}: {source}")]
    File {
        path: String,
        what: &'static str,
        source: std::io::Error,
    },
    #[error("key file {path}: {what}. The file must have mode 0600, and belong to the user that runs the link.")]
    Open { path: String, what: &'static str },
    #[error("key file {path}: not a key. A key is 64 hexadecimal digits on one line.")]
    Form { path: String },
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}

impl Key {
    /// Makes a key from 32 bytes. They should come from the application's key management, never
    /// from a password.
    pub fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(Zeroizing::new(bytes))
    }

    /// Makes a new key from the kernel's random numbers.
    pub fn generate() -> Key {
        let params: NoiseParams = PATTERN.parse().expect("a known pattern");
        let pair = snow::Builder::new(params).generate_keypair();
        let private = Zeroizing::new(pair.expect("random numbers").private);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(&private);
        Key::from_bytes(bytes)
    }

    /// Writes the key into a new file with mode 0600.
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub fn create_file(&self, path: &Path) -> Result<(), KeyError> {
        let failed = |source| KeyError::File {
            path: shown(path),
            what: "create the file",
            source,
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        let mut line = Zeroizing::new(String::with_capacity(65));
        for byte in *self.0 {
            line.push_str(&format!("{byte:02x}"));
        }
        line.push('\n');
        file.write_all(line.as_bytes()).map_err(failed)
    }

    /// Reads a key from a file. The file must belong to this user or root, and nobody else may read
    /// or write it.
    ///
    /// # Errors
    /// The file does not exist, is not a regular file, belongs to another user, is open to others,
    /// or contains no key.
    pub fn read_file(path: &Path) -> Result<Key, KeyError> {
        let mut options = OpenOptions::new();
        // A pipe at this path must not block the program, and a symbolic link may lead to a file of
        // another user.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let failed = |what| {
            move |source| KeyError::File {
                path: shown(path),
                what,
                source,
            }
        };
        let file = options.read(true).custom_flags(flags).open(path);
        let file = file.map_err(failed("open the file"))?;
        let open = |what| KeyError::Open {
            path: shown(path),
            what,
        };
        let about = file
            .metadata()
            .map_err(failed("read the owner and mode of the file"))?;
        let user = nix::unistd::geteuid().as_raw();
        if !about.is_file() {
            return Err(open("not a regular file"));
        }
        if about.mode() & 0o077 != 0 {
            return Err(open("other users may read or write the file"));
        }
        if about.uid() != user && about.uid() != 0 {
            return Err(open("the file belongs to another user"));
        }
        Key::parse(file).ok_or_else(|| KeyError::Form { path: shown(path) })
    }

    fn parse(file: File) -> Option<Key> {
        let mut text = Zeroizing::new(Vec::with_capacity(128));
        file.take(128).read_to_end(&mut text).ok()?;
        let digits = text.strip_suffix(b"\n").unwrap_or(&text);
        let mut bytes = Zeroizing::new([0; 32]);
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Key(bytes))
    }
}
