//! The grants of every command: enough of the system to run programs.

/// Read and executed with all below, where they exist.
pub(super) const READABLE: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix",
    "/gnu",
    "/snap",
    "/home/linuxbrew/.linuxbrew",
    "/run/current-system",
    "/etc",
    "/proc",
    "/sys",
    // Where `/etc/resolv.conf` and the time zone point to.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd",
    "/var/lib/ca-certificates",
    "/var/cache/fontconfig",
];

/// Read and written. Only these devices of `/dev`: as root, the others are the machine's disks. In
/// the second wall, `/dev/pts` has the command's own terminals alone ([`super::terminals`]).
pub(super) const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Listed with all below, but not read. Not `/`: that would list every directory there is.
pub(super) const LISTED: &[&str] = &["/dev"];
