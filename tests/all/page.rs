//! The pages of `nono ui`: their gate, what they show of hostile names, and the undo of a form.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::json;

use crate::fixture::{Fixture, finished};
use crate::forks::has_forks;
use crate::hooks::Agent;
use crate::web::{Web, encoded};

const HOSTILE: &str = "<script>alert(1)<";

/// The first id that a page of sessions links to.
fn first_id(page: &str) -> String {
    ids(page).next().expect("a session").to_owned()
}

fn ids(page: &str) -> impl Iterator<Item = &str> {
    page.split("data-id=\"").skip(1).filter_map(|rest| rest.split('"').next())
}

/// The value of the secret field of a form.
fn form_token(page: &str) -> String {
    let rest = page.split("name=\"form_token\" value=\"").nth(1).expect("a form");
    rest.split('"').next().unwrap().to_owned()
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap()
}

fn recorded() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("notes.txt", "one\ntwo\nthree\n");
    fixture.write("gone.txt", "gone\n");
    let work =
        "printf 'one\\n2\\nthree\\n' > notes.txt; rm gone.txt; mkdir src; echo x > src/new.rs";
    fixture.record(work).success();
    fixture
}

#[test]
fn who_has_no_cookie_of_the_opened_address_sees_nothing() {
    let fixture = recorded();
    let web = Web::start(&fixture);
    let (host, origin) = (web.host(), web.origin());
    let cookie = ("Cookie", web.cookie.as_str());
    let other = format!("evil.example:{}", web.port);
    for (head, why) in [
        (&[("Host", &*host)][..], "no cookie"),
        (&[("Host", &*host), ("Cookie", "nono_ui=x")], "another cookie"),
        (&[("Host", &*other), cookie], "another host"),
        (&[cookie], "no host"),
        (&[("Host", &*host), ("Origin", "http://evil.example"), cookie], "another origin"),
        (&[("Host", &*host), ("Origin", "null"), cookie], "no origin of its own"),
    ] {
        for path in ["/", "/session?id=x", "/marks.json", "/events", "/assets/page.js", "/nothing"]
        {
            let answer = web.send("GET", path, head, b"");
            // Without a host, the request is none of HTTP at all.
            assert!(matches!(answer.status, 400 | 403), "{why}, {path}: {}", answer.head);
            assert!(!answer.text().contains("notes"), "{why}, {path}");
        }
    }
    // The address works once, and for a browser that has the cookie again.
    let path = web.address.strip_prefix(&origin).unwrap();
    assert_eq!(web.send("GET", path, &[("Host", &host)], b"").status, 403);
    assert_eq!(web.send("GET", path, &[("Host", &host), cookie], b"").status, 303);
    let page = web.get("/").ok();
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.field("cache-control"), Some("no-store"));
    let (code, said) = web.stop();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn nothing_is_changed_but_by_a_form_of_this_server() {
    let fixture = recorded();
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let plan = web.get(&format!("/undo?id={id}&what=all")).ok().text();
    assert!(plan.contains("This changes 4 paths"), "{plan}");
    let token = form_token(&plan);
    let fields = [("id", &*id), ("what", "all"), ("count", "4")];
    let with_token = encoded(&[&fields[..], &[("form_token", &token)]].concat());
    let (host, origin) = (web.host(), web.origin());
    let cookie = ("Cookie", web.cookie.as_str());
    for (head, body) in [
        (&[("Host", &*host), ("Origin", &*origin), cookie][..], encoded(&fields)),
        (&[("Host", &host), cookie], with_token.clone()),
        (&[("Host", &host), ("Origin", "http://evil.example"), cookie], with_token.clone()),
        (&[("Host", &host), ("Origin", &origin)], with_token.clone()),
    ] {
        let answer = web.send("POST", "/undo", head, body.as_bytes());
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    // A form in the address is none.
    let address = format!("/undo?{with_token}");
    let head = [("Host", &*host), ("Origin", &origin), cookie];
    assert_eq!(web.send("POST", &address, &head, b"").status, 403);
    assert_eq!(web.send("PUT", "/undo", &head, with_token.as_bytes()).status, 405);
    assert_eq!(read(&fixture, "notes.txt"), "one\n2\nthree\n");
    // Another number of paths is no yes, and no number is none either.
    for count in ["3", "", "all"] {
        let answer = web.post(
            "/undo",
            &[("form_token", &token), ("id", &id), ("what", "all"), ("count", count)],
        );
        assert!(answer.ok().text().contains("Nothing was changed"));
        assert_eq!(read(&fixture, "notes.txt"), "one\n2\nthree\n");
    }
}

#[test]
fn an_undo_does_what_its_plan_said_and_is_taken_back() {
    let fixture = recorded();
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let token = form_token(&web.get(&format!("/undo?id={id}&what=all")).ok().text());
    let form = ("form_token", token.as_str());
    // One path of it.
    let path = fixture.project().join("gone.txt");
    let path = path.to_str().unwrap();
    let plan =
        web.get(&format!("/undo?{}", encoded(&[("id", &id), ("what", "paths"), ("path", path)])));
    assert!(plan.ok().text().contains("This changes 1 path<"));
    let fields = [form, ("id", &id), ("what", "paths"), ("path", path), ("count", "1")];
    let done = web.post("/undo", &fields).ok().text();
    assert!(done.contains("<h1>Done</h1>") && done.contains("gone.txt"), "{done}");
    assert_eq!(read(&fixture, "gone.txt"), "gone\n");
    assert_eq!(read(&fixture, "notes.txt"), "one\n2\nthree\n");
    // The rest, and back.
    let done = web.post("/undo", &[form, ("id", &id), ("what", "all"), ("count", "3")]).ok().text();
    assert!(done.contains("<h1>Done</h1>"), "{done}");
    assert_eq!(read(&fixture, "notes.txt"), "one\ntwo\nthree\n");
    assert!(!fixture.project().join("src").exists());
    let safety = done.split("name=\"n\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let back = web.post("/redo", &[form, ("id", &id), ("what", "redo"), ("n", safety)]).ok().text();
    assert!(back.contains("<h1>Done</h1>"), "{back}");
    assert_eq!(read(&fixture, "notes.txt"), "one\n2\nthree\n");
    assert_eq!(read(&fixture, "src/new.rs"), "x\n");
    let list = web.get("/").ok().text();
    // The path of the first undo is still undone.
    assert!(list.contains("badge undone\">partly undone<"), "{list}");
}

#[test]
fn hunks_of_a_file_are_taken_back_and_that_is_taken_back() {
    let fixture = Fixture::new();
    let text = |changed: &[u32]| -> String {
        let line = |n| if changed.contains(&n) { format!("new {n}\n") } else { format!("{n}\n") };
        (0..40).map(line).collect()
    };
    fixture.write("a.txt", text(&[]));
    fixture.write("new.txt", text(&[2, 20, 38]));
    fixture.record("cp new.txt a.txt; echo > made").success();
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let path = fixture.project().join("a.txt");
    let of_file = [("id", id.as_str()), ("path", path.to_str().unwrap())];
    let page = web.get(&format!("/file?{}", encoded(&of_file))).ok().text();
    let boxes = page.split("name=\"hunk\" form=\"hunks\" value=\"").skip(1);
    let hunks: Vec<&str> = boxes.map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(hunks.len(), 3, "{page}");
    // A line that the person changed meanwhile stays.
    let edited = |changed: &[u32]| text(changed).replacen("10\n", "mine\n", 1);
    fixture.write("a.txt", edited(&[2, 20, 38]));
    let chosen =
        [of_file[0], of_file[1], ("what", "hunks"), ("hunk", hunks[0]), ("hunk", hunks[2])];
    let plan = web.get(&format!("/undo?{}", encoded(&chosen))).ok().text();
    assert!(
        plan.contains("Undo 2 hunks of a.txt") && plan.contains("This changes 1 path<"),
        "{plan}"
    );
    assert_eq!(read(&fixture, "a.txt"), edited(&[2, 20, 38]));
    let token = form_token(&plan);
    let form = ("form_token", token.as_str());
    let post = |count| web.post("/undo", &[&chosen[..], &[form, ("count", count)]].concat());
    assert!(post("2").ok().text().contains("Nothing was changed"));
    let done = post("1").ok().text();
    assert!(done.contains("<h1>Done</h1>"), "{done}");
    assert_eq!(read(&fixture, "a.txt"), edited(&[20]));
    let safety = done.split("name=\"n\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let back = web.post("/redo", &[form, ("id", &id), ("what", "redo"), ("n", safety)]).ok().text();
    assert!(back.contains("<h1>Done</h1>"), "{back}");
    assert_eq!(read(&fixture, "a.txt"), edited(&[2, 20, 38]));
    // Boxes of another look at the file, and paths that have no hunks.
    let made = fixture.project().join("made");
    let header = hunks[0].split_once(' ').unwrap().1;
    let (other, made) = (format!("1 {header}"), made.to_str().unwrap());
    for (path, hunk) in [(of_file[1].1, &*other), (of_file[1].1, "x"), (made, "0 @@ -0,0 +1 @@")] {
        let wrong = [of_file[0], ("path", path), ("what", "hunks"), ("hunk", hunk)];
        assert_eq!(web.get(&format!("/undo?{}", encoded(&wrong))).status, 400, "{hunk}");
    }
}

#[test]
fn an_undo_refuses_later_changes_until_it_is_said_what_becomes_of_them() {
    let fixture = recorded();
    fixture.write("src/new.rs", "later\n");
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let plan = web.get(&format!("/undo?id={id}&what=all")).ok().text();
    assert!(
        plan.contains("1 path changed later") && plan.contains("Keep the later changes"),
        "{plan}"
    );
    let token = form_token(&plan);
    let post = |conflicts, count| {
        let fields = [
            ("form_token", &*token),
            ("id", &id),
            ("what", "all"),
            ("conflicts", conflicts),
            ("count", count),
        ];
        web.post("/undo", &fields).ok().text()
    };
    assert!(post("", "4").contains("Nothing was changed"));
    assert_eq!(read(&fixture, "notes.txt"), "one\n2\nthree\n");
    let plan = web.get(&format!("/undo?id={id}&what=all&conflicts=keep")).ok().text();
    let count = plan.split("data-expected=\"").nth(1).unwrap().split('"').next().unwrap();
    let done = post("keep", count);
    assert!(done.contains("<h1>Done"), "{done}");
    assert_eq!(read(&fixture, "notes.txt"), "one\ntwo\nthree\n");
    assert_eq!(read(&fixture, "src/new.rs"), "later\n");
}

#[test]
fn names_contents_and_prompts_are_never_markup() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.prompt("<script>alert(1)</script>\n\"><img src=x onerror=alert(1)>");
    let name = format!("{HOSTILE}\"'\u{202e}.html");
    agent.call("Write", json!({"file_path": format!("{HOSTILE}/script>")}), || {
        fixture
            .write(&name, "<script>alert(1)</script>\n</td></table><img src=x onerror=alert(1)>\n");
    });
    agent.turn_end();
    let web = Web::start(&fixture);
    let list = web.get("/").ok().text();
    let id = first_id(&list);
    let path = fixture.project().join(&name);
    let path = path.to_str().unwrap();
    let file =
        |tab: &str| format!("/file?{}", encoded(&[("id", &id), ("path", path), ("tab", tab)]));
    let pages = [
        "/".to_owned(),
        format!("/session?id={id}"),
        format!("/session?id={id}&view=map"),
        format!("/session?id={id}&prompt=1"),
        file(""),
        file("split"),
        file("lines"),
        file("history"),
        "/search?q=alert".to_owned(),
        format!("/undo?id={id}&what=all"),
        "/store".to_owned(),
        format!("/search?{}", encoded(&[("q", "<script>alert(1)</script>")])),
        format!("/session?{}", encoded(&[("id", "<script>alert(1)")])),
        format!("/?{}", encoded(&[("project", "<script>alert(1)")])),
    ];
    for page in &pages {
        let text = web.get(page).text();
        assert!(!text.contains("<script>"), "{page}: {text}");
        assert!(!text.contains("<img src=x"), "{page}: {text}");
        assert!(!text.contains('\u{202e}'), "{page}: a mark that turns text around");
    }
    let shown = web.get(&file("")).ok().text();
    assert!(shown.contains("onerror=alert(1)&gt;</td>"), "{shown}");
    // A text is a download for a browser.
    let marks = web.get("/marks.json").ok();
    assert_eq!(marks.field("content-type"), Some("application/json"));
    let raw = web.get(&format!(
        "/raw?{}",
        encoded(&[("id", &id), ("n", "1"), ("path", path), ("show", "1")])
    ));
    assert_eq!(raw.field("content-type"), Some("application/octet-stream"));
    assert!(raw.field("content-disposition").unwrap().starts_with("attachment;"));
    assert!(raw.ok().text().contains("<script>alert(1)</script>"));
}

#[test]
fn an_address_leads_to_nothing_outside_of_the_sessions() {
    let fixture = recorded();
    fs::write(fixture.project().parent().unwrap().join("secret"), "secret\n").unwrap();
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let project = fixture.project();
    let outside = format!("{}/../secret", project.display());
    for (place, fields) in [
        ("/file", [("id", &*id), ("path", "/etc/passwd")]),
        ("/file", [("id", &id), ("path", &outside)]),
        ("/raw", [("id", &id), ("path", &outside)]),
        ("/raw", [("id", &id), ("path", "../secret")]),
        ("/file", [("id", "../.."), ("path", "/etc/passwd")]),
        ("/session", [("id", "../../etc"), ("to", "0")]),
        ("/session", [("id", "latest"), ("to", "0")]),
        ("/session", [("id", &id), ("to", "99")]),
        ("/session", [("id", &id), ("prompt", "7")]),
    ] {
        let answer = web.get(&format!("{place}?{}&n=0", encoded(&fields)));
        assert!((400..500).contains(&answer.status), "{place} {fields:?}: {}", answer.text());
        assert!(!answer.text().contains("root:") && !answer.text().contains("secret\n"));
    }
    for path in ["/../etc/passwd", "/assets/../../secret", "/assets/%2e%2e/secret", "//etc/passwd"]
    {
        assert_eq!(web.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_thousand_sessions_come_in_pages_and_each_is_read_once() {
    const SESSIONS: usize = 1000;
    let fixture = Fixture::in_memory();
    fixture.write("a", "0\n");
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    let id = taken["session_id"].as_str().unwrap();
    let store = fixture.store();
    let first = store.join(id);
    for number in 1..SESSIONS {
        // A session is its directory.
        let made = store.join(format!("20250101-{:06}-{}", number % 240_000, number + 10));
        let copied = std::process::Command::new("cp").arg("-a").arg(&first).arg(&made).status();
        assert!(copied.unwrap().success());
    }
    let web = Web::start(&fixture);
    let mut seen = BTreeSet::new();
    let page = web.get("/").ok().text();
    assert!(page.contains("1,000 sessions in 1 project"), "{page}");
    assert!(page.contains("page 1 of 20") && page.contains("rel=\"next\""));
    assert!(page.len() < 100_000, "a page has its length: {}", page.len());
    for number in 1..=20 {
        let page = web.get(&format!("/?page={number}")).ok().text();
        let before = seen.len();
        seen.extend(ids(&page).map(str::to_owned));
        assert_eq!(seen.len() - before, 50, "page {number}");
    }
    assert_eq!(seen.len(), SESSIONS);
    let marks: serde_json::Value =
        serde_json::from_str(&web.get("/marks.json").ok().text()).unwrap();
    assert_eq!(marks["marks"].as_array().unwrap().len(), SESSIONS);
    let (_, said) = web.stop();
    assert!(said.contains("1000 manifests of sessions were read"), "{said}");
}

#[test]
fn a_directory_with_many_changes_is_loaded_when_it_is_opened() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "0\n");
    let work = "mkdir -p many/b; for d in 1 2 3; do mkdir many/$d; for n in $(seq 300); do echo $n > many/$d/f$n; done; done";
    fixture.record(work).success();
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let page = web.get(&format!("/session?id={id}")).ok().text();
    assert!(!page.contains("many/1/f17") && page.contains("data-load=\"/tree?id="), "{page}");
    let load = page.split("data-load=\"").nth(1).unwrap().split('"').next().unwrap();
    let part = web.get(&load.replace("&amp;", "&")).ok().text();
    assert!(part.starts_with("<ul class=\"tree\">") && part.contains("many"), "{part}");
    let dir = fixture.project().join("many/2");
    let part =
        web.get(&format!("/tree?{}", encoded(&[("id", &id), ("dir", dir.to_str().unwrap())])));
    assert_eq!(part.ok().text().matches("<a class=\"name\"").count(), 300);
}

#[test]
fn files_that_are_no_text_are_said_so_and_are_never_read_whole() {
    let fixture = Fixture::new();
    fixture.write("binary", "a\0b");
    fixture.write("picture.png", "");
    let work = "printf 'c\\0d' > binary; head -c 3000000 /dev/zero | tr '\\0' 'x' > huge; \
                printf '\\211PNG\\r\\n\\032\\n0000' > picture.png; printf '<svg/>' > drawing.svg";
    fixture.record(work).success();
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let path = |name: &str| fixture.project().join(name).to_str().unwrap().to_owned();
    let file = |name: &str| {
        web.get(&format!("/file?{}", encoded(&[("id", &id), ("path", &path(name))]))).ok().text()
    };
    assert!(file("binary").contains("(binary, 3 B → 3 B)"));
    let huge = file("huge");
    assert!(huge.contains("2.9 MiB") && huge.len() < 20_000, "{}", huge.len());
    let raw = |name: &str, n: &str| {
        web.get(&format!(
            "/raw?{}",
            encoded(&[("id", &id), ("n", n), ("path", &path(name)), ("show", "1")])
        ))
    };
    let whole = raw("huge", "1").ok();
    assert_eq!(whole.body, vec![b'x'; 3_000_000]);
    assert_eq!(raw("picture.png", "1").ok().field("content-type"), Some("image/png"));
    assert_eq!(
        raw("drawing.svg", "1").ok().field("content-type"),
        Some("application/octet-stream")
    );
    assert!(raw("huge", "0").status >= 400, "the first state has no such file");
}

#[test]
fn a_page_hears_of_a_run_as_it_begins_and_ends() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    fixture.record("true").success();
    let web = Web::start(&fixture);
    let host = web.host();
    let stream = web.begin("GET", "/events", &[("Host", &host), ("Cookie", &web.cookie)], b"");
    let mut lines = BufReader::new(stream).lines();
    let head = lines.next().unwrap().unwrap();
    assert!(head.contains("200"), "{head}");
    fixture.record("echo b > a").success();
    let new = first_id(&web.get("/").ok().text());
    let told =
        lines.map_while(Result::ok).any(|line| line.starts_with("data:") && line.contains(&new));
    assert!(told, "the page heard nothing of {new}");
}

#[test]
fn a_session_is_exported_without_what_is_hidden_and_without_a_script() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    let work = "echo 'public words' > b.txt; printf 'SE%s' CRET=1 > .env; mkdir keys; printf '%s key' private > keys/id";
    fixture.record(work).success();
    let out = fixture.project().join("report");
    let words =
        ["ui", "latest", "--export", out.to_str().unwrap(), "--hide", ".env", "--hide", "keys"];
    fixture.nono(&words).success();
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("public words"), "{page}");
    assert!(!page.contains("SECRET=1") && !page.contains("private key"), "{page}");
    assert!(page.contains(".env") && page.contains("The contents are left out."), "{page}");
    for outside in ["http://", "https://", "<script", "src=", "/assets/"] {
        assert!(!page.contains(outside), "{outside} in {page}");
    }
    fixture.nono(&words).fails(1, "index.html");
    fixture.nono(&["ui", "--hide", "x"]).fails(2, "--export");
}

