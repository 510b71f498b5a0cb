//! `nono mount`: the past as read-only folders.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use clap::{Args, ValueEnum};
use nono_mount::{
    FS_TYPE, Mount, MountError, MountOptions, MountPoint, MountedAt, Owner, Unmounted,
};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, home_dir};
use crate::cli::background;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::mount_guard;
use crate::cli::offer::NONO;
#[cfg(feature = "archive")]
use crate::cli::remote_view;
#[cfg(feature = "archive")]
use crate::cli::sealing::{Target, UnsealArgs};
use crate::cli::signals::{self, Taken};
use nono_engine::browse::{self, BrowseError, Scope, StoreTree};
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::session::{Catalog, Purpose};
use nono_engine::snapshot::SessionDir;
use nono_engine::sys::{self, Dir};

/// Arguments of `nono mount`.
#[derive(Debug, Args)]
pub(in crate::cli) struct MountArgs {
    /// Empty directory to mount at; it is made if only its last part is missing
    /// [default: ~/snapshots]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Show only this session (an id, the beginning of one, or `latest`, the newest one here), its
    /// snapshots at the top
    #[arg(long, value_name = "ID", conflicts_with = "path")]
    session: Option<String>,
    /// Show only sessions that recorded this path, something in it, or a directory around it
    #[arg(long, value_name = "PROJECT")]
    path: Option<PathBuf>,
    /// Do not go to the background; Ctrl-C unmounts
    #[arg(long)]
    foreground: bool,
    /// Whose files are shown
    #[arg(long, value_enum, default_value_t)]
    owner: OwnerArg,
    /// Let other users in, as far as the recorded permissions do
    #[arg(long)]
    allow_other: bool,
    /// List what is mounted, and do nothing
    #[arg(long, conflicts_with_all = ["directory", "session", "path", "foreground", "allow_other"])]
    status: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Show the sessions of this remote; nothing is pulled before it is read
    #[cfg(feature = "archive")]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["path", "status"])]
    remote: Option<String>,
    // A heading is that of all that follows.
    #[cfg(feature = "archive")]
    #[command(flatten)]
    unseal: UnsealArgs,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum OwnerArg {
    /// The recorded owners
    #[default]
    Original,
    /// All of them mine
    Me,
}

impl MountArgs {
    pub(in crate::cli) fn needs_store(&self) -> bool {
        !self.status
    }

    /// The store that is shown: that of a remote, with its words, or the one here.
    fn catalog(&self, store: &StoreArgs) -> Result<(Catalog, Option<String>), CliError> {
        #[cfg(feature = "archive")]
        if let Some(remote) = &self.remote {
            let target = Target::find(Some(remote))?;
            let words = format!("remote {}", target.name);
            return Ok((Catalog::new(remote_view::root_of(&target)?, []), Some(words)));
        }
        Ok((store.catalog()?, None))
    }
}

/// A mount that has begun.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    #[serde(with = "serde_path")]
    directory: PathBuf,
    #[serde(flatten)]
    shows: Shows,
    /// A mount whose process had died was there before.
    replaced_dead_mount: bool,
}

/// A mount in the list of mounts.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    #[serde(with = "serde_path")]
    directory: PathBuf,
    #[serde(flatten)]
    shows: Shows,
    /// The label of the only session, as far as that can be found out.
    label: Option<String>,
    alive: bool,
}

/// The contents of a mount. Written into the mount table, so that every process can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Shows {
    /// The store's root directory, as text.
    root: String,
    /// The only session.
    session: Option<String>,
    /// The path whose sessions they are, as text.
    path: Option<String>,
}

const SCHEME: &str = "nono:";
const SESSION_MARK: &str = "#session=";
const PATH_MARK: &str = "#path=";

impl Shows {
    /// The first column of the mount table.
    fn to_fs_name(&self) -> String {
        let Self { root, session, path } = self;
        match (session, path) {
            (Some(session), _) => format!("{SCHEME}{root}{SESSION_MARK}{session}"),
            (_, Some(path)) => format!("{SCHEME}{root}{PATH_MARK}{path}"),
            (None, None) => format!("{SCHEME}{root}"),
        }
    }

    fn from_fs_name(fs_name: &str) -> Self {
        let rest = fs_name.strip_prefix(SCHEME).unwrap_or(fs_name);
        let cut = |mark: &str| {
            let (root, what) = rest.split_once(mark)?;
            Some((root.to_owned(), Some(what.to_owned())))
        };
        if let Some((root, session)) = cut(SESSION_MARK) {
            return Self { root, session, path: None };
        }
        let (root, path) = cut(PATH_MARK).unwrap_or_else(|| (rest.to_owned(), None));
        Self { root, session: None, path }
    }

