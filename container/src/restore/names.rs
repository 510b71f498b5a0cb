//! Names of what a restore makes: unique, and showing their origin.

/// The longest name of a container or volume that is made.
const LONGEST: usize = 200;

/// The name of a restored volume: after the old one and the snapshot. One without a name is called
/// after its container and its place there.
pub(super) fn volume(
    container: &str,
    old: &str,
    tree: &str,
    snapshot: (&str, u64),
    attempt: u32,
) -> String {
    let (session, number) = snapshot;
    let is_random = old.len() == 64 && old.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The tree of an anonymous volume is its place in the container.
    let base = match is_random {
        true => format!("{}-{}", plain(origin(container)), plain(tree)),
        false => plain(origin(old)),
    };
    let mut name = format!("{base}-{session}.{number}");
    if attempt > 1 {
        name.push_str(&format!("-{attempt}"));
    }
    name
}

/// The name of a container for a purpose: `web-restored-20260214-143022`.
pub(super) fn container(old: &str, purpose: &str, now: &jiff::Zoned, attempt: u32) -> String {
    let marks = ["-restored-", "-before-"];
    let base = marks.iter().find_map(|mark| {
        let at = old.rfind(mark)?;
        is_time(&old[at + mark.len()..]).then(|| &old[..at])
    });
    let time = now.strftime("%Y%m%d-%H%M%S");
    let mut name = format!("{}-{purpose}-{time}", plain(base.unwrap_or(old)));
    if attempt > 1 {
        name.push_str(&format!("-{attempt}"));
    }
    name
}

/// Whether a text begins as `20260214-143022`.
fn is_time(text: &str) -> bool {
    let shape = text.as_bytes();
    shape.len() >= 15
        && shape[8] == b'-'
        && shape[..8].iter().chain(&shape[9..15]).all(u8::is_ascii_digit)
}

/// The name without the session of an earlier restore.
fn origin(name: &str) -> &str {
    let mut end = name.len();
    while let Some(at) = name[..end].rfind('-') {
        if at > 0 && is_time(&name[at + 1..]) && name[at + 1..].contains('.') {
            return &name[..at];
        }
        end = at;
    }
    name
}

/// The text with the characters alone that an engine accepts.
fn plain(text: &str) -> String {
    let text = text.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let mut name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' })
        .take(LONGEST / 2 - 30)
        .collect();
    if name.is_empty() {
        name.push_str("volume");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_named_after_the_old_one_and_the_snapshot() {
        let session = "20260214-143022-12345";
        assert_eq!(
            volume("web", "db_data", "db_data", (session, 3), 1),
            "db_data-20260214-143022-12345.3"
        );
        let anonymous = "0".repeat(64);
        let name = volume("web", &anonymous, ":var:lib:data", (session, 0), 2);
        assert_eq!(name, "web-var-lib-data-20260214-143022-12345.0-2");
    }

    #[test]
    fn a_restored_volume_is_named_after_the_first_one() {
        let first = volume("web", "db-1", "db-1", ("20260214-143022-12345", 3), 2);
        let second = volume("web", &first, &first, ("20260215-000000-9", 1), 1);
        assert_eq!(second, "db-1-20260215-000000-9.1");
    }

    #[test]
    fn a_restored_container_is_named_after_the_first_one() {
        let now = "2026-02-14T14:30:22[UTC]".parse().unwrap();
        let first = container("web", "restored", &now, 1);
        assert_eq!(first, "web-restored-20260214-143022");
        assert_eq!(container(&first, "restored", &now, 2), "web-restored-20260214-143022-2");
    }
}
