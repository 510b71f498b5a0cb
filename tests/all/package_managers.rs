//! Package managers under the profile `generic`: the real programs install a local package, with
//! the network unused, and the undo takes back what they wrote into the project.
//!
//! Each one runs in an empty home, and in one where it has been before. The second home matters:
//! where its own directory is there, a program insists on a place in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::Fixture;
use crate::not_run::not_run;

/// A package manager, and the way to install with it.
struct Manager {
    /// The program that has to be there.
    program: &'static str,
    /// The directories of a home where it has been before.
    used: &'static [&'static str],
    /// Makes the project.
    project: fn(&Fixture),
    /// Installs, and proves that the package works: it prints `works`.
    script: &'static str,
    /// A file that the script makes in the project, and that the undo removes.
    made: &'static str,
}

const MANAGERS: [Manager; 10] = [
    Manager {
        program: "npm",
        used: &[".npm/_cacache", ".npm/_logs"],
        project: node_project,
        script: "npm install --offline && node -e 'console.log(require(\"dep\"))'",
        made: "package-lock.json",
    },
    Manager {
        program: "pnpm",
        used: &[".local/share/pnpm"],
        project: node_project,
        script: "pnpm install --offline && node -e 'console.log(require(\"dep\"))'",
        made: "pnpm-lock.yaml",
    },
    Manager {
        program: "yarn",
        used: &[".yarn", ".cache/yarn"],
        project: node_project,
        script: "yarn install --offline && node -e 'console.log(require(\"dep\"))'",
        made: "yarn.lock",
    },
    // Yarn since its version 2, which has its cache elsewhere.
    Manager {
        program: "yarn.js",
        used: &[".yarn/berry/cache", ".cache"],
        project: |fixture| {
            node_project(fixture);
            fixture.write("yarn.lock", "");
        },
        script: "export YARN_ENABLE_NETWORK=0; yarn.js install && \
                 yarn.js node -e 'console.log(require(\"dep\"))'",
        made: ".pnp.cjs",
    },
    Manager {
        program: "bun",
        used: &[".bun/install/cache", ".bun/bin"],
        project: node_project,
        script: "bun install --offline && bun -e 'console.log(require(\"dep\"))'",
        made: "bun.lock",
    },
    Manager {
        program: "uv",
        used: &[".local/share/uv/python", ".cache/uv"],
        project: |fixture| {
            let text = "[project]\nname = \"app\"\nversion = \"1\"\nrequires-python = \">=3.8\"\n";
            fixture.write("pyproject.toml", text);
        },
        script: "uv run --offline --no-python-downloads --python /usr/bin/python3 \
                 python -c 'print(\"works\")'",
        made: "uv.lock",
    },
    Manager {
        program: "/usr/bin/python3",
        used: &[".cache/pip", ".local/lib", ".local/bin"],
        project: |fixture| {
            fixture.write("wheel.py", WHEEL);
        },
        script: "/usr/bin/python3 wheel.py && /usr/bin/python3 -m venv venv && \
                 venv/bin/pip install --no-index dep-1-py3-none-any.whl && \
                 venv/bin/python -c 'import dep; print(dep.text)'",
        made: "dep-1-py3-none-any.whl",
    },
    Manager {
        program: "cargo",
        used: &[".cargo/registry", ".cargo/git", ".cargo/bin"],
        project: |fixture| {
            let of = |name: &str, rest: &str| {
                format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\n{rest}")
            };
            fixture.write("Cargo.toml", of("app", "[dependencies]\ndep = { path = \"dep\" }\n"));
            fixture.write("src/main.rs", "fn main() {\n    println!(\"{}\", dep::TEXT);\n}\n");
            fixture.write("dep/Cargo.toml", of("dep", ""));
            fixture.write("dep/src/lib.rs", "pub const TEXT: &str = \"works\";\n");
        },
        script: "cargo run --offline",
        made: "Cargo.lock",
    },
    Manager {
        program: "go",
        used: &["go/pkg/mod", "go/bin", ".cache/go-build"],
        project: |fixture| {
            fixture.write("proxy.py", PROXY);
            fixture.write("go.mod", "module app\n\ngo 1.18\n\nrequire example.com/dep v1.0.0\n");
            let main = "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/dep\"\n)\n\n\
                        func main() { fmt.Println(dep.Text) }\n";
            fixture.write("main.go", main);
        },
        script: "/usr/bin/python3 proxy.py && export GOPROXY=\"file://$PWD/proxy\" GONOSUMDB=* \
                 GOTOOLCHAIN=local GOFLAGS=-mod=mod && go run .",
        made: "go.sum",
    },
    Manager {
        program: "gradle",
        used: &[".gradle/caches", ".gradle/wrapper"],
        project: |fixture| {
            fixture.write("build.gradle", "task hello { doLast { println 'works' } }\n");
        },
        // Java asks the list of users for the home, and not the variable.
        script: "export GRADLE_USER_HOME=\"$HOME/.gradle\"; gradle --offline --no-daemon -q hello",
        made: ".gradle",
    },
];

