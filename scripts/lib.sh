# Shared by the scripts beside it: installs what is missing, on Debian and its relatives.
# shellcheck shell=bash

# part NAME: says which part of a run begins, and how many seconds the script has run.
part() {
    echo "== $1 (at $SECONDS s)"
}

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

# need_crate PROGRAM ROOT OPTION...: installs a tool that is written in Rust into ROOT/bin,
# unoptimised: it is ready sooner. The options are for cargo.
need_crate() {
    local tool=$1 root=$2
    shift 2
    [ ! -x "$root/bin/$tool" ] || return 0
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/tools CARGO_PROFILE_DEV_DEBUG=0 \
        cargo install --quiet --debug --locked --root "$root" "$@" "$tool"
    # Without a feature that the program needs, cargo installs nothing and calls that done.
    [ -x "$root/bin/$tool" ]
}

# fuse_is_usable: whether this user can mount.
fuse_is_usable() {
    [ -r /dev/fuse ] && [ -w /dev/fuse ]
}

# tools_dir: where programs for tests are installed; with CI=true once for each machine.
tools_dir() {
    if [ "${CI:-}" = true ]; then
        printf %s "${XDG_CACHE_HOME:-$HOME/.cache}/nono-ci/tools"
    else
        printf %s "$PWD/target/test-tools"
    fi
}

# ground_in_memory: mounts an ext4 image in memory and exports NONO_TEST_DIR, the ground of the
# tests' projects and stores: each snapshot flushes its file system. Without root or /dev/shm they
# stay on the disk.
ground_in_memory() {
    [ "$(id -u)" = 0 ] && [ -d /dev/shm ] && [ -z "${NONO_TEST_DIR:-}" ] || return 0
    GROUND_IMAGE=$(mktemp /dev/shm/nono-tests-XXXXXX.ext4)
    # Short: where a terminal breaks a line is a matter of its length.
    NONO_TEST_DIR=$(mktemp -d /var/tmp/nXXX)
    truncate -s 5G "$GROUND_IMAGE"
    if mkfs.ext4 -q -F "$GROUND_IMAGE" && mount -o loop "$GROUND_IMAGE" "$NONO_TEST_DIR"; then
        chmod 1777 "$NONO_TEST_DIR"
        export NONO_TEST_DIR
    else
        rm -rf "$GROUND_IMAGE" "$NONO_TEST_DIR"
        unset NONO_TEST_DIR GROUND_IMAGE
        echo "the tests run on the disk: an image in memory cannot be mounted here" >&2
    fi
}

# leave_ground: unmounts and removes that image.
leave_ground() {
    [ -n "${GROUND_IMAGE:-}" ] || return 0
    # Lazily: a process that a failed test left may still be in it.
    umount -l "$NONO_TEST_DIR" 2>/dev/null || true
    rm -f "$GROUND_IMAGE"
    rmdir "$NONO_TEST_DIR" 2>/dev/null || true
    GROUND_IMAGE=
}
