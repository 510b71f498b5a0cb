//! What is there for convenience: completions, the manual, the doctor.

use std::fs;

use crate::fixture::Fixture;

#[test]
fn shells_get_completions_of_what_is_not_hidden() {
    let fixture = Fixture::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = fixture.nono(&["completions", shell]).success().stdout;
        assert!(script.contains("rollback") && script.contains("no-rollback-prompt"), "{shell}");
    }
    fixture.nono(&["completions", "none"]).fails(2, "none");
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let fixture = Fixture::new();
    let dir = fixture.path("man1");
    fixture.nono(&["man", dir.to_str().unwrap()]).success();
    for page in ["nono.1", "nono-run.1", "nono-rollback-restore.1"] {
        let page = fs::read_to_string(dir.join(page)).unwrap();
        assert!(page.contains(".TH"), "{page}");
    }
    assert!(!dir.join("nono-__sandbox-exec.1").exists());
}

#[test]
fn the_doctor_names_what_is_wrong_and_what_mends_it() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let of = |what: &str| {
        let findings = fixture.nono(&["doctor", "--json"]).json();
        findings.as_array().unwrap().iter().find(|found| found["what"] == what).unwrap().clone()
    };
    assert_eq!(of("sandbox")["ok"], true);
    assert_eq!(of("sessions")["ok"], true);
    let manifest = fixture.session().join("manifest.json");
    fs::write(&manifest, "{").unwrap();
    assert_eq!(of("sessions")["ok"], false);
    assert!(of("sessions")["mend"].as_str().unwrap().starts_with("nono rollback verify "));
    fixture.nono(&["doctor"]).fails(1, "");
}
