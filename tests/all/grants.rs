//! Grants and recorded paths when the arguments name something, and when they name nothing.

use std::fs;

use crate::fixture::Fixture;

/// The paths that the newest session tracks.
fn tracked(fixture: &Fixture) -> Vec<String> {
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let paths = list[0]["tracked_paths"].as_array().unwrap();
    paths.iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

/// A directory beside the project.
fn beside(fixture: &Fixture, name: &str) -> String {
    let path = fixture.path(name);
    fs::create_dir(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_may_be_written_besides_takes_nothing_away_from_the_current_directory() {
    let fixture = Fixture::new();
    let profiles = fixture.path("home/.config/nono/profiles");
    fs::create_dir_all(&profiles).unwrap();
    fs::write(profiles.join("mine.json"), r#"{"read": ["/etc"]}"#).unwrap();
    let caches = beside(&fixture, "caches");
    let project = fixture.project();
    for (number, profile) in [&[][..], &["--profile", "mine"]].into_iter().enumerate() {
        let granted = ["--write", &caches];
        let script = format!("echo {number} > a && echo {number} > {caches}/b");
        let run =
            [&["run", "--rollback"], profile, &granted, &["--", "sh", "-c", &script]].concat();
        fixture.nono(&run).success();
        assert_eq!(tracked(&fixture), [project.to_str().unwrap()], "{profile:?}");
        fixture.nono(&["rollback", "restore", "latest", "a"]).success();
    }
    // A path that is only written is not recorded: the undo leaves it.
    assert_eq!(fs::read_to_string(format!("{caches}/b")).unwrap(), "1\n");
    assert!(!project.join("a").exists());
}

#[test]
fn what_is_named_as_the_work_replaces_the_current_directory() {
    let fixture = Fixture::new();
    let (work, caches) = (beside(&fixture, "work"), beside(&fixture, "caches"));
    let run = ["run", "--rollback", "--allow", &work, "--write", &caches, "--", "sh", "-c"];
    let script = format!("echo 1 > {work}/a; echo 1 > a");
    assert_ne!(fixture.nono(&[&run[..], &[&script]].concat()).code, 0);
    assert_eq!(tracked(&fixture), [work]);
    assert!(!fixture.project().join("a").exists());
}

#[test]
fn the_home_directory_is_no_default_and_what_is_named_is_granted_there_all_the_same() {
    let fixture = Fixture::new();
    let caches = beside(&fixture, "caches");
    let in_home = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        crate::fixture::finished(command.current_dir(fixture.path("home")).output().unwrap())
    };
    let script = format!("echo 1 > {caches}/a");
    in_home(&["run", "--no-rollback", "--write", &caches, "--", "sh", "-c", &script]).success();
    let recorded = ["run", "--rollback", "--write", &caches, "--", "touch", "ran"];
    let refused = in_home(&recorded).fails(2, "the current directory is the home directory");
    assert!(refused.stderr.contains("--allow DIR"), "{}", refused.stderr);
    in_home(&["run", "--", "touch", "ran"]).fails(2, "the current directory is the home directory");
}

#[test]
fn git_works_with_its_settings_and_reads_no_link_to_elsewhere() {
    let fixture = Fixture::ordinary_user();
    let settings = fixture.path("home/.gitconfig");
    let text = "[user]\n\tname = Ada\n\temail = ada@example.org\n";
    fs::write(&settings, text).unwrap();
    let git = "git init -q . && git commit -q --allow-empty -m x && git log --format=%an";
    let run = ["run", "--rollback", "--", "sh", "-c", git];
    assert_eq!(fixture.nono(&run).success().stdout, "Ada\n");
    let elsewhere = fixture.path("elsewhere");
    fs::rename(&settings, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &settings).unwrap();
    assert!(!fixture.record("cat ~/.gitconfig").stdout.contains("Ada"));
}

#[test]
fn git_reads_the_settings_that_its_settings_include_and_no_secrets() {
    let fixture = Fixture::ordinary_user();
    let write = |name: &str, text: &str| {
        let path = fixture.path("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    write(".gitconfig", "[include]\n\tpath = .gitconfig-user\n\tpath = .gitconfig-missing\n");
    let user = "[user]\n\tname = Ada\n[includeIf \"gitdir:~/\"]\n\tpath = ~/work/.gitconfig\n\
                [include]\n\tpath = ~/work/.gitconfig\n";
    write(".gitconfig-user", user);
    write("work/.gitconfig", "[user]\n\temail = ada@example.org\n");
    let git = "git init -q . && git commit -q --allow-empty -m x && git log --format=%an-%ae";
    let run = fixture.record(git).success();
    assert_eq!(run.stdout, "Ada-ada@example.org\n");
    assert!(!run.stderr.contains("git's settings include"), "{}", run.stderr);

    // An included file that may be anything is named and not granted.
    let secret = write(".aws/credentials", "[default]\nkey = sesame\n");
    let nested = write("work/.gitconfig-nested", "[user]\n\tname = Eve\n");
    write("work/.gitconfig", &format!("[include]\n\tpath = {nested}\n"));
    write(".gitconfig-user", &format!("{user}[include]\n\tpath = {secret}\n"));
    let run = fixture.record(&format!("cat {secret} {nested}; true")).success();
    assert!(!run.stdout.contains("sesame") && !run.stdout.contains("Eve"), "{}", run.stdout);
    assert_eq!(run.stderr.matches("git's settings include").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains(&format!("--read {secret}")), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("--read {nested}")), "{}", run.stderr);
    let read = ["run", "--read", &secret, "--read", &nested, "--", "cat", &secret];
    let run = fixture.nono(&read).success();
    assert!(run.stdout.contains("sesame") && !run.stderr.contains("include"), "{}", run.stderr);
    // A link is not followed, and neither is one on the way.
    let elsewhere = fixture.path("elsewhere.gitconfig");
    fs::write(&elsewhere, "[user]\n\tname = Eve\n").unwrap();
    std::os::unix::fs::symlink(&elsewhere, fixture.path("home/.gitconfig-link")).unwrap();
    write(".gitconfig", "[include]\n\tpath = ~/.gitconfig-link\n");
    let run = fixture.record("cat ~/.gitconfig-link; true").success();
    assert!(
        !run.stdout.contains("Eve") && run.stderr.contains(".gitconfig-link"),
        "{}",
        run.stderr
    );
}
