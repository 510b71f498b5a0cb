//! The refusal of a provider in one sentence: what is wrong, and which setting is about it.
//!
//! Providers give an error a code in the body of their answer. The words of a client are a chain of
//! its own errors, and are shown where no code is known.

use std::error::Error;

use object_store::client::HttpErrorKind;

use super::client::words;
use super::connection::http_error;
use crate::remote::address::Provider;

/// Longest part of a provider's own words, in characters.
const MAX_WORDS: usize = 300;

/// Why there are no credentials. `has_no_settings`: no setting names any.
pub(super) fn no_credentials(provider: Provider, has_no_settings: bool, reason: &str) -> String {
    if has_no_settings {
        return format!("no credentials were found; {}", settings_of(provider));
    }
    let reason: String = reason.chars().take(MAX_WORDS).collect();
    format!("the credentials cannot be had: {reason}")
}

/// The settings that name credentials.
fn settings_of(provider: Provider) -> &'static str {
    match provider {
        Provider::S3 => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with a profile of \
             ~/.aws/credentials"
        }
        Provider::Google => {
            "set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to a file"
        }
        Provider::Azure => {
            "set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CLIENT_ID and its secret"
        }
    }
}

/// An error of a request in words. They may hold a secret.
pub(super) fn in_words(provider: Provider, region: &str, error: &object_store::Error) -> String {
    if let Some(http) = http_error(error) {
        let cause = last_cause(http);
        return match http.kind() {
            HttpErrorKind::Connect => format!("nothing answers at its address: {cause}"),
            HttpErrorKind::Timeout => {
                "no answer came in time, also after several attempts".to_owned()
            }
            _ => format!("the answer broke off: {cause}"),
        };
    }
    let text = words(error);
    let other_region = |actual: Option<&str>| {
        let is_in = match actual {
            Some(actual) => format!("is in the region {actual}, and not in {region}"),
            None => format!("is not in the region {region}"),
        };
        format!("the bucket {is_in}; set region=… in its URL, or AWS_REGION")
    };
    // The client's words for an answer that leads to another region and names none.
    if provider == Provider::S3 && text.contains("redirect without LOCATION") {
        return other_region(None);
    }
    let Some(code) = element(&text, "Code") else { return text };
    match code {
        "NoSuchBucket" => "there is no bucket of this name; make it with the provider's tool, or \
                           correct its URL"
            .to_owned(),
        "ContainerNotFound" => "there is no container of this name; make it with the provider's \
                                tool, or correct its URL"
            .to_owned(),
        "AuthorizationHeaderMalformed"
        | "PermanentRedirect"
        | "IllegalLocationConstraintException"
            if provider == Provider::S3 =>
        {
            other_region(element(&text, "Region"))
        }
        "InvalidAccessKeyId" => "its server does not know the key of AWS_ACCESS_KEY_ID".to_owned(),
        "SignatureDoesNotMatch" | "AuthenticationFailed" => {
            format!("its server refuses the credentials ({code}); {}", settings_of(provider))
        }
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            "the credentials have expired; AWS_SESSION_TOKEN and its key have to be renewed"
                .to_owned()
        }
        "AccessDenied" | "AuthorizationFailure" | "AuthorizationPermissionMismatch" => {
            format!("these credentials have no permission for that ({code})")
        }
        code => {
            let message = element(&text, "Message").unwrap_or_default();
            let message: String = message.chars().take(MAX_WORDS).collect();
            format!("its server answers {code}: {message}")
        }
    }
}

/// The text of an element of a short XML document.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value.trim()).filter(|value| !value.is_empty() && !value.contains('<'))
}

fn last_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(provider: Provider, answer: &str) -> String {
        let error = object_store::Error::Generic { store: "S3", source: answer.to_owned().into() };
        in_words(provider, "us-east-1", &error)
    }

    #[test]
    fn a_known_code_becomes_one_sentence_that_names_its_setting() {
        let answer = |code: &str, more: &str| {
            format!("404: <Error><Code>{code}</Code><Message>The m\n</Message>{more}</Error>")
        };
        for (code, more, words) in [
            ("NoSuchBucket", "", "there is no bucket of this name"),
            ("InvalidAccessKeyId", "", "AWS_ACCESS_KEY_ID"),
            ("SignatureDoesNotMatch", "", "AWS_SECRET_ACCESS_KEY"),
            ("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>", "the region eu-west-1"),
            ("PermanentRedirect", "", "is not in the region us-east-1; set region=…"),
            ("AccessDenied", "", "no permission"),
            ("SlowDown", "", "its server answers SlowDown: The m"),
        ] {
            let said = said(Provider::S3, &answer(code, more));
            assert!(said.contains(words), "{code}: {said}");
            assert!(!said.contains('<'), "{code}: {said}");
        }
        let said_azure = said(Provider::Azure, &answer("AuthenticationFailed", ""));
        assert!(said_azure.contains("AZURE_STORAGE_ACCOUNT_KEY"), "{said_azure}");
        let redirect = "Received redirect without LOCATION, this normally indicates";
        assert!(said(Provider::S3, redirect).contains("AWS_REGION"));
        assert_eq!(said(Provider::Google, "something else"), "something else");
        assert_eq!(said(Provider::S3, "<Code><Code></Code>"), "<Code><Code></Code>");
    }
}
