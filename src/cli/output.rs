//! Flags that every command has: how much is said, in which colours, and whether a pager shows it.

use anstream::ColorChoice;
use clap::{Args, ValueEnum};

/// Heading of what every command understands.
pub(super) const GLOBAL: &str = "Global options";

/// How a command says what it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub(super) struct OutputArgs {
    /// Say nothing but errors, and print the data that was asked for
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    #[arg(help_heading = GLOBAL, display_order = 910)]
    pub(super) quiet: bool,
    /// Name what is otherwise counted, and say what is done
    #[arg(long, short, global = true, help_heading = GLOBAL, display_order = 911)]
    pub(super) verbose: bool,
    /// Whether to use colours; auto is: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    #[arg(help_heading = GLOBAL, display_order = 912)]
    pub(super) color: ColorWhen,
    /// Print long output at once, also on a terminal
    #[arg(long, global = true, help_heading = GLOBAL, display_order = 913)]
    pub(super) no_pager: bool,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorWhen {
    #[default]
    Auto,
    Always,
    Never,
}

impl OutputArgs {
    /// Has everything that decides about colours decide so.
    pub(super) fn choose_colours(self) {
        match self.color {
            ColorWhen::Auto => ColorChoice::Auto,
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        }
        .write_global();
    }

    /// The default log filter, without `NONO_LOG`.
    pub(super) fn log_filter(self) -> &'static str {
        match (self.quiet, self.verbose) {
            (true, _) => "error",
            (_, true) => "warn,nono=debug,nono_mount=debug",
            _ => "warn",
        }
    }
}
