//! The user behind sudo, and the environment that this user's programs would have without us.
//!
//! sudo replaces PATH and most variables, and the loader removes LD_LIBRARY_PATH and its like from
//! every program that gains privileges. The kernel still has the environment that a process was
//! started with.

use std::ffi::{CStr, CString, OsString};

/// Variables with their values.
pub type Environment = Vec<onbeat_proc::Variable>;

/// The user on whose behalf sudo runs us.
#[derive(Debug, Clone)]
pub struct User {
    /// User id, never 0.
    pub uid: u32,
    /// Its first group.
    pub gid: u32,
    /// All of its groups.
    pub groups: Vec<u32>,
    /// Login name.
    pub name: String,
    /// Home directory, where the passwd file has one.
    pub home: Option<String>,
}

/// Who called us.
pub enum Caller {
    /// The user that we run as.
    Ourselves,
    /// The user behind sudo.
    User(User),
    /// sudo's variables name a user, but no sudo is among the processes that started us: they may
    /// be years old, or made up. Nothing is given to that user, and nothing started instead of it.
    Doubtful,
}

/// Who called us.
///
/// `SUDO_UID`, `SUDO_GID` and `SUDO_USER` are words in the environment. They are believed where
/// three things that the caller cannot choose say that sudo wrote them:
///
/// - our real user id is 0. A program that is root by its file's set-user-id bit has its caller's
///   environment, and its caller's real id;
/// - the loader did not mark us as privileged (`AT_SECURE`), for the same reason;
/// - a process with root's rights that is called `sudo` is among those that started us. This finds
///   variables that outlived their sudo, in a daemon or a terminal multiplexer.
///
/// Root itself can still make them up, but gains nothing: with them we do less than root may. The
/// command gets that user's rights, and the trace directory is made with them ([`User::act`]). Of
/// the name only groups follow, and only if the name is that of the user id.
pub fn caller() -> Caller {
    // SAFETY: these cannot fail.
    let (real, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    if real != 0 || effective != 0 || onbeat_rights::is_elevated() {
        return Caller::Ourselves;
    }
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let ids = id("SUDO_UID").zip(id("SUDO_GID"));
    let (Some((uid, gid)), Ok(name)) = (ids, std::env::var("SUDO_USER")) else {
        return Caller::Ourselves;
    };
    match uid {
        0 => Caller::Ourselves,
        // Means "no change" to the kernel.
        u32::MAX => Caller::Doubtful,
        _ if gid == u32::MAX || !has_sudo_above() => Caller::Doubtful,
        _ => Caller::User(User {
            uid,
            gid,
            groups: groups(&name, uid, gid),
            home: home_of(uid),
            name,
        }),
    }
}

/// The user behind sudo, if we are run by it and it is not root.
pub fn invoking() -> Option<User> {
    match caller() {
        Caller::User(user) => Some(user),
        Caller::Ourselves | Caller::Doubtful => None,
    }
}

/// Whether a process with root's rights that is called sudo started us, or one that started us.
fn has_sudo_above() -> bool {
    let above = std::iter::successors(onbeat_proc::parent(std::process::id()), |&pid| {
        onbeat_proc::parent(pid)
    });
    // More than any chain has: parents may change while we walk.
    above.take_while(|&pid| pid != 0).take(1000).any(is_sudo)
}

impl User {
    /// Does something with this user's rights where files are concerned, and ours otherwise: what
    /// the user may not open or make, `what` cannot either. To be called with all of root's rights.
    ///
    /// # Errors
    ///
    /// The system's, if this thread cannot act as the user. Then `what` was not called.
    pub fn act<T>(&self, what: impl FnOnce() -> T) -> std::io::Result<T> {
        let acting = Acting::begin(self)?;
        let result = what();
        drop(acting);
        Ok(result)
    }
}

/// This thread acts as a user where files are concerned, as long as this lives.
struct Acting {
    groups: Vec<libc::gid_t>,
}

impl Acting {
    fn begin(user: &User) -> std::io::Result<Acting> {
        let mut groups = vec![0; 1 << 16];
        // SAFETY: there is room for as many groups as a process can have.
        let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
        groups.truncate(usize::try_from(count).map_err(|_| std::io::Error::last_os_error())?);
        set_groups(&user.groups)?;
        // From here on, dropping it puts everything back.
        let acting = Acting { groups };
        // SAFETY: plain system calls, for this thread alone. They return the id before, and no
        // error: the second calls ask what holds now.
        let holds = unsafe {
            libc::setfsgid(user.gid);
            libc::setfsuid(user.uid);
            (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
        };
        if (holds.0 as u32, holds.1 as u32) != (user.uid, user.gid) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        // SAFETY: plain system calls, for this thread alone; always allowed towards our own ids.
        unsafe {
            libc::setfsuid(libc::geteuid());
            libc::setfsgid(libc::getegid());
        }
        // It was allowed a moment ago. If not, we have fewer rights than before, not more.
        let _ = set_groups(&self.groups);
    }
}

/// Sets the groups of this thread. The C library's function sets those of all threads.
fn set_groups(groups: &[libc::gid_t]) -> std::io::Result<()> {
    // SAFETY: the list lives while the call lasts, and is as long as is said.
    match unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The environment of our user's programs, where it is not ours: under sudo the one that sudo was
/// started with; with file capabilities ours before the loader removed variables.
pub fn environment() -> Option<Environment> {
    if invoking().is_some() {
        let sudo = sudo_process()?;
        return Some(merged(
            onbeat_proc::environment(sudo).ok()?,
            std::env::vars_os().collect(),
        ));
    }
    onbeat_rights::is_elevated().then(|| onbeat_proc::environment(std::process::id()).ok())?
}

/// A variable of our user.
pub fn variable(name: &str) -> Option<OsString> {
    let theirs = environment().and_then(|e| e.into_iter().find(|(n, _)| n == name));
    theirs.map(|(_, v)| v).or_else(|| std::env::var_os(name))
}

/// Whether a process is a sudo. Anyone may take its name, but not its rights. The real user may
/// still be its caller: sudo-rs leaves it so.
fn is_sudo(pid: u32) -> bool {
    let has_roots_rights = |status: onbeat_proc::Status| {
        let effective = status.field("Uid")?.split_ascii_whitespace().nth(1)?;
        (effective == "0").then_some(())
    };
    onbeat_proc::thread_name(pid, pid).is_some_and(|name| name == "sudo")
        && onbeat_proc::Status::of(pid)
            .ok()
            .and_then(has_roots_rights)
            .is_some()
}

/// The sudo that started us. When sudo gives us a terminal of our own, it runs twice.
fn sudo_process() -> Option<u32> {
    let first = onbeat_proc::parent(std::process::id()).filter(|&pid| is_sudo(pid))?;
    Some(
        onbeat_proc::parent(first)
            .filter(|&pid| is_sudo(pid))
            .unwrap_or(first),
    )
}

/// The user's variables, and those that were added on sudo's command line.
fn merged(mut users: Environment, ours: Environment) -> Environment {
    for (name, value) in ours {
        let sudos = name.as_encoded_bytes().starts_with(b"SUDO_");
        if !sudos && !users.iter().any(|(n, _)| *n == name) {
            users.push((name, value));
        }
    }
    users
}

/// Home directory of a user, from the passwd file.
fn home_of(uid: u32) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.get(2)?.parse::<u32>().ok()? == uid)
            .then(|| fields.get(5).map(|h| (*h).to_owned()))?
    })
}