    fn words(&self) -> String {
        match (&self.session, &self.path) {
            (Some(session), _) => format!("session {session} of {}", self.root),
            (_, Some(path)) => format!("sessions of {path} in {}", self.root),
            (None, None) => self.root.clone(),
        }
    }
}

pub(in crate::cli) fn run(args: &MountArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if args.status {
        return status(args.json, context);
    }
    if background::is_background() {
        let begun =
            begin(args, store, context).and_then(|begun| background::detach().map(|()| begun));
        return match begun {
            Ok(begun) => {
                background::announce_ready(&begun.report);
                begun.serve(context)
            }
            Err(error) => {
                background::announce_failure(&error);
                Ok(error.exit_code())
            }
        };
    }
    if args.foreground {
        let begun = begin(args, store, context)?;
        report(&begun.report, args.json, context)?;
        context.say("Ctrl-C unmounts");
        return begun.serve(context);
    }
    let is_plain = !args.allow_other && args.owner == OwnerArg::default();
    let already = if is_plain { Wanted::of(args, store)?.mounted()? } else { None };
    if let Some(already) = already {
        if args.json {
            context.json(&already)?;
        } else {
            let (directory, words) = (Shown::path(&already.directory), already.shows.words());
            context.say(format_args!("mounted already at {directory}: {words}"));
        }
        return Ok(0);
    }
    let begun: Report = background::start()?;
    report(&begun, args.json, context)?;
    if !args.json {
        context.say(format_args!("unmount it: nono umount {}", Shown::path(&begun.directory)));
    }
    Ok(0)
}

fn report(report: &Report, json: bool, context: &Context) -> Result<(), CliError> {
    if report.replaced_dead_mount {
        context.say("replaced a mount whose process had died");
    }
    if json {
        return context.json(report);
    }
    let directory = Shown::path(&report.directory);
    context.say(format_args!("mounted at {directory}: {}", report.shows.words()));
    Ok(())
}

/// A live mount, and the signals that end it.
struct Begun {
    mount: Mount,
    taken: Taken,
    signals: Signals,
    report: Report,
}

/// The tree to mount, and the place.
struct Wanted {
    catalog: Catalog,
    directory: PathBuf,
    scope: Scope,
    shows: Shows,
}

impl Wanted {
    fn of(args: &MountArgs, store: &StoreArgs) -> Result<Self, CliError> {
        let (catalog, remote) = args.catalog(store)?;
        let directory = match &args.directory {
            Some(directory) => directory.clone(),
            None => default_directory()?,
        };
        refuse_store(&directory, catalog.roots())?;
        let (scope, session) = match (&args.session, &args.path) {
            // Its name is in the store only when the remote was listed.
            (Some(id), _) if remote.is_some() => (Scope::Session(id.clone()), Some(id.clone())),
            (Some(id), _) => {
                let id = catalog.find_from(id, Purpose::Looking)?.id();
                (Scope::Session(id.clone()), Some(id))
            }
            (None, Some(path)) => (Scope::Path(path.clone()), None),
            (None, None) => (Scope::Everything, None),
        };
        let shown = |path: &Path| Shown::path(&absolute(path)).to_string();
        let path = args.path.as_deref().map(shown);
        let root = remote.unwrap_or_else(|| shown(catalog.root()));
        let shows = Shows { root, session, path };
        Ok(Self { catalog, directory, scope, shows })
    }

    /// The same, if it is mounted there already.
    fn mounted(self) -> Result<Option<Report>, CliError> {
        let directory = sys::real_or_future_path(&absolute(&self.directory));
        let same = |mount: &Status| {
            mount.alive && mount.directory == directory && mount.shows == self.shows
        };
        let is_mounted = mounted()?.iter().any(same);
        let report = Report { directory, shows: self.shows, replaced_dead_mount: false };
        Ok(is_mounted.then_some(report))
    }
}