#[test]
fn the_server_ends_when_no_page_is_open() {
    let fixture = recorded();
    let web = Web::unopened(&fixture, &["--idle-seconds", "1"]);
    let (code, said) = web.wait();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_store_of_nothing_says_what_to_type() {
    let fixture = Fixture::new();
    let web = Web::start(&fixture);
    let page = web.get("/").ok().text();
    assert!(page.contains("Nothing is recorded yet") && page.contains("nono run --"), "{page}");
    assert!(web.get("/forks").ok().text().contains("nono fork"));
    assert!(web.get("/search").ok().text().contains("glob"));
}

#[test]
fn a_form_of_a_fork_means_that_fork_and_no_other_of_its_name() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("file", "here");
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "there").unwrap();
    let fork = |place: &Path, arguments: &[&str]| {
        let mut command = fixture.command(&[&["fork"], arguments].concat());
        finished(command.current_dir(place).output().unwrap()).success()
    };
    let session = |place: &Path| {
        fork(place, &["idea", "--", "sh", "-c", "echo fork > file"]);
        let shown = fork(place, &["show", "idea", "--json"]).json();
        shown["session_id"].as_str().unwrap().to_owned()
    };
    let (here, there) = (session(&fixture.project()), session(&other));
    let web = Web::start(&fixture);
    let page = web.get("/forks").ok().text();
    let token = form_token(&page);
    for id in [&here, &there] {
        assert!(page.contains(&format!("name=\"id\" value=\"{id}\"")), "{page}");
    }
    let send = |id: &str, what: &str| {
        let fields = [("form_token", &*token), ("id", id), ("what", what), ("confirm", "idea")];
        web.post("/forks", &fields)
    };
    assert!(send(&here, "plan").ok().text().contains("This is what a merge would do"));
    assert_eq!(fs::read(fixture.project().join("file")).unwrap(), b"here");
    assert!(send(&here, "merge").ok().text().contains("The merge"));
    assert_eq!(fs::read(fixture.project().join("file")).unwrap(), b"fork\n");
    assert_eq!(fs::read(other.join("file")).unwrap(), b"there");
    send(&here, "discard").ok();
    let is_there = |id: &str| fixture.store().join("forks").join(id).exists();
    assert!(!is_there(&here) && is_there(&there));
    // The page is older than the fork.
    assert_ne!(send(&here, "discard").status, 200);
    assert!(is_there(&there));
}

