//! What the kernel asks for.

use zerocopy::FromBytes;

use super::abi::{BatchForgetIn, ForgetIn, ForgetOne, InHeader, InitIn, ReadIn, XattrSize, opcode};

/// A message of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request<'a> {
    /// The number of the request, for the answer.
    pub(crate) unique: u64,
    /// Whom it is about.
    pub(crate) node: u64,
    /// The thread that asks; 0 when it has no number in our process namespace.
    pub(crate) pid: u32,
    pub(crate) operation: Operation<'a>,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    Init(InitIn),
    Lookup {
        name: &'a [u8],
    },
    /// Nobody waits for an answer, and there must be none.
    Forget(Forgets<'a>),
    GetAttr,
    ReadLink,
    Open,
    Read {
        offset: u64,
        size: u32,
    },
    Flush,
    OpenDir,
    ReadDirPlus {
        offset: u64,
        size: u32,
    },
    StatFs,
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    /// The end of what OPEN or OPENDIR began, or of the mount.
    Release,
    /// It would change something.
    Change,
    /// Whoever sent another request no longer waits for it.
    Interrupt,
    /// Whatever else there is; the kernel can do without.
    Other {
        opcode: u32,
    },
    /// Too short for what it should be.
    Malformed {
        opcode: u32,
    },
}

/// Nodes and how often each was named to the kernel, which forgot it as often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Forgets<'a> {
    One(u64, u64),
    /// Encoded.
    Many(&'a [u8]),
}

impl<'a> Request<'a> {
    /// `None`: there is not even a header.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
        let InHeader { opcode, unique, node, pid, .. } = header;
        let operation = Operation::decode(opcode, node, body);
        let operation = operation.unwrap_or(Operation::Malformed { opcode });
        Some(Self { unique, node, pid, operation })
    }

    /// Whether there has to be an answer.
    pub(crate) fn is_question(&self) -> bool {
        self.operation.is_question()
    }
}

impl<'a> Operation<'a> {
    /// `None`: the body is too short.
    fn decode(opcode: u32, node: u64, body: &'a [u8]) -> Option<Self> {
        Some(match opcode {
            opcode::INIT => Self::Init(prefix(body)?.0),
            opcode::LOOKUP => Self::Lookup { name: name(body)? },
            opcode::FORGET => {
                let (ForgetIn { lookups }, _) = prefix(body)?;
                Self::Forget(Forgets::One(node, lookups))
            }
            opcode::BATCH_FORGET => {
                let (BatchForgetIn { count, .. }, forgotten) = prefix(body)?;
                let bytes = usize::try_from(count).ok()?.checked_mul(size_of::<ForgetOne>())?;
                Self::Forget(Forgets::Many(forgotten.get(..bytes)?))
            }
            opcode::GETATTR => Self::GetAttr,
            opcode::READLINK => Self::ReadLink,
            opcode::OPEN => Self::Open,
            opcode::READ => {
                let (ReadIn { offset, size, .. }, _) = prefix(body)?;
                Self::Read { offset, size }
            }
            opcode::FLUSH => Self::Flush,
            opcode::OPENDIR => Self::OpenDir,
            opcode::READDIRPLUS => {
                let (ReadIn { offset, size, .. }, _) = prefix(body)?;
                Self::ReadDirPlus { offset, size }
            }
            opcode::STATFS => Self::StatFs,
            opcode::GETXATTR => {
                let (XattrSize { size, .. }, rest) = prefix(body)?;
                Self::GetXattr { name: name(rest)?, size }
            }
            opcode::LISTXATTR => {
                let (XattrSize { size, .. }, _) = prefix(body)?;
                Self::ListXattr { size }
            }
            opcode::RELEASE | opcode::RELEASEDIR | opcode::DESTROY => Self::Release,
            opcode::SETATTR
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::WRITE
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE => Self::Change,
            opcode::INTERRUPT => Self::Interrupt,
            opcode => Self::Other { opcode },
        })
    }

    fn is_question(&self) -> bool {
        let (Self::Other { opcode } | Self::Malformed { opcode }) = self else {
            return !matches!(self, Self::Forget(_));
        };
        !matches!(*opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY)
    }
}

impl Forgets<'_> {
    /// Nodes and how often each is forgotten.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let (one, many) = match *self {
            Self::One(node, lookups) => (Some((node, lookups)), &[] as &[u8]),
            Self::Many(many) => (None, many),
        };
        let many = many.chunks_exact(size_of::<ForgetOne>()).filter_map(|one| {
            let ForgetOne { node, lookups } = ForgetOne::read_from_bytes(one).ok()?;
            Some((node, lookups))
        });
        one.into_iter().chain(many)
    }
}

/// A structure and what follows it.
fn prefix<T: FromBytes>(bytes: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(bytes).ok()
}

/// A name up to its NUL.
fn name(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(&bytes[..end])
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header = InHeader { opcode, unique: 8, node: 9, pid: 10, ..InHeader::default() };
        [header.as_bytes(), body].concat()
    }

    fn decoded(opcode: u32, body: &[u8]) -> Operation<'_> {
        Operation::decode(opcode, 9, body).unwrap_or(Operation::Malformed { opcode })
    }

    #[test]
    fn a_request_says_who_asks_whom_for_what() {
        let bytes = request(opcode::LOOKUP, b"name\0");
        let request = Request::decode(&bytes).unwrap();
        let operation = Operation::Lookup { name: b"name" };
        assert_eq!(request, Request { unique: 8, node: 9, pid: 10, operation });
    }

    #[test]
    fn where_and_how_much_to_read_is_found() {
        let body = ReadIn { offset: 1 << 40, size: 7, ..ReadIn::default() };
        let read = Operation::Read { offset: 1 << 40, size: 7 };
        assert_eq!(decoded(opcode::READ, body.as_bytes()), read);
        let wanted = [XattrSize { size: 5, padding: 0 }.as_bytes(), b"user.a\0"].concat();
        let get = Operation::GetXattr { name: b"user.a", size: 5 };
        assert_eq!(decoded(opcode::GETXATTR, &wanted), get);
    }

    #[test]
    fn each_forgotten_node_is_found_and_no_more() {
        let forgotten = [1_u64, 2, 3, 4].as_bytes().to_vec();
        let body = [[2_u32, 0].as_bytes(), &forgotten].concat();
        let Operation::Forget(many) = decoded(opcode::BATCH_FORGET, &body) else { panic!() };
        assert_eq!(many.iter().collect::<Vec<_>>(), [(1, 2), (3, 4)]);
        let more_than_there_is = [[3_u32, 0].as_bytes(), &forgotten].concat();
        let malformed = decoded(opcode::BATCH_FORGET, &more_than_there_is);
        assert_eq!(malformed, Operation::Malformed { opcode: opcode::BATCH_FORGET });
        assert!(!malformed.is_question());
        let Operation::Forget(one) = decoded(opcode::FORGET, 3_u64.as_bytes()) else { panic!() };
        assert_eq!(one.iter().collect::<Vec<_>>(), [(9, 3)]);
    }

    /// Whatever comes, at whatever length.
    #[test]
    fn any_bytes_are_a_request_or_none() {
        let body = [0xff; 64];
        for opcode in 0..64 {
            let bytes = request(opcode, &body);
            for length in 0..bytes.len() {
                let decoded = Request::decode(&bytes[..length]);
                assert_eq!(decoded.is_some(), length >= size_of::<InHeader>());
            }
        }
        assert_eq!(decoded(opcode::LOOKUP, b"no end"), Operation::Malformed { opcode: 1 });
    }
}
