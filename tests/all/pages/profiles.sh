mkdir -p ~/.claude/commands && cd
echo '{}' >~/.claude/settings.json
echo '{}' >~/.claude/.credentials.json
echo 'be kind' >~/.claude/CLAUDE.md
