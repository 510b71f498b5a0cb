//! `nono config`: the settings, where each value comes from, and changing them.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGQUIT};

use crate::cli::Outcome;
use crate::cli::args::{CaptureArgs, LimitArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::context::{Context, DIM};
use crate::cli::error::CliError;
#[cfg(feature = "archive")]
use crate::cli::sealing::Target;
use crate::cli::signals::{self, Taken};
use crate::config::nearest::suggestion;
use crate::config::{
    CONTAINERS_PREFIX, ConfigFile, ContainerLimits, FlagSettings, Origin, Setting, Settings,
    Surroundings, zero_means,
};
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::sys;

/// The setting that names a remote.
#[cfg(feature = "archive")]
const PUSH_AFTER_RUN: &str = "push_after_run";

/// Commands of `nono config`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ConfigCommand {
    /// Print the settings as a configuration file that says where each value comes from
    #[command(visible_alias = "list")]
    Show(ShowArgs),
    /// Print the value of a setting, wherever it comes from
    Get(GetArgs),
    /// Change a setting in the configuration file; comments stay
    Set(SetArgs),
    /// Take a setting out of the configuration file: its default holds again
    Unset(UnsetArgs),
    /// Edit the configuration file with $VISUAL or $EDITOR; nothing wrong replaces it
    Edit,
}

/// Arguments of `nono config show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the settings as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `nono config set`.
#[derive(Debug, Args)]
pub(in crate::cli) struct SetArgs {
    /// Name of the setting, as `nono config show` prints it
    key: String,
    /// Its value; several are a list
    #[arg(required = true, allow_negative_numbers = true)]
    value: Vec<String>,
}

