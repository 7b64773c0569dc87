//! Observes threads from outside: the mutex for which a thread waits, who holds it, and the time
//! that threads were ready but did not run.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

const SYS_FUTEX: u64 = 202;
const FUTEX_WAIT: u64 = 0;
const FUTEX_COMMAND: u64 = 127;
const LOCKED_WITH_WAITERS: u64 = 2;
/// The offset of the owner's thread id from the futex word in a glibc mutex, in bytes.
const OWNER_OFFSET: u64 = 8;

/// Returns the address of the mutex for which a thread waits, from a line of
/// `/proc/PID/task/TID/syscall`. Returns `None` if the thread waits for something else, such as a
/// condition variable or a semaphore.
fn mutex_of(syscall: &str) -> Option<u64> {
    let mut words = syscall.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let hex = |w: &str| u64::from_str_radix(w.strip_prefix("0x")?, 16).ok();
    let arguments: Option<Vec<u64>> = words.take(3).map(hex).collect();
    match arguments?[..] {
        [address, operation, value]
            if number == SYS_FUTEX
                && operation & FUTEX_COMMAND == FUTEX_WAIT
                && value == LOCKED_WITH_WAITERS =>
        {
            Some(address)
        }
        _ => None,
    }
}

/// Returns the id of the thread that holds the mutex for which the main thread of `pid` waits.
/// Works on x86-64 only.
pub fn holder(pid: u32) -> Option<u32> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let line = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/syscall")).ok()?;
    let address = mutex_of(&line)?;
    let mut owner = [0; 4];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory
        .read_exact_at(&mut owner, address + OWNER_OFFSET)
        .ok()?;
    let owner = u32::from_ne_bytes(owner);
    let of_process = std::fs::metadata(format!("/proc/{pid}/task/{owner}")).is_ok();
    (of_process && owner != pid).then_some(owner)
}

pub fn name(pid: u32, tid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    text.map_or(String::new(), |t| t.trim().to_owned())
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    pub ran_ns: u64,
    pub waited_ns: u64,
}

impl Account {
    fn read(text: &str) -> Option<Account> {
        let mut numbers = text.split_whitespace().map(str::parse);
        Some(Account {
            ran_ns: numbers.next()?.ok()?,
            waited_ns: numbers.next()?.ok()?,
        })
    }

    pub fn since(self, before: Account) -> Account {
        Account {
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
        }
    }
}

pub fn accounts(pid: u32) -> BTreeMap<u32, Account> {
    let of = |tid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        Some((tid, Account::read(&text)?))
    };
    onbeat_proc::threads(pid)
        .into_iter()
        .filter_map(of)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_a_mutex_are_distinguished_from_other_system_calls() {
        // The mutex is private and has the value 2. A condition variable waits with a bit set
        // (operation 0x189).
        let mutex = "202 0x7f00 0x80 0x2 0x0 0x0 0x7f 0x7ffd 0x7f11";
        assert_eq!(mutex_of(mutex), Some(0x7f00));
        for other in [
            "202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f11",
            "202 0x7f00 0x80 0x0 0x0 0x0 0x7f 0x7ffd 0x7f11",
            "7 0x7f00 0x80 0x2 0x0 0x0 0x7f 0x7ffd 0x7f11",
            "running",
            "-1 0x7ffd 0x7f11",
            "",
        ] {
            assert_eq!(mutex_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_holder_of_a_real_mutex_is_found() {
        // A thread cannot observe itself, so another process is needed: its main thread waits for a
        // mutex that its second thread holds.
        let source = "#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n\
            #include <sys/syscall.h>\n\
            static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;\n\
            static volatile int held;\n\
            static void *hold(void *p) { pthread_mutex_lock(&m); held = 1;\
            printf(\"%ld\\n\", syscall(SYS_gettid)); fflush(stdout); getchar(); return p; }\n\
            int main(void) { pthread_t t; pthread_create(&t, 0, hold, 0);\
            while (!held) usleep(1000); pthread_mutex_lock(&m); return 0; }\n";
        let dir = tempfile::tempdir().unwrap();
        let (code, program) = (dir.path().join("hold.c"), dir.path().join("hold"));
        std::fs::write(&code, source).unwrap();
        let mut compiler = std::process::Command::new("cc");
        compiler.arg("-pthread").arg("-o").arg(&program).arg(&code);
        let Ok(true) = compiler.status().map(|s| s.success()) else {
            eprintln!("SKIPPED the holder of a mutex: no compiler");
            return;
        };
        let piped = std::process::Stdio::piped;
        let mut child = std::process::Command::new(&program)
            .stdin(piped())
            .stdout(piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let holds: u32 = line.trim().parse().unwrap();
        let found = (0..2000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            holder(child.id())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Some(holds));
    }

    #[test]
    fn scheduler_accounts_are_parsed_and_compared() {
        let account = Account::read("100 40 3\n").unwrap();
        let before = Account::read("30 10 1").unwrap();
        assert_eq!(
            account.since(before),
            Account {
                ran_ns: 70,
                waited_ns: 30
            }
        );
        assert!(accounts(std::process::id()).contains_key(&std::process::id()));
    }
}
