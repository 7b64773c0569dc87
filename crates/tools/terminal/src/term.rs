//! Tables and colours for a terminal: widths, alignment, and names without control characters.

use crate::error::CliError;
use onbeat_document::text;
use std::io::{self, IsTerminal, Write};
use unicode_width::UnicodeWidthStr;

/// The width of the screen in columns if neither the terminal nor `COLUMNS` gives one.
const DEFAULT_WIDTH: usize = 100;

/// The width of the standard output in columns, and whether it shows colours.
#[allow(missing_docs)] // the names say what they are
pub struct Screen {
    pub width: usize,
    colour: bool,
}

impl Screen {
    /// Detects the width and the use of colours from the terminal and the environment.
    pub fn of_stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        let asked = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
        let seen = terminal
            .then(terminal_size::terminal_size)
            .flatten()
            .map(|(terminal_size::Width(w), _)| usize::from(w));
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Screen {
            width: seen.or(asked).unwrap_or(DEFAULT_WIDTH).max(40),
            colour: terminal && !no_colour,
        }
    }

    fn style(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    /// Returns the text in bold if the screen shows colours, otherwise unchanged.
    pub fn bold(&self, text: &str) -> String {
        self.style("1", text)
    }

    /// Returns the text in a weak colour, for details.
    pub fn dim(&self, text: &str) -> String {
        self.style("2", text)
    }

    /// Returns the text in a strong colour, for warnings.
    pub fn warn(&self, text: &str) -> String {
        self.style("33", text)
    }

    /// Returns the text in the colour of the series with this index. Colours repeat after six
    /// series.
    pub fn series(&self, index: usize, text: &str) -> String {
        const CODES: [&str; 6] = ["36", "35", "34", "32", "33", "31"];
        self.style(CODES[index % CODES.len()], text)
    }
}

/// Writes a value as indented JSON and a line end.
pub fn write_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), CliError> {
    serde_json::to_writer_pretty(&mut *out, value)
        .map_err(|e| CliError::Stdout(e.into()))
        .and_then(|()| writeln!(out).map_err(CliError::Stdout))
        .and_then(|()| out.flush().map_err(CliError::Stdout))
}

/// Returns the number of terminal columns that a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Puts untrusted text on one line and replaces characters that control a terminal.
pub fn one_line(text: &str) -> String {
    text::visible(text)
}

/// Shortens a name to at most `limit` columns. Replaces characters that control a terminal.
pub fn fit(name: &str, limit: usize) -> String {
    let name = text::visible(name);
    let mut chars = limit;
    loop {
        let short = text::shorten(&name, chars);
        // Wide characters take two columns: try again with fewer of them.
        if width(&short) <= limit || chars <= 1 {
            return short;
        }
        chars -= 1;
    }
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A table whose columns of names are shortened until the table fits the screen.
pub struct Table {
    /// The head and the alignment of each column. For a column of names also its weight, by which
    /// such columns share the width.
    heads: Vec<(String, Align, Option<usize>)>,
    rows: Vec<Vec<String>>,
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

impl Table {
    /// Creates a table without columns. The caller must add the columns before the rows.
    pub fn new() -> Self {
        Table {
            heads: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a column whose cells are never shortened.
    pub fn column(mut self, head: &str, align: Align) -> Self {
        self.heads.push((head.into(), align, None));
        self
    }

    /// Adds a column of names, which are shortened if the table is too wide. Columns of names share
    /// the remaining width in proportion to their weights.
    pub fn names(mut self, head: &str, weight: usize) -> Self {
        self.heads
            .push((head.into(), Align::Left, Some(weight.max(1))));
        self
    }

    /// Adds a row. Its cells may come from traced processes, so control characters in them are
    /// replaced.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.iter().map(|c| text::visible(c)).collect());
    }

    /// Writes the table, fitted to the width of `screen`.
    pub fn write(&self, out: &mut dyn Write, screen: &Screen) -> Result<(), CliError> {
        let mut widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(i, (head, _, _))| {
                self.rows
                    .iter()
                    .map(|r| width(&r[i]))
                    .max()
                    .unwrap_or(0)
                    .max(width(head))
            })
            .collect();
        let gaps = 2 * widths.len().saturating_sub(1);
        // The flexible column that is widest for its weight is shortened first.
        while widths.iter().sum::<usize>() + gaps > screen.width {
            let widest = (0..widths.len())
                .filter_map(|i| Some((i, self.heads[i].2?)))
                .filter(|&(i, _)| widths[i] > 8)
                .max_by_key(|&(i, weight)| 1000 * widths[i] / weight);
            match widest {
                Some((i, _)) => widths[i] -= 1,
                None => break,
            }
        }
        let line = |cells: Vec<&str>| {
            let mut text = String::new();
            for (i, cell) in cells.iter().enumerate() {
                let cell = fit(cell, widths[i]);
                let pad = " ".repeat(widths[i].saturating_sub(width(&cell)));
                if i > 0 {
                    text.push_str("  ");
                }
                match self.heads[i].1 {
                    Align::Left => text.extend([cell, pad]),
                    Align::Right => text.extend([pad, cell]),
                }
            }
            text.trim_end().to_string()
        };
        let heads = line(self.heads.iter().map(|(h, _, _)| h.as_str()).collect());
        writeln!(out, "{}", screen.bold(&heads)).map_err(CliError::Stdout)?;
        for row in &self.rows {
            writeln!(out, "{}", line(row.iter().map(String::as_str).collect()))
                .map_err(CliError::Stdout)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_the_screen_and_escape_control_characters() {
        let mut table = Table::new()
            .names("callback", 3)
            .column("count", Align::Right)
            .names("topic", 1);
        table.row(vec!["/a".repeat(60), "17".into(), "/topic\x1b[31m".into()]);
        table.row(vec![
            "/図書館".repeat(30),
            "1234567".into(),
            "/b".repeat(40),
        ]);
        for columns in [40, 60, 100, 400] {
            let mut out = Vec::new();
            table
                .write(
                    &mut out,
                    &Screen {
                        width: columns,
                        colour: false,
                    },
                )
                .unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(!text.contains('\x1b'));
            for line in text.lines() {
                assert!(
                    width(line) <= columns,
                    "{} > {columns}: {line}",
                    width(line)
                );
            }
            assert!(text.contains("1234567"), "numbers are never shortened");
        }
    }
}
