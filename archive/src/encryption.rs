//! The keys of archives: recipients to write for, identities to read with, or a passphrase.
//!
//! All encryption is that of the crate `age`; nothing here knows a cipher.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use age::secrecy::{ExposeSecret, SecretString};
use age_core::format::{FileKey, Stanza};

use super::ArchiveError;
use super::mark::Mark;
use super::read::of_age;
use nono_engine::object::ContentHash;

/// Begins the line of a passphrase in a header.
const SCRYPT_TAG: &str = "scrypt";
/// The work that a passphrase may ask of a reader, as a power of two: about 8 seconds here, more
/// than any program asks.
const MAX_WORK_FACTOR: u8 = 22;

/// The readers of an archive that is written.
#[derive(Clone)]
pub enum Encryption {
    /// Everybody: nothing is encrypted.
    None,
    /// The owners of these keys.
    Recipients(Arc<[Recipient]>),
    /// Every reader that knows the passphrase.
    Passphrase(SecretString),
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Recipients(_) => "Recipients",
            Self::Passphrase(_) => "Passphrase",
        })
    }
}

/// A public key.
pub struct Recipient(Box<dyn age::Recipient + Send + Sync>);

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionError {
    /// A recipient is no public key.
    #[error("{text:?} is no recipient: age1… or a public ssh key (ssh-ed25519, ssh-rsa)")]
    NoRecipient {
        /// The text, cut where it is long.
        text: String,
    },
    /// A private key was given as a recipient. It is not repeated.
    #[error("this is a private key; a recipient is the public one, age1… (age-keygen -y FILE)")]
    PrivateKey,
    /// A file holds no identity.
    #[error("it holds no identity: AGE-SECRET-KEY-1… or a private ssh key without a passphrase")]
    NoIdentity,
    /// A passphrase is empty.
    #[error("it holds no passphrase")]
    NoPassphrase,
    /// The crate refuses the keys.
    #[error("these keys cannot be used together: {0}")]
    Refused(String),
}

impl Encryption {
    /// For the owners of public keys: `age1…`, `ssh-ed25519 …` or `ssh-rsa …`. Lines that begin
    /// with `#` are left out, so a line of a recipients file is one too.
    ///
    /// # Errors
    /// [`EncryptionError::NoRecipient`], also when there is none.
    pub fn to_recipients<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
    ) -> Result<Self, EncryptionError> {
        let mut recipients = Vec::new();
        for text in texts {
            let text = text.as_ref().trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if is_private_key(text) {
                return Err(EncryptionError::PrivateKey);
            }
            let no = || EncryptionError::NoRecipient { text: text.chars().take(80).collect() };
            let key: Box<dyn age::Recipient + Send + Sync> = if text.starts_with("ssh-") {
                Box::new(text.parse::<age::ssh::Recipient>().map_err(|_| no())?)
            } else {
                Box::new(text.parse::<age::x25519::Recipient>().map_err(|_| no())?)
            };
            recipients.push(Recipient(key));
        }
        if recipients.is_empty() {
            return Err(EncryptionError::NoRecipient { text: String::new() });
        }
        Ok(Self::Recipients(recipients.into()))
    }

    /// For whoever knows a passphrase: the first line of a text.
    ///
    /// # Errors
    /// [`EncryptionError::NoPassphrase`].
    pub fn with_passphrase(text: &str) -> Result<Self, EncryptionError> {
        Ok(Self::Passphrase(passphrase(text)?))
    }

    /// The keys that open archives that are encrypted so, where the same secret does both.
    pub(crate) fn identities(&self) -> Identities {
        let mut identities = Identities::none();
        if let Self::Passphrase(phrase) = self {
            identities.add_phrase(phrase.clone());
        }
        identities
    }

    /// Whether anything is encrypted.
    pub fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// A stream that encrypts its bytes into `out`, or passes them on without encryption. The hash
    /// `manifest` marks the archive where the header has room for it.
    pub(super) fn wrap<W: Write>(&self, manifest: ContentHash, out: W) -> io::Result<Sealing<W>> {
        let encryptor = match self {
            Self::None => return Ok(Sealing::Plain(out)),
            Self::Passphrase(phrase) => by_passphrase(phrase),
            Self::Recipients(keys) => {
                let mark = Mark(manifest);
                let keys = keys.iter().map(|key| &*key.0 as &dyn age::Recipient);
                age::Encryptor::with_recipients(keys.chain([&mark as &dyn age::Recipient]))
                    .map_err(|error| io::Error::other(error.to_string()))?
            }
        };
        Ok(Sealing::Age(encryptor.wrap_output(out)?))
    }
}

/// A stream that is encrypted, or is not.
pub(super) enum Sealing<W: Write> {
    Plain(W),
    Age(age::stream::StreamWriter<W>),
}

impl<W: Write> Sealing<W> {
    /// Writes the end: without it, the stream counts as cut off.
    pub(super) fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Age(out) => out.finish(),
        }
    }
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Age(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Age(out) => out.flush(),
        }
    }
}

/// The private keys of a reader.
#[derive(Clone, Default)]
pub struct Identities {
    keys: Vec<Arc<dyn age::Identity + Send + Sync>>,
    has_passphrase: bool,
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities").field("keys", &self.keys.len()).finish()
    }
}

