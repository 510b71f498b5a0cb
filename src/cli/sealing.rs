//! Arguments about remotes that several commands share: which remote, how archives are encrypted,
//! and what they are decrypted with.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::Args;

use super::args::surroundings;
use super::error::CliError;
use crate::config::{self, NamedRemote, RemoteEncryption, is_remote_name};
use nono_archive::remote::{Address, Inventory, Place};
use nono_archive::{ArchiveName, Encryption, Identities, is_private_key};
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;
use nono_engine::sys;

/// A longer file with keys is not read, in bytes.
const MAX_SECRET_BYTES: u64 = 1 << 20;

/// How archives are encrypted.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encryption")]
pub(super) struct SealArgs {
    /// Encrypt for this public key: age1… or ssh-… (repeatable)
    #[arg(long, value_name = "KEY", conflicts_with_all = ["passphrase_file", "plaintext"])]
    recipient: Vec<String>,
    /// Encrypt by the passphrase in the first line of a file
    #[arg(long, value_name = "FILE", conflicts_with = "plaintext")]
    passphrase_file: Option<PathBuf>,
    /// Do not encrypt: everybody who can read the place reads the files
    #[arg(long)]
    plaintext: bool,
}

/// The keys that decrypt archives.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Decryption")]
pub(super) struct UnsealArgs {
    /// Decrypt with the identities in this file: of age, or a private ssh key (repeatable)
    #[arg(long, short, value_name = "FILE")]
    pub(super) identity: Vec<PathBuf>,
    /// Decrypt by the passphrase in the first line of a file
    #[arg(long, value_name = "FILE")]
    pub(super) passphrase_file: Option<PathBuf>,
}

impl SealArgs {
    /// The encryption of the arguments; `None` if they name none.
    pub(super) fn encryption(&self) -> Result<Option<RemoteEncryption>, CliError> {
        Ok(match &self.passphrase_file {
            _ if !self.recipient.is_empty() => {
                Some(RemoteEncryption::Recipients(self.recipient.clone()))
            }
            Some(file) => Some(RemoteEncryption::PassphraseFile(sys::plain_absolute(
                file,
                &sys::current_dir()?,
            ))),
            None if self.plaintext => Some(RemoteEncryption::Plaintext),
            None => None,
        })
    }

    /// The refusal of a place about whose encryption nothing is said.
    pub(super) fn is_missing(&self) -> CliError {
        CliError::usage(
            "archives may hold secrets such as .env, and nothing says how to encrypt them",
        )
        .with_hint(
            "--recipient age1… (age-keygen makes one), --passphrase-file FILE, or --plaintext",
        )
    }
}

/// A remote that a command works on.
#[derive(Debug)]
pub(super) struct Target {
    /// Its name, or the address that was given.
    pub(super) name: String,
    pub(super) address: Address,
    /// How new archives are encrypted; nothing for a place without a name.
    pub(super) encryption: Option<RemoteEncryption>,
    /// The most bytes that a push sends in a second; nothing for a place without a name.
    pub(super) limit_upload: Option<NonZeroU64>,
}

impl Target {
    /// The remote of a name, a URL or a path; without a word, the only one that has a name.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(super) fn find(word: Option<&str>) -> Result<Self, CliError> {
        let surroundings = surroundings()?;
        let Some(word) = word else {
            let mut known = config::remotes(&surroundings)?;
            return match known.len() {
                1 => Self::named(known.remove(0)),
                0 => Err(CliError::usage("there is no remote").with_hint(
                    "nono remote add NAME URL --recipient age1… makes one; a URL or a path works \
                     too",
                )),
                _ => {
                    let names: Vec<_> = known.iter().map(|remote| remote.name.as_str()).collect();
                    let message = format!("there are several remotes: {}", names.join(", "));
                    Err(CliError::usage(message).with_hint("name one of them"))
                }
            };
        };
        if !Address::is_meant_by(word) && is_remote_name(word) {
            return Self::named(config::remote(&surroundings, word)?);
        }
        let address = Address::parse(word)?;
        // A place that has a name is encrypted as it says there.
        let known = config::remotes(&surroundings)?;
        let same = known
            .into_iter()
            .find(|remote| Address::parse(&remote.url).is_ok_and(|known| known == address));
        let limit_upload = same.as_ref().and_then(|remote| remote.limit_upload);
        let encryption = same.map(|remote| remote.encryption);
        encryption.iter().try_for_each(refuse_private_keys)?;
        Ok(Self { name: address.to_string(), address, encryption, limit_upload })
    }

    /// Whether a word names a remote and not a session.
    pub(super) fn is_meant_by(word: &str) -> Result<bool, CliError> {
        if Address::is_meant_by(word) {
            return Ok(true);
        }
        let known = config::remotes(&surroundings()?)?;
        Ok(known.iter().any(|remote| remote.name == word))
    }

    fn named(remote: NamedRemote) -> Result<Self, CliError> {
        refuse_private_keys(&remote.encryption)?;
        let address = Address::parse(&remote.url).map_err(|error| {
            CliError::usage(format!("the remote {} in the configuration: {error}", remote.name))
        })?;
        let NamedRemote { name, encryption, limit_upload, .. } = remote;
        Ok(Self { name, address, encryption: Some(encryption), limit_upload })
    }

    /// The archives of sessions there, and of those that their chains go through; of none, all
    /// archives. Where the remote's are encrypted, others are set apart.
    pub(super) fn inventory(
        &self,
        place: &Place,
        sessions: &[String],
        progress: &dyn Progress,
    ) -> Result<Inventory, CliError> {
        self.listed(
            place,
            sessions,
            |own| Ok(Inventory::of_sessions(place, own, progress)?),
            progress,
        )
    }

    /// As [`inventory`](Self::inventory), with the archives that depend on those of the sessions.
    pub(super) fn inventory_around(
        &self,
        place: &Place,
        sessions: &[String],
        progress: &dyn Progress,
    ) -> Result<Inventory, CliError> {
        let around = |own: &_| Ok(Inventory::around_sessions(place, own, progress)?);
        self.listed(place, sessions, around, progress)
    }

    /// Lists sessions with `list`, or everything, and sets apart what is none of the remote's.
    fn listed(
        &self,
        place: &Place,
        sessions: &[String],
        list: impl FnOnce(&BTreeSet<String>) -> Result<Inventory, CliError>,
        progress: &dyn Progress,
    ) -> Result<Inventory, CliError> {
        let linked = place.linked()?;
        let mut inventory = match sessions {
            [] => Inventory::of(place.list("", progress)?),
            some => list(&some.iter().filter(|id| !linked.contains(id)).cloned().collect())?,
        };
        inventory.linked = linked;
        Ok(match &self.encryption {
            None | Some(RemoteEncryption::Plaintext) => inventory,
            Some(_) => inventory.encrypted_only(),
        })
    }

    /// Refuses to read sessions, where no key is given and all archives of one are encrypted.
    pub(super) fn needs_key<'a>(
        &self,
        names: impl Iterator<Item = &'a ArchiveName>,
        keys: &Identities,
    ) -> Result<(), CliError> {
        let names: Vec<_> = names.collect();
        let mut sessions = names.chunk_by(|a, b| a.id.session() == b.id.session());
        if !keys.is_empty() || !sessions.any(|names| names.iter().all(|name| name.is_encrypted)) {
            return Ok(());
        }
        let words = match &self.encryption {
            Some(RemoteEncryption::Recipients(_)) => {
                self.encryption.as_ref().map(encryption_words).unwrap_or_default()
            }
            _ => "encrypted".to_owned(),
        };
        Err(CliError::failed(format!("the archives of {} are {words}", self.name))
            .with_hint("--identity FILE or --passphrase-file FILE opens them"))
    }

    /// Opens it. With `make`, the directory of a path is made; one that has a name was made then.
    pub(super) fn open(&self, make: bool) -> Result<Place, CliError> {
        let makes = make && Address::is_meant_by(&self.name);
        Ok(Place::open(&self.address, makes)?)
    }
}

