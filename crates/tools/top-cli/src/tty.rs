//! The terminal: its settings, its size, its keys, and a backend that draws on it.
//!
//! [`Tty`] puts the terminal back when it is dropped. A panic hook does the same first, so that the
//! panic's message can be read.

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

struct Before {
    tty: File,
    settings: libc::termios,
    is_left: AtomicBool,
}

impl Before {
    fn leave(&self) {
        if self.is_left.swap(true, Relaxed) {
            return;
        }
        let _ = (&self.tty).write_all(LEAVE.as_bytes());
        // SAFETY: the descriptor is open, and these are settings that the terminal had.
        unsafe { libc::tcsetattr(self.tty.as_raw_fd(), libc::TCSAFLUSH, &self.settings) };
    }
}

pub struct Tty {
    before: Arc<Before>,
    keys: Vec<u8>,
}

impl Tty {
    /// Opens the terminal of this process and switches it to the screen of the program.
    ///
    /// # Errors
    ///
    /// Fails if this process has no terminal.
    pub fn open() -> io::Result<Tty> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        // SAFETY: the settings are plain numbers, and are valid during the calls.
        let settings = unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(tty.as_raw_fd(), &mut settings) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut raw = settings;
            libc::cfmakeraw(&mut raw);
            raw.c_cc[libc::VMIN] = 0;
            raw.c_cc[libc::VTIME] = 0;
            if libc::tcsetattr(tty.as_raw_fd(), libc::TCSAFLUSH, &raw) != 0 {
                return Err(io::Error::last_os_error());
            }
            settings
        };
        let before = Arc::new(Before {
            tty,
            settings,
            is_left: AtomicBool::new(false),
        });
        (&before.tty).write_all(ENTER.as_bytes())?;
        let of_hook = Mutex::new(Arc::clone(&before));
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if let Ok(before) = of_hook.lock() {
                before.leave();
            }
            next(panic);
        }));
        Ok(Tty {
            before,
            keys: Vec::new(),
        })
    }

    pub fn backend(&self, has_colours: bool) -> io::Result<Drawn> {
        Ok(Drawn {
            tty: self.before.tty.try_clone()?,
            has_colours,
            out: Vec::new(),
        })
    }

    /// Waits for a key for at most `at_most`. Returns `None` if no key was pressed.
    ///
    /// # Errors
    ///
    /// Fails if the terminal has gone.
    pub fn key(&mut self, at_most: Duration) -> io::Result<Option<Key>> {
        if self.keys.is_empty() && self.is_ready(at_most)? {
            let mut bytes = [0; 64];
            let n = (&self.before.tty).read(&mut bytes)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.keys.extend_from_slice(&bytes[..n]);
        }
        Ok(next_key(&mut self.keys))
    }

    fn is_ready(&self, at_most: Duration) -> io::Result<bool> {
        let mut ask = libc::pollfd {
            fd: self.before.tty.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the one entry is valid during the call.
        match unsafe { libc::poll(&mut ask, 1, at_most.as_millis() as libc::c_int) } {
            0 => Ok(false),
            n if n > 0 => Ok(true),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
                e => Err(e),
            },
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.before.leave();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// A key that ends the program: Ctrl-C, Ctrl-D or Ctrl-\.
    Quit,
    Other,
}

fn next_key(bytes: &mut Vec<u8>) -> Option<Key> {
    let (key, length) = match *bytes.as_slice() {
        [] => return None,
        [0x1b, b'[' | b'O', ..] => {
            let end = bytes.iter().skip(2).position(|b| (0x40..0x7f).contains(b));
            let length = end.map_or(bytes.len(), |end| end + 3);
            (sequence(&bytes[2..length]), length)
        }
        [0x1b, ..] => (Key::Escape, 1),
        [b'\r' | b'\n', ..] => (Key::Enter, 1),
        [b'\t', ..] => (Key::Tab, 1),
        [0x7f | 0x08, ..] => (Key::Backspace, 1),
        [0x03 | 0x04 | 0x1c, ..] => (Key::Quit, 1),
        [b, ..] if b < 0x20 => (Key::Other, 1),
        [b, ..] => {
            let length = match b {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            let length = length.min(bytes.len());
            let text = std::str::from_utf8(&bytes[..length]);
            let char = text.ok().and_then(|text| text.chars().next());
            (char.map_or(Key::Other, Key::Char), length)
        }
    };
    bytes.drain(..length);
    Some(key)
}

fn sequence(bytes: &[u8]) -> Key {
    match bytes {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"C" => Key::Right,
        b"D" => Key::Left,
        b"H" | b"1~" => Key::Home,
        b"F" | b"4~" => Key::End,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        _ => Key::Other,
    }
}

/// A backend of the screen that draws with escape sequences that every terminal understands.
pub struct Drawn {
    tty: File,
    has_colours: bool,
    /// Text for the terminal that is not written yet. The backend writes a whole screen with one
    /// call, because single writes take long on a slow connection.
    out: Vec<u8>,
}

fn size_of(fd: RawFd) -> io::Result<Size> {
    // SAFETY: the size is plain numbers, and is valid during the call.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) != 0 {
            return Err(io::Error::last_os_error());
        }
        size
    };
    // A terminal that does not know its size has none.
    Ok(match (size.ws_col, size.ws_row) {
        (0, _) | (_, 0) => Size::new(80, 24),
        (columns, rows) => Size::new(columns.min(500), rows.min(200)),
    })
}

