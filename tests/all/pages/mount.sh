mkdir ~/project && cd ~/project
printf 'fn main() {\n}\n' >main.rs
nono run --quiet --no-sandbox -m 'the big refactor' sh -c 'echo "// more" >> main.rs'

before_1() {
    cd ~/project
    hook SessionStart '"source": "startup"'
    prompt 'add a comment to main'
    shell 'echo -- more >> main.rs'
    shell 'mkdir tests; touch tests/a.rs'
    prompt 'now the tests: run them!'
    shell 'cat main.rs > result'
    hook SessionEnd '"reason": "exit"'
    nono mount
}

before_2() {
    nono fork idea -- sh -c 'echo idea > plan'
    nono fork other -- sh -c 'echo other > plan'
}

before_3() {
    mkdir ~/overlay && cd ~/overlay
}

before_4() {
    cd ~/project
}
