#!/usr/bin/env python3
"""Measures the table of served requests: the rows of bench/served.json, by the load test of bench/load.py.

    python3 bench/served.py --out measured/served.json --about "$(refrain --version)" \\
        --serve "refrain serve MODEL --parallel 128 --ctx 2304"

Writes each row to the report as soon as it is measured, and prints a Markdown table at the end. Rows that the report
already has without errors are skipped, so a table can be measured in parts. Only parts of the same --about are joined.
Further options, such as --seconds and --model, are those of bench/load.py; those of a row come first. Needs only the
Python standard library.
"""

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import load

HERE = Path(__file__).resolve().parent
WARM_UP_SECONDS = 5
# What a row may set in addition to the options of bench/load.py.
ROW_DEFAULTS = {
    "note": "",  # printed with the row
    "fresh": False,  # begin with a new process of the server, without a warm-up
    "new_prefix": False,  # no request has sent the shared prefix before
    "repeat": 1,  # measure several times; the median by the last first token counts
}


def arguments():
    """The options of this program, and those of the load test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the report to write, or to go on with")
    parser.add_argument("--rows", type=Path, default=HERE / "served.json", metavar="FILE", help="rows to measure")
    parser.add_argument("--about", metavar="TEXT", help="device and build, for the report")
    parser.add_argument("--serve", metavar="COMMAND", help="start the server with this command; rows may need that")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="address of the server [%(default)s]")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS",
                        help="skip rows that would probably end later")
    options, further = parser.parse_known_args()
    return options, load.arguments([options.url, "--warm-up", str(WARM_UP_SECONDS), *further])


class Server:
    """A server that this program starts and stops; without a command, one that runs already."""

    def __init__(self, command):
        self.command, self.process = shlex.split(command or ""), None

    async def ready(self, client, fresh):
        """Starts the server if needed, and returns the name of its first model."""
        if fresh:
            self.stop()
        if self.command and not self.process:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while True:
            try:
                return await client.first_model()
            except OSError as error:
                if not self.process or self.process.poll() is not None:
                    sys.exit(f"{client.options.url}: no server: {error}")
                await asyncio.sleep(0.1)

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def wanted_rows(file, defaults):
    """The rows to measure: each group of the file has one for each number of streams."""
    groups = json.loads(file.read_text(encoding="utf-8"))
    for name in {name for group in groups for name in group}:
        if name not in defaults:
            sys.exit(f"{file}: unknown setting {name}")
    return [{**group, "streams": streams} for group in groups for streams in group["streams"]]


async def measure(options, server):
    """Measures one row."""
    client = load.Client(options)
    first_model = await server.ready(client, options.fresh)
    client.model = client.model or first_model
    if not options.fresh:
        await load.warm_up(client, options.streams)
    tries = []
    for _ in range(options.repeat):
        client.prefix = client.ids(options.prefix)
        if not options.new_prefix:
            await client.complete(client.prompt())
        tries.append(await load.row(client, options.streams, options.constrained, []))
    tries.sort(key=lambda found: found["first_ms_last"])
    return {
        **tries[len(tries) // 2],
        "first_ms_last_of_each": [found["first_ms_last"] for found in tries],
        "errors": sum(found["errors"] for found in tries),
    }


def markdown(rows):
    """The Markdown table of a report."""
    lines = ["| prompt / answer | clients | tokens/s | first token, ms: p50 / p99 / last | between, ms: p50 / p99 |",
             "|---|---|---|---|---|"]
    for found in rows:
        prefix = f"{found['prefix']:,} shared + " if found["prefix"] else ""
        note = f", {found['note']}" if found["note"] else ""
        errors = f", {found['errors']} errors" if found["errors"] else ""
        lines.append(
            "| {0}{prompt:,} / {generate:,}{1} | {streams} | {tokens_per_s:,.0f}{2} | {first_ms_p50:,.0f}"
            " / {first_ms_p99:,.0f} / {first_ms_last:,.0f} | {gap_ms_p50:.2f} / {gap_ms_p99:.2f} |".format(
                prefix, note, errors, **found
            )
        )
    return "\n".join(lines)


def read_report(options):
    """The report to go on with, or an empty one."""
    if not options.out.exists():
        options.out.parent.mkdir(parents=True, exist_ok=True)
        return {"about": options.about, "rows": []}
    report = json.loads(options.out.read_text(encoding="utf-8"))
    if report["about"] != options.about:
        sys.exit(f"{options.out} is of another device or build:\n{report['about']}")
    return report


async def main():
    options, load_options = arguments()
    began, report, server, failed = time.monotonic(), read_report(options), Server(options.serve), False
    defaults = {**vars(load_options), **ROW_DEFAULTS}
    wanted = wanted_rows(options.rows, defaults)
    order = lambda found: wanted.index(found["row"]) if found["row"] in wanted else len(wanted)
    try:
        for one in wanted:
            if any(found["row"] == one and not found["errors"] for found in report["rows"]):
                continue
            own = argparse.Namespace(**{**defaults, **one})
            if own.fresh and not options.serve:
                print(f"needs --serve: {one}", file=sys.stderr)
                continue
            begin = time.monotonic() - began
            # Requests outlast both times.
            if begin + 2 * (own.seconds + own.warm_up) > options.limit:
                print(f"no time for {one}", file=sys.stderr)
                continue
            found = await measure(own, server)
            names = ("prompt", "generate", "prefix", "seconds", "warm_up", "note")
            settings = {name: getattr(own, name) for name in names}
            found = {"row": one, **settings, **found, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            report["rows"] = [other for other in report["rows"] if other["row"] != one] + [found]
            report["rows"].sort(key=order)
            options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            failed |= bool(found["errors"])
            end, line = time.monotonic() - began, markdown([found]).splitlines()[-1]
            print(f"[{begin:.0f} to {end:.0f} s] {line}", file=sys.stderr)
    finally:
        server.stop()
    print(f"{report['about'] or options.url}\n\n{markdown(report['rows'])}")
    sys.exit(failed)


if __name__ == "__main__":
    asyncio.run(main())
