//! Unites notes that say the same about many callbacks, nodes or topics into one note with the
//! summed counts.

use crate::evidence::Note;
use std::collections::BTreeMap;
use std::mem::discriminant;

const OWN_SENTENCES_MAX: usize = 3;

const NAMED_SUBJECTS: usize = 2;

/// Joins the names of several subjects for one common sentence, for example "A, B and 5 more".
/// Returns `None` for up to three names, because each of them gets its own sentence.
pub(super) fn together<'a>(names: &[&'a str]) -> Option<String> {
    (names.len() > OWN_SENTENCES_MAX).then(|| {
        let first: Vec<&'a str> = names.iter().copied().take(NAMED_SUBJECTS).collect();
        let (all, rest) = (names.len(), names.len() - NAMED_SUBJECTS);
        format!("{} and {rest} more ({all} in all)", first.join(", "))
    })
}

pub(super) struct Said {
    pub(super) note: Note,
    pub(super) count: u64,
    pub(super) several: bool,
}

/// Returns the notes in order. Notes of one kind about many subjects become one note about all of
/// them.
pub(super) fn unite(notes: &BTreeMap<Note, u64>) -> Vec<Said> {
    let notes: Vec<(&Note, u64)> = notes.iter().map(|(note, &count)| (note, count)).collect();
    // The notes are ordered by kind.
    let kinds = notes.chunk_by(|a, b| discriminant(a.0) == discriminant(b.0));
    kinds.flat_map(of_kind).collect()
}

fn of_kind(notes: &[(&Note, u64)]) -> Vec<Said> {
    let names: Vec<&str> = notes.iter().filter_map(|(n, _)| n.subject()).collect();
    let united = match names.len() == notes.len() {
        true => together(&names),
        false => None,
    };
    let one = united.and_then(|names| notes.first()?.0.about(names));
    if let Some(note) = one {
        let sum = |sum: u64, note: &(&Note, u64)| sum.saturating_add(note.1);
        return vec![Said {
            note,
            count: notes.iter().fold(0, sum),
            several: true,
        }];
    }
    let each = notes.iter().map(|&(note, count)| Said {
        note: note.clone(),
        count,
        several: false,
    });
    each.collect()
}

pub(super) fn in_plural(sentence: String, name: &str) -> String {
    let verbs = [(" was ", " were "), (" is ", " are ")];
    verbs.into_iter().fold(sentence, |sentence, (one, many)| {
        sentence.replace(&format!("{name}{one}"), &format!("{name}{many}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::conclude;
    use super::super::testing::run;
    use super::*;

    #[test]
    fn equal_notes_about_forty_subjects_become_one_sentence_with_a_count() {
        let coverage = |n: u64| {
            let mut evidence = run("r");
            for i in 0..n {
                evidence.note(Note::CutOff(format!("/n{i:02}:timer(1ms)")), 2);
            }
            conclude(evidence).coverage
        };
        assert_eq!(coverage(3).len(), 3);
        let said = "/n00:timer(1ms), /n01:timer(1ms) and 38 more (40 in all) were cut off 80 times";
        let forty = coverage(40);
        assert_eq!(forty.len(), 1, "{forty:#?}");
        assert!(forty[0].starts_with(said), "{forty:#?}");
    }

    #[test]
    fn sentences_of_users_and_other_programs_are_never_united() {
        let mut notes = BTreeMap::new();
        for i in 0..9 {
            notes.insert(Note::Said(format!("Sentence {i}.")), 1);
            notes.insert(Note::Junction(format!("/n{i} -> /out = and")), 1);
        }
        assert_eq!(unite(&notes).len(), 18);
    }
}