fn begin(args: &MountArgs, store: &StoreArgs, context: &Context) -> Result<Begun, CliError> {
    #[cfg(feature = "archive")]
    if let Some(remote) = &args.remote {
        remote_view::open_all(&Target::find(Some(remote))?, &args.unseal, context)?;
    }
    #[cfg(not(feature = "archive"))]
    let _ = context;
    let Wanted { catalog, directory, scope, shows } = Wanted::of(args, store)?;
    let tree = StoreTree::new(catalog.roots(), &scope)?;
    let options = MountOptions {
        owner: match args.owner {
            OwnerArg::Original => Owner::Original,
            OwnerArg::Me => Owner::Me { uid: sys::effective_uid(), gid: sys::effective_gid() },
        },
        allow_other: args.allow_other,
        fs_name: shows.to_fs_name(),
        ..MountOptions::default()
    };
    // Before the mount is there, so that no signal can leave it behind.
    let signals = signals::queue().map_err(signals::refused)?;
    let taken = Taken::queued(&[SIGINT, SIGTERM, SIGHUP], &signals).map_err(signals::refused)?;
    let (mount, replaced_dead_mount) = mount_at(&directory, tree, options)?;
    let report = Report { directory: mount.directory().to_owned(), shows, replaced_dead_mount };
    Ok(Begun { mount, taken, signals, report })
}

/// Where `nono mount` mounts when it is not told.
pub(super) fn default_directory() -> Result<PathBuf, CliError> {
    Ok(home_dir()?.join("snapshots"))
}

/// Mounts, making the directory if only its last component is missing. `true` when a dead mount was
/// in the way.
fn mount_at(
    directory: &Path,
    tree: StoreTree,
    options: MountOptions,
) -> Result<(Mount, bool), CliError> {
    let mut made = None;
    let was_dead = match nono_mount::check_mount_point(directory) {
        Ok(point) => matches!(point, MountPoint::Dead(_)),
        Err(MountError::NotFound { .. }) => {
            made = make_directory(directory)?;
            false
        }
        Err(error) => return Err(explain(error)),
    };
    match Mount::new(tree, directory, options) {
        Ok(mount) => Ok((mount, was_dead)),
        Err(error) => {
            if let Some((parent, name)) = made {
                // It was made for nothing; it is empty.
                let _ = parent.remove_dir(&name);
            }
            Err(explain(error))
        }
    }
}

fn make_directory(directory: &Path) -> Result<Option<(Dir, Vec<u8>)>, CliError> {
    use std::os::unix::ffi::OsStrExt;
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Ok(None);
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = match Dir::open(parent) {
        Ok(parent) => parent,
        Err(error) if error.is_gone() => {
            return Err(explain(MountError::NotFound { path: directory.to_owned() }));
        }
        Err(error) => return Err(error.into()),
    };
    parent.make_dir(name.as_bytes(), 0o755)?;
    Ok(Some((parent, name.as_bytes().to_vec())))
}

fn refuse_store(directory: &Path, roots: &[PathBuf]) -> Result<(), CliError> {
    browse::check_place(directory, roots).map_err(|error| {
        CliError::failed(error.to_string()).with_hint(format!(
            "choose an empty directory elsewhere, as in `{NONO} mount ~/snapshots`"
        ))
    })
}

fn absolute(path: &Path) -> PathBuf {
    let current = sys::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    sys::plain_absolute(path, &current)
}

enum Event {
    Ended(Result<(), MountError>),
    Signal,
}

