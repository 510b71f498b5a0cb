//! Numbers in the text format of Prometheus, version 0.0.4: families with help and type, samples
//! with one label at the most. All of them are gauges.

use std::fmt::{self, Write};

/// A text of families.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    text: String,
}

/// The samples of one metric.
#[derive(Debug)]
pub(super) struct Family<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Metrics {
    /// Begins a metric. Its samples follow without another one between them.
    pub(super) fn family<'a>(&'a mut self, name: &'static str, help: &str) -> Family<'a> {
        let text = &mut self.text;
        // A text takes every write.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        Family { name, text }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Family<'_> {
    /// Adds a sample, with the name and the value of its label.
    pub(super) fn sample(&mut self, label: Option<(&str, &str)>, value: f64) {
        let _ = match label {
            None => writeln!(self.text, "{} {value}", self.name),
            Some((key, label)) => {
                writeln!(self.text, "{}{{{key}=\"{}\"}} {value}", self.name, escaped(label))
            }
        };
    }
}

/// The value of a label: only these three characters have a meaning in it.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
