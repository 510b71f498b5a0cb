# Shared by the scripts beside it: installs what is missing, on Debian and its relatives.
# shellcheck shell=bash

# as_root CMD...: runs a command as root, with sudo where that is needed.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "$0: this needs root: $*" >&2
        return 1
    fi
}

# need PROGRAM PACKAGE...: installs the packages unless the program is there.
need() {
    local program=$1
    shift
    if command -v "$program" >/dev/null 2>&1; then
        return 0
    fi
    install_packages "$program" "$@"
}

# install_packages WHAT PACKAGE...: installs packages for the sake of WHAT.
install_packages() {
    local what=$1
    shift
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "$0: please install $what (Debian: apt-get install $*)" >&2
        return 1
    fi
    echo "installing $* ..." >&2
    if [ -z "${APT_UPDATED:-}" ]; then
        as_root apt-get update -qq || return 1
        APT_UPDATED=1
    fi
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq "$@" >/dev/null
}

# fuse_is_usable: whether this user can mount.
fuse_is_usable() {
    [ -r /dev/fuse ] && [ -w /dev/fuse ]
}
