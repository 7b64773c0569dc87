//! The places where figures go: tables, lines of JSON, and the screen.

use crate::feed::Feed;
use crate::options::Output;
use crate::shared::Shared;
use crate::table;
use onbeat_live::view::Wanted;
use onbeat_terminal::CliError;
use std::io::{self, Write};
use std::sync::Arc;

pub trait Sink {
    /// Shows the figures of `feed`. `is_last` is true on the last call, after which no events come.
    fn show(&mut self, feed: &mut Feed, is_last: bool) -> Result<(), CliError>;

    fn note(&mut self, text: &str) {
        let _ = writeln!(io::stderr(), "note: {text}");
    }

    /// Returns true once if the sink cannot wait for the next regular call of `show`. These calls
    /// come once a second.
    fn is_urgent(&self) -> bool {
        false
    }

    fn is_over(&self) -> bool {
        false
    }

    fn keeps_events(&self) -> bool {
        false
    }
}

pub struct Printed {
    output: Output,
    /// Whether at least one callback ran.
    pub found: bool,
}

impl Printed {
    pub fn new(output: Output) -> Printed {
        Printed {
            output,
            found: false,
        }
    }
}

impl Sink for Printed {
    fn show(&mut self, feed: &mut Feed, is_last: bool) -> Result<(), CliError> {
        if !is_last && self.output != Output::Lines {
            return Ok(());
        }
        let view = feed.view(Wanted::ALL);
        self.found = !view.callbacks.is_empty();
        let mut out = io::stdout().lock();
        if self.output == Output::Table {
            return table::write(&mut out, &view);
        }
        serde_json::to_writer(&mut out, &view).map_err(|e| CliError::Stdout(e.into()))?;
        let ended = writeln!(out).and_then(|()| out.flush());
        ended.map_err(CliError::Stdout)
    }
}

pub struct OnScreen {
    pub shared: Arc<Shared>,
    pub found: bool,
}

impl Sink for OnScreen {
    fn show(&mut self, feed: &mut Feed, is_last: bool) -> Result<(), CliError> {
        let mut wanted = self.shared.page().wanted();
        // Every page can be chosen after the last event.
        if is_last {
            wanted = Wanted::ALL;
        }
        let view = feed.view(wanted);
        self.found |= view.events.start > 0;
        self.shared.show(view);
        if is_last {
            self.shared.set_over();
        }
        Ok(())
    }

    fn note(&mut self, _: &str) {}

    fn is_urgent(&self) -> bool {
        self.shared.take_page_changed()
    }

    fn is_over(&self) -> bool {
        self.shared.is_ended()
    }

    fn keeps_events(&self) -> bool {
        self.shared.recording().is_some()
    }
}
