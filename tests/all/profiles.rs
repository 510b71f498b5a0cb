//! Profiles: the grants of a kind of command, and its recorded places.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::fixture::{Finished, Fixture};

/// Writes a profile of the user.
fn profile(fixture: &Fixture, file: &str, text: &str) -> PathBuf {
    let dir = fixture.path("home/.config/nono/profiles");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(file);
    fs::write(&path, text).unwrap();
    path
}

fn run(fixture: &Fixture, profile: &str, flags: &[&str], script: &str) -> Finished {
    let run = ["run", "--rollback", "--profile", profile];
    fixture.nono(&[&run, flags, &["--", "sh", "-c", script]].concat())
}

#[test]
fn what_an_agent_keeps_for_itself_is_written_and_not_recorded() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let script = "echo 2 > a && echo x > ~/.claude/settings.json && echo y > ~/.cache/x && \
                  cat ~/.claude.json && echo z > ~/.claude.json";
    assert_eq!(run(&fixture, "claude-code", &[], script).success().stdout, "{}\n");
    assert_eq!(fs::read(fixture.path("home/.claude/settings.json")).unwrap(), b"x\n");
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    let changes = show["snapshots"][1]["changes"].as_array().unwrap().clone();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(show["tracked_paths"][0], fixture.project().to_str().unwrap());
    // An existing file is kept.
    let again = run(&fixture, "claude-code", &[], "cat ~/.claude.json").success();
    assert_eq!(again.stdout, "z\n");
    // Nothing else of the home directory.
    let script = "echo x > ~/.claude-other || echo x > ~/.codex/x || cat ~/.ssh/id";
    fs::create_dir_all(fixture.path("home/.ssh")).unwrap();
    fs::write(fixture.path("home/.ssh/id"), "secret").unwrap();
    let tried = run(&fixture, "claude-code", &[], script);
    assert_ne!(tried.code, 0);
    assert!(!tried.stdout.contains("secret"));
}

#[test]
fn every_built_in_profile_is_sound_and_runs_a_command() {
    for fixture in [Fixture::new(), Fixture::ordinary_user()] {
        fixture.write("a", "1");
        let list = fixture.nono(&["profile", "list", "--json"]).success().json();
        let names: Vec<&str> =
            list.as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["claude-code", "codex", "gemini", "generic", "opencode"]);
        fixture.nono(&["profile", "check"]).success();
        for name in names {
            run(&fixture, name, &[], "echo 2 >> a").success();
        }
    }
}

#[test]
fn secrets_that_git_ignores_are_recorded_but_not_searched_for_in_build_directories() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", ".env*\n*.local\nvendor/\n");
    fixture.write(".env", "1");
    fixture.write("sub/.env.test", "1");
    fixture.write("vendor/settings.local", "1");
    fixture.write("node_modules/x/.env", "1");
    fixture.write("node_modules/.package-lock.json", "{\"node_modules/x\": {}}");
    fixture.write(".git/x.local", "1");
    let script = "for f in .env sub/.env.test vendor/settings.local node_modules/x/.env \
                  .git/x.local; do echo 2 > $f; done";
    run(&fixture, "generic", &[], script).success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    assert_eq!(read(".env"), "1");
    assert_eq!(read("sub/.env.test"), "1");
    assert_eq!(read("vendor/settings.local"), "1");
    // Left alone by the restore as by the capture, and not deleted.
    assert_eq!(read("node_modules/x/.env"), "2\n");
    assert_eq!(read(".git/x.local"), "1");
    // A pattern that names the way is followed.
    run(&fixture, "generic", &["--rollback-include", "node_modules/x"], "rm -r node_modules")
        .success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(read("node_modules/x/.env"), "2\n");
}

