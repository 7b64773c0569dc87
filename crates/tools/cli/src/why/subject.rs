//! Finds the chain or callback that the user asks for.

use onbeat_document::cuts::{self, Ends};
use onbeat_document::dist::Dist;
use onbeat_document::schema::{Callback, Chain};
use onbeat_document::titles::titles;
use onbeat_document::Model;
use onbeat_terminal::term;
use onbeat_terminal::CliError;
use onbeat_why::compare;
use onbeat_why::once::Seen;
use std::cmp::Reverse;
use std::path::Path;

const COMPARED_NAME_BYTES_MAX: usize = 200;

const LISTED: usize = 5;

pub enum Subject<'m> {
    Chain {
        chain: &'m Chain,
        title: String,
        /// The number of chains from which this chain was chosen, as the one with the longest
        /// latency.
        of: usize,
    },
    Callback(&'m Callback),
}

impl Subject<'_> {
    /// Returns the latencies of the executions. Those of a callback count from the publication of its
    /// item, unlike the model's response times.
    fn latency<'a>(&'a self, seen: &'a Seen) -> &'a Dist {
        match self {
            Subject::Chain { chain, .. } => &chain.figures.latency_ns,
            Subject::Callback(callback) => {
                let latency = seen.latency_of(&callback.id);
                latency.unwrap_or(&callback.figures.response_ns)
            }
        }
    }

    pub fn limit_ns(&self, seen: &Seen) -> u64 {
        compare::late_limit(self.latency(seen))
    }

    pub fn longest_ns(&self, seen: &Seen) -> u64 {
        self.latency(seen).max()
    }
}

pub struct Asked<'a> {
    pub chain: Option<&'a str>,
    pub callback: Option<&'a str>,
    pub ends: Ends,
    pub path: &'a Path,
}

impl Asked<'_> {
    pub fn find<'m>(&self, model: &'m Model) -> Result<Option<Subject<'m>>, CliError> {
        if let Some(asked) = self.callback {
            return self
                .callback(model, asked)
                .map(|c| Some(Subject::Callback(c)));
        }
        let mut titles = titles(model);
        let all = 0..model.chains.len();
        let wanted: Vec<usize> = match (self.chain, self.ends.is_empty()) {
            (Some(asked), _) => vec![self.chain(model, &titles, asked)?],
            (None, true) => all.collect(),
            (None, false) => {
                let ways = cuts::ways(model, &self.ends).map_err(CliError::in_file(self.path))?;
                let is_one = |i: &usize| ways.iter().any(|w| w.is(&model.chains[*i]));
                all.filter(is_one).collect()
            }
        };
        let longest = |&&i: &&usize| model.chains[i].figures.latency_ns.max();
        let chosen = wanted.iter().rev().max_by_key(longest);
        Ok(chosen.map(|&i| Subject::Chain {
            chain: &model.chains[i],
            title: std::mem::take(&mut titles[i]),
            of: wanted.len(),
        }))
    }

    fn error(&self, what: String) -> CliError {
        CliError::InFile {
            path: self.path.into(),
            what,
        }
    }

    /// Returns the index of the only chain that fits `asked`: the beginning of an id, or the form
    /// FROM..TO.
    fn chain(&self, model: &Model, titles: &[String], asked: &str) -> Result<usize, CliError> {
        let fits = |c: &Chain| {
            let short = c.id.strip_prefix("chain-").unwrap_or(&c.id);
            let ends = (c.callbacks.first(), c.callbacks.last());
            let between = match (asked.split_once(".."), ends) {
                (Some((from, to)), (Some(first), Some(last))) => {
                    first.contains(from) && last.contains(to)
                }
                _ => false,
            };
            between || c.id.starts_with(asked) || short.starts_with(asked)
        };
        let chains = || model.chains.iter().enumerate();
        let fit: Vec<usize> = chains().filter(|(_, c)| fits(c)).map(|c| c.0).collect();
        let name = |&i: &usize| format!("{} ({})", model.chains[i].id, titles[i]);
        match fit[..] {
            [one] => Ok(one),
            [] => {
                let mut near: Vec<usize> = chains().map(|c| c.0).collect();
                near.sort_by_cached_key(|i| Reverse(likeness(asked, &name(i))));
                let near: Vec<String> = near.iter().map(name).collect();
                let asked = term::fit(asked, 80);
                Err(self.error(match near.is_empty() {
                    true => "onbeat found no chain in this trace. Name a callback with --callback instead".into(),
                    false => format!(
                        "no chain has the id '{asked}'. Name one of these: {}",
                        list(&near)
                    ),
                }))
            }
            _ => {
                let names: Vec<String> = fit.iter().map(name).collect();
                Err(self.error(format!(
                    "'{}' fits {} chains: {}. Write one id",
                    term::fit(asked, 80),
                    fit.len(),
                    list(&names)
                )))
            }
        }
    }

    fn callback<'m>(&self, model: &'m Model, asked: &str) -> Result<&'m Callback, CliError> {
        let all = || model.callbacks.iter();
        if let Some(exact) = all().find(|c| c.id == asked) {
            return Ok(exact);
        }
        let fit: Vec<_> = all().filter(|c| c.id.ends_with(asked)).collect();
        let shown = term::fit(asked, 80);
        let what = match fit.as_slice() {
            [one] => return Ok(one),
            [] => {
                let mut near: Vec<String> = all().map(|c| c.id.clone()).collect();
                near.sort_by_cached_key(|id| Reverse(likeness(asked, id)));
                let near = list(&near);
                format!("no callback has the id '{shown}'. Name one of these: {near}")
            }
            several => {
                let ids: Vec<String> = several.iter().map(|c| c.id.clone()).collect();
                let (n, ids) = (ids.len(), list(&ids));
                format!("'{shown}' fits {n} callbacks: {ids}. Write more of the id")
            }
        };
        Err(self.error(what))
    }
}

pub(super) fn list(names: &[String]) -> String {
    let some: Vec<String> = names
        .iter()
        .take(LISTED)
        .map(|n| term::fit(n, 100))
        .collect();
    match names.len().saturating_sub(LISTED) {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

pub(super) fn likeness(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut longest = 0;
    let mut before = vec![0; b.len() + 1];
    for x in a.iter().take(COMPARED_NAME_BYTES_MAX) {
        let mut row = vec![0; b.len() + 1];
        for (i, _) in b.iter().enumerate().filter(|(_, y)| *y == x) {
            row[i + 1] = before[i] + 1;
            longest = longest.max(row[i + 1]);
        }
        before = row;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_found_by_their_longest_common_part() {
        assert_eq!(likeness("/Fusion", "/front/fusion:timer(1ms)"), 7);
        assert_eq!(likeness("abc", "xbcx"), 2);
        assert_eq!(likeness("", "abc"), 0);
        assert_eq!(
            likeness(&"a".repeat(10_000), &"a".repeat(10_000)),
            COMPARED_NAME_BYTES_MAX
        );
    }
}
