//! The user behind sudo, and the environment that this user's programs would have without us.
//!
//! sudo replaces PATH and most variables, and the loader removes LD_LIBRARY_PATH and its like from
//! every program that gains privileges. The kernel still has the environment that a process was
//! started with.

use std::ffi::{CString, OsString};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Variables with their values.
pub type Environment = Vec<onbeat_proc::Variable>;

/// The user on whose behalf sudo runs us.
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

/// The user behind sudo, if we are run by it and it is not root.
pub fn invoking() -> Option<User> {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let id = |name: &str| std::env::var(name).ok()?.parse().ok();
    let (uid, gid) = (id("SUDO_UID")?, id("SUDO_GID")?);
    let name = std::env::var("SUDO_USER").ok()?;
    (uid != 0).then(|| User {
        uid,
        gid,
        groups: groups(&name, gid),
        home: home_of(uid),
        name,
    })
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

/// A directory of the invoking user into which we can write without the right to write everywhere:
/// its group is root's as long as this lives.
pub struct SharedDirectory {
    directory: PathBuf,
    uid: u32,
    gid: u32,
    mode: u32,
}

impl SharedDirectory {
    /// Gives a directory to the invoking user, if there is one, and keeps it writable for us.
    pub fn new(directory: &Path) -> Option<SharedDirectory> {
        let user = invoking()?;
        let meta = std::fs::metadata(directory).ok()?;
        let made_by_us = meta.uid() == 0;
        let shared = SharedDirectory {
            directory: directory.to_path_buf(),
            uid: if made_by_us { user.uid } else { meta.uid() },
            gid: if made_by_us { user.gid } else { meta.gid() },
            mode: meta.mode() & 0o7777,
        };
        // If it fails, the directory stays root's: still readable.
        let _ = std::os::unix::fs::chown(directory, Some(0), Some(0));
        let _ = std::fs::set_permissions(directory, Permissions::from_mode(shared.mode | 0o070));
        let _ = std::os::unix::fs::chown(directory, Some(shared.uid), None);
        Some(shared)
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        // Only its owner can change its mode: we may have given up the right to change others'.
        let _ = std::os::unix::fs::chown(&self.directory, Some(0), None);
        let _ = std::fs::set_permissions(&self.directory, Permissions::from_mode(self.mode));
        let _ = std::os::unix::fs::chown(&self.directory, Some(self.uid), Some(self.gid));
    }
}

/// Gives a file that we made to the invoking user.
pub fn give_to(file: &Path) {
    if let Some(user) = invoking() {
        let _ = std::os::unix::fs::chown(file, Some(user.uid), Some(user.gid));
    }
}

/// The sudo that started us. When sudo gives us a terminal of our own, it runs twice.
fn sudo_process() -> Option<u32> {
    // Anyone may take its name, but not its user.
    let is_roots = |pid| onbeat_proc::user(pid).is_some_and(|user| user.uid == 0);
    let is_sudo = |&pid: &u32| {
        onbeat_proc::thread_name(pid, pid).is_some_and(|name| name == "sudo") && is_roots(pid)
    };
    let first = onbeat_proc::parent(std::process::id()).filter(is_sudo)?;
    Some(onbeat_proc::parent(first).filter(is_sudo).unwrap_or(first))
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

/// All groups of a user: at least the first.
fn groups(name: &str, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name) else {
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
        assert_eq!(groups("root", 0).first(), Some(&0));
        assert_eq!(home_of(0).as_deref(), Some("/root"));
    }
}
