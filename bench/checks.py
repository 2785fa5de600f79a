"""What a device computes: logits beside those of others' software, and what the demo answers."""

import json
import math
import struct
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOUND = 5e-3  # as references/compare.py
EACH = 2  # questions of each subject
AT_ONCE = 6  # programs, which mostly compile


def logits(path):
    """The tensor `logits` (F32) of a safetensors file, flat."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])["logits"]
    assert entry["dtype"] == "F32", f"{path} holds {entry['dtype']}"
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    return array("f", data[begin:end])


def relative_l2(tested, reference):
    """|tested - reference| / |reference|; too large for any bound where one is no number."""
    if len(tested) != len(reference):
        return math.inf
    apart = math.sqrt(sum((a - b) ** 2 for a, b in zip(tested, reference)) / sum(b * b for b in reference))
    return apart if math.isfinite(apart) else math.inf


def computed(program, model, tokens, out, *options, device=None):
    program.run("logits", model, "--tokens", tokens, "--out", out, *options, device=device)
    return logits(out)


def errors(program, folder, scratch, options):
    """Relative L2 against the reference logits of each checkpoint in a folder, or why there is none."""

    def error(fixture):
        gguf = fixture / "model.gguf"
        model, out = gguf if gguf.exists() else fixture, scratch / f"{fixture.name}.safetensors"
        try:
            tested = computed(program, model, fixture / "tokens.json", out, *options)
            return relative_l2(tested, logits(fixture / "logits.safetensors"))
        except RuntimeError as error:
            return str(error)
        finally:
            out.unlink(missing_ok=True)

    fixtures = [fixture for fixture in sorted(folder.iterdir()) if (fixture / "logits.safetensors").exists()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip((fixture.name for fixture in fixtures), pool.map(error, fixtures)))


def story(program, scratch):
    """Relative L2 between the device and the CPU executor on the demo's story."""
    tokens = scratch / "story.json"
    ids = json.loads(program.run("tokenize", "demo", "--file", ROOT / "demo/story.txt"))
    tokens.write_text(json.dumps({"input_ids": [ids]}))
    out = scratch / "story.safetensors"
    return relative_l2(*(computed(program, "demo", tokens, out, device=device) for device in (None, "cpu")))


def answers(program, scratch):
    """How many of the demo's held-out questions, some of each subject, are answered right."""
    asked, right = {}, 0
    messages = scratch / "messages.json"
    for question in json.loads((ROOT / "demo/questions.json").read_text()):
        subject = question["subject"]
        if asked.get(subject, 0) >= EACH:
            continue
        asked[subject] = asked.get(subject, 0) + 1
        messages.write_text(json.dumps(question["messages"]))
        prompt = program.run("template", ROOT / "demo/model", "--messages", messages)
        answer = program.run("run", "demo", prompt, "--raw", "--temp", 0, "-n", 100, "-q")
        right += answer.strip() == question["answer"].strip()
    return f"{right} of {sum(asked.values())} right"


def agreement(program):
    """Whether replay and eager decoding give the same tokens, greedy and seeded."""
    told = {}
    for name, sampling in {"greedy": ["--temp", "0"], "seeded": ["--temp", "1", "--seed", "5"]}.items():
        ask = ["run", "demo", "Once upon a time", "--raw", "-n", 200, "--json", *sampling]
        ids = [json.loads(program.run(*ask, "--mode", mode))["ids"] for mode in ("replay", "eager")]
        told[name] = ids[0] == ids[1]
    return told


def all_of(program, folders, features):
    """Every check, by name, and whether all is as it should be."""
    told = {"logits": {}}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        chunks = scratch / "chunks"
        chunks.write_text("delta.least_chunked = 1\n")
        ways = {"all features": [], "delta rules in chunks": ["--tuning", chunks]}
        ways.update({f"without {feature}": ["--disable", feature] for feature in features})
        for way, options in ways.items():
            told["logits"][way] = {}
            for checkpoints in [ROOT / "tests/fixtures", *folders]:
                told["logits"][way].update(errors(program, checkpoints, scratch, options))
        for name, check in {
            "story, relative L2 to the CPU": lambda: story(program, scratch),
            "demo": lambda: answers(program, scratch),
            "replay and eager agree": lambda: agreement(program),
        }.items():
            try:
                told[name] = check()
            except RuntimeError as error:
                told[name] = str(error)
    numbers = [error for way in told["logits"].values() for error in way.values()]
    numbers.append(told["story, relative L2 to the CPU"])
    near = all(isinstance(number, float) and number <= BOUND for number in numbers)
    agree = told["replay and eager agree"]
    return told, near and isinstance(agree, dict) and all(agree.values())
