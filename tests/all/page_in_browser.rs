//! `nono ui` in a real browser: Debian's `chromium` and `chromium-driver`, by the protocol WebDriver.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::forks::has_forks;
use crate::held::Held;
use crate::hooks::Agent;
use crate::not_run::not_run;
use crate::web::{Answer, Web, begin, request};

/// Far longer than anything takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser without a window.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None`: it is not installed.
    fn start() -> Option<Self> {
        Self::start_with("normal")
    }

    /// `waits`: whether its commands wait for a page that is being loaded (`none`, `normal`).
    fn start_with(waits: &str) -> Option<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let profile = tempfile::tempdir().unwrap();
        let started = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .env("TMPDIR", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(driver) = started else {
            not_run("pages are looked at in chromium, by chromedriver");
            return None;
        };
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        browser.wait(|_| begin(port, "GET", "/status", &[("Host", "127.0.0.1")], b"").is_ok());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
        ];
        let wanted = json!({
            "browserName": "chrome",
            "pageLoadStrategy": waits,
            "goog:chromeOptions": {"args": arguments},
        });
        let made =
            browser.ask("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}}));
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        browser.size(1280, 860, "light");
        Some(browser)
    }

    fn answer(&self, method: &str, path: &str, body: &Value) -> Answer {
        let host = format!("127.0.0.1:{}", self.port);
        let head = [("Host", &*host), ("Content-Type", "application/json")];
        request(self.port, method, path, &head, body.to_string().as_bytes())
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.answer(method, path, body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice::<Value>(&answer.body).unwrap()["value"].take()
    }

    #[track_caller]
    fn of(&self, path: &str, body: Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), &body)
    }

    fn open(&self, address: &str) {
        self.of("/url", json!({"url": address}));
    }

    fn window(&self) -> Value {
        self.ask("GET", &format!("/session/{}/window", self.session), &json!({}))
    }

    fn new_window(&self) -> Value {
        self.of("/window/new", json!({"type": "tab"}))["handle"].take()
    }

    #[track_caller]
    fn script(&self, text: &str) -> Value {
        self.of("/execute/sync", json!({"script": text, "args": []}))
    }

    /// Waits until an expression of the page is true.
    #[track_caller]
    fn sees(&self, condition: &str) {
        let script = format!("return Boolean({condition})");
        self.wait_saying(|browser| browser.script(&script) == true, condition);
    }

    fn wait(&self, is_done: impl Fn(&Self) -> bool) {
        self.wait_saying(is_done, "a browser");
    }

    #[track_caller]
    fn wait_saying(&self, is_done: impl Fn(&Self) -> bool, what: &str) {
        let end = Instant::now() + PATIENCE;
        while !is_done(self) {
            let page = || self.script("return document.body.innerText");
            assert!(Instant::now() < end, "not seen: {what}, in {}", page());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types keys, each of them alone, wherever the focus is.
    fn keys(&self, text: &str) {
        let pressed = |c: char| {
            [json!({"type": "keyDown", "value": c}), json!({"type": "keyUp", "value": c})]
        };
        let actions: Vec<Value> = text.chars().flat_map(pressed).collect();
        self.of(
            "/actions",
            json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}),
        );
    }

    /// Clicks what a selector finds, as a person does: it must be visible, and nothing over it.
    #[track_caller]
    fn click(&self, selector: &str) {
        self.wait_saying(
            |browser| {
                let by = json!({"using": "css selector", "value": selector});
                let found = browser.of("/element", by);
                let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap();
                let click = format!("/session/{}/element/{id}/click", browser.session);
                let answer = browser.answer("POST", &click, &json!({}));
                // News of the store replaced the row between the two.
                let is_stale = answer.text().contains("stale element reference");
                assert!(answer.status == 200 || is_stale, "{selector}: {}", answer.text());
                !is_stale
            },
            selector,
        );
    }

    fn size(&self, width: u64, height: u64, scheme: &str) {
        let cdp = |command: &str, params: Value| {
            self.of("/goog/cdp/execute", json!({"cmd": command, "params": params}));
        };
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        cdp("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        cdp("Emulation.setEmulatedMedia", json!({"features": features}));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            // The first line of the answer comes when the browser is closed.
            let _ = begin(self.port, "DELETE", &path, &[("Host", "127.0.0.1")], b"")
                .map(|stream| BufReader::new(stream).read_line(&mut String::new()));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Rows of sessions whose counts lie over what stands before them.
const COVERED: &str = "return [...document.querySelectorAll('.row')].filter((row) => {
    const place = (it) => it.getBoundingClientRect();
    const counts = [...row.querySelectorAll('.counts span')].map(place);
    const before = [...row.querySelectorAll('.facts span')].map(place);
    const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    return counts.some((a) => before.some((b) => over(a, b)));
}).map((row) => row.innerText)";