#[test]
fn profiles_extend_each_other_and_flags_add_to_them() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    for dir in ["one", "two", "three", "home/kept"] {
        fs::create_dir_all(fixture.path(dir)).unwrap();
    }
    fixture.write("one.log", "1");
    let of = |name: &str| fixture.path(name).to_str().unwrap().to_owned();
    profile(
        &fixture,
        "base.json",
        &format!(
            r#"{{"extends": "generic", "write": ["{}", "~/nowhere"], "env": {{"set": {{"A": "1", "B": "1"}}}}}}"#,
            of("one")
        ),
    );
    let text = format!(
        "extends = \"base\"\nwrite = [\"$HOME/kept\"]\nallow = [\"{}\", \".\"]\n\
         [env]\nunset = [\"SECRET*\"]\n[env.set]\nB = \"2\"\n[undo]\nexclude_globs = [\"*.log\"]\n",
        of("two")
    );
    profile(&fixture, "mine.toml", &text);
    let script = format!(
        "echo $A$B$SECRET_KEY; echo 2 > a; echo 2 > one.log; echo x > {}/x && echo x > {}/x && \
         echo x > {}/x && echo x > ~/kept/x",
        of("one"),
        of("two"),
        of("three")
    );
    let three = of("three");
    let run = fixture
        .command(&["run", "--rollback", "--profile", "mine", "--write", &three, "--", "sh", "-c"])
        .arg(&script)
        .env("SECRET_KEY", "secret")
        .output()
        .unwrap();
    let run = crate::fixture::finished(run).success();
    assert_eq!(run.stdout, "12\n");
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    let changed: Vec<&str> = show["snapshots"][1]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    assert_eq!(changed, [of("project/a"), of("two/x")]);
    let shown = fixture.nono(&["profile", "show", "mine", "--json"]).success().json();
    assert_eq!(shown["extends"], serde_json::json!(["base", "generic"]));
    assert_eq!(shown["profile"]["env"]["set"]["B"], "2");
    let shown = fixture.nono(&["profile", "show", "mine"]).success().stdout;
    assert!(shown.contains("~/nowhere (not there)"), "{shown}");
}

