"""Acceptance of drafts: how many of the drafted tokens are those that the model writes greedily.

    python3 demo/acceptance.py --head demo/mtp/model.safetensors --draft demo/draft      measures the shipped ones

A draft counts only if all drafts before it in the same step were right.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

import checkpoint
import evaluate
import stories
from corpus import TURN_END, Turn, chat_prompt
from mtp_head import MtpHead
from qwen3 import Qwen3

DRAFTS = 3


def story_question(rng: Random) -> tuple[list[Turn], Turn]:
    """A request for a story."""
    told = stories.story(rng)
    return [], (stories.request(rng, told), told.text)


@dataclass
class Kind:
    """A kind of held-out prompts: subjects, and the maximum length of an answer in tokens."""

    draws: Sequence[Callable[[Random], tuple[list[Turn], Turn]]]
    longest: int


SUMS = [evaluate.SUBJECTS[f"sums, {name}"] for name in ("3 digits, plus", "3 digits, minus", "everyday notations")]
LISTS = [evaluate.SUBJECTS[f"recall, {name}"] for name in ("24 words", "48 words, fifth question", "24 invented names")]
KINDS = {"stories": Kind([story_question], 400), "sums": Kind(SUMS, 48), "lists": Kind(LISTS, 48)}


@dataclass
class Texts:
    """Prompts with the model's greedy answers, as ids [B, T] padded with zeros."""

    ids: Tensor
    prompts: list[int]  # lengths of the prompts
    ends: list[int]  # lengths of the texts, the end of the turn included

    def written(self) -> int:
        """The number of tokens that the model wrote."""
        return sum(self.ends) - sum(self.prompts)


def greedy(model: Qwen3, prompts: list[list[int]], stop: int, longest: int) -> Texts:
    """Greedy answers to prompts, of at most `longest` tokens."""
    answers = evaluate.answers(model, prompts, stop, longest)
    texts = [prompt + answer + [stop] * (len(answer) < longest) for prompt, answer in zip(prompts, answers)]
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts], device=next(model.parameters()).device)
    return Texts(ids, list(map(len, prompts)), list(map(len, texts)))


def greedy_texts(model: Qwen3, tokenizer: Tokenizer, each: int, longest: int = 1000) -> dict[str, Texts]:
    """`each` prompts of every kind, answered in at most `longest` tokens."""
    stop = tokenizer.token_to_id(TURN_END)
    found = {}
    for name, kind in KINDS.items():
        rng = Random(f"{evaluate.SEED} drafts of {name}")
        drawn = [kind.draws[number % len(kind.draws)](rng) for number in range(each)]
        prompts = [tokenizer.encode(chat_prompt(past, asked), add_special_tokens=False).ids for past, (asked, _) in drawn]
        found[name] = greedy(model, prompts, stop, min(longest, kind.longest))
    return found


@torch.inference_mode()
def right_of_head(model: Qwen3, head: MtpHead, ids: Tensor) -> Tensor:
    """Whether each of DRAFTS drafts after each token is right: bool [B, T, DRAFTS]."""
    padded = F.pad(ids, (0, DRAFTS + 1))
    # The last drafts are beyond the text and may be beyond the context, where there are no positions.
    sources = min(ids.shape[1], model.config.context - DRAFTS)
    hidden = head(model.model, padded, model.model(ids[:, :sources]), DRAFTS)
    best = [model.logits(found).argmax(-1) for found in hidden]
    right = torch.stack([found == padded[:, k + 2 : k + 2 + sources] for k, found in enumerate(best)], dim=-1)
    # The head reads the hidden state of the token before the last one that is known.
    return F.pad(right, (0, 0, 1, ids.shape[1] - sources))[:, : ids.shape[1]]


@torch.inference_mode()
def right_of_model(draft: Qwen3, ids: Tensor) -> Tensor:
    """The same for a draft model."""
    right = F.pad(draft(ids).argmax(-1)[:, :-1] == ids[:, 1:], (0, DRAFTS))
    return torch.stack([right[:, k : k + ids.shape[1]] for k in range(DRAFTS)], dim=-1)


@dataclass
class Counts:
    """Drafted and accepted tokens, and the steps that verified them."""

    drafted: int = 0
    accepted: int = 0
    steps: int = 0

    def add(self, right: list[list[bool]], prompt: int, end: int, drafts: int) -> None:
        """Counts one text, of `prompt` tokens at first and `end` at last."""
        known = prompt + 1  # the first token comes from the prompt's own step
        while known < end:
            tried = right[known - 1][: min(drafts, end - known)]
            accepted = tried.index(False) if False in tried else len(tried)
            self.drafted += len(tried)
            self.accepted += accepted
            self.steps += 1
            known += accepted + 1


def acceptance(texts: Texts, right: Tensor) -> dict[str, float]:
    """The share of accepted tokens for each number of drafts, and tokens per step."""
    found = {}
    for drafts in range(1, DRAFTS + 1):
        counts = Counts()
        for own, prompt, end in zip(right.tolist(), texts.prompts, texts.ends):
            counts.add(own, prompt, end, drafts)
        found[f"of {drafts}"] = counts.accepted / max(1, counts.drafted)
        found[f"tokens per step, {drafts}"] = 1 + counts.accepted / max(1, counts.steps)
    return found


def measure(texts: dict[str, Texts], right_of: Callable[[Tensor], Tensor]) -> dict[str, dict[str, float]]:
    """The acceptance of each kind of text. `right_of` tells which drafts are right in ids."""
    return {name: acceptance(own, right_of(own.ids)) for name, own in texts.items()}


def table(found: dict[str, dict[str, float]]) -> list[str]:
    """Lines for people."""
    lines = []
    for name, shares in found.items():
        each = ", ".join(f"{shares[f'of {k}']:.1%} of {k}" for k in range(1, DRAFTS + 1))
        lines.append(f"{name}: accepted {each}; {shares[f'tokens per step, {DRAFTS}']:.2f} tokens per step with {DRAFTS}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(__file__).parent / "model", help="the folder of the model")
    parser.add_argument("--head", type=Path, help="the file of its multi-token prediction head")
    parser.add_argument("--draft", type=Path, help="the folder of a draft model")
    parser.add_argument("--each", type=int, default=8, help="prompts of each kind")
    arguments = parser.parse_args()
    model = checkpoint.load(arguments.model)
    texts = greedy_texts(model, Tokenizer.from_file(str(arguments.model / "tokenizer.json")), arguments.each)
    if arguments.head:
        head = checkpoint.load_head(arguments.head, model.config)
        print("head", *table(measure(texts, lambda ids: right_of_head(model, head, ids))), sep="\n  ")
    if arguments.draft:
        draft = checkpoint.load(arguments.draft)
        print("draft model", *table(measure(texts, lambda ids: right_of_model(draft, ids))), sep="\n  ")


if __name__ == "__main__":
    main()
