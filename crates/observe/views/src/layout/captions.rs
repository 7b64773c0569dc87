//! Text in the drawing: captions of callbacks' boxes, and the width of text.

use onbeat_document::schema::{Callback, CallbackType};
use onbeat_document::text;

/// Returns the two lines in a callback's box: what triggers the callback, and its figures. The
/// second line is empty if the callback has no figures.
pub fn captions(callback: &Callback) -> (String, String) {
    let caption = match callback.kind {
        CallbackType::Timer => match callback.period_ns {
            Some(p) => format!("timer {}", text::period(p)),
            None => "timer".into(),
        },
        CallbackType::Subscription => callback.input.clone(),
        CallbackType::Service => match &callback.caller {
            Some(caller) => format!("{} for {caller}", callback.input),
            None => callback.input.clone(),
        },
        CallbackType::Client => format!("answer of {}", callback.input),
        CallbackType::Task => format!("execution of {}", callback.input),
        CallbackType::Sync => "synchroniser".into(),
        CallbackType::Thread => "thread of its own".into(),
    };
    let e = &callback.figures.exec_ns;
    if e.count() == 0 {
        return (caption, String::new());
    }
    let times = text::range(e.min() as f64, e.mean(), e.max() as f64);
    (
        caption,
        format!("{times} · {}", text::percent(callback.figures.load)),
    )
}

/// Returns an upper limit of the width of a text in a sans-serif font, in pixels.
pub fn text_width(text: &str, font_size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '\'' | '|' => 0.28,
            'f' | 't' | 'I' | '.' | ',' | ':' | ';' | '!' | '/' | '\\' | '[' | ']' | ' ' => 0.35,
            'r' | '(' | ')' | '-' | '"' => 0.41,
            'm' | 'M' | '%' | '@' => 0.95,
            'w' | 'W' => 0.86,
            'A'..='Z' | '…' | '&' => 0.72,
            c if c.is_ascii() => 0.59,
            c if (c as u32) < 0x1100 => 0.68,
            _ => 1.0,
        })
        .sum();
    em * font_size
}

/// Shortens a name to at most `width` pixels by an ellipsis in its middle.
pub fn fit_text(name: &str, font_size: f64, width: f64) -> String {
    let name = text::visible(name);
    if text_width(&name, font_size) <= width {
        return name;
    }
    // The limit bounds the search for very long names. More characters than this never fit.
    let mut limit = name
        .chars()
        .count()
        .min((width / (0.28 * font_size)).ceil().max(1.0) as usize);
    loop {
        let short = text::shorten(&name, limit);
        if text_width(&short, font_size) <= width || limit <= 1 {
            return short;
        }
        limit -= 1;
    }
}
