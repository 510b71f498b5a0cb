//! The gate of the server: who may ask, and what a browser may do with the answers.
//!
//! Other programs of this machine and pages of other sites can reach the port. Always true of a
//! request that is answered with anything of the past:
//!
//! - Its `Host` is the address that was opened, so a name of another site that leads here is none.
//! - It carries the cookie, which only the one-time token of the opened address gives. The cookie is
//!   `HttpOnly` and `SameSite=Strict`: no script reads it, and no other site makes a browser send it.
//! - Its `Origin`, where there is one, is this server.
//! - If it changes something, it has an `Origin`, and the secret of the forms of this server.
//!
//! Answers load nothing from elsewhere, run no script but ours, and stand in no frame.

use std::sync::Mutex;

use axum::http::{HeaderMap, HeaderValue, Method, header};

use nono_engine::sys;

/// The name of the field that every form has.
pub(super) const FORM_FIELD: &str = "form_token";

/// The rights of a browser with an answer. A style or a script in the text of a page is none.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The secrets of one server.
#[derive(Debug)]
pub(super) struct Guard {
    port: u16,
    /// The part of the opened address; gone once it was used.
    token: Mutex<Option<String>>,
    cookie: String,
    form_token: String,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It names another host.
    Host,
    /// It comes from a page of another site.
    Origin,
    /// It has no cookie of this server.
    Cookie,
    /// It changes something, and comes from no form of this server.
    Form,
}

impl Refusal {
    /// The sentence for a person.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Host => "this server answers to the address that `nono ui` printed, and no other",
            Self::Origin => "a page of another site asked for this, and was refused",
            Self::Cookie => {
                "this browser has not opened the address that `nono ui` printed, or the address was \
                 used already: start `nono ui` again"
            }
            Self::Form => "this form is of another server: load the page again",
        }
    }
}

impl Guard {
    /// New secrets for a server at this port.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub(super) fn new(port: u16) -> sys::Result<Self> {
        let secret = || {
            Ok(format!(
                "{}{}",
                hex::encode(sys::random_bytes()?),
                hex::encode(sys::random_bytes()?)
            ))
        };
        let token = Mutex::new(Some(secret()?));
        Ok(Self { port, token, cookie: secret()?, form_token: secret()? })
    }

    /// The address to open, once.
    pub(super) fn address(&self) -> String {
        let token = self.token.lock().map(|token| token.clone().unwrap_or_default());
        format!("http://127.0.0.1:{}/?token={}", self.port, token.unwrap_or_default())
    }

    /// The value of the field of every form.
    pub(super) fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Takes the one-time token, and gives the cookie for it. `None`: it is another token, or it was
    /// used before.
    pub(super) fn redeem(&self, given: &str) -> Option<String> {
        let mut token = self.token.lock().ok()?;
        if !token.as_deref().is_some_and(|token| is_same(token, given)) {
            return None;
        }
        *token = None;
        let Self { port, cookie, .. } = self;
        Some(format!("nono_ui_{port}={cookie}; HttpOnly; SameSite=Strict; Path=/"))
    }

    /// Whether a request comes to this server by its own name, and from nowhere else.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_place(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let hosts = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        let of = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
        let [host] = of(header::HOST)[..] else { return Err(Refusal::Host) };
        if !hosts.iter().any(|known| known.as_bytes() == host) {
            return Err(Refusal::Host);
        }
        let own = [b"http://", host].concat();
        if of(header::ORIGIN).iter().any(|origin| *origin != own) {
            return Err(Refusal::Origin);
        }
        Ok(())
    }

    /// Whether a request carries the cookie.
    ///
    /// # Errors
    /// The cookie is missing, or it is another one.
    pub(super) fn check_cookie(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let name = format!("nono_ui_{}", self.port);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let mut pairs = cookies.flat_map(|it| it.split(';')).filter_map(|it| it.split_once('='));
        let is_ours =
            |(key, value): (&str, &str)| key.trim() == name && is_same(value.trim(), &self.cookie);
        if pairs.any(is_ours) { Ok(()) } else { Err(Refusal::Cookie) }
    }

    /// Whether a request that changes something comes from a form of this server.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_change(
        &self,
        method: &Method,
        headers: &HeaderMap,
        field: Option<&str>,
    ) -> Result<(), Refusal> {
        if method == Method::GET {
            return Ok(());
        }
        if !headers.contains_key(header::ORIGIN) {
            return Err(Refusal::Origin);
        }
        match field {
            Some(field) if is_same(field, &self.form_token) => Ok(()),
            _ => Err(Refusal::Form),
        }
    }

    /// Adds what every answer says to a browser.
    pub(super) fn close(headers: &mut HeaderMap) {
        for (name, value) in [
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            // Without any referrer, a browser would hide the origin of our own forms.
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("x-frame-options", "DENY"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
}

/// Compares without telling by its time where two texts differ.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_the_opened_address_is_a_place() {
        let guard = Guard::new(4000).unwrap();
        for (pairs, expected) in [
            (&[("host", "127.0.0.1:4000")][..], Ok(())),
            (&[("host", "localhost:4000"), ("origin", "http://localhost:4000")], Ok(())),
            (&[], Err(Refusal::Host)),
            (&[("host", "127.0.0.1")], Err(Refusal::Host)),
            (&[("host", "evil.example:4000")], Err(Refusal::Host)),
            (&[("host", "127.0.0.1:4000"), ("host", "evil.example")], Err(Refusal::Host)),
            (&[("host", "127.0.0.1:4000"), ("origin", "null")], Err(Refusal::Origin)),
            (
                &[("host", "127.0.0.1:4000"), ("origin", "http://evil.example")],
                Err(Refusal::Origin),
            ),
        ] {
            assert_eq!(guard.check_place(&headers(pairs)), expected, "{pairs:?}");
        }
    }

    #[test]
    fn the_token_gives_a_cookie_once() {
        let guard = Guard::new(4000).unwrap();
        let address = guard.address();
        let token = address.split_once("token=").unwrap().1;
        assert_eq!(guard.redeem("other"), None);
        let cookie = guard.redeem(token).unwrap();
        assert_eq!(guard.redeem(token), None);
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(guard.check_cookie(&headers(&[("cookie", pair)])), Ok(()));
        let two = format!("a=b; {pair}");
        assert_eq!(guard.check_cookie(&headers(&[("cookie", &two)])), Ok(()));
        for wrong in ["", "nono_ui_4000=", "nono_ui_4001=x"] {
            let checked = guard.check_cookie(&headers(&[("cookie", wrong)]));
            assert_eq!(checked, Err(Refusal::Cookie));
        }
    }

    #[test]
    fn a_change_needs_an_origin_and_the_secret_of_the_form() {
        let guard = Guard::new(4000).unwrap();
        let token = guard.form_token().to_owned();
        let own = headers(&[("origin", "http://127.0.0.1:4000")]);
        let check = |headers: &HeaderMap, field| guard.check_change(&Method::POST, headers, field);
        assert_eq!(check(&own, Some(&token)), Ok(()));
        assert_eq!(check(&own, Some("x")), Err(Refusal::Form));
        assert_eq!(check(&own, None), Err(Refusal::Form));
        assert_eq!(check(&headers(&[]), Some(&token)), Err(Refusal::Origin));
        assert_eq!(guard.check_change(&Method::GET, &headers(&[]), None), Ok(()));
    }
}
