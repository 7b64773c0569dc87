//! Checks that a path in a ledger leads into a cgroup hierarchy. onbeat writes to and removes
//! nothing else, whatever the ledger contains.

use super::{Group, Thread};
use crate::sys;
use std::ffi::OsStr;
use std::path::{Component, Path};

const MEMBERS: [&str; 3] = ["tasks", "cgroup.threads", "cgroup.procs"];
const THAW: [(&str, &str); 2] = [("freezer.state", "THAWED"), ("cgroup.freeze", "0")];
const PREFIX: &str = "onbeat-";

/// Returns whether a reservation could have made this cgroup. Returns false if the cgroup no longer
/// exists.
pub(super) fn is_ours(group: &Group) -> bool {
    let named_by_us = |c: Component| c.as_os_str().to_string_lossy().starts_with(PREFIX);
    let thaws = group.thaw.as_ref().is_none_or(|(file, text)| {
        let allowed = |(name, wanted)| file.file_name() == Some(OsStr::new(name)) && text == wanted;
        THAW.into_iter().any(allowed) && file.parent() == Some(&group.dir)
    });
    thaws
        && group.members.parent() == Some(&group.dir)
        && group.dir.components().any(named_by_us)
        && is_members(&group.members)
        && is_members(&group.home)
        && is_in_hierarchy(&group.dir)
        && is_in_hierarchy(&group.home)
}

pub(super) fn is_home(thread: &Thread) -> bool {
    let home = thread.home.as_ref();
    home.is_none_or(|home| is_members(home) && is_in_hierarchy(home))
}

fn is_members(file: &Path) -> bool {
    MEMBERS
        .iter()
        .any(|&name| file.file_name() == Some(OsStr::new(name)))
}

fn is_in_hierarchy(path: &Path) -> bool {
    let is_straight = path.is_absolute()
        && path
            .components()
            .all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    let existing = path.ancestors().find(|p| p.symlink_metadata().is_ok());
    is_straight && existing.is_some_and(sys::is_cgroup)
}
