"""Trains what drafts tokens for the demo model: a multi-token prediction head and a draft model.

    python3 demo/train_drafts.py --out OUT --minutes 2.25       on a GPU: 2.25 minutes for each of the two
    python3 demo/train_drafts.py --out OUT --minutes 0.5 --tiny on a CPU, to try the script

Both learn the distribution of the shipped model, which stays as it is. Writes OUT/mtp/model.safetensors (the tensors of
the head), OUT/draft (config.json, generation_config.json and model.safetensors; the tokenizer is that of demo/model),
OUT/acceptance.json and OUT/train.log.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

import checkpoint
from acceptance import DRAFTS, greedy_texts, measure, right_of_head, right_of_model, table
from corpus import END_OF_TEXT, TURN_END
from mtp_head import MtpHead
from qwen3 import Config, Qwen3, ids_of
from rows import Loader
from train import TOKENIZER, Log, compiled, loader_of, train
from train_tokenizer import CONTEXT

TINY = Config(hidden=64, layers=1, heads=2, kv_heads=1, head_dim=64, intermediate=128)
# Weight of each application of the head in the loss, relative to the one before it: its draft counts less often.
DECAY = 0.8
# Positions of a row that the head learns. All drafts after them are in the row, and the width suits GPUs.
SOURCES = (CONTEXT - DRAFTS) // 16 * 16


def draft_config(hidden: int, layers: int) -> Config:
    """The sizes of a draft model, in the proportions of the demo model."""
    return Config(hidden=hidden, layers=layers, heads=hidden // 32, intermediate=3 * hidden)


def divergence(logits: Tensor, expected: Tensor, learned: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence of the predictions from the expected ones, over the learned positions."""
    own, other = (F.log_softmax(x.float(), dim=-1) for x in (logits, expected))
    each = F.kl_div(own, other, reduction="none", log_target=True).sum(-1)
    return (each * learned).sum() / learned.sum().clamp(min=1)


def head_loss(model: Qwen3, head: MtpHead, rows: Tensor, hidden: Tensor) -> Tensor:
    """The loss of a head on rows [B, CONTEXT + 1], for which the model has the hidden states."""
    ids, learned = ids_of(rows)
    with torch.no_grad():
        expected = model.logits(hidden)
    drafts = head(model.model, ids, hidden[:, :SOURCES], DRAFTS)
    losses = []
    for k, found in enumerate(drafts):
        ahead, predicted = slice(k + 1, k + 1 + SOURCES), slice(k + 2, k + 2 + SOURCES)
        losses.append(DECAY**k * divergence(model.logits(found), expected[:, ahead], learned[:, predicted]))
    return sum(losses) / sum(DECAY**k for k in range(DRAFTS))


def draft_loss(model: Qwen3, draft: Qwen3, rows: Tensor, hidden: Tensor) -> Tensor:
    """The loss of a draft model on the same."""
    ids, learned = ids_of(rows)
    with torch.no_grad():
        expected = model.logits(hidden)
    return divergence(draft(ids[:, :-1]), expected, learned[:, 1:])


def examples_of(model: Qwen3, loader: Loader, log: Log) -> Callable[[], tuple[Tensor, Tensor]]:
    """Draws rows [B, CONTEXT + 1] and the hidden states of the model for them."""
    device = next(model.parameters()).device

    @torch.no_grad()
    def hidden_of(rows: Tensor) -> Tensor:
        return model.model(ids_of(rows)[0][:, :-1])

    def next_rows() -> Tensor:
        return torch.from_numpy(loader.next()).to(device)

    fast = compiled(hidden_of, (next_rows(),), log)

    def draw() -> tuple[Tensor, Tensor]:
        rows = next_rows()
        return rows, fast(rows)

    return draw


def new_draft(model: Qwen3, config: Config) -> Qwen3:
    """A draft model, with the embedding of the model if its width is the same."""
    draft = Qwen3(config).to(next(model.parameters()).device)
    if config.hidden == model.config.hidden:
        with torch.no_grad():
            draft.model.embed_tokens.weight.copy_(model.model.embed_tokens.weight)
    return draft


class Run:
    """One training run: the frozen model, what it writes for the evaluation, and the output folder."""

    def __init__(self, arguments: argparse.Namespace, loader: Loader, log: Log) -> None:
        self.arguments, self.log = arguments, log
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(arguments.seed)
        self.model = checkpoint.load(arguments.start).to(self.device).requires_grad_(False)
        self.tokenizer = Tokenizer.from_file(str(TOKENIZER))
        each, longest = (3, 24) if arguments.tiny else (60, CONTEXT)
        self.texts = greedy_texts(self.model, self.tokenizer, arguments.each or each, longest)
        log(f"{sum(texts.written() for texts in self.texts.values())} tokens written for the evaluation")
        self.examples = examples_of(self.model, loader, log)

    def _train(self, name: str, learner: nn.Module, loss: Callable[..., Tensor]) -> None:
        model = self.model
        self.log(f"{name}: {sum(p.numel() for p in learner.parameters()):,} parameters on {self.device}")

        def loss_of(rows: Tensor, hidden: Tensor) -> Tensor:
            return loss(model, learner, rows, hidden)

        train(learner, loss_of, self.examples, self.arguments.minutes, self.arguments.rate, self.log)

    def head(self) -> dict[str, dict[str, float]]:
        """Trains and writes the head. Returns its acceptance."""
        head = MtpHead(self.model.config).to(self.device)
        self._train("head", head, head_loss)
        shipped = checkpoint.export_head(head, self.arguments.out / "mtp" / "model.safetensors").to(self.device)
        return measure(self.texts, lambda ids: right_of_head(self.model, shipped, ids))

    def draft(self) -> dict[str, dict[str, float]]:
        """Trains and writes the draft model. Returns its acceptance."""
        sizes = draft_config(self.arguments.draft_hidden, self.arguments.draft_layers)
        draft = new_draft(self.model, TINY if self.arguments.tiny else sizes)
        self._train("draft model", draft, draft_loss)
        special = {text: self.tokenizer.token_to_id(text) for text in (END_OF_TEXT, TURN_END)}
        shipped = checkpoint.export(draft, self.arguments.out / "draft", special).to(self.device)
        return measure(self.texts, lambda ids: right_of_model(shipped, ids))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=2.25, help="training time of each, including compilation")
    parser.add_argument("--tiny", action="store_true", help="a draft model of 0.2M parameters and few rows, to try the script")
    parser.add_argument("--only", choices=("head", "draft"), help="train only one of the two")
    parser.add_argument("--from", dest="start", type=Path, metavar="FOLDER", default=TOKENIZER.parent, help="the model to draft for (demo/model)")
    parser.add_argument("--draft-hidden", type=int, default=192, help="width of the draft model")
    parser.add_argument("--draft-layers", type=int, default=2, help="layers of the draft model")
    parser.add_argument("--seed", type=int, default=11, help="seed of the data")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--rows", type=int, default=0, help=f"rows of {CONTEXT} tokens per step (64; tiny: 1)")
    parser.add_argument("--each", type=int, default=0, help="held-out prompts of each kind at the end (60; tiny: 3)")
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = Log(arguments.out / "train.log")
    loader = loader_of(arguments, arguments.rows or (1 if arguments.tiny else 64))
    found = {}
    try:
        run = Run(arguments, loader, log)
        if arguments.only != "draft":
            found["head"] = run.head()
        if arguments.only != "head":
            found["draft model"] = run.draft()
    finally:
        loader.close()
    for name, kinds in found.items():
        for line in table(kinds):
            log(f"{name}, {line}")
    (arguments.out / "acceptance.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
