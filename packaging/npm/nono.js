#!/usr/bin/env node
// Starts the program that the package of this platform carries. `nono agent install` writes the
// path of that program into the settings of agents, so no hook starts node.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `nono-undo-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/nono`);
} catch {
  console.error(
    `nono: the package ${name} is not installed.\n` +
      "nono runs on Linux, on x64 and arm64. npm leaves the package out with --omit=optional.",
  );
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// Ctrl-C reaches the program by its terminal; other signals are passed on.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`nono: cannot start ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(signal ? 128 + constants.signals[signal] : code);
});
