//! The server: requests in, answers of `pages` out.
//!
//! One thread speaks HTTP; pages are made by ordinary code in threads of their own, a few at a time,
//! so the memory of the server has a limit. It ends with Ctrl-C, with a failure of the listener, or
//! when no page was open and nothing was asked for a while.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::IntoResponse;
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use tokio::sync::Semaphore;

use super::app::App;
use super::guard::{FORM_FIELD, Guard, Refusal};
use super::html::Html;
use super::pages;

/// Longer forms are refused, in bytes: a selection of paths may be long.
const MAX_FORM_BYTES: usize = 4 << 20;
/// Pages that are made at the same time.
const MAX_AT_WORK: usize = 4;
/// Bytes of a download that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// How often an open page hears that the server is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
const ICON: &str = include_str!("assets/icon.svg");

/// A request that the gate has let through.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pairs: Vec<(String, String)>,
    /// Whether something is to be changed.
    pub(super) is_change: bool,
}

impl Asked {
    fn add(&mut self, encoded: &[u8]) {
        let pairs = form_urlencoded::parse(encoded);
        self.pairs.extend(pairs.map(|(key, value)| (key.into_owned(), value.into_owned())));
    }

    /// The value of a field; empty where it is not given.
    pub(super) fn get(&self, key: &str) -> &str {
        let pair = self.pairs.iter().find(|(known, _)| known == key);
        pair.map_or("", |(_, value)| value)
    }

    /// All values of a field.
    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// A number.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.get(key).parse().ok()
    }
}

/// An answer.
pub(super) enum Answer {
    Page(Html),
    Json(serde_json::Value),
    /// A version of a file, piece by piece.
    File(File),
}

/// A version of a file.
pub(super) struct File {
    pub(super) object: nono_engine::store::ObjectFile,
    /// The name under which a browser keeps it.
    pub(super) name: String,
    /// The type of a picture that a page shows; nothing else is shown by a browser.
    pub(super) picture: Option<&'static str>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: message.into() }
    }

    pub(super) fn wrong(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into() }
    }
}

impl<E: Into<crate::cli::CliError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let hint = error.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
        let message = format!("{error}{hint}");
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, message }
    }
}

/// Serves until it ends.
///
/// # Errors
/// When there is no runtime, or connections cannot be accepted.
pub(super) fn serve(app: Arc<App>, listener: std::net::TcpListener) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let served = runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let turns = Arc::new(Semaphore::new(MAX_AT_WORK));
        let router = Router::new().fallback(answer).with_state((Arc::clone(&app), turns));
        let service = axum::serve(listener, router).into_future();
        tokio::select! {
            served = service => served,
            stopped = tokio::signal::ctrl_c() => stopped,
            () = unused(&app) => Ok(()),
        }
    });
    // Pages that are open hold their connections.
    runtime.shutdown_background();
    served
}

/// Returns when no page was open for a while.
async fn unused(app: &App) {
    loop {
        let since = app.used.lock().map_or_else(|_| Instant::now(), |used| *used);
        let left = app.idle_time.saturating_sub(since.elapsed());
        let is_open = app.listeners.load(Ordering::Relaxed) > 0;
        if left.is_zero() && !is_open {
            return;
        }
        tokio::time::sleep(if is_open { app.idle_time } else { left }).await;
    }
}

async fn answer(
    State((app, turns)): State<(Arc<App>, Arc<Semaphore>)>,
    request: Request,
) -> Response {
    app.touch();
    let is_head = request.method() == Method::HEAD;
    let mut response = match checked(&app, request).await {
        Ok(Checked::Done(response)) => response,
        Ok(Checked::Work(place, asked)) if place == "/events" => events(app, &asked),
        Ok(Checked::Work(place, asked)) if place == "/progress" => progress(&app, &asked),
        Ok(Checked::Work(place, asked)) => {
            let Ok(_turn) = turns.acquire().await else { return Response::default() };
            let of = Arc::clone(&app);
            let made = tokio::task::spawn_blocking(move || pages::make(&of, &place, &asked)).await;
            match made {
                Ok(Ok(made)) => sent(made),
                Ok(Err(failure)) => told(&app, &failure),
                Err(_) => {
                    let message = "nono failed inside; this is a bug of nono".to_owned();
                    told(&app, &Failure { status: StatusCode::INTERNAL_SERVER_ERROR, message })
                }
            }
        }
        Err(refusal) => refused(refusal),
    };
    Guard::close(response.headers_mut());
    if is_head {
        *response.body_mut() = Body::empty();
    }
    response
}

enum Checked {
    Done(Response),
    Work(String, Asked),
}

