mkdir -p ~/bin ~/shop/src && cd ~/shop
git init -q -b main
echo one >src/a
# program PATH COMMAND: what stands for a program of another project.
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"
}
PATH=$HOME/bin:$PATH
program ~/bin/claude 'echo idea > src/plan'
program ~/bin/codex 'echo other > src/plan'
program ~/bin/npm 'echo {} > package-lock.json'
program ~/bin/make 'touch built'
program format 'echo two > src/a'
