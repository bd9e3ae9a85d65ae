//! Where cgroup v2 is mounted.

/// The mount point of cgroup v2 in the text of `/proc/self/mountinfo` (proc(5)), octal escapes resolved.
pub(super) fn cgroup2(mountinfo: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let kind = after.split_whitespace().next()?;
        (kind == "cgroup2").then(|| before.split_whitespace().nth(4).map(unescape))?
    })
}

fn unescape(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_beside_v1_and_with_optional_fields() {
        let text = "\
            25 20 0:22 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n\
            26 20 0:23 / /sys/fs/my\\040groups rw,nosuid shared:10 master:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2(text).as_deref(), Some("/sys/fs/my groups"));
    }

    #[test]
    fn nonsense_is_no_mount() {
        assert_eq!(cgroup2("26 20 - cgroup2\nrubbish\n\n - "), None);
    }
}
