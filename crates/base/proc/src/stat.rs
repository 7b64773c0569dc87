//! The fields of `/proc/PID/stat` and `/proc/PID/task/TID/stat`.

use std::fs;

/// The kernel's report about a process or thread in one line (`/proc/PID/stat`).
///
/// Field numbers in the descriptions are those of proc(5).
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub id: u32,
    /// The name (`comm`), field 2. The process can choose its name, so the text is untrusted.
    pub name: String,
    /// The state, field 3, for example R for running or ready, S for asleep, T for stopped, Z for
    /// zombie.
    pub state: char,
    pub parent: u32,
    /// The CPU time in user mode, field 14, in ticks ([`crate::system::ticks_per_second`]). For a
    /// process it is the sum over all its threads.
    pub user_ticks: u64,
    /// The CPU time in the kernel, field 15, in ticks.
    pub system_ticks: u64,
    /// The kernel's priority, field 18 plus 100: 0 to 99 are real-time, 100 to 139 normal.
    pub priority: u8,
    pub threads: u32,
    /// The start time, field 22, in ticks since the machine started. Together with the id, it
    /// distinguishes a process from a later one with the same id.
    pub start_ticks: u64,
    /// The scheduling policy, field 41: a SCHED_* number.
    pub policy: u8,
}

impl Stat {
    /// Reads `/proc/ID/stat` of the process or thread with this id. Returns `None` if the process
    /// or thread has ended.
    pub fn of(id: u32) -> Option<Stat> {
        Stat::read(&format!("/proc/{id}/stat"))
    }

    /// Reads the `stat` line of a thread. The CPU time in it is the time of this thread only.
    /// Returns `None` if the thread has ended.
    pub fn of_thread(pid: u32, tid: u32) -> Option<Stat> {
        Stat::read(&format!("/proc/{pid}/task/{tid}/stat"))
    }

    fn read(path: &str) -> Option<Stat> {
        let bytes = fs::read(path).ok()?;
        Stat::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses the text of a `stat` file. Returns `None` if a field up to the start time is missing.
    /// A missing policy counts as 0.
    pub fn parse(text: &str) -> Option<Stat> {
        // The name stands in brackets and may itself contain brackets, blanks and line ends.
        let (open, close) = (text.find('(')?, text.rfind(')')?);
        let fields: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        let priority = field(18)?.parse::<i64>().ok()?;
        Some(Stat {
            id: text[..open].trim().parse().ok()?,
            name: text.get(open + 1..close)?.to_owned(),
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            priority: priority.saturating_add(100).clamp(0, 255) as u8,
            threads: field(20)?.parse().ok()?,
            start_ticks: number(22)?,
            policy: number(41).unwrap_or(0) as u8,
        })
    }

    /// Returns whether the process is a zombie or dead: it has ended, and only its parent still
    /// refers to it.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, state: char) -> String {
        let mut line = format!("12 ({name}) {state} 7");
        for field in 5..=52 {
            line += &match field {
                18 => " -51".to_owned(),
                20 => " 9".to_owned(),
                41 => " 1".to_owned(),
                _ => format!(" {}", 1000 + field),
            };
        }
        line + "\n"
    }

    #[test]
    fn stat_fields_are_found_after_any_process_name() {
        for name in ["a) b (c", "x", "", ") R 1 (", "two\nlines"] {
            let expected = Stat {
                id: 12,
                name: name.into(),
                state: 'S',
                parent: 7,
                user_ticks: 1014,
                system_ticks: 1015,
                priority: 49,
                threads: 9,
                start_ticks: 1022,
                policy: 1,
            };
            assert_eq!(Stat::parse(&line(name, 'S')), Some(expected));
        }
        assert!(Stat::parse(&line("x", 'Z')).is_some_and(|s| s.has_ended()));
    }

    #[test]
    fn a_truncated_stat_line_is_refused() {
        let full = line("n", 'R');
        let until_start = full.find("1022").unwrap();
        for end in 0..until_start {
            assert_eq!(Stat::parse(&full[..end]), None, "{:?}", &full[..end]);
        }
        assert_eq!(Stat::parse("12 )x( S 1"), None);
        let short = full.split(" 1 ").next().unwrap();
        assert_eq!(Stat::parse(short).map(|s| s.policy), Some(0));
    }

    #[test]
    fn stat_of_the_own_process_and_thread_can_be_read() {
        let own = std::process::id();
        let stat = Stat::of(own).unwrap();
        assert_eq!(stat.id, own);
        assert!(!stat.has_ended() && stat.threads > 0 && stat.start_ticks > 0);
        assert_eq!(
            Stat::of_thread(own, own).unwrap().start_ticks,
            stat.start_ticks
        );
        assert_eq!(Stat::of(u32::MAX - 1), None);
    }
}
