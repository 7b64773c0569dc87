//! Sums up the stretches of a callback's share, as tables show them.

use crate::stretch::Stretch;

/// The share of an execution's latency below which causes are shown together as one line.
const SHARE_SHOWN: f64 = 0.005;

/// One line of a table: the stretches of one callback whose cause has the same description.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The time from the start of the execution to the start of the first stretch, in ns.
    pub begin_ns: u64,
    pub ns: u64,
    pub parts: usize,
    /// The cause in words, with names from the recorded system. Escape the text before showing it.
    pub what: String,
    /// For each state of the culprit during the stretches: a line with the same fields.
    pub during: Vec<Line>,
}

impl Line {
    fn new(stretch: &Stretch, what: String) -> Line {
        Line {
            begin_ns: stretch.begin_ns,
            ns: stretch.ns,
            parts: 1,
            what,
            during: Vec::new(),
        }
    }

    fn add(lines: &mut Vec<Line>, stretch: &Stretch, what: String) -> usize {
        match lines.iter().position(|l| l.what == what) {
            Some(at) => {
                lines[at].ns += stretch.ns;
                lines[at].parts += 1;
                at
            }
            None => {
                lines.push(Line::new(stretch, what));
                lines.len() - 1
            }
        }
    }

    /// Returns the cause in words, and the number of stretches if there are several.
    pub fn text(&self) -> String {
        match self.parts {
            1 => self.what.clone(),
            n => format!("{} (in {n} parts)", self.what),
        }
    }
}

/// Returns one line for each stretch of a callback's part of the latency.
pub fn each(share: &[Stretch]) -> Vec<Line> {
    let line = |stretch: &Stretch| {
        let mut line = Line::new(stretch, stretch.text());
        let during = stretch.during.as_ref();
        line.during
            .extend(during.map(|d| Line::new(stretch, d.text())));
        line
    };
    share.iter().map(line).collect()
}

/// Returns one line for each description of a cause, in the order in which the causes begin. Causes
/// below 0.5 % of the execution's latency share a line.
pub fn summed(share: &[Stretch], latency_ns: u64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for stretch in share {
        let at = Line::add(&mut lines, stretch, stretch.text());
        if let Some(during) = &stretch.during {
            Line::add(&mut lines[at].during, stretch, during.text());
        }
    }
    let shown = SHARE_SHOWN * latency_ns.max(1) as f64;
    let is_large = |line: &Line| line.ns as f64 >= shown;
    for line in &mut lines {
        line.during.retain(is_large);
    }
    let (mut large, small): (Vec<Line>, Vec<Line>) = lines.into_iter().partition(is_large);
    match small.len() {
        0 => {}
        1 => large.extend(small),
        n => large.push(Line {
            begin_ns: small[0].begin_ns,
            ns: small.iter().map(|l| l.ns).sum(),
            parts: 1,
            what: format!("{n} short causes"),
            during: Vec::new(),
        }),
    }
    large
}
