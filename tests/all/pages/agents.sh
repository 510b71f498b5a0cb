mkdir -p ~/.claude ~/shop/src && cd ~/shop
echo '{}' >~/.claude/settings.json
echo 'total = sum' >src/cart.py
echo '# Shop' >README.md

before_1() {
    hook SessionStart '"source": "startup"'
    prompt 'tidy up the shop'
    shell 'rm src/cart.py && echo x > new.txt'
    edit README.md 'echo more >> README.md'
    prompt 'now the tests'
    echo mine >>README.md
    edit tests.py 'echo test > tests.py'
}
