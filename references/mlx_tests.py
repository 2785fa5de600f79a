"""Runs MLX's or mlx-lm's own tests, unmodified, with Refrain and with MLX, and writes a table of them.

    python references/mlx_tests.py FOLDER --mlx PYTHON --refrain PYTHON --out docs/python/tests-mlx.md

FOLDER holds the tests: `python/tests` of a checkout of MLX, or `tests` of mlx-lm's source distribution. PYTHON are the
interpreters of two environments, one with MLX's own back end and one with Refrain; both need pytest, pytest-timeout and
numpy. `--results` keeps the reports of pytest; reports that are there already are not made again.
"""

import argparse
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

# What an error says: the block of features that is missing.
BLOCKS = [
    (r"\[(grad|value_and_grad|vjp|jvp)\]", "derivatives"),
    (r"\[vmap\]", "vmap"),
    (r"complex", "complex64"),
    (r"float64", "float64"),
    (r"int64|beyond 32 bits", "64-bit integers"),
    (r"gguf", "GGUF files"),
    (r"\[fft\.", "fft"),
    (r"\[linalg\.", "linalg"),
    (r"\[(export|import)_", "export"),
    (r"\[export_to_dot\]|\[exporter\]", "export"),
    (r"Metal back-end|metal", "Metal kernels"),
    (r"Timeout", "time: over the limit"),
    (r"\[(\w+)\] mlx\.core\.\w+ is not supported", "functions that are missing"),
    (r"not supported", "options that are missing"),
]


def report(python: list[str], file: Path, target: Path, seconds: int) -> dict[str, tuple[str, str]]:
    """Runs a file; the state and the error of each test."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        options = ["-q", "--tb=short", f"--timeout={seconds}", "-p", "no:cacheprovider", f"--junitxml={target}"]
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "DEVICE": "cpu"}
        command = [*python, "-m", "pytest", file.name, *options]
        subprocess.run(command, cwd=file.parent, env=environment, capture_output=True, check=False)
    if not target.exists():
        return {}
    states: dict[str, tuple[str, str]] = {}
    for case in ElementTree.parse(target).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        state, error = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                lines = [line for line in (child.text or "").splitlines() if line.startswith("E ")]
                state, error = "failed", lines[0] if lines else child.get("message", "")
            elif child.tag == "skipped":
                state = "skipped"
        # A test with subtests is reported several times: a failure counts.
        if states.get(name, ("",))[0] != "failed":
            states[name] = (state, error)
    return states


def block_of(error: str) -> str:
    """The block that an error says is missing."""
    return next((block for pattern, block in BLOCKS if re.search(pattern, error, re.IGNORECASE)), "differs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mlx", required=True, help="the interpreter with MLX")
    parser.add_argument("--refrain", required=True, help="the interpreter with Refrain")
    parser.add_argument("--results", type=Path, default=Path("target/mlx-tests"), help="where reports are kept")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=120, help="the limit of one test")
    options = parser.parse_args()
    rows, details, sums = [], [], Counter()
    for file in sorted(options.folder.resolve().glob("test_*.py")):
        reference = report([options.mlx], file, options.results / "mlx" / f"{file.stem}.xml", options.seconds)
        ours_python = [options.refrain, "-m", "refrain.mlx"]
        ours = report(ours_python, file, options.results / "refrain" / f"{file.stem}.xml", options.seconds)
        wanted = [name for name, (state, _) in reference.items() if state == "passed"]
        states = {name: ours.get(name, ("failed", "did not run")) for name in wanted}
        failed = {name: block_of(error) for name, (state, error) in states.items() if state != "passed"}
        blocks = Counter(failed.values())
        sums.update({"wanted": len(wanted), "passed": len(wanted) - len(failed)})
        missing = ", ".join(f"{block} ({count})" for block, count in blocks.most_common())
        rows.append(f"| {file.name} | {len(wanted)} | {len(wanted) - len(failed)} | {missing} |")
        details += [f"| {file.stem} | {name.partition('::')[2]} | {block} |" for name, block in failed.items()]
    lines = [
        "# Tests",
        "",
        "Made by `references/mlx_tests.py`; do not edit. Tests that pass with MLX on the CPU, and those of them that",
        f"pass with Refrain: {sums['passed']} of {sums['wanted']}.",
        "",
        "| file | MLX | Refrain | what the others miss |",
        "|---|---|---|---|",
        *rows,
        "",
        "## Tests that fail",
        "",
        "| file | test | what is missing |",
        "|---|---|---|",
        *details,
    ]
    options.out.write_text("\n".join(lines) + "\n")
    print(f"{sums['passed']} of {sums['wanted']}")


if __name__ == "__main__":
    main()