impl Identities {
    /// For archives that are not encrypted.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds the keys of an identity file: lines `AGE-SECRET-KEY-1…`, or a private ssh key.
    ///
    /// # Errors
    /// [`EncryptionError::NoIdentity`].
    pub fn add_file(&mut self, text: &str) -> Result<(), EncryptionError> {
        if text.trim_start().starts_with("-----BEGIN") {
            let key = age::ssh::Identity::from_buffer(text.as_bytes(), None)
                .map_err(|_| EncryptionError::NoIdentity)?;
            let age::ssh::Identity::Unencrypted(_) = &key else {
                return Err(EncryptionError::NoIdentity);
            };
            self.keys.push(Arc::new(key));
            return Ok(());
        }
        let before = self.keys.len();
        for line in text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'))
        {
            let key = line.parse::<age::x25519::Identity>();
            self.keys.push(Arc::new(key.map_err(|_| EncryptionError::NoIdentity)?));
        }
        if self.keys.len() == before { Err(EncryptionError::NoIdentity) } else { Ok(()) }
    }

    /// Adds a passphrase: the first line of a text.
    ///
    /// # Errors
    /// [`EncryptionError::NoPassphrase`].
    pub fn add_passphrase(&mut self, text: &str) -> Result<(), EncryptionError> {
        self.add_phrase(passphrase(text)?);
        Ok(())
    }

    fn add_phrase(&mut self, phrase: SecretString) {
        let mut identity = age::scrypt::Identity::new(phrase);
        identity.set_max_work_factor(MAX_WORK_FACTOR);
        self.keys.push(Arc::new(Phrase(identity)));
        self.has_passphrase = true;
    }

    /// Whether a passphrase is among them.
    pub(crate) fn has_passphrase(&self) -> bool {
        self.has_passphrase
    }

    /// Adds the key of a remote.
    pub(crate) fn add_key(&mut self, key: RemoteKey) {
        self.keys.push(Arc::new(key.0));
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &dyn age::Identity> {
        self.keys.iter().map(|key| &**key as &dyn age::Identity)
    }
}

/// A passphrase that opens archives. The work of it is noted.
struct Phrase(age::scrypt::Identity);

impl age::Identity for Phrase {
    fn unwrap_stanza(&self, stanza: &Stanza) -> Option<Result<FileKey, age::DecryptError>> {
        if stanza.tag == SCRYPT_TAG {
            note_work();
        }
        self.0.unwrap_stanza(stanza)
    }
}

fn by_passphrase(phrase: &SecretString) -> age::Encryptor {
    note_work();
    age::Encryptor::with_user_passphrase(phrase.clone())
}

/// Each call stands for the work of one passphrase with one salt: about a second. Tests count it.
fn note_work() {
    #[cfg(test)]
    tests::WORK.with(|work| work.set(work.get() + 1));
}

/// The key for which the archives of a remote with a passphrase are encrypted.
pub(crate) struct RemoteKey(age::x25519::Identity);

impl RemoteKey {
    /// A new key.
    pub(crate) fn generate() -> Self {
        Self(age::x25519::Identity::generate())
    }

    /// For this key.
    pub(crate) fn encryption(&self) -> Encryption {
        Encryption::Recipients([Recipient(Box::new(self.0.to_public()))].into())
    }

    /// An identity file of `age`, encrypted by a passphrase.
    pub(crate) fn seal(&self, phrase: &SecretString) -> io::Result<Vec<u8>> {
        let mut out = by_passphrase(phrase).wrap_output(Vec::new())?;
        writeln!(out, "{}", self.0.to_string().expose_secret())?;
        out.finish()
    }

    /// The key in such a file.
    ///
    /// # Errors
    /// [`ArchiveError::WrongKey`]; else the file is none.
    pub(crate) fn open(sealed: &[u8], identities: &Identities) -> Result<Self, ArchiveError> {
        let bytes = decrypted(sealed, identities)?;
        let text = std::str::from_utf8(&bytes).ok();
        let key = text.and_then(|text| text.lines().find(|line| !line.starts_with('#')));
        let key = key.and_then(|line| line.trim().parse().ok());
        key.map(Self).ok_or_else(|| ArchiveError::corrupt("it is no identity of age"))
    }
}

/// A short text that is encrypted.
pub(crate) fn decrypted(sealed: &[u8], identities: &Identities) -> Result<Vec<u8>, ArchiveError> {
    let decryptor = age::Decryptor::new_buffered(sealed).map_err(of_age)?;
    let mut reader = decryptor.decrypt(identities.keys()).map_err(of_age)?;
    let mut bytes = Vec::new();
    let corrupt = |error: io::Error| ArchiveError::corrupt(error.to_string());
    reader.read_to_end(&mut bytes).map_err(corrupt)?;
    Ok(bytes)
}

/// Whether a text is a private key, which no message may repeat.
pub fn is_private_key(text: &str) -> bool {
    let text = text.trim_start();
    ["AGE-SECRET-KEY", "AGE-PLUGIN-", "-----BEGIN"]
        .iter()
        .any(|begin| text.get(..begin.len()).is_some_and(|it| it.eq_ignore_ascii_case(begin)))
}

fn passphrase(text: &str) -> Result<SecretString, EncryptionError> {
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(SecretString::from(line.to_owned())),
        _ => Err(EncryptionError::NoPassphrase),
    }
}

#[cfg(test)]
pub(crate) use tests::work_count;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    thread_local! {
        /// How often this thread did the work of a passphrase.
        pub(super) static WORK: Cell<usize> = const { Cell::new(0) };
    }

    /// How often a function does the work of a passphrase.
    pub(crate) fn work_count(work: impl FnOnce()) -> usize {
        let before = WORK.with(Cell::get);
        work();
        WORK.with(Cell::get) - before
    }
}