#[test]
fn verification_and_cleanup_report_in_a_page() {
    let fixture = recorded();
    let web = Web::start(&fixture);
    let store = web.get("/store").ok().text();
    assert!(store.contains("By project"), "{store}");
    let form = form_token(&store);
    let verified = web.post("/verify", &[("form_token", &form)]).ok().text();
    assert!(verified.contains("Every byte is as it was recorded"), "{verified}");
    let plan = web.get("/cleanup?days=0").ok().text();
    assert!(plan.contains("This is what a cleanup would do"), "{plan}");
    assert_eq!(ids(&web.get("/").ok().text()).count(), 1, "a plan removes nothing");
    web.post("/cleanup", &[("form_token", &form), ("days", "0")]).ok();
    assert_eq!(ids(&web.get("/").ok().text()).count(), 0);
}

#[test]
fn steps_of_an_agent_are_taken_back_one_by_one() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.prompt("first");
    agent.shell("echo 1 > one");
    agent.shell("echo 2 > two");
    agent.turn_end();
    let web = Web::start(&fixture);
    let id = first_id(&web.get("/").ok().text());
    let page = web.get(&format!("/session?id={id}")).ok().text();
    assert!(page.contains("name=\"step\" value=\"1\"") && page.contains("first"), "{page}");
    let plan = web.get(&format!("/undo?id={id}&what=steps&step=1")).ok().text();
    assert!(
        plan.contains("Undo what step 1 did") && plan.contains("This changes 1 path<"),
        "{plan}"
    );
    let fields = [
        ("form_token", &*form_token(&plan)),
        ("id", &id),
        ("what", "steps"),
        ("step", "1"),
        ("count", "1"),
    ];
    assert!(web.post("/undo", &fields).ok().text().contains("<h1>Done</h1>"));
    assert!(!fixture.project().join("one").exists());
    assert_eq!(read(&fixture, "two"), "2\n");
}
