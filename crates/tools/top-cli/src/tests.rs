//! Tests of the screen: the pages of a recorded trace, keys, sizes, and hostile names.

use crate::app::{Act, App};
use crate::draw::draw;
use crate::feed::Feed;
use crate::shared::Page;
use crate::tty::Key;
use onbeat_live::view::{View, Wanted};
use onbeat_live::window::Span;
use onbeat_synth::SynthOptions;
use onbeat_trace::Reader;
use ratatui_core::backend::TestBackend;
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use std::path::Path;

const REQUIREMENTS: &str = "
chains:
  - {to: /localization/ndt_pose, latency: {max: 80ms}}
";

fn recorded() -> View {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let recording = root.join("demos/recorded/parking");
    let mut reader = Reader::open(&recording).expect("a recording");
    let requirements = onbeat_check::read(REQUIREMENTS.as_bytes()).expect("requirements");
    let mut feed = Feed::new(SynthOptions::new(crate::run_now()), Some(requirements));
    let events: Vec<_> = reader.events().collect();
    for part in events.chunks(5000) {
        feed.push(part);
        feed.view(Wanted::ALL);
    }
    feed.end();
    feed.view(Wanted::ALL)
}

fn app() -> App {
    let mut app = App::new();
    app.update(recorded());
    app.span = Span::Start;
    app
}

fn terminal(app: &App, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let drawn = terminal.draw(|frame| draw(app, frame.buffer_mut()));
    drawn.expect("drawn");
    terminal
}

fn shown(app: &App, width: u16, height: u16) -> String {
    let terminal = terminal(app, width, height);
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Compares a screen with the golden file `name`. With `ONBEAT_GOLDEN=write`, writes the file
/// instead.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/screens/{name}.txt"));
    if std::env::var("ONBEAT_GOLDEN").is_ok_and(|v| v == "write") {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(&path, text).expect("written");
    }
    let expected = std::fs::read_to_string(&path).expect("a golden screen");
    assert!(text == expected, "{name} is\n{text}\nand was\n{expected}");
}

#[test]
fn pages_of_a_recorded_trace_equal_the_golden_screens() {
    let mut app = app();
    golden("chains", &shown(&app, 80, 24));
    golden("chains-wide", &shown(&app, 120, 30));
    assert_eq!(app.key(Key::Enter), Act::Nothing);
    golden("parts", &shown(&app, 80, 24));
    for (key, page, name) in [
        ('2', Page::Callbacks, "callbacks"),
        ('3', Page::Topics, "topics"),
        ('4', Page::Machine, "machine"),
    ] {
        assert_eq!(app.key(Key::Char(key)), Act::Choose(page));
        golden(name, &shown(&app, 80, 24));
    }
}

#[test]
fn the_screen_is_drawn_at_every_size_of_the_terminal() {
    let mut app = app();
    for page in ['1', '2', '3', '4'] {
        app.key(Key::Char(page));
        for (width, height) in [(1, 1), (19, 4), (20, 5), (40, 10), (80, 24), (300, 100)] {
            shown(&app, width, height);
        }
        app.key(Key::Enter);
        shown(&app, 30, 8);
    }
}

#[test]
fn the_selected_row_is_visible_without_colours() {
    let app = app();
    let terminal = terminal(&app, 80, 24);
    let buffer = terminal.backend().buffer();
    let is_reversed = |y: u16| buffer[(0, y)].modifier.contains(Modifier::REVERSED);
    assert!(is_reversed(3) && !is_reversed(4));
    // Late executions are in colour, and bold too.
    let warns = (0..80).find(|x| buffer[(*x, 4)].fg == Color::Yellow);
    let at = warns.expect("80 ms are exceeded");
    assert!(buffer[(at, 4)].modifier.contains(Modifier::BOLD));
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let mut view = recorded();
    let hostile = "\x1b]0;owned\x07\x1b[2J\u{202e}\n\r名前".repeat(20);
    for (i, row) in view.callbacks.iter_mut().enumerate() {
        row.id = format!("{hostile}{i}");
    }
    for row in &mut view.chains {
        (row.title, row.id) = (hostile.clone(), hostile.clone());
        row.parts.iter_mut().for_each(|p| p.name = hostile.clone());
    }
    view.topics
        .iter_mut()
        .for_each(|t| t.name = hostile.clone());
    view.threads
        .iter_mut()
        .for_each(|t| t.name = hostile.clone());
    let mut app = App::new();
    app.update(view);
    app.message = hostile.clone();
    for page in ['1', '2', '3', '4'] {
        app.key(Key::Char(page));
        for width in [21, 80, 200] {
            app.message = hostile.clone();
            let text = shown(&app, width, 24);
            let is_bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(is_bad), "{text}");
            assert_eq!(text.lines().count(), 24);
            let last = text.lines().last().expect("a line");
            assert!(
                last.starts_with("\\u{1b}]0;owned"),
                "the message is escaped and shown: {last}"
            );
        }
    }
    app.key(Key::Char('1'));
    app.key(Key::Enter);
    assert!(app.is_open);
    assert!(!shown(&app, 80, 24).contains('\x1b'));
}

#[test]
fn rows_are_filtered_sorted_and_selected_by_keys() {
    let mut app = app();
    app.key(Key::Char('2'));
    let names = |app: &App| -> Vec<String> { app.rows().into_iter().map(|r| r.name).collect() };
    let all = names(&app);
    assert!(all.len() >= 8 && all.is_sorted());
    app.key(Key::Char('r'));
    assert_eq!(names(&app), all.iter().rev().cloned().collect::<Vec<_>>());
    // The column of loads: the largest comes first.
    (0..5).for_each(|_| {
        app.key(Key::Char('>'));
    });
    let loads: Vec<f64> = app.rows().iter().map(|r| r.cells[4].value).collect();
    assert!(loads.is_sorted_by(|a, b| a >= b), "{loads:?}");
    app.key(Key::Down);
    app.key(Key::Down);
    let selected = app.selected.clone().expect("a selection");
    assert_eq!(app.position(&app.rows()), 2);
    app.key(Key::Char('r'));
    assert_eq!(
        app.selected.as_ref(),
        Some(&selected),
        "the selection follows its row"
    );
    app.key(Key::Char('/'));
    for c in "TIMER".chars() {
        app.key(Key::Char(c));
    }
    assert!(shown(&app, 80, 24).contains("filter: TIMER_"));
    app.key(Key::Enter);
    assert!(names(&app).iter().all(|name| name.contains("timer")) && app.rows().len() == 2);
    assert_eq!(
        app.key(Key::Char('q')),
        Act::Quit,
        "keys are commands again"
    );
    app.key(Key::Escape);
    assert_eq!(app.rows().len(), all.len());
    assert_eq!(app.key(Key::Char('t')), Act::Save);
}

#[test]
fn a_frozen_screen_keeps_its_figures() {
    let mut app = app();
    app.key(Key::Char(' '));
    let before = shown(&app, 80, 24);
    assert!(before.contains("FROZEN"));
    app.update(View::default());
    assert_eq!(shown(&app, 80, 24), before);
    app.key(Key::Char(' '));
    app.key(Key::Char('w'));
    app.update(View::default());
    assert!(shown(&app, 80, 24).contains("last 10 s"));
}