impl Begun {
    /// Serves until it is unmounted or a signal comes.
    fn serve(self, context: &Context) -> Outcome {
        let Self { mut mount, taken: _taken, mut signals, report } = self;
        let unmounter = mount.unmounter();
        let (events, next) = mpsc::channel();
        let signalled = events.clone();
        spawn("signals", move || {
            for _ in signals.forever() {
                if signalled.send(Event::Signal).is_err() {
                    return;
                }
            }
        })?;
        mount_guard::start(&mut mount);
        spawn("wait", move || drop(events.send(Event::Ended(mount.wait()))))?;
        loop {
            match next.recv() {
                Ok(Event::Ended(ended)) => return ended.map(|()| 0).map_err(explain),
                Ok(Event::Signal) => match unmounter.unmount().map_err(explain)? {
                    // The end follows.
                    Unmounted::Clean => {}
                    Unmounted::Busy => {
                        // Its users get errors once this process is gone. Staying would leave a
                        // process that the user does not see.
                        let directory = Shown::path(&report.directory);
                        context.warn(format_args!("{directory} was unmounted while in use"));
                        return Ok(0);
                    }
                },
                Err(mpsc::RecvError) => return Ok(0),
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), CliError> {
    let spawned = sys::spawn(&format!("nono-{name}"), work);
    spawned.map(drop).map_err(|error| CliError::failed(error.to_string()))
}

fn status(json: bool, context: &Context) -> Outcome {
    let mounts = mounted()?;
    if json {
        context.json(&mounts)?;
        return Ok(0);
    }
    if mounts.is_empty() {
        context.say("nothing is mounted");
    }
    let mut out = context.out();
    for mount in &mounts {
        writeln!(out, "{mount}")?;
    }
    Ok(0)
}

/// All mounts of stores.
pub(super) fn mounted() -> Result<Vec<Status>, CliError> {
    Ok(nono_mount::mounts().map_err(explain)?.iter().map(look).collect())
}

/// The mounts of these stores.
pub(super) fn mounted_from(roots: &[PathBuf]) -> Result<Vec<Status>, CliError> {
    let roots: Vec<String> =
        roots.iter().map(|root| Shown::path(&absolute(root)).to_string()).collect();
    let mut mounted = nono_mount::mounts().map_err(explain)?;
    mounted.retain(|mount| roots.contains(&Shows::from_fs_name(&mount.fs_name).root));
    Ok(mounted.iter().map(look).collect())
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = Shown::path(&self.directory);
        let words = self.shows.words();
        let words = Shown::bytes(words.as_bytes());
        let dead = if self.alive { "" } else { "  (dead: its process is gone)" };
        let label = self.label.as_deref().map(super::quoted).unwrap_or_default();
        write!(f, "{directory}  {words}{label}{dead}")
    }
}

fn look(mount: &MountedAt) -> Status {
    let shows = Shows::from_fs_name(&mount.fs_name);
    Status {
        directory: mount.directory.clone(),
        label: label_of(&shows),
        shows,
        // An error is an answer, too.
        alive: mount.is_alive().unwrap_or(true),
    }
}

fn label_of(shows: &Shows) -> Option<String> {
    let id = shows.session.as_deref().filter(|id| !id.contains('/'))?;
    SessionDir::open(&Path::new(&shows.root).join(id)).ok()?.metadata().ok()?.label
}

/// The error with what to do about it.
pub(in crate::cli) fn explain(error: MountError) -> CliError {
    use std::error::Error;
    let message = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let hint = match &error {
        MountError::NotFound { path } => format!("make it: mkdir -p {}", Shown::path(path)),
        MountError::NotADirectory { .. } | MountError::NotEmpty { .. } => {
            format!("choose an empty directory, as in `{NONO} mount ~/snapshots`")
        }
        MountError::AlreadyMounted { path, fs_type } if fs_type == FS_TYPE => {
            let path = Shown::path(path);
            format!("`{NONO} mount --status` says what it shows; to mount anew: nono umount {path}")
        }
        MountError::AlreadyMounted { .. } => "choose another directory".to_owned(),
        MountError::DeadMount { path, .. } => {
            format!("take it away: fusermount3 -u {}", Shown::path(path))
        }
        MountError::NoFuseDevice => {
            "load the kernel's FUSE: `sudo modprobe fuse`; in a container, \
             start that with `--device /dev/fuse --cap-add SYS_ADMIN`"
                .to_owned()
        }
        MountError::FuseDevicePermission => {
            "ask for access to it: `sudo chmod 666 /dev/fuse`, as distributions have it".to_owned()
        }
        MountError::NoFusermount => {
            "install the package fuse3: `sudo apt install fuse3`, `sudo dnf install fuse3`"
                .to_owned()
        }
        MountError::AllowOtherRefused { .. } => {
            "add the line user_allow_other to /etc/fuse.conf, or leave out --allow-other".to_owned()
        }
        MountError::Permission { operation: "unmount", .. } => {
            "only who mounted it (or root) may unmount it".to_owned()
        }
        MountError::Permission { .. } => {
            "the directory must be yours and writable; choose one in your home".to_owned()
        }
        MountError::NotMounted { .. } => format!("`{NONO} mount --status` lists what is mounted"),
        _ => return CliError::failed(message),
    };
    CliError::failed(message).with_hint(hint)
}

impl From<BrowseError> for CliError {
    fn from(error: BrowseError) -> Self {
        Self::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mount_shows_is_read_back_from_the_mount_table() {
        let root = || "/home/me/my store".to_owned();
        for (session, path) in
            [(None, None), (Some("20260101-1".to_owned()), None), (None, Some("/p#q".to_owned()))]
        {
            let shows = Shows { root: root(), session, path };
            assert_eq!(Shows::from_fs_name(&shows.to_fs_name()), shows);
        }
    }
}
