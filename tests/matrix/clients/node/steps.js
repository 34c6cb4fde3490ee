// Runs the named steps one after the other, and prints one line of JSON per step.
"use strict";

const [BOOTSTRAP, TOPIC, GROUP, STEPS] = process.argv.slice(2);
const RECORDS = 100;
const PARTITIONS = 4;
const WAIT_MILLISECONDS = 30000;

function check(holds, text) {
  if (!holds) throw new Error(text);
}

async function until(text, holds) {
  const deadline = Date.now() + WAIT_MILLISECONDS;
  while (!(await holds())) {
    check(Date.now() < deadline, `timed out: ${text}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Rejects if the promise takes too long. */
function limited(promise) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error("timed out")), 2 * WAIT_MILLISECONDS).unref();
  });
  return Promise.race([promise, late]);
}

async function run(known) {
  for (const name of STEPS.split(",")) {
    const report = { step: name, ok: true, error: null };
    try {
      await limited(known[name]());
    } catch (error) {
      report.ok = false;
      report.error = `${error.name}: ${error.message}`;
    }
    process.stdout.write(JSON.stringify(report) + "\n");
  }
  process.exit(0);
}

module.exports = { BOOTSTRAP, TOPIC, GROUP, RECORDS, PARTITIONS, check, until, run };
