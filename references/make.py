"""Writes tests/fixtures: everything, or the named subjects and checkpoints."""

import argparse
from pathlib import Path

import blocks
import checkpoints
import expressions
import hidden_states
import perplexity
import shapes
import templates
import tokenizations

ROOT = Path(__file__).resolve().parent.parent
FIXTURES, FETCHED = ROOT / "tests" / "fixtures", ROOT / "target" / "tokenizers"
LLAMA_CPP = ROOT / "target" / "llama.cpp"


def write_checkpoints():
    for fixture in shapes.fixtures():
        write_checkpoint(fixture)


def write_checkpoint(fixture):
    checkpoints.write(fixture, FIXTURES)
    if fixture.storage == "gguf":
        tokenizations.write_gguf(fixture, FIXTURES)


def write_blocks():
    blocks.write(FIXTURES / "quantised")


def write_tokenizers():
    tokenizations.write_small(FIXTURES / "tokenizers")
    tokenizations.write_fetched(FETCHED, FIXTURES / "tokenizers")


def write_templates():
    templates.write_conversations(FIXTURES / "templates")
    templates.write_own(FIXTURES)
    templates.write_published(LLAMA_CPP, FIXTURES)
    templates.write_fetched(FETCHED, FIXTURES)
    expressions.write(FIXTURES / "templates" / "expressions.json")


def write_perplexity():
    perplexity.write(ROOT, FIXTURES / "perplexity.json")


def write_hidden_states():
    hidden_states.write(FIXTURES, FIXTURES / "hidden_states.safetensors")


SUBJECTS = {
    "checkpoints": write_checkpoints,
    "quantised": write_blocks,
    "tokenizers": write_tokenizers,
    "templates": write_templates,
    "perplexity": write_perplexity,
    "hidden_states": write_hidden_states,
}


def main():
    named = {fixture.name: fixture for fixture in shapes.fixtures()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join([*SUBJECTS, *named])}")
    names = parser.parse_args().names or list(SUBJECTS)
    if unknown := [name for name in names if name not in SUBJECTS and name not in named]:
        parser.error(f"unknown names: {', '.join(unknown)}")
    checkpoints.make_reproducible()
    for name in names:
        SUBJECTS[name]() if name in SUBJECTS else write_checkpoint(named[name])


if __name__ == "__main__":
    main()
