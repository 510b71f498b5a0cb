# Shared by the set-ups beside it. `NAME.sh` is what was there before the commands of docs/NAME.md,
# and its function `before_N` what happened before their block N, from 0 on.
# hook NAME FIELDS: an event of an agent in the current directory, as its hook gets it.
hook() {
    printf '{"session_id": "an-agent", "cwd": "%s", "hook_event_name": "%s", %s}' "$PWD" "$1" "$2" |
        nono hook claude-code --deadline-ms 60000
}

# prompt TEXT: what a person asks an agent for.
prompt() {
    hook UserPromptSubmit "\"prompt\": \"$1\""
}

# call TOOL INPUT COMMAND: a call of a tool, which does what the command does.
call() {
    calls=$((calls + 1))
    local fields="\"tool_name\": \"$1\", \"tool_input\": {$2}, \"tool_use_id\": \"call-$calls\""
    hook PreToolUse "$fields"
    bash -c "$3"
    hook PostToolUse "$fields"
}

# shell COMMAND, edit FILE COMMAND: calls of the tools with these names.
shell() {
    call Bash "\"command\": \"$1\"" "$1"
}
edit() {
    call Edit "\"file_path\": \"$PWD/$1\"" "$2"
}
