//! The `nono` program.

fn main() -> std::process::ExitCode {
    nono::cli::main()
}
