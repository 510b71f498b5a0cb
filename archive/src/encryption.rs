//! The keys of archives: recipients to write for, identities to read with, or a passphrase.
//!
//! All encryption is that of the crate `age`; nothing here knows a cipher.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use age::secrecy::SecretString;

use super::mark::Mark;
use nono_engine::object::ContentHash;

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
            Self::Passphrase(phrase) => age::Encryptor::with_user_passphrase(phrase.clone()),
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
        self.keys.push(Arc::new(identity));
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &dyn age::Identity> {
        self.keys.iter().map(|key| &**key as &dyn age::Identity)
    }
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
