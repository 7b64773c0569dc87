//! The thread of the screen: reads keys, and draws when something has changed.

use crate::app::{Act, App};
use crate::draw::draw;
use crate::save;
use crate::shared::Shared;
use crate::tty::Tty;
use ratatui_core::terminal::Terminal;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(100);

/// The number of bytes of output from this process and its command that are kept while the screen
/// is shown. Older output is dropped.
const KEPT: usize = 16 << 10;

pub struct Screen {
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
}

impl Screen {
    /// Switches the terminal to the screen and starts the thread that draws. If `stays` is true,
    /// the screen stays after the end of the recording until the user closes it.
    ///
    /// # Errors
    ///
    /// Fails if this process has no terminal.
    pub fn begin(shared: Arc<Shared>, stays: bool) -> io::Result<Screen> {
        let tty = Tty::open()?;
        let of_thread = Arc::clone(&shared);
        let run = move || {
            let ends = Ends(&of_thread);
            let quit = run(tty, &of_thread, stays)?;
            if !quit {
                std::mem::forget(ends);
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("screen".into())
            .spawn(run)?;
        Ok(Screen { shared, thread })
    }

    /// Waits until the screen ends, and restores the terminal. A screen that stays ends when the
    /// user closes it.
    ///
    /// # Errors
    ///
    /// Fails if the screen's thread panicked. The terminal is restored even then.
    pub fn wait(self) -> io::Result<()> {
        self.shared.set_over();
        match self.thread.join() {
            // The terminal may have gone. Then the user has ended the screen.
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the screen failed")),
        }
    }
}

struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn run(mut tty: Tty, shared: &Shared, stays: bool) -> io::Result<bool> {
    // The thread needs no rights but access to files, for a saved trace.
    onbeat_rights::keep(onbeat_rights::permitted().into_iter().filter(|c| {
        use onbeat_rights::Capability::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
        matches!(c, CAP_DAC_OVERRIDE | CAP_DAC_READ_SEARCH)
    }));
    let mut terminal = Terminal::new(tty.backend(has_colours())?)?;
    let mut app = App::new();
    let mut size = terminal.size()?;
    let mut is_stale = true;
    loop {
        if is_stale {
            terminal.draw(|frame| draw(&app, frame.buffer_mut()))?;
        }
        let key = tty.key(PATIENCE)?;
        is_stale = key.is_some();
        match key.map_or(Act::Nothing, |key| app.key(key)) {
            Act::Quit => return Ok(true),
            Act::Choose(page) => shared.choose(page),
            Act::Save => app.message = saved(shared),
            Act::Nothing => {}
        }
        if let Some(view) = shared.take_view() {
            app.update(view);
            is_stale = true;
        }
        let now = terminal.size()?;
        is_stale |= now != size;
        size = now;
        if shared.is_ended() || shared.is_over() && !stays {
            return Ok(false);
        }
    }
}

fn saved(shared: &Shared) -> String {
    let Some(recording) = shared.recording() else {
        return "This recording is already a trace, so it is not saved again.".into();
    };
    match save::last_minute(&recording) {
        Ok(directory) => format!("The last 60 s are in {}.", directory.display()),
        Err(why) => format!("The trace is not saved: {why}"),
    }
}

fn has_colours() -> bool {
    let is_set = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    !is_set && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// The output that this process and its command print while the screen is shown. It is caught, so
/// that it does not disturb the screen. The standard input becomes empty, because the screen reads
/// the keys.
pub struct Caught {
    before: Vec<(i32, OwnedFd)>,
    reader: JoinHandle<Vec<u8>>,
}

impl Caught {
    /// Redirects the standard input to /dev/null, and catches the standard output and the standard
    /// error.
    ///
    /// # Errors
    ///
    /// Fails if a pipe or a copy of a descriptor cannot be made.
    pub fn begin() -> io::Result<Caught> {
        let null = std::fs::File::open("/dev/null")?;
        let (mut reader, writer) = io::pipe()?;
        let mut before = Vec::new();
        for (fd, to) in [
            (0, null.as_raw_fd()),
            (1, writer.as_raw_fd()),
            (2, writer.as_raw_fd()),
        ] {
            // SAFETY: the new descriptor belongs to nobody else.
            let copy = unsafe {
                match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) {
                    -1 => return Err(io::Error::last_os_error()),
                    copy => OwnedFd::from_raw_fd(copy),
                }
            };
            before.push((fd, copy));
            // SAFETY: both descriptors are open.
            if unsafe { libc::dup2(to, fd) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        drop(writer);
        let read = move || {
            let (mut kept, mut bytes) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                kept.extend_from_slice(&bytes[..n]);
                let over = kept.len().saturating_sub(KEPT);
                kept.drain(..over);
            }
            kept
        };
        let reader = std::thread::Builder::new()
            .name("output".into())
            .spawn(read)?;
        Ok(Caught { before, reader })
    }

    /// Restores the standard streams, and prints the last part of the output that was caught.
    pub fn end(self) {
        let _ = io::stdout().flush();
        for (fd, copy) in &self.before {
            // SAFETY: both descriptors are open.
            unsafe { libc::dup2(copy.as_raw_fd(), *fd) };
        }
        // A program that outlives its command may keep the pipe open.
        for _ in 0..20 {
            if self.reader.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.reader.is_finished() {
            if let Ok(kept) = self.reader.join() {
                let text = String::from_utf8_lossy(&kept);
                for line in text.lines() {
                    let line = onbeat_terminal::term::one_line(line);
                    let _ = writeln!(io::stderr(), "{line}");
                }
            }
        }
    }
}