/// A project with the work of an agent, and a run.
fn worked() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("src/cart.py", "def total():\n    return 0\n");
    fixture.record("echo run > by-run").success();
    let agent = Agent::new(&fixture, "claude-code");
    agent.prompt("make the total right");
    agent.shell("printf 'def total():\\n    return 17\\n' > src/cart.py");
    agent.shell("mkdir docs && echo words > docs/words.md");
    agent.turn_end();
    agent.prompt("and now the rest");
    agent.shell("echo rest > rest.txt");
    agent.turn_end();
    agent.end();
    fixture
}

#[test]
fn a_person_finds_a_step_takes_it_back_and_takes_that_back() {
    let fixture = worked();
    let web = Web::unopened(&fixture, &[]);
    let Some(browser) = Browser::start() else { return };
    browser.open(&web.address);
    // The token is gone from the address.
    assert_eq!(browser.script("return location.href"), format!("{}/", web.origin()));
    browser.sees("document.querySelectorAll('#band .mark').length >= 2");
    // By the keyboard: the first row, opened.
    browser.keys("j\u{E007}");
    browser.sees("document.querySelector('.steps')");
    browser.sees("document.querySelector('button[value=steps]').disabled");
    assert_eq!(browser.script("return document.querySelectorAll('.step').length"), 3);
    browser.click("input[name=step][value='3']");
    browser.click("button[value=steps]");
    browser.sees("document.querySelector('h1').textContent === 'Undo what step 3 did'");
    browser.click("#count");
    browser.keys("7");
    browser.sees("document.querySelector('.confirm .primary').disabled");
    browser.keys("\u{E003}1");
    browser.sees("!document.querySelector('.confirm .primary').disabled");
    browser.click(".confirm .primary");
    browser.sees("document.querySelector('h1').textContent === 'Done'");
    assert!(!fixture.project().join("rest.txt").exists());
    browser.click("form[action='/redo'] button");
    browser.sees(
        "document.querySelector('h1').textContent === 'Done' && !location.href.includes('undo')",
    );
    assert_eq!(fs::read_to_string(fixture.project().join("rest.txt")).unwrap(), "rest\n");
}

/// Notes the progress of a page where another page of the server can read it.
const NOTE_PROGRESS: &str = "new MutationObserver(() => {
    const work = document.querySelector('.work');
    const bar = work?.querySelector('progress');
    if (work) localStorage.seen = `${work.textContent}, a bar of ${bar.max}`;
}).observe(document.body, {subtree: true, childList: true, characterData: true})";

#[test]
fn a_person_sees_how_far_an_undo_is() {
    let fixture = worked();
    let mut command = fixture.command_to_be_signalled(&["ui", "--no-open"]);
    // The undo waits before the first file is put aside.
    let held = Held::at("name=rest.txt", ":hold", &fixture, &mut command);
    let web = Web::of(command);
    let Some(browser) = Browser::start_with("none") else { return };
    browser.open(&web.address);
    browser.sees("document.querySelector('.row .main')");
    // A page that waits for the answer to a form runs no script for the driver.
    let (page, other) = (browser.window(), browser.new_window());
    browser.of("/window", json!({"handle": other}));
    browser.open(&web.origin());
    browser.sees("document.querySelector('.row .main')");
    browser.of("/window", json!({"handle": page}));
    browser.click(".row .main");
    browser.sees("document.querySelector('input[name=step][value=\"3\"]')");
    browser.click("input[name=step][value='3']");
    browser.click("button[value=steps]");
    browser.sees("document.querySelector('#count')");
    browser.script(NOTE_PROGRESS);
    browser.click("#count");
    browser.keys("1");
    browser.sees("!document.querySelector('.confirm .primary').disabled");
    browser.click(".confirm .primary");
    browser.of("/window", json!({"handle": other}));
    browser.sees("/^putting files in place: 0 of (\\d+), a bar of \\1$/.test(localStorage.seen)");
    assert!(fixture.project().join("rest.txt").exists());
    held.release();
    browser.of("/window", json!({"handle": page}));
    browser.sees("document.querySelector('h1')?.textContent === 'Done'");
    assert!(!fixture.project().join("rest.txt").exists());
}

