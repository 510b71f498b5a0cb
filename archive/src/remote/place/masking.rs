//! Credentials out of the words of others.
//!
//! A provider's client puts addresses into its errors, and an address may have a signature in it.

/// Shown in place of a secret.
const MASK: &str = "***";
/// A shorter value is no secret: its letters are everywhere.
const MIN_SECRET_BYTES: usize = 6;
/// Words in the name of a variable that holds a secret.
const SECRET_WORDS: [&str; 6] = ["SECRET", "TOKEN", "ACCESS_KEY", "PASSWORD", "ACCOUNT_KEY", "SAS"];
/// Beginnings of the names of variables that providers read.
const PROVIDERS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// The values of the environment that no message may repeat.
pub(super) fn secrets_of_environment() -> Vec<String> {
    let is_secret = |name: &str| {
        PROVIDERS.iter().any(|start| name.starts_with(start))
            && SECRET_WORDS.iter().any(|word| name.contains(word))
    };
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| is_secret(name) && value.len() >= MIN_SECRET_BYTES)
        .map(|(_, value)| value)
        .collect()
}

/// A text without these secrets, and without users and parameters in its addresses.
pub(super) fn masked(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= MIN_SECRET_BYTES) {
        text = text.replace(secret.as_str(), MASK);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'<>()".contains(c));
        let (address, others) = after.split_at(end.unwrap_or(after.len()));
        let (place, query) = match address.split_once('?') {
            Some((place, _)) => (place, true),
            None => (address, false),
        };
        let host_end = place.find('/').unwrap_or(place.len());
        let user = place[..host_end].rfind('@');
        if let Some(user) = user {
            out.push_str(MASK);
            out.push_str(&place[user..]);
        } else {
            out.push_str(place);
        }
        if query {
            out.push('?');
            out.push_str(MASK);
        }
        rest = others;
    }
    out.push_str(rest);
    // The body of an answer may be a page.
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_and_no_signature_is_repeated() {
        let secrets = ["topsecret".to_owned(), "abc".to_owned()];
        for (text, shown) in [
            ("error for https://h/p?sig=x&y (see)", "error for https://h/p?*** (see)"),
            ("to https://u:p@h/p: topsecret is\n  bad", "to https://***@h/p: *** is bad"),
            ("abc stays", "abc stays"),
            ("http://a/b?x http://c?y", "http://a/b?*** http://c?***"),
        ] {
            assert_eq!(masked(text, &secrets), shown);
        }
    }
}
