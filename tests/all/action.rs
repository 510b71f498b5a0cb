//! The composite action: its steps, run in its order without the service that runs actions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};

/// A place for the action, as a runner makes it.
struct Runner {
    fixture: Fixture,
    output: PathBuf,
}

/// A step of `action.yml` that runs a script: its environment, and the script.
#[derive(Debug)]
struct Step {
    environment: Vec<(String, String)>,
    script: String,
}

/// The steps of the action that run a script. The file is ours: a key to a line.
fn steps() -> Vec<Step> {
    let action = fs::read_to_string(action_dir().join("action.yml")).unwrap();
    let (_, steps) = action.split_once("\n  steps:\n").unwrap();
    let steps = steps.split("    - ").filter(|step| step.contains("\n      run: "));
    steps
        .map(|step| {
            let lines = step.lines();
            let environment = lines.clone().filter_map(|line| line.strip_prefix("        NONO_"));
            let environment = environment.map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                (format!("NONO_{name}"), value.to_owned())
            });
            let script = lines.clone().find_map(|line| line.strip_prefix("      run: "));
            Step { environment: environment.collect(), script: script.unwrap().to_owned() }
        })
        .collect()
}

fn action_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("action")
}

impl Runner {
    fn new() -> Self {
        let fixture = Fixture::new();
        let output = fixture.path("output");
        fs::write(&output, "").unwrap();
        Self { fixture, output }
    }

    /// An output of a step so far.
    fn output(&self, name: &str) -> String {
        let text = fs::read_to_string(&self.output).unwrap();
        let line = text.lines().rev().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_default().to_owned()
    }

    /// A value in which the service puts inputs and outputs: `${{ inputs.command }}`.
    fn value(&self, template: &str, inputs: &[(&str, &str)]) -> String {
        let (_, name) = template.split_once("${{ ").unwrap();
        let name = name.split_once(" }}").unwrap().0;
        match (name.strip_prefix("inputs."), name.strip_prefix("steps.run.outputs.")) {
            (Some(input), _) => {
                let given = inputs.iter().find(|(name, _)| *name == input);
                given.unwrap_or_else(|| panic!("no input {input}")).1.to_owned()
            }
            (_, Some(output)) => self.output(output),
            _ => panic!("{template}"),
        }
    }

    /// Runs the steps until one fails, as the service does. The end of the last one.
    fn run(&self, command: &str, options: &str) -> Finished {
        let program = env!("CARGO_BIN_EXE_nono");
        let inputs =
            [("command", command), ("nono", program), ("options", options), ("hide", ".env*")];
        let steps = steps();
        assert_eq!(steps.len(), 2, "{steps:?}");
        let mut last = None;
        for step in steps {
            let mut shell = Command::new("bash");
            shell.args(["-e", "-c", &step.script]).current_dir(self.fixture.project());
            shell.env("HOME", self.fixture.path("home")).env("NONO_ROOT", self.fixture.store());
            shell.env("GITHUB_ACTION_PATH", action_dir()).env("GITHUB_OUTPUT", &self.output);
            shell.env("RUNNER_TEMP", self.fixture.path("home"));
            for (name, template) in &step.environment {
                shell.env(name, self.value(template, &inputs));
            }
            let done = finished(shell.output().unwrap());
            let failed = done.code != 0;
            last = Some(done);
            if failed {
                break;
            }
        }
        last.unwrap()
    }
}

#[test]
fn the_action_keeps_report_patch_and_page_and_passes_on_the_exit_code() {
    let runner = Runner::new();
    let project = runner.fixture.project();
    runner.fixture.write("version", "1.0\n");
    runner.fixture.write(".env", "KEY=old-secret\n");
    let done = runner.run("echo 1.1 > version; sed -i s/old/new/ .env; exit 3", "");
    assert_eq!(done.code, 3, "{}{}", done.stdout, done.stderr);
    assert_eq!(runner.output("exit-code"), "3");
    assert_eq!(runner.output("session"), runner.fixture.latest());
    let files = PathBuf::from(runner.output("files"));
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(files.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["exit_code"], 3);
    assert_eq!(report["root"], runner.output("root"));
    let page = fs::read_to_string(files.join("page/index.html")).unwrap();
    assert!(page.contains("version") && !page.contains("new-secret"), "{page}");
    // The patch makes of the state before the state after.
    let root = runner.output("root");
    runner.fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(project.join("version")).unwrap(), "1.0\n");
    let mut patch = Command::new("patch");
    patch.args(["-p1", "-i"]).arg(files.join("changes.patch")).current_dir(&project);
    finished(patch.output().unwrap()).success();
    assert_eq!(fs::read_to_string(project.join("version")).unwrap(), "1.1\n");
    assert_eq!(fs::read_to_string(project.join(".env")).unwrap(), "KEY=new-secret\n");
    let session = runner.output("session");
    runner.fixture.nono(&["verify", &session, "--expect-root", &root]).success();
}

#[test]
fn the_action_succeeds_with_its_command_and_fails_where_nono_refuses_it() {
    let runner = Runner::new();
    runner.fixture.write("a", "1\n");
    assert_eq!(runner.run("true", "").code, 0);
    assert_eq!(runner.output("exit-code"), "0");
    let refused = Runner::new();
    let done = refused.run("true", "--no-such-option");
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.says("did not run the command"), "{}", done.stderr);
    assert_eq!(refused.output("files"), "");
}