/// Lets a request through to the pages, or answers it.
async fn checked(app: &App, request: Request) -> Result<Checked, Refusal> {
    let (parts, body) = request.into_parts();
    app.guard.check_place(&parts.headers)?;
    let place = parts.uri.path().to_owned();
    let mut asked = Asked::default();
    asked.add(parts.uri.query().unwrap_or_default().as_bytes());
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    if is_read && place == "/" && !asked.get("token").is_empty() {
        let Some(cookie) = app.guard.redeem(asked.get("token")) else {
            // The address again, in the browser that opened it.
            app.guard.check_cookie(&parts.headers)?;
            return Ok(Checked::Done(see("/")));
        };
        let mut response = see("/");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        return Ok(Checked::Done(response));
    }
    app.guard.check_cookie(&parts.headers)?;
    if is_read {
        if let Some(asset) = asset(&place) {
            return Ok(Checked::Done(asset));
        }
        return Ok(Checked::Work(place, asked));
    }
    if parts.method != Method::POST {
        return Ok(Checked::Done(plain(StatusCode::METHOD_NOT_ALLOWED, "GET and POST alone")));
    }
    let Ok(form) = axum::body::to_bytes(body, MAX_FORM_BYTES).await else {
        return Ok(Checked::Done(plain(StatusCode::PAYLOAD_TOO_LARGE, "the form is too long")));
    };
    // The form alone says what is to be done, and not the address.
    let mut asked = Asked { is_change: true, ..Asked::default() };
    asked.add(&form);
    let field = Some(asked.get(FORM_FIELD)).filter(|field| !field.is_empty());
    app.guard.check_change(&parts.method, &parts.headers, field)?;
    Ok(Checked::Work(place, asked))
}

/// A part of every page.
fn asset(place: &str) -> Option<Response> {
    let (kind, text) = match place {
        "/assets/page.css" => ("text/css; charset=utf-8", STYLE),
        "/assets/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/assets/icon.svg" => ("image/svg+xml", ICON),
        _ => return None,
    };
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Some(response)
}

/// The style, for a page without a server.
pub(super) fn style() -> &'static str {
    STYLE
}

fn sent(answer: Answer) -> Response {
    match answer {
        Answer::Page(page) => page_response(StatusCode::OK, page),
        Answer::Json(value) => {
            let mut response = Response::new(Body::from(value.to_string()));
            let kind = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Answer::File(file) => file_response(file),
    }
}

fn page_response(status: StatusCode, page: Html) -> Response {
    let mut response = Response::new(Body::from(page.into_text()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn file_response(file: File) -> Response {
    let File { object, name, picture } = file;
    let length = object.size();
    let pieces = futures_util::stream::unfold((Arc::new(object), 0), |(object, at)| async move {
        if at >= object.size() {
            return None;
        }
        let of = Arc::clone(&object);
        let read = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; CHUNK_BYTES];
            let count = of.read_at(&mut buffer, at)?;
            buffer.truncate(count);
            if buffer.is_empty() {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            } else {
                Ok(buffer)
            }
        });
        let piece = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let next = piece.as_ref().map_or(u64::MAX, |piece| at + piece.len() as u64);
        Some((piece.map(Bytes::from), (object, next)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let kind = picture.unwrap_or("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if picture.is_none() {
        let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let encoded = encoded.replace('+', "%20");
        let value = format!("attachment; filename*=UTF-8''{encoded}");
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(header::CONTENT_DISPOSITION, value);
        }
    }
    response
}

fn see(address: &str) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SEE_OTHER;
    let target = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, target);
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn refused(refusal: Refusal) -> Response {
    plain(StatusCode::FORBIDDEN, refusal.text())
}

fn told(app: &App, failure: &Failure) -> Response {
    page_response(failure.status, pages::failure(app, failure))
}

/// Tells a page how far its work is, until it is closed.
fn progress(app: &App, asked: &Asked) -> Response {
    let states = app.works.listen(asked.get("work"));
    let told = futures_util::stream::unfold(states, |mut states| async {
        states.changed().await.ok()?;
        let state = serde_json::to_string(&*states.borrow_and_update()).unwrap_or_default();
        let event = Ok::<_, Infallible>(Event::default().event("progress").data(state));
        Some((event, states))
    });
    Sse::new(told).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Tells an open page what is new, until it is closed.
fn events(app: Arc<App>, asked: &Asked) -> Response {
    let open = app.open();
    let session = asked.get("id").to_owned();
    let news = futures_util::stream::unfold((app, open, session), |(app, open, session)| async {
        let mut news = open.news.clone();
        loop {
            if news.changed().await.is_err() {
                return None;
            }
            let told = news.borrow_and_update().clone();
            let is_meant = session.is_empty() || told.contains(&session);
            if is_meant && !told.is_empty() {
                let text = serde_json::Value::from(told.to_vec()).to_string();
                let event = Ok::<_, Infallible>(Event::default().event("sessions").data(text));
                return Some((event, (app, open.with(news), session)));
            }
        }
    });
    Sse::new(news).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