/// Refuses settings in which a private key stands for a public one. The key is not repeated.
///
/// # Errors
/// A recipient is a private key.
pub(super) fn refuse_private_keys(encryption: &RemoteEncryption) -> Result<(), CliError> {
    match encryption {
        RemoteEncryption::Recipients(keys) if keys.iter().any(|key| is_private_key(key)) => {
            Err(CliError::usage("a recipient of the remote is a private key")
                .with_hint("put the public one into its settings, age1… (age-keygen -y FILE)"))
        }
        _ => Ok(()),
    }
}

/// The encryption of a remote in a few words.
pub(super) fn encryption_words(encryption: &RemoteEncryption) -> String {
    match encryption {
        RemoteEncryption::Recipients(recipients) => match recipients.as_slice() {
            [one] => format!("encrypted for {}", Shown::bytes(one.as_bytes())),
            several => format!("encrypted for {} recipients", several.len()),
        },
        RemoteEncryption::PassphraseFile(path) => {
            format!("encrypted by the passphrase in {}", Shown::path(path))
        }
        RemoteEncryption::Plaintext => "not encrypted".to_owned(),
    }
}

/// Reads the keys or the passphrase for which archives are written.
///
/// # Errors
/// A recipient that is none, a file without a passphrase.
pub(super) fn encryption_of(encryption: &RemoteEncryption) -> Result<Encryption, CliError> {
    match encryption {
        RemoteEncryption::Plaintext => Ok(Encryption::None),
        RemoteEncryption::Recipients(recipients) => Encryption::to_recipients(recipients)
            .map_err(|error| CliError::usage(error.to_string())),
        RemoteEncryption::PassphraseFile(path) => {
            let text = read_secret(path)?;
            Encryption::with_passphrase(&text).map_err(|error| unusable(path, &error))
        }
    }
}

/// Reads what archives are decrypted with: the arguments, and the passphrase file of a remote.
///
/// # Errors
/// A file without an identity or a passphrase.
pub(super) fn identities(
    args: &UnsealArgs,
    encryption: Option<&RemoteEncryption>,
) -> Result<Identities, CliError> {
    let mut identities = Identities::none();
    for path in &args.identity {
        let text = read_secret(path)?;
        identities.add_file(&text).map_err(|error| unusable(path, &error))?;
    }
    let known = match encryption {
        Some(RemoteEncryption::PassphraseFile(path)) => Some(path),
        _ => None,
    };
    if let Some(path) = args.passphrase_file.as_ref().or(known) {
        let text = read_secret(path)?;
        identities.add_passphrase(&text).map_err(|error| unusable(path, &error))?;
    }
    Ok(identities)
}

/// The text of a file with keys. It may be a pipe.
fn read_secret(path: &Path) -> Result<String, CliError> {
    let expanded = match path.to_str() {
        Some(text) if text.starts_with('~') => config::expand(text, &surroundings()?)?,
        _ => None,
    };
    let bytes = sys::read_kernel_file(expanded.as_deref().unwrap_or(path), MAX_SECRET_BYTES)?;
    // The bytes are not repeated.
    String::from_utf8(bytes)
        .map_err(|_| CliError::failed(format!("{}: it is no text", Shown::path(path))))
}

fn unusable(path: &Path, error: &nono_archive::EncryptionError) -> CliError {
    CliError::failed(format!("{}: {error}", Shown::path(path)))
}
