"""Accuracy of greedy answers to held-out questions; only exactly equal answers count.

    python3 demo/evaluate.py demo/model --each 50      evaluates the shipped model
    python3 demo/evaluate.py --questions FILE          writes questions and answers as JSON
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer

import everyday
import tasks
import untaught
from checkpoint import load
from corpus import TURN_END, Turn, chat_prompt
from qwen3 import Qwen3

BATCH = 64
# Seed of the held-out questions. No training seed reaches it (see Loader).
SEED = 999_999_937


def held_out_sum(rng: Random, digits: int, sign: str) -> tasks.Sum:
    """A sum that training never contains. Single-digit sums cannot be held out."""
    while True:
        drawn = tasks.any_sum(rng, digits, sign)
        if drawn.held_out or digits == 1:
            return drawn


def sum_question(rng: Random, digits: int, sign: str) -> tuple[list[Turn], Turn]:
    """A first turn that asks for one sum."""
    return [], tasks.sum_turn(rng, held_out_sum(rng, digits, sign))


def everyday_question(rng: Random, below_zero: bool = False) -> tuple[list[Turn], Turn]:
    """A sum of one to three digits in casual notation."""
    drawn = held_out_sum(rng, rng.randint(1, 3), "-" if below_zero else rng.choice("+-"))
    return [], tasks.everyday_sum_turn(rng, tasks.below_zero(drawn) if below_zero else drawn)


def untaught_question(rng: Random) -> tuple[list[Turn], Turn]:
    """A question outside the taught subjects, worded unlike those in training."""
    return [], (everyday.loosely(rng, rng.choice(untaught.HELD_OUT)), untaught.UNTAUGHT)


def beyond_question(rng: Random) -> tuple[list[Turn], Turn]:
    """A calculation that was not taught."""
    return [], (untaught.beyond(rng), untaught.BEYOND)


def recall_question(rng: Random, count: int, kind: str, past: int = 0) -> tuple[list[Turn], Turn]:
    """A list of `count` pairs and a question for one, after `past` other questions."""
    listed = tasks.pairs(rng, count, kind)
    asked = [rng.choice(listed) for _ in range(past + 1)]
    turns = [(f"What is the value of {key}?", f"{key}: {value}") for key, value in asked]
    first, answer = turns[0]
    turns[0] = (f"Here is a list:\n{tasks.list_text(listed)}\n\n{first}", answer)
    return turns[:-1], turns[-1]


SUBJECTS: dict[str, Callable[[Random], tuple[list[Turn], Turn]]] = {
    "sums, 1 digit": lambda rng: sum_question(rng, 1, rng.choice("+-")),
    "sums, 2 digits, plus": lambda rng: sum_question(rng, 2, "+"),
    "sums, 2 digits, minus": lambda rng: sum_question(rng, 2, "-"),
    "sums, 3 digits, plus": lambda rng: sum_question(rng, 3, "+"),
    "sums, 3 digits, minus": lambda rng: sum_question(rng, 3, "-"),
    "recall, 8 words": lambda rng: recall_question(rng, 8, "mixed"),
    "recall, 24 words": lambda rng: recall_question(rng, 24, "mixed"),
    "recall, 48 words": lambda rng: recall_question(rng, 48, "mixed"),
    "recall, 64 words": lambda rng: recall_question(rng, 64, "mixed"),
    "recall, 48 words, fifth question": lambda rng: recall_question(rng, 48, "mixed", past=4),
    "recall, 24 invented names": lambda rng: recall_question(rng, 24, "invented"),
    "sums, everyday notations": everyday_question,
    "sums, below zero": lambda rng: everyday_question(rng, below_zero=True),
    "small talk": lambda rng: ([], tasks.small_talk_turn(rng)),
    "not taught, kept back": untaught_question,
    "not taught, other calculations": beyond_question,
}


@torch.inference_mode()
def answers(model: Qwen3, prompts: list[list[int]], stop: int, longest: int) -> list[list[int]]:
    """Greedy continuations up to `stop` or `longest` ids. Recomputes whole rows in each step."""
    device = next(model.parameters()).device
    width = max(map(len, prompts)) + longest
    rows = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in zip(rows, prompts):
        row[: len(prompt)] = torch.tensor(prompt)
    rows = rows.to(device)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    each = torch.arange(len(prompts), device=device)
    written = torch.full((len(prompts), longest), stop, device=device)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for step in range(longest):
        hidden = model.model(rows[:, : int(lengths.max()) + step])
        best = model.logits(hidden[each, lengths + step - 1]).argmax(-1)
        written[~ended, step] = best[~ended]
        ended |= best == stop
        if ended.all():
            break
        rows[each, lengths + step] = best
    return [row[: row.index(stop)] if stop in row else row for row in written.tolist()]


def accuracy(model: Qwen3, tokenizer: Tokenizer, subject: str, each: int) -> float:
    """The fraction of `each` questions of a subject that are answered exactly."""
    rng = Random(f"{SEED} {subject}")
    questions = [SUBJECTS[subject](rng) for _ in range(each)]
    stop = tokenizer.token_to_id(TURN_END)
    limit = model.config.context
    right = 0
    for start in range(0, each, BATCH):
        batch = questions[start : start + BATCH]
        expected = [tokenizer.encode(answer, add_special_tokens=False).ids for _, (_, answer) in batch]
        longest = max(map(len, expected)) + 1
        prompts = [tokenizer.encode(chat_prompt(past, question), add_special_tokens=False).ids for past, (question, _) in batch]
        prompts = [prompt[: limit - longest] for prompt in prompts]
        found = answers(model, prompts, stop, longest)
        right += sum(one == other for one, other in zip(found, expected))
    return right / each


def evaluate(model: Qwen3, tokenizer: Tokenizer, each: int, subjects: list[str] | None = None) -> dict[str, float]:
    """The accuracy per subject, for all or the given subjects."""
    return {subject: accuracy(model, tokenizer, subject, each) for subject in subjects or SUBJECTS}


def write_questions(file: Path, each: int) -> None:
    """Writes `each` held-out questions per subject with their answers, as chats."""
    written = []
    for subject, draw in SUBJECTS.items():
        rng = Random(f"{SEED} {subject}")
        for _ in range(each):
            past, (question, answer) = draw(rng)
            messages = []
            for asked, answered in past:
                messages.append({"role": "user", "content": asked})
                messages.append({"role": "assistant", "content": answered})
            messages.append({"role": "user", "content": question})
            written.append({"subject": subject, "messages": messages, "answer": answer})
    file.write_text(json.dumps(written, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="the folder of a trained model")
    parser.add_argument("--each", type=int, default=0, help="questions per subject (default: 50, or 4 with --questions)")
    parser.add_argument("--questions", type=Path, help="file to write questions to")
    arguments = parser.parse_args()
    if arguments.questions:
        write_questions(arguments.questions, arguments.each or 4)
    if arguments.model:
        tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
        for subject in SUBJECTS:
            found = evaluate(load(arguments.model), tokenizer, arguments.each or 50, [subject])
            print(f"{subject:36} {found[subject]:7.1%}", flush=True)


if __name__ == "__main__":
    main()
