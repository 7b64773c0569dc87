//! Compares names with patterns.

/// Returns true if `name` matches `pattern`, in which `*` stands for any characters.
pub fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(first) else {
        return false;
    };
    // Each part matches as early as possible. The last part must match the end of the name.
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_a_pattern_matches_any_characters() {
        for (pattern, name) in [
            ("/a", "/a"),
            ("*", ""),
            ("/*/c", "/a/b/c"),
            ("a*b*b", "axbb"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("/a", "/ab"), ("/*/c", "/a/b"), ("a*b*b", "ab"), ("", "a")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