/// Arguments of `nono config get`.
#[derive(Debug, Args)]
pub(in crate::cli) struct GetArgs {
    /// Name of the setting, as `nono config show` prints it
    key: String,
    /// Print the setting as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `nono config unset`.
#[derive(Debug, Args)]
pub(in crate::cli) struct UnsetArgs {
    /// Name of the setting, as `nono config show` prints it
    key: String,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    /// The configuration file, whether it exists or not.
    #[serde(with = "serde_path")]
    file: &'a Path,
    settings: Vec<Setting>,
}

pub(in crate::cli) fn run(
    command: &ConfigCommand,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    match command {
        ConfigCommand::Show(args) => show(args, store, context),
        ConfigCommand::Get(args) => get(args, context),
        ConfigCommand::Set(args) => set(args, context),
        ConfigCommand::Unset(args) => unset(args, context),
        ConfigCommand::Edit => edit(context),
    }
}

fn show(args: &ShowArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let flags = args.threads.flags(args.limits.flags(args.capture.flags()));
    let surroundings = surroundings()?;
    let settings = Settings::load(&surroundings, &flags)?;
    let containers = ContainerLimits::list(&surroundings)?;
    let root = Setting {
        key: "root",
        value: Shown::path(store.catalog()?.root()).to_string().into(),
        origin: store.origin(),
        flag: "--root",
        variable: Some("NONO_ROOT"),
    };
    let file = settings.file.as_deref().unwrap_or(Path::new(""));
    if args.json {
        let settings = [root].into_iter().chain(settings.list()).chain(containers).collect();
        context.json(&Report { file, settings })?;
        return Ok(0);
    }
    let mut out = context.out();
    writeln!(out, "{DIM}# {}{DIM:#}", Shown::path(file))?;
    // No setting of the file: it says where the file's sessions are, and not the other way round.
    writeln!(out, "{DIM}# store: {} ({}){DIM:#}", root.value.as_str().unwrap_or(""), from(&root))?;
    writeln!(out, "[rollback]")?;
    for setting in settings.list() {
        writeln!(out, "{}  {DIM}# {}{DIM:#}", line(&setting), remark(&setting))?;
    }
    writeln!(out, "\n[containers]")?;
    for setting in containers {
        writeln!(out, "{}  {DIM}# {}{DIM:#}", line(&setting), remark(&setting))?;
    }
    Ok(0)
}

/// `max_sessions = 10`, as the configuration file has it.
fn line(setting: &Setting) -> String {
    let key = setting.key.strip_prefix(CONTAINERS_PREFIX).unwrap_or(setting.key);
    let value = match &setting.value {
        Value::Array(values) => {
            values.iter().filter_map(Value::as_str).collect::<toml_edit::Array>().into()
        }
        Value::String(text) => toml_edit::Value::from(text),
        // Numbers and truth are written alike.
        other => return format!("{key} = {other}"),
    };
    format!("{key} = {value}")
}

/// Where a value comes from, and what a 0 means.
fn remark(setting: &Setting) -> String {
    match zero_means(setting.key) {
        Some(meaning) => format!("{}; 0: {meaning}", from(setting)),
        None => from(setting),
    }
}

fn from(setting: &Setting) -> String {
    match (setting.origin, setting.variable) {
        (Origin::Flag, _) => setting.flag.to_owned(),
        (Origin::Environment, Some(variable)) => variable.to_owned(),
        (origin, _) => origin.to_string(),
    }
}

/// The setting of a key, as it holds now.
fn setting_of(key: &str, surroundings: &Surroundings<'_>) -> Result<Setting, CliError> {
    let (settings, name) = match key.starts_with(CONTAINERS_PREFIX) {
        true => (ContainerLimits::list(surroundings)?, key),
        false => {
            let settings = Settings::load(surroundings, &FlagSettings::default())?.list();
            (settings, key.rsplit('.').next().unwrap_or_default())
        }
    };
    let known: Vec<&str> = settings.iter().map(|setting| setting.key).collect();
    let suggested = suggestion(name, &known);
    settings.into_iter().find(|setting| setting.key == name).ok_or_else(|| {
        let shown = Shown::bytes(key.as_bytes());
        CliError::usage(format!("there is no setting {shown}, {suggested}"))
    })
}

fn get(args: &GetArgs, context: &Context) -> Outcome {
    let setting = setting_of(&args.key, &surroundings()?)?;
    if args.json {
        context.json(&setting)?;
        return Ok(0);
    }
    let mut out = context.out();
    match &setting.value {
        Value::Array(values) => {
            for value in values.iter().filter_map(Value::as_str) {
                writeln!(out, "{}", Shown::bytes(value.as_bytes()))?;
            }
        }
        Value::String(text) => writeln!(out, "{}", Shown::bytes(text.as_bytes()))?,
        other => writeln!(out, "{other}")?,
    }
    Ok(0)
}

fn unset(args: &UnsetArgs, context: &Context) -> Outcome {
    let surroundings = surroundings()?;
    setting_of(&args.key, &surroundings)?;
    let file = ConfigFile::load(&surroundings)?;
    let path = Shown::path(&file.path);
    match file.without_setting(&args.key)? {
        Some(text) => file.save(&text)?,
        None => {
            let shown = Shown::bytes(args.key.as_bytes());
            context.say(format_args!("{path} does not set {shown}"));
        }
    }
    let setting = setting_of(&args.key, &surroundings)?;
    context.say(format_args!("{}  # {}", line(&setting), remark(&setting)));
    Ok(0)
}

fn set(args: &SetArgs, context: &Context) -> Outcome {
    let surroundings = surroundings()?;
    let file = ConfigFile::load(&surroundings)?;
    file.save(&file.with_setting(&args.key, &args.value)?)?;
    let setting = setting_of(&args.key, &surroundings)?;
    #[cfg(feature = "archive")]
    for name in args.value.iter().filter(|it| setting.key == PUSH_AFTER_RUN && !it.is_empty()) {
        if !Target::is_meant_by(name)? {
            let name = Shown::bytes(name.as_bytes());
            context.warn(format_args!("there is no remote {name} yet: nono remote add {name} URL"));
        }
    }
    context.say(format_args!("{}: {}", Shown::path(&file.path), line(&setting)));
    if setting.origin == Origin::Environment {
        let variable = from(&setting);
        context.warn(format_args!("{variable} is set, and comes before the file"));
    }
    Ok(0)
}

fn edit(context: &Context) -> Outcome {
    let file = ConfigFile::load(&surroundings()?)?;
    let before = match &file.text {
        Some(text) => text.clone(),
        None => template()?,
    };
    // Beside the file, so that a text that is kept is found again.
    let parent = file.real_path.parent().unwrap_or(Path::new("/"));
    let copy = parent.join(format!("config-edit-{}.toml", hex::encode(&sys::random_bytes()?[..4])));
    sys::refuse_to_write_for_others(&copy)?;
    sys::create_private_file(&copy, before.as_bytes())?;
    let after = run_editor(&copy).and_then(|()| Ok(ConfigFile::text_of(&copy)?));
    let shown = Shown::path(&file.path);
    let kept = |error: CliError| {
        let state = format!("{shown} is as it was, and your text is in {}", Shown::path(&copy));
        error.leaving(&state)
    };
    match after {
        Ok(after) if after == before => context.say(format_args!("{shown} was not changed")),
        Ok(after) => {
            ConfigFile::check(&copy, &after).map_err(|error| kept(error.into()))?;
            file.save(&after).map_err(|error| kept(error.into()))?;
            context.say(format_args!("{shown} was changed"));
        }
        Err(error) if ConfigFile::text_of(&copy).is_ok_and(|text| text == before) => {
            ConfigFile::discard(&copy)?;
            return Err(error.leaving(&format!("{shown} was not changed")));
        }
        Err(error) => return Err(kept(error)),
    }
    Ok(ConfigFile::discard(&copy).map(|()| 0)?)
}

/// The text for a user without a configuration: all settings, none of them in effect.
fn template() -> Result<String, CliError> {
    let nowhere = Surroundings {
        home: None,
        current_dir: PathBuf::new(),
        variable: &|_| None,
        is_inside: false,
    };
    let settings = Settings::load(&nowhere, &FlagSettings::default())?;
    let line = |setting: &Setting| format!("# {}  # {}\n", line(setting), remark(setting));
    let lines = |settings: &[Setting]| settings.iter().map(line).collect::<String>();
    let containers = lines(&ContainerLimits::list(&nowhere)?);
    Ok(format!("[rollback]\n{}\n[containers]\n{containers}", lines(&settings.list())))
}

/// Lets a person edit a file. As with git, a shell reads what the variable says.
fn run_editor(path: &Path) -> Result<(), CliError> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let name = ["VISUAL", "EDITOR"].into_iter().find(|name| is_set(name));
    let editor = name.and_then(std::env::var_os).unwrap_or_else(|| OsString::from("vi"));
    let mut script = editor.clone();
    script.push(" \"$@\"");
    // Ctrl-C in an editor means the editor.
    let _taken = Taken::raising(&[SIGINT, SIGQUIT], &Arc::default()).map_err(signals::refused)?;
    let shown = Shown::bytes(editor.as_encoded_bytes()).to_string();
    let status = Command::new("sh").arg("-c").arg(script).arg(&editor).arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(CliError::failed(format!("the editor {shown} failed: {status}"))),
        Err(error) => Err(CliError::failed(format!("cannot run the editor {shown}: {error}"))),
    }
}