/// Writes a wheel of a package `dep`.
const WHEEL: &str = r#"
import zipfile
with zipfile.ZipFile("dep-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr("dep.py", "text = 'works'\n")
    info = "dep-1.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: dep\nVersion: 1\n")
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    wheel.writestr(info + "WHEEL", tags)
    wheel.writestr(info + "RECORD", "dep.py,,\n")
"#;

/// Writes a proxy of modules, with one module.
const PROXY: &str = r#"
import os, zipfile
os.makedirs("proxy/example.com/dep/@v")
at = "proxy/example.com/dep/@v/"
mod = "module example.com/dep\n"
texts = {"list": "v1.0.0\n", "v1.0.0.info": '{"Version": "v1.0.0"}', "v1.0.0.mod": mod}
for name, text in texts.items():
    with open(at + name, "w") as file:
        file.write(text)
with zipfile.ZipFile(at + "v1.0.0.zip", "w") as module:
    module.writestr("example.com/dep@v1.0.0/go.mod", mod)
    source = 'package dep\n\nconst Text = "works"\n'
    module.writestr("example.com/dep@v1.0.0/dep.go", source)
"#;

/// A project whose dependency is an archive beside it, which goes through the cache of a package
/// manager as a download does.
fn node_project(fixture: &Fixture) {
    let package = fixture.path("archive/package");
    fs::create_dir_all(&package).unwrap();
    let about = r#"{"name": "dep", "version": "1.0.0", "main": "index.js"}"#;
    fs::write(package.join("package.json"), about).unwrap();
    fs::write(package.join("index.js"), "module.exports = 'works'\n").unwrap();
    let archive = fixture.project().join("dep.tgz");
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&archive).arg("-C").arg(fixture.path("archive")).arg("package");
    assert!(tar.status().unwrap().success());
    let about = r#"{"name": "app", "version": "1.0.0", "dependencies": {"dep": "file:./dep.tgz"}}"#;
    fixture.write("package.json", about);
}

/// The programs that `scripts/test` installs.
fn installed() -> PathBuf {
    let named = std::env::var_os("NONO_TEST_PACKAGERS").map(PathBuf::from);
    named.unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools/packagers")
    })
}

/// The directories of programs, and the trees that these programs need to read.
fn places(program: &str) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let installed = installed();
    let mut of_programs = vec!["/usr/bin".into(), "/bin".into(), "/usr/local/bin".into()];
    let mut trees = Vec::new();
    if installed.exists() {
        of_programs.extend([installed.join("node_modules/.bin"), installed.join("uv/bin")]);
        of_programs.push(installed.join("berry/node_modules/@yarnpkg/cli-dist/bin"));
        trees.push(installed);
    }
    // The one that builds the tests: `~/.cargo/bin` has a link to a program that looks in the home.
    let cargo = std::env::var_os("CARGO").map(PathBuf::from);
    if let Some(bin) = cargo.as_deref().and_then(Path::parent).filter(|_| program == "cargo") {
        of_programs.insert(0, bin.to_owned());
        trees.extend(bin.parent().map(Path::to_owned));
    }
    (of_programs, trees)
}

#[test]
fn package_managers_install_under_the_profile_generic() {
    for manager in MANAGERS {
        let (of_programs, trees) = places(manager.program);
        let is_there = |dir: &PathBuf| dir.join(manager.program).exists();
        if !of_programs.iter().any(is_there) {
            not_run(format_args!("no {}: it does not install packages", manager.program));
            continue;
        }
        let path = std::env::join_paths(&of_programs).unwrap();
        for used in [&[][..], manager.used] {
            let case = format!("{} in a home with {used:?}", manager.program);
            let fixture = Fixture::new();
            for dir in used {
                fs::create_dir_all(fixture.path("home").join(dir)).unwrap();
            }
            (manager.project)(&fixture);
            let before = names(&fixture.project());
            let mut arguments = vec!["run", "--rollback", "--profile", "generic"];
            for tree in &trees {
                arguments.extend(["--read", tree.to_str().unwrap()]);
            }
            arguments.extend(["--", "sh", "-c", manager.script]);
            let mut command = fixture.command(&arguments);
            let done = crate::fixture::finished(command.env("PATH", &path).output().unwrap());
            let said = format!("{case}:\n{}\n{}", done.stdout, done.stderr);
            assert_eq!(done.code, 0, "{said}");
            assert_eq!(done.stdout.lines().last(), Some("works"), "{said}");
            let made = fixture.project().join(manager.made);
            assert!(made.exists(), "{said}");
            fixture.nono(&["undo", "--yes"]).success();
            assert!(!made.exists(), "{said}");
            // The rest can be made again, and nothing that was there is gone.
            let after = names(&fixture.project());
            let lost: Vec<_> = before.iter().filter(|name| !after.contains(name)).collect();
            assert!(lost.is_empty(), "{said}: {lost:?}");
        }
    }
}

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}
