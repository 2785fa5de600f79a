"""Checks the results of a device: logits against reference software, and the answers of the demo model."""

import json
import math
import struct
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_RELATIVE_L2 = 5e-3  # the default of references/compare.py
QUESTIONS_PER_SUBJECT = 2
MAX_PROCESSES = 6  # concurrent programs, which mostly compile shaders


def logits(path):
    """Returns the F32 tensor `logits` of a safetensors file, flattened."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])["logits"]
    assert entry["dtype"] == "F32", f"{path} holds {entry['dtype']}"
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    return array("f", data[begin:end])


def relative_l2(tested, reference):
    """|tested - reference| / |reference|; infinite if shapes differ or a value is not finite."""
    if len(tested) != len(reference):
        return math.inf
    error = math.sqrt(sum((a - b) ** 2 for a, b in zip(tested, reference)) / sum(b * b for b in reference))
    return error if math.isfinite(error) else math.inf


def compute_logits(program, model, tokens, out, *options, device=None):
    program.run("logits", model, "--tokens", tokens, "--out", out, *options, device=device)
    return logits(out)


def errors(program, folder, scratch, options):
    """Relative L2 error against the reference logits of each checkpoint in a folder, or an error message."""

    def error(fixture):
        gguf = fixture / "model.gguf"
        model, out = gguf if gguf.exists() else fixture, scratch / f"{fixture.name}.safetensors"
        try:
            tested = compute_logits(program, model, fixture / "tokens.json", out, *options)
            return relative_l2(tested, logits(fixture / "logits.safetensors"))
        except RuntimeError as error:
            return str(error)
        finally:
            out.unlink(missing_ok=True)

    fixtures = [fixture for fixture in sorted(folder.iterdir()) if (fixture / "logits.safetensors").exists()]
    with ThreadPoolExecutor(MAX_PROCESSES) as pool:
        return dict(zip((fixture.name for fixture in fixtures), pool.map(error, fixtures)))


def story(program, scratch):
    """Relative L2 error of the device against the CPU executor on the story of the demo."""
    tokens = scratch / "story.json"
    ids = json.loads(program.run("tokenize", "demo", "--file", ROOT / "demo/story.txt"))
    tokens.write_text(json.dumps({"input_ids": [ids]}))
    out = scratch / "story.safetensors"
    return relative_l2(*(compute_logits(program, "demo", tokens, out, device=device) for device in (None, "cpu")))


def answers(program, scratch):
    """Counts the correct answers to a few held-out questions of the demo per subject."""
    asked, correct = {}, 0
    messages = scratch / "messages.json"
    for question in json.loads((ROOT / "demo/questions.json").read_text()):
        subject = question["subject"]
        if asked.get(subject, 0) >= QUESTIONS_PER_SUBJECT:
            continue
        asked[subject] = asked.get(subject, 0) + 1
        messages.write_text(json.dumps(question["messages"]))
        prompt = program.run("template", ROOT / "demo/model", "--messages", messages)
        answer = program.run("run", "demo", prompt, "--raw", "--temp", 0, "-n", 100, "-q")
        correct += answer.strip() == question["answer"].strip()
    return f"{correct} of {sum(asked.values())} correct"


def agreement(program):
    """Whether replay and eager decode give the same tokens, with greedy and with seeded sampling."""
    agrees = {}
    for name, sampling in {"greedy": ["--temp", "0"], "seeded": ["--temp", "1", "--seed", "5"]}.items():
        command = ["run", "demo", "Once upon a time", "--raw", "-n", 200, "--json", *sampling]
        ids = [json.loads(program.run(*command, "--mode", mode))["ids"] for mode in ("replay", "eager")]
        agrees[name] = ids[0] == ids[1]
    return agrees


def all_of(program, folders, features):
    """Runs all checks. Returns the results by name, and whether all passed."""
    results = {"logits": {}}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        chunks = scratch / "chunks"
        chunks.write_text("delta.least_chunked = 1\n")
        modes = {"all features": [], "delta rules in chunks": ["--tuning", chunks]}
        modes.update({f"without {feature}": ["--disable", feature] for feature in features})
        for mode, options in modes.items():
            results["logits"][mode] = {}
            for checkpoints in [ROOT / "tests/fixtures", *folders]:
                results["logits"][mode].update(errors(program, checkpoints, scratch, options))
        for name, check in {
            "story, relative L2 to the CPU": lambda: story(program, scratch),
            "demo": lambda: answers(program, scratch),
            "replay and eager agree": lambda: agreement(program),
        }.items():
            try:
                results[name] = check()
            except RuntimeError as error:
                results[name] = str(error)
    numbers = [error for mode in results["logits"].values() for error in mode.values()]
    numbers.append(results["story, relative L2 to the CPU"])
    accurate = all(isinstance(number, float) and number <= MAX_RELATIVE_L2 for number in numbers)
    agree = results["replay and eager agree"]
    return results, accurate and isinstance(agree, dict) and all(agree.values())
