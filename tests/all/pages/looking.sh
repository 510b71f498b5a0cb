mkdir -p ~/shop/src && cd ~/shop
seq -f '// %g' 11 >src/a.rs
{ cat src/a.rs && echo 'let needle = 1;'; } >~/new.rs
printf '%s\n' 1 2 3 4 5 6 7 8 9 'let base = 0;' >src/main.rs
git init -q
git -c user.name='Ann Lee' -c user.email=ann@example.org add src/main.rs
GIT_AUTHOR_DATE='2024-05-02T10:00:00Z' \
    git -c user.name='Ann Lee' -c user.email=ann@example.org commit -q -m 'the first parser'
printf '%s\n' 'let first = 0;' 'let other = 2;' >>src/main.rs
nono run --quiet --no-sandbox cp ~/new.rs src/a.rs
hook SessionStart '"source": "startup"'
prompt 'fix the parser'
edit src/main.rs "sed -i 's/first = 0/second = 1/' src/main.rs"
shell 'rm src/a.rs'
echo 'let third = 3;' >>src/main.rs