#[test]
fn a_profile_closes_or_narrows_the_network_and_flags_add_ports() {
    let fixture = Fixture::new();
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (first, second) = (listen(), listen());
    let port = |listener: &std::net::TcpListener| listener.local_addr().unwrap().port();
    let (one, two) = (port(&first), port(&second));
    profile(&fixture, "closed.json", r#"{"network": false}"#);
    profile(&fixture, "narrow.json", &format!(r#"{{"network": {{"connect": [{one}]}}}}"#));
    let reaches = |name: &str, flags: &[&str], port: u16| {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let run = ["run", "--profile", name];
        fixture.nono(&[&run, flags, &["--", "bash", "-c", &script]].concat()).code == 0
    };
    assert!(reaches("generic", &[], one));
    assert!(!reaches("closed", &[], one));
    assert!(reaches("narrow", &[], one) && !reaches("narrow", &[], two));
    let more = ["--allow-connect", &two.to_string()];
    assert!(reaches("narrow", &more, one) && reaches("narrow", &more, two));
    assert!(!reaches("generic", &["--block-net"], one));
}

#[test]
fn mistakes_are_named_with_the_place_and_what_was_meant() {
    let fixture = Fixture::new();
    for (file, text, place, meant) in [
        ("a.json", "{\n \"alow\": []}", "a.json:2:7", "did you mean \"allow\"?"),
        (
            "b.json",
            "{\"rollback\": {\"exclude_pattern\": []}}",
            "b.json:1:",
            "\"exclude_patterns\"",
        ),
        ("c.toml", "read = []\n\n[undo]\nforce_includ = []\n", "c.toml:4:1", "\"force_include\""),
        ("d.json", "{\"network\": \"on\"}", "d.json:1:", "true, false, or a table"),
        ("e.json", "{\"network\": {\"conect\": []}}", "e.json:1:", "\"connect\""),
        ("f.json", "{\"allow\": [\"~ada/x\"]}", "~ada/x", "home directory"),
        ("g.json", "{\"allow\": [], \"allow\": []}", "g.json:1:", "duplicate"),
        ("h.json", "{\"rollback\": {}, \"undo\": {}}", "h.json:1:", "duplicate"),
        ("i.json", "{\"env\": {\"unset\": [\"[\"]}}", "profile i: env", "["),
        ("j.json", "{\"rollback\": {\"exclude_patterns\": [\"../x\"]}}", "profile j", "../x"),
        ("k.json", "{", "k.json:1:", "EOF"),
    ] {
        let name = file.split('.').next().unwrap();
        let path = profile(&fixture, file, text);
        let failed = run(&fixture, name, &[], "touch ran").fails(2, place);
        assert!(failed.stderr.contains(meant), "{file}: {}", failed.stderr);
        let checked = fixture.nono(&["profile", "check", name]);
        assert_eq!(checked.code, 1, "{file}");
        assert!(checked.stdout.contains(meant), "{file}: {}", checked.stdout);
        fs::remove_file(path).unwrap();
    }
    run(&fixture, "claude-cod", &[], "touch ran").fails(2, "did you mean --profile claude-code?");
    for tool in ["node", "cargo", "python"] {
        let hint = format!("the profile generic has what {tool} needs: --profile generic");
        fixture.nono(&["profile", "show", tool]).fails(2, &hint);
    }
    run(&fixture, "./missing.json", &[], "touch ran").fails(1, "missing.json");
    profile(&fixture, "a.json", r#"{"extends": "b"}"#);
    profile(&fixture, "b.json", r#"{"extends": "c"}"#);
    profile(&fixture, "c.json", r#"{"extends": "a"}"#);
    run(&fixture, "a", &[], "touch ran").fails(2, "in a circle: a -> b -> c -> a");
    profile(&fixture, "c.json", r#"{"extends": "../c"}"#);
    run(&fixture, "a", &[], "touch ran").fails(2, "there is no profile \"../c\"");
    profile(&fixture, "c.json", r#"{"extends": "c"}"#);
    run(&fixture, "a", &[], "touch ran").fails(2, "in a circle: a -> b -> c -> c");
    assert!(!fixture.project().join("ran").exists());
    // The list goes on where one is wrong.
    profile(&fixture, "k.json", "{");
    let list = fixture.nono(&["profile", "list"]).success();
    assert!(list.stdout.contains("k ") && list.stdout.contains("not valid"), "{}", list.stdout);
}

#[test]
fn another_name_of_an_agent_means_its_profile_unless_a_profile_has_that_name() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    for (name, meant) in [("claude", "claude-code"), ("Gemini-CLI", "gemini"), ("codex", "codex")] {
        let shown = fixture.nono(&["profile", "show", name]).success().stdout;
        assert!(shown.starts_with(&format!("{meant} (built in)\n")), "{shown}");
    }
    run(&fixture, "claude", &[], "echo x > ~/.claude/x").success();
    let file = profile(&fixture, "claude.json", r#"{"description": "mine"}"#);
    assert!(fixture.nono(&["profile", "show", "claude"]).success().says("mine"));
    fs::remove_file(file).unwrap();
}

#[test]
fn a_profile_of_the_user_hides_a_built_in_one_and_may_extend_it() {
    let fixture = Fixture::new();
    profile(&fixture, "codex.json", r#"{"extends": "codex", "env": {"set": {"MINE": "1"}}}"#);
    let run = run(&fixture, "codex", &[], "echo $MINE; touch ~/.codex/x").success();
    assert_eq!(run.stdout, "1\n");
    let shown = fixture.nono(&["profile", "show", "codex", "--json"]).success().json();
    assert_eq!(shown["extends"], serde_json::json!(["codex", "generic"]));
}

#[test]
fn a_profile_cannot_grant_the_record_or_the_configuration() {
    let fixture = Fixture::new();
    let home = fixture.path("home");
    fs::create_dir_all(fixture.store()).unwrap();
    for (key, place, what) in [
        ("allow", "~", "the store"),
        ("write", "~/.nono", "the store"),
        ("read", "$HOME/.nono/rollbacks/x/..", "the store"),
        ("create", "~/.nono/rollbacks/new", "the store"),
        ("create_files", "~/.nono/rollbacks/new", "the store"),
        ("create_files", "~/.config/nono/config.toml", "configuration"),
        ("write", "~/.config", "configuration"),
        ("create", "$XDG_CONFIG_HOME/nono/profiles/mine", "configuration"),
        ("read", "~/link", "configuration"),
    ] {
        symlink(home.join(".config"), home.join("link")).unwrap();
        let places = match key {
            "create_files" => format!(r#"{{"{place}": ""}}"#),
            _ => format!(r#"["{place}"]"#),
        };
        profile(&fixture, "bad.json", &format!(r#"{{"{key}": {places}}}"#));
        run(&fixture, "bad", &["--allow-cwd"], "touch ran").fails(1, what);
        fixture.nono(&["profile", "check", "bad"]).fails(1, "");
        fs::remove_file(home.join("link")).unwrap();
    }
    assert!(!home.join(".config/nono/profiles/mine").exists());
    assert!(!fixture.store().join("new").exists());
    assert!(!home.join(".config/nono/config.toml").exists());
    // A directory of dotfiles that the configuration points into.
    fs::create_dir(fixture.path("dotfiles")).unwrap();
    let linked = fixture.path("dotfiles/linked.json");
    fs::write(&linked, "{}").unwrap();
    symlink(&linked, home.join(".config/nono/profiles/linked.json")).unwrap();
    let dotfiles = fixture.path("dotfiles");
    run(&fixture, "linked", &["--write", dotfiles.to_str().unwrap()], "touch ran")
        .fails(1, "configuration");
    assert!(!fixture.project().join("ran").exists());
    // A file name for the place where the command works is an error.
    fixture.write("own.json", "{}");
    let named = run(&fixture, "./own.json", &[], "touch ran").success();
    assert!(named.stderr.contains("can change its own profile"), "{}", named.stderr);
    let elsewhere = fixture.path("elsewhere.json");
    fs::write(&elsewhere, "{}").unwrap();
    let named = run(&fixture, elsewhere.to_str().unwrap(), &[], "touch ran").success();
    assert!(!named.stderr.contains("its own profile"), "{}", named.stderr);
}

#[test]
fn the_directory_of_the_configuration_is_where_xdg_says() {
    let fixture = Fixture::new();
    let config = fixture.path("config");
    fs::create_dir_all(config.join("nono/profiles")).unwrap();
    fs::write(config.join("nono/profiles/mine.json"), r#"{"env": {"set": {"X": "1"}}}"#).unwrap();
    let with_xdg = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        crate::fixture::finished(command.env("XDG_CONFIG_HOME", &config).output().unwrap())
    };
    let run = with_xdg(&["run", "--profile", "mine", "--", "sh", "-c", "echo $X"]).success();
    assert_eq!(run.stdout, "1\n");
    let inside = ["run", "--allow", config.to_str().unwrap(), "--", "true"];
    with_xdg(&inside).fails(1, "configuration");
    fixture.nono(&["run", "--profile", "mine", "--", "true"]).fails(2, "no profile \"mine\"");
}

#[test]
fn nothing_in_the_project_is_read_as_configuration() {
    let fixture = Fixture::new();
    for name in [".nono.json", "nono.toml", "config.toml", ".config/nono/config.toml"] {
        fixture.write(name, "not = [valid");
    }
    fixture.write(".config/nono/profiles/evil.json", "{}");
    fixture.record("true").success();
    fixture.nono(&["run", "--profile", "evil", "--", "true"]).fails(2, "no profile");
}

#[test]
fn the_package_of_an_agent_is_read_without_being_named() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let package = fixture.path("home/lib/node_modules/@maker/agent");
    fs::create_dir_all(&package).unwrap();
    // It needs what lies beside it.
    fs::create_dir_all(fixture.path("home/lib/node_modules/part")).unwrap();
    fs::write(fixture.path("home/lib/node_modules/part/text"), "works\n").unwrap();
    let script = "#!/bin/sh\ncat \"$(dirname \"$(readlink -f \"$0\")\")/../../part/text\"\n";
    fs::write(package.join("cli"), script).unwrap();
    fs::set_permissions(package.join("cli"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = package.join("cli");
    let run = |profile: &str| {
        let program = program.to_str().unwrap();
        fixture.nono(&["run", "--profile", profile, "--", program])
    };
    assert_eq!(run("claude-code").success().stdout, "works\n");
    assert_ne!(run("generic").code, 0);
}

#[test]
fn codex_is_told_that_its_sandbox_cannot_work_inside() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let program = fixture.path("codex");
    fs::write(&program, "#!/bin/sh\ntrue\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |flags: &[&str]| {
        let program = program.to_str().unwrap();
        fixture.nono(&[&["run", "--profile", "codex", "--", program], flags].concat()).success()
    };
    let flag = "--dangerously-bypass-approvals-and-sandbox";
    assert!(run(&[]).stderr.contains(flag));
    assert!(!run(&[flag]).stderr.contains("sandbox of codex"));
}
