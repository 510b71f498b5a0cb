//! The first request: what the kernel can do, and what of it is wanted.

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{InitIn, InitOut, MAJOR, MINOR, flag};
use super::connection::Connection;
use super::request::Operation;
use super::{MAX_WRITE_BYTES, REQUEST_BYTES};

/// The first minor version with the answer of today: Linux 3.15. All of these ask for lists with READDIRPLUS only.
const OLDEST_MINOR: u32 = 23;
/// READs are at most as long as so many pages (Linux 4.20; older kernels send 32).
const MAX_PAGES: u16 = 256;
/// READs ahead of programs, and others for which no program waits, that the kernel sends before it waits for answers.
const MAX_BACKGROUND: u16 = 64;

/// What is wanted where the kernel has it.
///
/// POSIX ACLs are then the kernel's business: it enforces what was captured and caches it, also that there is none.
/// Without it the group bits of a file with an ACL, which are its mask, would be taken for the group's permissions.
const WANTED: u32 = flag::ASYNC_READ
    | flag::MAX_PAGES
    | flag::DO_READDIRPLUS
    | flag::PARALLEL_DIROPS
    | flag::CACHE_SYMLINKS
    | flag::AUTO_INVAL_DATA
    | flag::ASYNC_DIO
    | flag::POSIX_ACL;

/// What the kernel can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kernel {
    /// It opens files without a message once one was answered "not implemented".
    pub(crate) zero_message_open: bool,
    /// The same for directories.
    pub(crate) zero_message_opendir: bool,
}

/// Answers the first request.
///
/// # Errors
/// [`Errno::PROTO`]: the kernel speaks another version, or something else first. Others are those of the connection.
pub(crate) fn shake_hands(connection: &Connection) -> Result<Kernel, Errno> {
    let mut buffer = vec![0; REQUEST_BYTES];
    let request = loop {
        match connection.receive(&mut buffer) {
            Err(Errno::AGAIN) => {}
            received => break received?,
        }
    };
    let Operation::Init(asked) = request.operation else { return Err(Errno::PROTO) };
    let Some((kernel, answer)) = agree(&asked) else {
        tracing::error!(asked.major, asked.minor, "the kernel speaks another version of FUSE");
        connection.refuse(request.unique, Errno::PROTO)?;
        return Err(Errno::PROTO);
    };
    connection.answer(request.unique, answer.as_bytes())?;
    Ok(kernel)
}

/// `None`: the versions do not go together.
fn agree(asked: &InitIn) -> Option<(Kernel, InitOut)> {
    if asked.major != MAJOR || asked.minor < OLDEST_MINOR {
        return None;
    }
    tracing::debug!(asked.minor, missing = WANTED & !asked.flags, "FUSE");
    let kernel = Kernel {
        zero_message_open: asked.flags & flag::NO_OPEN_SUPPORT != 0,
        zero_message_opendir: asked.flags & flag::NO_OPENDIR_SUPPORT != 0,
    };
    let answer = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: asked.max_readahead,
        flags: asked.flags & WANTED,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: MAX_WRITE_BYTES,
        time_granularity_ns: 1,
        max_pages: MAX_PAGES,
        ..InitOut::default()
    };
    Some((kernel, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: InitIn = InitIn { major: 7, minor: 45, max_readahead: 131_072, flags: u32::MAX };

    #[test]
    fn nothing_is_wanted_that_the_kernel_does_not_have() {
        let (kernel, answer) = agree(&ASKED).unwrap();
        assert!(kernel.zero_message_open && kernel.zero_message_opendir);
        assert_eq!(answer.flags, WANTED);
        assert_eq!(answer.max_readahead, 131_072);
        let (kernel, answer) = agree(&InitIn { flags: flag::POSIX_ACL, ..ASKED }).unwrap();
        assert_eq!(kernel, Kernel::default());
        assert_eq!(answer.flags, flag::POSIX_ACL);
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(agree(&InitIn { major: 8, ..ASKED }), None);
        assert_eq!(agree(&InitIn { minor: 22, ..ASKED }), None);
    }
}
