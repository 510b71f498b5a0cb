//! Requests over HTTP: each waits for an answer only so long, and a list arrives whole.
//!
//! The client of a provider repeats a request that has no answer, within a limit of all attempts.
//! The limit of one request is below it, or one silent request would use up all attempts. A list is
//! read to its end within its request. So a list that was cut off has no answer, and is asked for
//! again.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

/// Longest time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time without a byte of an answer, unless [`TIMEOUT_VARIABLE`] says another.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Names another longest time without a byte of an answer, in seconds.
const TIMEOUT_VARIABLE: &str = "NONO_REMOTE_TIMEOUT";
/// Largest value of [`TIMEOUT_VARIABLE`]: a signature is valid for 15 minutes.
const MAX_TIMEOUT_SECONDS: u64 = 60;
/// A request that changes something may be silent for so many times the time of another one: its
/// body is on the way meanwhile, or the server copies an object.
const CHANGE_FACTOR: u32 = 6;
/// All attempts at a request together, in times without an answer: more than two changes.
const ATTEMPTS_FACTOR: u32 = 14;
/// Longest time of one request with all of its answer. A download goes on in another request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1800);
/// Maximum number of repetitions of a request.
pub(super) const MAX_REPETITIONS: usize = 5;
/// Parts of the queries that ask for a list: of S3 and Google, and of Azure.
const LIST_QUERIES: [&str; 2] = ["list-type=2", "comp=list"];
/// The ends of lists: of S3 and Google, and of Azure.
const LIST_ENDS: [&[u8]; 2] = [b"</ListBucketResult>", b"</EnumerationResults>"];

/// Limits of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Longest time without a byte of an answer.
    pub(super) answer: Duration,
}

impl Patience {
    /// As the environment says.
    ///
    /// # Errors
    /// When the variable is no number of seconds.
    pub(super) fn of_environment() -> Result<Self, String> {
        let Some(set) = std::env::var_os(TIMEOUT_VARIABLE).filter(|set| !set.is_empty()) else {
            return Ok(Self { answer: ANSWER_TIMEOUT });
        };
        let seconds = set.to_str().and_then(|set| set.parse::<u64>().ok());
        let seconds = seconds.filter(|seconds| (1..=MAX_TIMEOUT_SECONDS).contains(seconds));
        let answer = seconds.map(Duration::from_secs).ok_or_else(|| {
            format!("{TIMEOUT_VARIABLE} is no number of seconds from 1 to {MAX_TIMEOUT_SECONDS}")
        })?;
        Ok(Self { answer })
    }

    /// Longest time for all attempts at a request.
    pub(super) fn attempts(&self) -> Duration {
        self.answer * ATTEMPTS_FACTOR
    }

    /// The pause before a repetition, which grows with the number of those before it.
    pub(super) fn pause(&self, before: usize) -> Duration {
        let grown = Duration::from_millis(200 << before.min(MAX_REPETITIONS));
        grown.min(self.answer)
    }

    pub(super) fn retry(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: self.pause(0),
                max_backoff: self.pause(MAX_REPETITIONS),
                base: 2.0,
            },
            max_retries: MAX_REPETITIONS,
            retry_timeout: self.attempts(),
        }
    }

    pub(super) fn options(&self) -> ClientOptions {
        ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT.min(self.answer))
            .with_read_timeout(self.answer)
            .with_timeout(REQUEST_TIMEOUT)
    }
}

/// Whether no whole answer came.
pub(super) fn is_unanswered(error: &object_store::Error) -> bool {
    http_error(error).is_some()
}

/// The failure of a connection in the causes of an error.
pub(super) fn http_error(error: &object_store::Error) -> Option<&HttpError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

/// Makes connections with limits.
#[derive(Debug)]
pub(super) struct Connector(pub(super) Patience);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let connector = ReqwestConnector::default();
        let changing = options.clone().with_read_timeout(self.0.answer * CHANGE_FACTOR);
        Ok(HttpClient::new(Connections {
            reading: connector.connect(options)?,
            changing: connector.connect(&changing)?,
        }))
    }
}

#[derive(Debug)]
struct Connections {
    reading: HttpClient,
    changing: HttpClient,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Connections {
    fn call<'own, 'call>(&'own self, request: HttpRequest) -> Answer<'call>
    where
        'own: 'call,
        Self: 'call,
    {
        let method = request.method();
        let client = match method.is_safe() || method.as_str() == "DELETE" {
            true => &self.reading,
            false => &self.changing,
        };
        let query = request.uri().query().unwrap_or_default();
        let is_list = query.split('&').any(|pair| LIST_QUERIES.contains(&pair));
        Box::pin(async move {
            let answer = client.execute(request).await?;
            match is_list && answer.status().is_success() {
                true => whole_list(answer).await,
                false => Ok(answer),
            }
        })
    }
}

/// Reads a list to its end. One that was cut off counts as an answer that did not come.
async fn whole_list(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = answer.into_parts();
    let cut = |error| HttpError::new(HttpErrorKind::Interrupted, error);
    let bytes = body.bytes().await.map_err(|error| match error.kind() {
        HttpErrorKind::Timeout => error,
        _ => cut(io::Error::other(error)),
    })?;
    if !LIST_ENDS.iter().any(|end| bytes.trim_ascii_end().ends_with(end)) {
        return Err(cut(io::Error::new(io::ErrorKind::UnexpectedEof, "the list was cut off")));
    }
    Ok(HttpResponse::from_parts(head, bytes.into()))
}
