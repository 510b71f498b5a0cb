#!/usr/bin/env bash
# Runs NONO_COMMAND under nono, and writes into one directory: report.json, changes.patch, and
# page/index.html. Works without any service: docs/ci.md has it for GitLab and for plain shells.
#
# NONO_PROGRAM, NONO_OPTIONS, NONO_HIDE   as the inputs of action.yml, with the same defaults
# NONO_FILES                              the directory; without it, one below RUNNER_TEMP or TMPDIR
# GITHUB_OUTPUT                           a file that gets session, root, exit-code and files
#
# The exit code is 0 as soon as the command ran and was recorded: its own code is exit-code. Without
# GITHUB_OUTPUT it is passed on.
set -euo pipefail

: "${NONO_COMMAND:?the command that is to be run}"
nono=${NONO_PROGRAM:-nono}
files=${NONO_FILES:-}
if [ -z "$files" ]; then
    files=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/nono-XXXXXX")
fi
mkdir -p "$files"
report=$files/report.json
read -ra options <<<"${NONO_OPTIONS:-}"

code=0
"$nono" run --rollback --quiet --report "$report" ${options[@]+"${options[@]}"} -- \
    bash -c "$NONO_COMMAND" || code=$?
if [ ! -s "$report" ]; then
    echo "nono did not run the command, or did not record it (exit code $code)" >&2
    exit "$((code == 0 ? 1 : code))"
fi

# field NAME: a text of the report.
field() {
    sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$report"
}
session=$(field session_id)
root=$(field root)

"$nono" diff "$session" --binary >"$files/changes.patch"
page=("$nono" ui --quiet "$session" --export "$files/page")
[ -z "${NONO_HIDE=.env*}" ] || page+=(--hide "$NONO_HIDE")
"${page[@]}"

if [ -n "${GITHUB_OUTPUT:-}" ]; then
    printf '%s=%s\n' session "$session" root "$root" exit-code "$code" files "$files" \
        >>"$GITHUB_OUTPUT"
else
    echo "nono: session $session, files in $files" >&2
    exit "$code"
fi
