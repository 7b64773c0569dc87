//! The state of the screen, and what each key changes. Pure.

use crate::pages::{columns, listing, Row};
use crate::shared::Page;
use crate::tty::Key;
use onbeat_live::view::View;
use onbeat_live::window::Span;

const PAGE_ROWS: usize = 10;

const FILTER_MAX: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Nothing,
    /// The user has chosen this page. The program must now get the figures that the page needs.
    Choose(Page),
    Save,
    Quit,
}

pub struct App {
    pub view: View,
    pub page: Page,
    pub span: Span,
    pub filter: String,
    pub is_typing: bool,
    pub is_frozen: bool,
    /// The name of the selected row. With the name, the selection stays on the row when the order
    /// of rows changes.
    pub selected: Option<String>,
    /// Whether the screen shows the parts of the selected chain in place of the list of chains.
    pub is_open: bool,
    /// For each page, the index of the column by which rows are sorted, and whether the order is
    /// reversed.
    pub sort: [(usize, bool); 4],
    /// A message for the user. It disappears when the user presses a key.
    pub message: String,
}

impl App {
    pub fn new() -> App {
        App {
            view: View::default(),
            page: Page::Chains,
            span: Span::TenSeconds,
            filter: String::new(),
            is_typing: false,
            is_frozen: false,
            selected: None,
            is_open: false,
            // The machine's page begins with the largest loads.
            sort: [(0, false), (0, false), (0, false), (2, false)],
            message: String::new(),
        }
    }

    /// Replaces the figures that `view` contains. Keeps the figures of pages that `view` does not
    /// contain.
    pub fn update(&mut self, view: View) {
        if self.is_frozen {
            return;
        }
        let old = std::mem::replace(&mut self.view, view);
        let view = &mut self.view;
        if view.chains.is_empty() {
            view.chains = old.chains;
        }
        if view.callbacks.is_empty() {
            view.callbacks = old.callbacks;
        }
        if view.topics.is_empty() {
            view.topics = old.topics;
        }
        if view.threads.is_empty() {
            (view.cpus, view.threads, view.holders) = (old.cpus, old.threads, old.holders);
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        let mut rows = listing(self.page, &self.view, self.span);
        let filter = self.filter.to_lowercase();
        rows.retain(|row| row.name.to_lowercase().contains(&filter));
        let (column, is_reversed) = self.sort[self.page as usize];
        match column {
            0 => rows.sort_by(|a, b| a.name.cmp(&b.name)),
            // The largest values come first.
            _ => rows.sort_by(|a, b| {
                let value = |row: &Row| row.cells.get(column - 1).map_or(0.0, |cell| cell.value);
                value(b)
                    .total_cmp(&value(a))
                    .then_with(|| a.name.cmp(&b.name))
            }),
        }
        if is_reversed {
            rows.reverse();
        }
        rows
    }

    /// Returns the index of the selected row in `rows`. If the selected row is not in `rows`,
    /// returns 0.
    pub fn position(&self, rows: &[Row]) -> usize {
        let selected = self.selected.as_ref();
        let at = selected.and_then(|key| rows.iter().position(|row| row.key == *key));
        at.unwrap_or(0)
    }

    pub fn key(&mut self, key: Key) -> Act {
        self.message.clear();
        if self.is_typing && self.typed(key) {
            return Act::Nothing;
        }
        match key {
            Key::Quit | Key::Char('q') => return Act::Quit,
            Key::Char(digit @ '1'..='4') => {
                return self.choose(Page::ALL[digit as usize - '1' as usize])
            }
            Key::Tab => return self.choose(Page::ALL[(self.page as usize + 1) % 4]),
            Key::Up | Key::Char('k') => self.step(-1),
            Key::Down | Key::Char('j') => self.step(1),
            Key::PageUp => self.step(-(PAGE_ROWS as isize)),
            Key::PageDown => self.step(PAGE_ROWS as isize),
            Key::Home => self.step(isize::MIN / 2),
            Key::End => self.step(isize::MAX / 2),
            Key::Left | Key::Char('<') => self.sort_by(-1),
            Key::Right | Key::Char('>') => self.sort_by(1),
            Key::Char('r') => {
                let sort = &mut self.sort[self.page as usize];
                sort.1 = !sort.1;
            }
            Key::Char('/') => self.is_typing = true,
            Key::Char(' ') => self.is_frozen = !self.is_frozen,
            Key::Char('w') => {
                let at = Span::ALL.iter().position(|span| *span == self.span);
                self.span = Span::ALL[(at.unwrap_or(0) + 1) % Span::ALL.len()];
            }
            Key::Enter => self.open(),
            Key::Escape if self.is_open => self.is_open = false,
            Key::Escape => self.filter.clear(),
            Key::Char('t') => return Act::Save,
            _ => {}
        }
        Act::Nothing
    }

    fn typed(&mut self, key: Key) -> bool {
        match key {
            Key::Char(c) => {
                if self.filter.chars().count() < FILTER_MAX {
                    self.filter.push(c);
                }
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            _ => return false,
        }
        true
    }

    fn choose(&mut self, page: Page) -> Act {
        if self.page == page {
            return Act::Nothing;
        }
        (self.page, self.is_open, self.selected) = (page, false, None);
        Act::Choose(page)
    }

    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let at = self.position(&rows).saturating_add_signed(by).min(last);
        self.selected = rows.get(at).map(|row| row.key.clone());
    }

    fn sort_by(&mut self, by: isize) {
        let n = columns(self.page).len() as isize;
        let sort = &mut self.sort[self.page as usize];
        *sort = ((sort.0 as isize + by).rem_euclid(n) as usize, false);
    }

    fn open(&mut self) {
        if self.page != Page::Chains {
            return;
        }
        let rows = self.rows();
        let at = self.position(&rows);
        self.selected = rows.get(at).map(|row| row.key.clone());
        self.is_open = !self.is_open && self.selected.is_some();
    }
}
