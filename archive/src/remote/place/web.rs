//! A file of a web server, such as an archive behind a signed address.
//!
//! The address may hold a signature, so no message repeats its query. A download that breaks off
//! begins anew.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::Instant;

use futures_util::StreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector,
};

use super::connection::{MAX_REPETITIONS, Patience};
use super::runtime::Runtime;
use crate::remote::error::RemoteError;
use nono_engine::progress::{Amount, Progress, Stage};

/// Downloads a file of a web server into an empty file, and returns its length in bytes.
///
/// # Errors
/// The server answers with an error, or with none after several attempts; the file cannot be
/// written.
pub fn fetch(url: &str, out: &mut File, progress: &dyn Progress) -> Result<u64, RemoteError> {
    let place = url.split(['?', '#']).next().unwrap_or_default().to_owned();
    let setup = |reason: String| RemoteError::Setup { place: place.clone(), reason };
    let patience = Patience::of_environment().map_err(setup)?;
    let options = patience.options().with_allow_http(url.starts_with("http://"));
    let runtime = Runtime::start().map_err(|error| setup(error.to_string()))?;
    let client = ReqwestConnector::default().connect(&options);
    let client = client.map_err(|error| setup(super::client::words(&error)))?;
    progress.begin(Stage::Download, None::<Amount>);
    let begin = Instant::now();
    let mut attempts = 0;
    loop {
        let failed = match runtime.wait(progress, attempt(&client, url, out, progress))? {
            Ok(bytes) => return Ok(bytes),
            Err(failed) => failed,
        };
        let may_pass = failed.may_pass && begin.elapsed() < patience.attempts();
        if !may_pass || attempts == MAX_REPETITIONS {
            let object = place.rsplit('/').next().unwrap_or_default().to_owned();
            return Err(RemoteError::Failed {
                operation: "read",
                object,
                place,
                reason: failed.reason,
            });
        }
        let pause = patience.pause(attempts);
        // A timer is made within the runtime alone.
        runtime.wait(progress, async { tokio::time::sleep(pause).await })?;
        attempts += 1;
    }
}

/// Why an attempt failed.
struct Failure {
    reason: String,
    /// Whether another attempt may succeed.
    may_pass: bool,
}

async fn attempt(
    client: &HttpClient,
    url: &str,
    out: &mut File,
    progress: &dyn Progress,
) -> Result<u64, Failure> {
    let lasting = |reason: String| Failure { reason, may_pass: false };
    let passing = |reason: String| Failure { reason, may_pass: true };
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.parse().map_err(|_| lasting("it is no address".to_owned()))?;
    let answer = client.execute(request).await;
    // The words of the client repeat the address.
    let answer = answer.map_err(|_| passing("the server gave no answer".to_owned()))?;
    let status = answer.status();
    if !status.is_success() {
        let reason = format!("the server answered {status}");
        return Err(Failure { reason, may_pass: status.is_server_error() });
    }
    let unwritten = |error: std::io::Error| lasting(error.to_string());
    out.set_len(0).and_then(|()| out.rewind()).map_err(unwritten)?;
    let mut bytes = 0;
    let mut body = answer.into_body().bytes_stream();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|_| passing("the answer was cut off".to_owned()))?;
        out.write_all(&chunk).map_err(unwritten)?;
        bytes += chunk.len() as u64;
        progress.advance(0, chunk.len() as u64);
    }
    Ok(bytes)
}