#[test]
fn a_person_looks_at_a_file_and_chooses_paths() {
    let fixture = worked();
    let web = Web::unopened(&fixture, &[]);
    let Some(browser) = Browser::start() else { return };
    browser.open(&web.address);
    browser.click(".row .main");
    browser.sees("document.querySelector('.tree')");
    // A directory is chosen with what is in it, and a filter hides the others.
    browser.click("input[name=path][value$='/docs']");
    assert_eq!(
        browser.script("return document.querySelectorAll('input[name=path]:checked').length"),
        2
    );
    browser.click("#filter");
    browser.keys("cart");
    browser.sees(
        "[...document.querySelectorAll('.tree a.name')].filter((a) => a.offsetParent).length === 1",
    );
    browser.click(".tree a.name[href*='cart.py']");
    browser.sees("document.querySelector('.diff tr.added mark')");
    assert_eq!(
        browser.script("return document.querySelector('.diff tr.added mark').textContent"),
        "17"
    );
    browser.sees("document.querySelector('.diff .t-keyword')");
    browser.click(".tab[href*='tab=split']");
    browser.sees("document.querySelectorAll('.diff.split td.added').length === 1");
    browser.click(".tab[href*='tab=lines']");
    browser.sees("document.querySelector('.who a').textContent.includes('first recorded')");
    browser.sees(
        "[...document.querySelectorAll('.who')].some((it) => it.textContent.startsWith('step 1'))",
    );
    browser.click(".tab[href*='tab=history']");
    browser.sees("document.querySelectorAll('.versions li').length === 2");
    // The slider goes to a state, and the search finds the text in it.
    browser.click("nav a");
    browser.click(".row .main");
    browser.click("#states");
    browser.sees("location.search.includes('to=')");
    browser.keys("/return 17\u{E007}");
    browser.sees("document.querySelector('.found pre')?.textContent.includes('return 17')");
}

#[test]
fn a_person_takes_a_hunk_back() {
    let fixture = worked();
    let web = Web::unopened(&fixture, &[]);
    let Some(browser) = Browser::start() else { return };
    browser.open(&web.address);
    browser.click(".row .main");
    browser.click(".tree a.name[href*='cart.py']");
    // A button that would do nothing cannot be pressed.
    browser.sees("document.querySelector('#hunks button').disabled");
    browser.click("input[name=hunk]");
    browser.sees("!document.querySelector('#hunks button').disabled");
    browser.click("#hunks button");
    browser.sees("document.querySelector('h1').textContent.includes('Undo 1 hunk of')");
    browser.click("#count");
    browser.keys("1");
    browser.click(".confirm .primary");
    browser.sees("document.querySelector('h1').textContent === 'Done'");
    let text = fs::read_to_string(fixture.project().join("src/cart.py")).unwrap();
    assert_eq!(text, "def total():\n    return 0\n");
}

#[test]
fn a_person_merges_one_fork_and_discards_the_other() {
    let fixture = worked();
    if !has_forks(&fixture) {
        return;
    }
    for name in ["idea", "other"] {
        let script = format!("echo {name} > src/{name}.py; echo {name} > both.txt");
        fixture.nono(&["fork", name, "--", "sh", "-c", &script]).success();
    }
    let web = Web::unopened(&fixture, &[]);
    let Some(browser) = Browser::start() else { return };
    browser.open(&web.address);
    browser.sees("document.querySelector('nav')");
    browser.click("nav a[href='/forks']");
    browser.sees("document.querySelectorAll('.fork').length === 2");
    browser.sees("document.querySelectorAll('tr.collision').length === 1");
    let of = |name: &str| {
        let find = "[...document.querySelectorAll('.fork')].findIndex";
        let found =
            format!("return {find}((it) => it.querySelector('h2').textContent === '{name}')");
        let at = browser.script(&found).as_u64().unwrap() + 1;
        format!(".fork:nth-of-type({at})")
    };
    browser.click(&format!("{} button[value=merge]", of("idea")));
    browser.sees("document.body.textContent.includes('The merge')");
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).ok();
    assert_eq!(read("both.txt").as_deref(), Some("idea\n"));
    assert_eq!(read("src/idea.py").as_deref(), Some("idea\n"));
    browser.click("nav a[href='/forks']");
    let other = of("other");
    browser.click(&format!("{other} input[name=confirm]"));
    browser.keys("other");
    browser.click(&format!("{other} button[value=discard]"));
    browser.sees("document.body.textContent.includes('The fork is discarded')");
    assert_eq!(read("src/other.py"), None);
    let left = fixture.nono(&["forks", "--json"]).success().json();
    let names: Vec<_> = left.as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["idea"]);
}

