"""Measures and checks everything that needs a real card: run from the repository's root.

    python3 bench/measure.py --refrain target/release/refrain --out measured

Writes DIR/report.json and prints a short table. Needs Python 3.9 with numpy and safetensors.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ["synthetic:qwen3-0.6b:q4_0", "synthetic:qwen3-0.6b:f16", "synthetic:qwen3-8b:q4_0", "synthetic:qwen3-8b:mlx4"]


class Program:
    """The program under test, on one device."""

    def __init__(self, path, device):
        self.path, self.device = path, device

    def run(self, *arguments):
        command = [self.path, *arguments, "--device", self.device]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400)


def logits_errors(program, scratch, folder):
    """Relative L2 against the reference logits, for each checkpoint in a folder."""
    sys.path.insert(0, str(ROOT / "references"))
    from compare import relative_l2
    from safetensors.numpy import load_file

    errors = {}
    for fixture in sorted(folder.iterdir()):
        if not (fixture / "logits.safetensors").exists():
            continue
        gguf = fixture / "model.gguf"
        out = scratch / "logits.safetensors"
        out.unlink(missing_ok=True)
        done = program.run("logits", str(gguf if gguf.exists() else fixture), "--tokens", str(fixture / "tokens.json"), "--out", str(out))
        if done.returncode != 0:
            errors[fixture.name] = done.stderr.strip().splitlines()[-1]
            continue
        tested, reference = load_file(out)["logits"], load_file(fixture / "logits.safetensors")["logits"]
        errors[fixture.name] = float(relative_l2(tested.astype("f8"), reference.astype("f8")))
    return errors


def story_error(program, scratch):
    """Relative L2 between this device and the CPU executor on the demo's story, both fed its tokens."""
    from compare import relative_l2
    from safetensors.numpy import load_file

    ids = json.loads(program.run("tokenize", "demo", "--file", str(ROOT / "demo/story.txt")).stdout)
    (scratch / "story.json").write_text(json.dumps({"input_ids": [ids]}))
    logits = []
    for runner in (program, Program(program.path, "cpu")):
        out = scratch / "story.safetensors"
        out.unlink(missing_ok=True)
        runner.run("logits", "demo", "--tokens", str(scratch / "story.json"), "--out", str(out))
        logits.append(load_file(out)["logits"].astype("f8"))
    return {"tokens": len(ids), "relative_l2": float(relative_l2(*logits))}


def demo_answers(program, scratch, each):
    """How many of the demo's held-out questions are answered right, by subject."""
    right = {}
    messages = scratch / "messages.json"
    for question in json.loads((ROOT / "demo/questions.json").read_text()):
        counts = right.setdefault(question["subject"], [0, 0])
        if counts[1] >= each:
            continue
        messages.write_text(json.dumps(question["messages"]))
        prompt = program.run("template", str(ROOT / "demo/model"), "--messages", str(messages)).stdout
        answer = program.run("run", "demo", prompt, "--raw", "--temp", "0", "-n", "100", "-q").stdout
        counts[0] += answer.strip() == question["answer"].strip()
        counts[1] += 1
    return right


def timed(report, name, work):
    start = time.time()
    report[name] = work()
    print(f"[{time.time() - start:6.1f} s] {name}: {json.dumps(report[name])}", flush=True)


def bench(program, model, arguments):
    """Rows of `refrain bench`, or what it complained about."""
    done = program.run("bench", model, "--json", *arguments)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def soak(program, arguments):
    done = program.run("soak", *arguments, "--json")
    return json.loads(done.stdout) if done.stdout else done.stderr.strip()


def agreement(program, scratch, model, tokens):
    """Whether replay and eager decoding give the same tokens, greedy and seeded."""
    texts = {}
    for name, sampling in {"greedy": ["--temp", "0"], "seeded": ["--temp", "1", "--seed", "5"]}.items():
        ids = []
        for mode in ("replay", "eager"):
            done = program.run("run", model, "Once upon a time", "--raw", "-n", str(tokens), "--mode", mode, "--json", *sampling)
            ids.append(json.loads(done.stdout)["ids"] if done.returncode == 0 else done.stderr)
        texts[name] = {"equal": ids[0] == ids[1], "tokens": len(ids[0])}
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refrain", default="target/release/refrain")
    parser.add_argument("--out", default="measured", help="folder for report.json")
    parser.add_argument("--device", default="0")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--bench", default="-p 512 -n 128 -r 3", help="arguments of `refrain bench`")
    parser.add_argument("--soak", default="", help="arguments of `refrain soak`")
    parser.add_argument("--checkpoints", nargs="*", type=Path, default=[], help="folders by references/random_checkpoints.py")
    parser.add_argument("--questions", type=int, default=2, help="of each subject of the demo")
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("XDG_CACHE_HOME", str(out / "cache"))
    program = Program(options.refrain, options.device)
    report = {}
    timed(report, "devices", lambda: json.loads(subprocess.run([options.refrain, "devices", "--json"], capture_output=True, text=True).stdout or "null"))
    for folder in [ROOT / "tests/fixtures", *options.checkpoints]:
        timed(report, f"logits of {folder.name}", lambda: logits_errors(program, out, folder))
    timed(report, "story", lambda: story_error(program, out))
    timed(report, "demo answers", lambda: demo_answers(program, out, options.questions))
    timed(report, "replay and eager", lambda: agreement(program, out, "demo", 200))
    if options.soak:
        timed(report, "soak", lambda: soak(program, options.soak.split()))
    for model in options.models:
        timed(report, model, lambda: bench(program, model, options.bench.split()))
    (out / "report.json").write_text(json.dumps(report, indent=1))
    for model in options.models:
        for row in report[model] if isinstance(report[model], list) else []:
            share = row["bandwidth_share"]
            print(f"{model:28} {row['device']} {row['mode']:6} {row['test']:6} d{row['depth']}: {row['tokens_per_s']:9.1f} tokens/s"
                  + (f", {share:.3f} of {row['probe_gbps']:.0f} GB/s" if share else ""))


if __name__ == "__main__":
    main()