/// All groups of a user: at least the first. Only that one if the name is another user's.
fn groups(name: &str, uid: u32, gid: u32) -> Vec<u32> {
    let Some(name) = CString::new(name)
        .ok()
        .filter(|name| id_of(name) == Some(uid))
    else {
        return vec![gid];
    };
    let mut groups = vec![0; 256];
    let mut count = groups.len() as libc::c_int;
    // SAFETY: there is room for `count` groups.
    let found = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    if found < 0 {
        return vec![gid];
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups
}

/// The id of the user with a login name; `None` if there is none.
pub fn user_id(name: &str) -> Option<u32> {
    id_of(&CString::new(name).ok()?)
}

/// The id of the user with a login name.
fn id_of(name: &CStr) -> Option<u32> {
    let mut buffer = vec![0; 1 << 14];
    // SAFETY: all zero is a valid value; it is written before it is read.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the buffer is as long as is said; all outlive the call.
    let failed = unsafe {
        let (at, length) = (buffer.as_mut_ptr(), buffer.len());
        libc::getpwnam_r(name.as_ptr(), &mut entry, at, length, &mut found)
    };
    (failed == 0 && !found.is_null()).then_some(entry.pw_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&str, &str)]) -> Environment {
        let pair = |(n, v): &(&str, &str)| (OsString::from(n), OsString::from(v));
        list.iter().map(pair).collect()
    }

    #[test]
    fn the_users_variables_come_before_sudos() {
        let theirs = onbeat_proc::parse_environment(
            b"PATH=/opt/ros/bin:/bin\0LD_LIBRARY_PATH=/opt/ros/lib\0=odd\0A=b=c\0",
        );
        assert_eq!(
            theirs,
            of(&[
                ("PATH", "/opt/ros/bin:/bin"),
                ("LD_LIBRARY_PATH", "/opt/ros/lib"),
                ("A", "b=c")
            ])
        );
        let ours = of(&[
            ("PATH", "/usr/sbin"),
            ("SUDO_UID", "1000"),
            ("ROS_DOMAIN_ID", "7"),
        ]);
        assert_eq!(
            merged(theirs, ours),
            of(&[
                ("PATH", "/opt/ros/bin:/bin"),
                ("LD_LIBRARY_PATH", "/opt/ros/lib"),
                ("A", "b=c"),
                ("ROS_DOMAIN_ID", "7")
            ])
        );
    }

    #[test]
    fn what_a_process_was_started_with_is_read() {
        let own = onbeat_proc::environment(std::process::id()).expect("our own");
        assert!(own.iter().any(|(n, _)| n == "PATH"), "{own:?}");
        assert_eq!(groups("root", 0, 0).first(), Some(&0));
        assert_eq!(groups("root", 65534, 65534), [65534], "another user's name");
        assert_eq!(home_of(0).as_deref(), Some("/root"));
    }
}