#[test]
fn a_run_appears_on_an_open_page() {
    let fixture = worked();
    let web = Web::unopened(&fixture, &[]);
    let Some(browser) = Browser::start() else { return };
    browser.open(&web.address);
    browser.sees("document.querySelectorAll('.row').length === 2");
    browser.sees("document.querySelectorAll('#band [data-id]').length === 2");
    browser.script("window.isSame = true");
    // The keys stay at their row.
    browser.keys("j");
    browser.sees("document.querySelector('.row.at') === document.querySelector('.row')");
    let first = "document.querySelector('.row.at a').href";
    let at = browser.script(&format!("return {first}"));
    fixture.record("echo more > more").success();
    browser.sees("document.querySelectorAll('.row').length === 3");
    browser.sees("document.querySelectorAll('#band [data-id]').length === 3");
    browser.sees("document.querySelector('.row .what').textContent.includes('more')");
    assert_eq!(browser.script("return window.isSame"), true, "the page was loaded again");
    assert_eq!(browser.script(&format!("return {first}")), at);
    browser.keys("\u{E007}");
    browser.sees("document.querySelector('.steps')");
}

#[test]
fn every_page_fits_narrow_and_wide_screens_and_screen_readers() {
    let fixture = worked();
    // All kinds of changes make the longest counts.
    let script = "mkdir new; echo 1 > new/a; echo 1 > new/b; rm -r docs by-run; \
                  chmod 600 rest.txt; \
                  echo more >> src/cart.py";
    fixture.record(script).success();
    let all_kinds = fixture.latest();
    let web = Web::unopened(&fixture, &[]);
    let Some(browser) = Browser::start() else { return };
    let axe = std::env::var_os("NONO_TEST_AXE").and_then(|path| fs::read_to_string(path).ok());
    if axe.is_none() {
        not_run("axe-core is not here: NONO_TEST_AXE names axe.min.js");
    }
    browser.open(&web.address);
    let session = browser.script("return document.querySelector('.row:nth-child(2) .main').href");
    let session = session.as_str().unwrap();
    browser.open(session);
    let file = browser.script("return document.querySelector('.tree a.name[href*=cart]').href");
    let (file, origin) = (file.as_str().unwrap(), web.origin());
    let id = session.split("id=").nth(1).unwrap();
    let pages = [
        origin.clone(),
        session.to_owned(),
        format!("{origin}/session?id={all_kinds}"),
        format!("{session}&view=map"),
        format!("{session}&prompt=1"),
        file.to_owned(),
        format!("{file}&tab=split"),
        format!("{file}&tab=lines"),
        format!("{file}&tab=history"),
        format!("{origin}/undo?id={id}&what=all"),
        format!("{origin}/search?q=total"),
        format!("{origin}/store"),
        format!("{origin}/forks"),
        format!("{origin}/nothing"),
    ];
    let pictures = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&pictures).unwrap();
    for (width, height, scheme) in [(360, 780, "light"), (1280, 860, "dark"), (2560, 1300, "light")]
    {
        browser.size(width, height, scheme);
        for (number, page) in pages.iter().enumerate() {
            browser.open(page);
            let root = "document.documentElement";
            let over = browser.script(&format!("return {root}.scrollWidth - {root}.clientWidth"));
            assert_eq!(over, 0, "{page} is too wide at {width}");
            assert_eq!(browser.script(COVERED), json!([]), "{page} at {width}");
            let broken = browser.script("return [...document.images].filter((it) => it.complete && !it.naturalWidth).length");
            assert_eq!(broken, 0, "{page}");
            let path = format!("/session/{}/screenshot", browser.session);
            let picture = browser.ask("GET", &path, &json!({}));
            let name = pictures.join(format!("{number}-{width}-{scheme}.png.base64"));
            fs::write(name, picture.as_str().unwrap()).unwrap();
            let Some(axe) = &axe else { continue };
            browser.script(axe);
            let run = "const done = arguments[0]; axe.run().then((it) => done(it.violations))";
            let found = browser.of("/execute/async", json!({"script": run, "args": []}));
            let is_serious =
                |it: &&Value| matches!(it["impact"].as_str(), Some("serious" | "critical"));
            let serious: Vec<_> = found.as_array().unwrap().iter().filter(is_serious).collect();
            assert!(serious.is_empty(), "{page} at {width}, {scheme}: {serious:#?}");
        }
    }
}

#[test]
fn light_and_dark_are_chosen_and_kept() {
    let fixture = worked();
    let web = Web::unopened(&fixture, &[]);
    let Some(browser) = Browser::start() else { return };
    browser.open(&web.address);
    let ground = "getComputedStyle(document.documentElement).backgroundColor";
    let light = browser.script(&format!("return {ground}"));
    browser.click("#theme");
    let dark = browser.script(&format!("return {ground}"));
    assert_ne!(light, dark);
    browser.click(".row .main");
    browser.sees("document.querySelector('.tree')");
    assert_eq!(browser.script(&format!("return {ground}")), dark);
}
