#!/usr/bin/env python3
"""Measures the table of prompts, batches, mixtures and hybrids on a device.

    python3 bench/table.py --out measured/h200.json
    python3 bench/table.py --before measured/h200.json --out measured/h200.json    on a second start: both starts' rows

Runs `refrain bench` as bench/table.json says, most important first, while the seconds last; writes rows as
`refrain bench --report` does, with the date of each, and prints a Markdown table with shares of what bounds them and the
figures that are wanted. With --logits it checks what the device computes, too. Python 3.9, nothing else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

import checks
import figures

HERE = Path(__file__).resolve().parent


class Program:
    """The program under test on a device, while time lasts."""

    def __init__(self, path, device, seconds):
        self.path, self.device, self.ends = path, device, time.monotonic() + seconds

    def left(self):
        return self.ends - time.monotonic()

    def run(self, *arguments, device=None, seconds=None):
        """Its standard output; RuntimeError with what it complained about, or that time is up."""
        seconds = seconds or self.left()
        if seconds <= 0:
            raise RuntimeError("no seconds were left")
        command = [self.path, *map(str, arguments), "--device", device or self.device]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError("cut off when no seconds were left") from None
        except OSError as error:
            sys.exit(f"{self.path} does not run ({error.strerror}): build it, or name it by --refrain")
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise RuntimeError(next((line for line in lines if line.startswith("error")), f"it ended with {done.returncode}"))
        return done.stdout


def say(program, began, text):
    print(f"[{time.monotonic() - began:6.1f} s, {max(program.left(), 0):4.0f} left] {text}", file=sys.stderr, flush=True)


def bench(program, run, date):
    """The report of one run of the table, its rows dated."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        program.run("bench", run["model"], *run["arguments"].split(), "--report", file)
        report = json.loads(file.read_text())
    for row in report["rows"]:
        row["date"] = date
    return report


def measure(program, runs, date, write):
    """The runs' reports as one, and why others are missing: (name, reason, whether it failed) each."""
    whole, missing, probes = None, [], []
    for run in runs:
        name = f"{run['model']} {run['arguments']}"
        if program.left() < run.get("seconds", 0):
            missing.append((name, f"takes some {run['seconds']} s, {max(program.left(), 0):.0f} were left", False))
            continue
        began = time.monotonic()
        try:
            report = bench(program, run, date)
        except RuntimeError as error:
            missing.append((name, str(error), program.left() > 0))
            say(program, began, f"{name}: {error}")
            continue
        probes.append(report["probe_gbps"])
        if whole is None:
            whole = report
        else:
            whole["rows"] += report["rows"]
            whole["loads"] += report["loads"]
        whole["probe_gbps"] = median(probes)
        write(whole)
        say(program, began, name)
    return whole, missing


def start(report):
    """What is to be known of the start of the machine that rows come from."""
    vulkan = report.get("vulkan") or {}
    return {
        "date": report.get("date"),
        "git": report["git"],
        "device": report["device"],
        "driver": vulkan.get("driver"),
        "probe_gbps": report["probe_gbps"],
    }


def merged(report, before, date):
    """A report of this start, with an earlier report's rows before its own."""
    whole = {**(before or {}), **report, "date": date}
    if "rows" in report:
        earlier = before.get("starts") or [start(before)] if before else []
        whole["starts"] = [*earlier, start({**report, "date": date})]
        for lists in ("loads", "rows"):
            whole[lists] = (before[lists] if before else []) + report[lists]
    return whole


def read(path, what):
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{what} {path} cannot be read: {error}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refrain", default=HERE.parent / "target/release/refrain", metavar="PROGRAM")
    parser.add_argument("--device", default="0")
    parser.add_argument("--seconds", type=float, default=560, help="what does not fit is left out (default: %(default)g)")
    parser.add_argument("--out", required=True, metavar="FILE", help="the report to write")
    parser.add_argument("--before", metavar="FILE", help="an earlier start's report: compared with, and its rows kept")
    parser.add_argument("--table", default=HERE / "table.json", metavar="FILE", help="what to run (default: bench/table.json)")
    parser.add_argument("--models", nargs="*", metavar="PART", help="only models with one of these in their name; none: no run")
    parser.add_argument("--logits", nargs="*", type=Path, metavar="FOLDER",
                        help="compare logits of tests/fixtures, and of folders by references/random_checkpoints.py, then ask the demo")
    parser.add_argument("--disable", nargs="*", default=["fragment-order", "cooperative-matrix"], metavar="FEATURE",
                        help="with --logits: features that are left unused in turn (default: %(default)s)")
    return parser.parse_args()


def main():
    options = arguments()
    table, before = read(options.table, "the table"), read(options.before, "the earlier report") if options.before else None
    program = Program(options.refrain, options.device, options.seconds)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write = lambda report: out.write_text(json.dumps(merged(report, before, date), indent=1) + "\n")
    chosen = lambda run: options.models is None or any(part in run["model"] for part in options.models)
    runs = list(filter(chosen, table["runs"]))
    if options.models and not runs:
        sys.exit(f"no model of {options.table} has {' or '.join(options.models)} in its name")
    table["runs"] = runs
    report, missing = measure(program, runs, date, write)
    if report:
        print(figures.table(table, {**report, "date": date}, before, figures.Work(program)))
    for name, reason, _ in missing:
        print(f"not measured: {name}: {reason}")
    right = bool(report) or not runs
    if options.logits is not None:
        told, as_expected = checks.all_of(program, options.logits, options.disable)
        right &= as_expected
        print("\n" + figures.checks(told))
        write({**(report or {}), "checks": told})
    sys.exit(not right or any(failed for _, _, failed in missing))


if __name__ == "__main__":
    main()
