//! Finds the user behind sudo, and the environment that this user's programs would have without us.
//!
//! sudo replaces PATH and most variables. The loader removes LD_LIBRARY_PATH and similar variables
//! from every program that gains privileges. The kernel still has the environment with which a
//! process was started.

use std::ffi::{CStr, CString, OsString};

pub type Environment = Vec<onbeat_proc::Variable>;

/// The user who started onbeat through sudo.
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct User {
    /// The user id, which is never 0.
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// The login name in the passwd file.
    pub name: String,
    pub home: Option<String>,
}

pub enum Caller {
    Ourselves,
    User(User),
    /// The user is uncertain: sudo's variables name a user, but none of onbeat's ancestor processes
    /// is sudo. The variables may be years old or false. onbeat gives this user no files and runs
    /// no program with this user's rights.
    Doubtful,
}

/// Finds the user who called onbeat.
///
/// `SUDO_UID`, `SUDO_GID` and `SUDO_USER` are environment variables, which anybody can set. onbeat
/// believes them only if three facts, which the caller cannot choose, say that sudo set them:
///
/// - onbeat's real user id is 0. A set-user-id program has its caller's environment, and its
///   caller's real id.
/// - The loader did not mark onbeat as privileged (`AT_SECURE`), for the same reason.
/// - One of onbeat's ancestor processes has root's rights and is called `sudo`. This excludes
///   variables that outlived their sudo, in a daemon or a terminal multiplexer.
///
/// Root can still make the variables up, but gains nothing: with them onbeat does less than root
/// may. The command gets that user's rights, and the trace directory is made with them
/// ([`User::act`]). The name decides only the groups, and only if the name belongs to the user id.
pub fn caller() -> Caller {
    // SAFETY: these calls cannot fail.
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
        // The kernel takes this id as "no change".
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

/// Returns the user who called sudo, or `None` if sudo did not start onbeat or root called sudo.
pub fn invoking() -> Option<User> {
    match caller() {
        Caller::User(user) => Some(user),
        Caller::Ourselves | Caller::Doubtful => None,
    }
}

fn has_sudo_above() -> bool {
    let above = std::iter::successors(onbeat_proc::parent(std::process::id()), |&pid| {
        onbeat_proc::parent(pid)
    });
    // No real chain of ancestors is longer. Without a limit the walk might not end, because parents
    // may change meanwhile.
    above.take_while(|&pid| pid != 0).take(1000).any(is_sudo)
}

impl User {
    /// Runs `what` on this thread with the user's rights for files, and onbeat's rights for
    /// everything else. `what` can only open and create what the user can. The caller must have all
    /// of root's rights.
    ///
    /// # Errors
    ///
    /// Returns the system's error if this thread cannot act as the user. Then `what` was not
    /// called.
    pub fn act<T>(&self, what: impl FnOnce() -> T) -> std::io::Result<T> {
        let acting = Acting::begin(self)?;
        let result = what();
        drop(acting);
        Ok(result)
    }
}

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
        // From here on, dropping this restores everything.
        let acting = Acting { groups };
        // SAFETY: plain system calls, for this thread alone. They return the previous id instead of
        // an error, so the second calls ask for the current ids.
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
        // SAFETY: plain system calls, for this thread alone. A change to our own ids is always
        // allowed.
        unsafe {
            libc::setfsuid(libc::geteuid());
            libc::setfsgid(libc::getegid());
        }
        // This was allowed a moment ago. If it fails, we have fewer rights than before, not more.
        let _ = set_groups(&self.groups);
    }
}

/// Sets the groups of this thread only. The C library's function would set the groups of all
/// threads.
fn set_groups(groups: &[libc::gid_t]) -> std::io::Result<()> {
    // SAFETY: the list lives during the call and has the given length.
    match unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the environment for programs of the user who called onbeat, or `None` if onbeat's own
/// environment is that user's environment already.
///
/// Under sudo, the result is the environment with which sudo was started. With file capabilities it
/// is onbeat's environment before the loader removed variables.
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

/// Returns the environment variable `name` of the user behind sudo. Without sudo, returns this
/// process's variable.
pub fn variable(name: &str) -> Option<OsString> {
    let theirs = environment().and_then(|e| e.into_iter().find(|(n, _)| n == name));
    theirs.map(|(_, v)| v).or_else(|| std::env::var_os(name))
}

/// Returns whether a process is a sudo process: it is called `sudo` and has root's rights. Any
/// process can have this name, and only root's processes have these rights. The process's real user
/// may still be the caller of sudo, because sudo-rs does not change it.
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

fn sudo_process() -> Option<u32> {
    let first = onbeat_proc::parent(std::process::id()).filter(|&pid| is_sudo(pid))?;
    Some(
        onbeat_proc::parent(first)
            .filter(|&pid| is_sudo(pid))
            .unwrap_or(first),
    )
}

fn merged(mut users: Environment, ours: Environment) -> Environment {
    for (name, value) in ours {
        let sudos = name.as_encoded_bytes().starts_with(b"SUDO_");
        if !sudos && !users.iter().any(|(n, _)| *n == name) {
            users.push((name, value));
        }
    }
    users
}

fn home_of(uid: u32) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.get(2)?.parse::<u32>().ok()? == uid)
            .then(|| fields.get(5).map(|h| (*h).to_owned()))?
    })
}

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

/// Returns the id of the user with the login name `name`, or `None` if no such user exists.
pub fn user_id(name: &str) -> Option<u32> {
    id_of(&CString::new(name).ok()?)
}

fn id_of(name: &CStr) -> Option<u32> {
    let mut buffer = vec![0; 1 << 14];
    // SAFETY: all zeros is a valid value. It is written before it is read.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the buffer has the given length, and everything outlives the call.
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
    fn the_users_variables_override_those_of_sudo() {
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
    fn the_environment_groups_and_home_of_a_user_are_read() {
        let own = onbeat_proc::environment(std::process::id()).expect("our own");
        assert!(own.iter().any(|(n, _)| n == "PATH"), "{own:?}");
        assert_eq!(groups("root", 0, 0).first(), Some(&0));
        assert_eq!(groups("root", 65534, 65534), [65534], "another user's name");
        assert_eq!(home_of(0).as_deref(), Some("/root"));
    }
}