impl Drawn {
    fn style(&mut self, cell: &Cell) {
        self.out.extend_from_slice(b"\x1b[0");
        let modifiers = [
            (Modifier::BOLD, ";1"),
            (Modifier::DIM, ";2"),
            (Modifier::REVERSED, ";7"),
        ];
        for (modifier, code) in modifiers {
            if cell.modifier.contains(modifier) {
                self.out.extend_from_slice(code.as_bytes());
            }
        }
        let colour = match cell.fg {
            Color::Red => ";31",
            Color::Green => ";32",
            Color::Yellow => ";33",
            Color::Cyan => ";36",
            _ => "",
        };
        if self.has_colours {
            self.out.extend_from_slice(colour.as_bytes());
        }
        self.out.push(b'm');
    }

    fn go(&mut self, x: u16, y: u16) {
        let text = format!("\x1b[{};{}H", y + 1, x + 1);
        self.out.extend_from_slice(text.as_bytes());
    }
}

impl Backend for Drawn {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut at = None;
        let mut style = None;
        for (x, y, cell) in content {
            if at != Some((x, y)) {
                self.go(x, y);
            }
            let look = (cell.fg, cell.modifier);
            if style != Some(look) {
                self.style(cell);
                style = Some(look);
            }
            self.out.extend_from_slice(cell.symbol().as_bytes());
            let width = unicode_width::UnicodeWidthStr::width(cell.symbol()).max(1);
            at = Some((x + width as u16, y));
        }
        self.out.extend_from_slice(b"\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let position = position.into();
        self.go(position.x, position.y);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        size_of(self.tty.as_raw_fd())
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::default(),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.tty.write_all(&self.out);
        self.out.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_presses_are_parsed_from_the_bytes_of_a_terminal() {
        let mut bytes = b"a\x1b[A\x1bOB\x1b[5~\r\x7f\x03\xc3\xa9\x1b[1;5Cz\x1b".to_vec();
        let mut keys = Vec::new();
        while let Some(key) = next_key(&mut bytes) {
            keys.push(key);
        }
        let expected = [
            Key::Char('a'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::Enter,
            Key::Backspace,
            Key::Quit,
            Key::Char('é'),
            Key::Other,
            Key::Char('z'),
            Key::Escape,
        ];
        assert_eq!(keys, expected);
        let mut garbage = vec![0xff, 0x80, 0x1b, b'['];
        while next_key(&mut garbage).is_some() {}
        assert!(garbage.is_empty());
    }
}
