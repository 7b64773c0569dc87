//! Definitions of message types from the ROS 2 installation: `.msg` files below AMENT_PREFIX_PATH.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

const LONGEST: u64 = 1 << 20;
const MOST_TYPES: usize = 1000;

/// Returns the definition of a message type as recorders store it: the type's own definition, then
/// the definitions of the types that it uses. Returns `None` if the ROS 2 installation lacks one of
/// these definitions.
pub fn installed(type_name: &str) -> Option<String> {
    let prefixes = std::env::var_os("AMENT_PREFIX_PATH")?;
    let prefixes: Vec<PathBuf> = std::env::split_paths(&prefixes).collect();
    of(type_name, &prefixes)
}

fn of(type_name: &str, prefixes: &[PathBuf]) -> Option<String> {
    let parts: Vec<&str> = type_name.split('/').collect();
    let [package, "msg", name] = parts[..] else {
        return None;
    };
    let mut text = file(package, name, prefixes)?;
    let mut known = HashSet::from([(package.to_owned(), name.to_owned())]);
    let mut waiting = nested(package, &text);
    while let Some(one) = waiting.pop() {
        if known.len() > MOST_TYPES || !known.insert(one.clone()) {
            continue;
        }
        let (package, name) = one;
        if package == "builtin_interfaces" {
            // Its two types, Time and Duration, are known.
            continue;
        }
        let found = file(&package, &name, prefixes)?;
        waiting.extend(nested(&package, &found));
        let line = "=".repeat(80);
        text.push_str(&format!("\n{line}\nMSG: {package}/{name}\n{found}"));
    }
    Some(text)
}

fn file(package: &str, name: &str, prefixes: &[PathBuf]) -> Option<String> {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if !is_word(package) || !is_word(name) {
        return None;
    }
    let below = Path::new("share")
        .join(package)
        .join("msg")
        .join(format!("{name}.msg"));
    prefixes.iter().find_map(|prefix| {
        let path = prefix.join(&below);
        let length = std::fs::metadata(&path).ok()?.len();
        (length <= LONGEST).then(|| std::fs::read_to_string(&path).ok())?
    })
}

/// Returns the message types that the definition `text` uses, each with its package. A line uses a
/// type if its first word begins with a capital letter or contains a package.
fn nested(package: &str, text: &str) -> Vec<(String, String)> {
    let first = |line: &str| -> Option<(String, String)> {
        let word = line.split_whitespace().next()?;
        let bare = word.split('[').next()?;
        match (bare.split_once('/'), bare.rsplit_once('/')) {
            (Some((package, _)), Some((_, name))) => Some((package.into(), name.into())),
            _ => bare
                .starts_with(|c: char| c.is_ascii_uppercase())
                .then(|| (package.into(), bare.into())),
        }
    };
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(first)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_definition_includes_the_types_that_it_uses() {
        let dir = tempfile::tempdir().unwrap();
        let write = |package: &str, name: &str, text: &str| {
            let folder = dir.path().join("share").join(package).join("msg");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{name}.msg")), text).unwrap();
        };
        write(
            "a",
            "Top",
            "# Not/AType\nPart[<=3] parts\nb/Other other\nstring<=4 word \"x\"\nint8 KIND=1\n",
        );
        write("a", "Part", "b/Other one\nfloat64 x\n");
        write("b", "Other", "bool yes\n");
        let prefixes = [PathBuf::from("/nonexistent"), dir.path().to_owned()];
        let text = of("a/msg/Top", &prefixes).unwrap();
        let layout = crate::compare::paths("a/msg/Top", &text).unwrap();
        let expected = [
            "parts.length",
            "parts[].one.yes",
            "parts[].x",
            "other.yes",
            "word",
        ];
        assert_eq!(layout, expected);
        for missing in ["a/msg/None", "../a/msg/Top", "a/msg/../Top", "a", ""] {
            assert_eq!(of(missing, &prefixes), None, "{missing}");
        }
        write("a", "Broken", "Missing x\n");
        assert_eq!(of("a/msg/Broken", &prefixes), None);
    }
}
