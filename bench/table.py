#!/usr/bin/env python3
"""Measures the benchmark table of prompts, batches, mixture-of-experts and hybrid models on a device.

    python3 bench/table.py --out measured/h200.json
    python3 bench/table.py --before measured/h200.json --out measured/h200.json    adds the rows of a second run

Runs `refrain bench` as listed in bench/table.json, most important first, until the time budget is used up. Writes rows in
the format of `refrain bench --report` with a date each, and prints a Markdown table with the share of the hardware limit
and the targets. With --logits it also checks computed results. Needs only Python 3.9.
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
import metrics

HERE = Path(__file__).resolve().parent


class Program:
    """Runs the program under test on a device within a time budget."""

    def __init__(self, path, device, seconds):
        self.path, self.device, self.ends = path, device, time.monotonic() + seconds

    def seconds_left(self):
        return self.ends - time.monotonic()

    def run(self, *arguments, device=None, seconds=None):
        """Returns the standard output. Raises RuntimeError with the error of the program, or when time is up."""
        seconds = seconds or self.seconds_left()
        if seconds <= 0:
            raise RuntimeError("no time was left")
        command = [self.path, *map(str, arguments), "--device", device or self.device]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError("stopped when the time was up") from None
        except OSError as error:
            sys.exit(f"cannot run {self.path} ({error.strerror}): build it, or name it with --refrain")
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise RuntimeError(next((line for line in lines if line.startswith("error")), f"exit status {done.returncode}"))
        return done.stdout


def log(program, began, text):
    print(f"[{time.monotonic() - began:6.1f} s, {max(program.seconds_left(), 0):4.0f} left] {text}", file=sys.stderr, flush=True)


def bench(program, run, date):
    """Returns the report of one run of the table, with dated rows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        program.run("bench", run["model"], *run["arguments"].split(), "--report", file)
        report = json.loads(file.read_text())
    for row in report["rows"]:
        row["date"] = date
    return report


def measure(program, runs, date, write):
    """Runs the table. Returns the merged report, and (name, reason, whether it failed) of each missing run."""
    total, missing, probes = None, [], []
    for run in runs:
        name = f"{run['model']} {run['arguments']}"
        if program.seconds_left() < run.get("seconds", 0):
            missing.append((name, f"takes about {run['seconds']} s, but {max(program.seconds_left(), 0):.0f} s were left", False))
            continue
        began = time.monotonic()
        try:
            report = bench(program, run, date)
        except RuntimeError as error:
            missing.append((name, str(error), program.seconds_left() > 0))
            log(program, began, f"{name}: {error}")
            continue
        probes.append(report["probe_gbps"])
        if total is None:
            total = report
        else:
            total["rows"] += report["rows"]
            total["loads"] += report["loads"]
        total["probe_gbps"] = median(probes)
        write(total)
        log(program, began, name)
    return total, missing


def start(report):
    """Describes the machine start that rows were measured in."""
    vulkan = report.get("vulkan") or {}
    return {
        "date": report.get("date"),
        "git": report["git"],
        "device": report["device"],
        "driver": vulkan.get("driver"),
        "probe_gbps": report["probe_gbps"],
    }


def merged(report, before, date):
    """Merges the report of this machine start into an earlier report: earlier rows come first."""
    total = {**(before or {}), **report, "date": date}
    if "rows" in report:
        earlier = before.get("starts") or [start(before)] if before else []
        total["starts"] = [*earlier, start({**report, "date": date})]
        for lists in ("loads", "rows"):
            total[lists] = (before[lists] if before else []) + report[lists]
    return total


def read(path, description):
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"cannot read {description} {path}: {error}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refrain", default=HERE.parent / "target/release/refrain", metavar="PROGRAM")
    parser.add_argument("--device", default="0")
    parser.add_argument("--seconds", type=float, default=560, help="time budget; runs that do not fit are skipped (default: %(default)g)")
    parser.add_argument("--out", required=True, metavar="FILE", help="the report to write")
    parser.add_argument("--before", metavar="FILE", help="an earlier report to compare with; its rows are kept")
    parser.add_argument("--table", default=HERE / "table.json", metavar="FILE", help="the runs (default: bench/table.json)")
    parser.add_argument("--models", nargs="*", metavar="PART", help="only models whose name contains one of these; empty: no runs")
    parser.add_argument("--logits", nargs="*", type=Path, metavar="FOLDER",
                        help="check the logits of tests/fixtures and of folders written by references/random_checkpoints.py, then the demo")
    parser.add_argument("--disable", nargs="*", default=["fragment-order", "cooperative-matrix"], metavar="FEATURE",
                        help="with --logits: features to disable one after another (default: %(default)s)")
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
        sys.exit(f"no model in {options.table} matches {' or '.join(options.models)}")
    table["runs"] = runs
    report, missing = measure(program, runs, date, write)
    if report:
        print(metrics.table(table, {**report, "date": date}, before, metrics.Work(program)))
    for name, reason, _ in missing:
        print(f"not measured: {name}: {reason}")
    passed = bool(report) or not runs
    if options.logits is not None:
        results, all_passed = checks.all_of(program, options.logits, options.disable)
        passed &= all_passed
        print("\n" + metrics.checks(results))
        write({**(report or {}), "checks": results})
    sys.exit(not passed or any(failed for _, _, failed in missing))


if __name__ == "__main__":
    main()
