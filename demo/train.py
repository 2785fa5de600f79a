"""Trains the demo model and writes it quantised.

    python3 demo/train.py --out OUT --minutes 8        on a GPU (about 8M parameters)
    python3 demo/train.py --out OUT --minutes 1 --tiny on a CPU, to try the script
    python3 demo/train.py --out OUT --from demo/model --minutes 3 --rate 1e-3 --seed 2
                                                       continues from the shipped model

Writes OUT/model (all shipped files except those of the tokenizer, which it reads from demo/model),
OUT/checkpoint.safetensors (f16, for --resume), OUT/evaluation.json and OUT/train.log.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

import checkpoint
import evaluate
from corpus import END_OF_TEXT, TURN_END, TURN_START
from model_card import model_card
from qwen3 import Config, Qwen3
from rows import Loader
from train_tokenizer import CONTEXT

TOKENIZER = Path(__file__).parent / "model" / "tokenizer.json"
TINY = Config(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=64, intermediate=128)
WARM_UP_STEPS = 200
SAVE_SECONDS = 60
QUICK_EVALUATIONS = 3
QUICK_SUBJECTS = ["sums, 3 digits, plus", "sums, 3 digits, minus", "recall, 24 words", "recall, 64 words"]


class Log:
    """Prints lines with the time since the start, and writes them to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w")
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        line = f"[{time.monotonic() - self._start:6.1f} s] {text}"
        print(line, flush=True)
        print(line, file=self._file, flush=True)


def optimiser_of(model: nn.Module, cuda: bool) -> torch.optim.Optimizer:
    """AdamW without weight decay of norms."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=cuda)


def compiled(function: Callable[..., Tensor], example: tuple[Tensor, ...], log: Log) -> Callable[..., Tensor]:
    """The function in bf16 autocast, compiled on a GPU if possible. Runs it and its gradient once on the example."""
    device = example[0].device

    def eager(*inputs: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return function(*inputs)

    if device.type != "cuda":
        return eager
    try:
        fast = torch.compile(eager, dynamic=False)
        result = fast(*example)
        if result.requires_grad:
            result.backward()
        log("compiled")
        return fast
    except Exception as failure:  # training works without the compiler, whatever it raises
        log(f"not compiled, continuing without: {failure!r:.300}")
        return eager


class Run:
    """One training run: the model, its output folder and its evaluation."""

    def __init__(self, arguments: argparse.Namespace, log: Log) -> None:
        self.out: Path = arguments.out
        self.log = log
        self.tokenizer = Tokenizer.from_file(str(TOKENIZER))
        self.special = {text: self.tokenizer.token_to_id(text) for text in (END_OF_TEXT, TURN_START, TURN_END)}
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(arguments.seed)
        fresh = Qwen3(TINY if arguments.tiny else Config())
        self.model = (checkpoint.load(arguments.start) if arguments.start else fresh).to(self.device)
        if arguments.resume:
            checkpoint.load_training(self.model, arguments.resume)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.quick_evaluations = 0 if arguments.tiny else QUICK_EVALUATIONS
        self.next_evaluation = 1
        self.saved = time.monotonic()
        log(f"{self.parameters:,} parameters on {self.device}")

    def save(self) -> Qwen3:
        """Writes the checkpoint and the quantised model. Returns the quantised model."""
        checkpoint.save_training(self.model, self.out / "checkpoint.safetensors")
        return checkpoint.export(self.model, self.out / "model", self.special).to(self.device)

    def quick_evaluation(self) -> None:
        """Logs the accuracy of the quantised model on a few subjects."""
        found = evaluate.evaluate(self.save(), self.tokenizer, 128, QUICK_SUBJECTS)
        self.log(", ".join(f"{subject}: {share:.1%}" for subject, share in found.items()))

    def after_step(self, progress: float) -> None:
        """Evaluates or saves now and then."""
        if progress * (self.quick_evaluations + 1) > self.next_evaluation:
            self.next_evaluation += 1
            self.quick_evaluation()
        elif time.monotonic() - self.saved > SAVE_SECONDS:
            self.saved = time.monotonic()
            self.save()


def train(
    model: nn.Module,
    loss: Callable[..., Tensor],
    examples: Callable[[], tuple[Tensor, ...]],
    minutes: float,
    peak: float,
    log: Log,
    after_step: Callable[[float], None] = lambda progress: None,
) -> tuple[int, float]:
    """Trains until the time is up. The learning rate falls linearly to zero over time.

    `examples` draws the inputs of `loss`, rows first. `after_step` is given the share of the time that is over.
    Returns the number of steps and the last loss.
    """
    model.train()
    inputs = examples()
    optimiser = optimiser_of(model, inputs[0].device.type == "cuda")
    end = time.monotonic() + minutes * 60
    loss_of = compiled(loss, inputs, log)
    model.zero_grad(set_to_none=True)
    start = time.monotonic()
    step, recent = 0, []
    while (now := time.monotonic()) < end:
        progress = (now - start) / (end - start)
        for group in optimiser.param_groups:
            group["lr"] = peak * min(1.0, (step + 1) / WARM_UP_STEPS) * (1.0 - progress)
        inputs = examples()
        found = loss_of(*inputs)
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        recent.append(found.detach())
        step += 1
        if step % 100 == 0 or step == 1:
            mean, recent = torch.stack(recent).mean().item(), []
            speed = step * inputs[0].shape[0] * CONTEXT / (time.monotonic() - start)
            log(f"step {step}, {progress:.0%}, loss {mean:.4f}, {speed / 1e6:.2f} M tokens/s")
        after_step(progress)
    return step, found.item()


def loader_of(arguments: argparse.Namespace, batch_rows: int) -> Loader:
    """Produces the rows of the run's seed in all processes but two."""
    return Loader(TOKENIZER, arguments.seed, batch_rows, max(1, (os.cpu_count() or 2) - 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0, help="training time, including compilation")
    parser.add_argument("--tiny", action="store_true", help="a model of 0.2M parameters, to try the script")
    parser.add_argument("--from", dest="start", type=Path, metavar="FOLDER", help="continue from this quantised model, with its sizes")
    parser.add_argument("--resume", type=Path, help="continue from this checkpoint.safetensors of an earlier run")
    parser.add_argument("--seed", type=int, default=1, help="seed of the data; use another one to continue training")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--rows", type=int, default=0, help=f"rows of {CONTEXT} tokens per step (128; tiny: 8)")
    parser.add_argument("--each", type=int, default=0, help="questions per subject at the end (500; tiny: 8)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = Log(arguments.out / "train.log")
    batch_rows = arguments.rows or (8 if arguments.tiny else 128)
    loader = loader_of(arguments, batch_rows)
    try:
        run = Run(arguments, log)

        def examples() -> tuple[Tensor, ...]:
            return (torch.from_numpy(loader.next()).to(run.device),)

        steps, loss = train(run.model, run.model.loss, examples, arguments.minutes, arguments.rate, log, run.after_step)
    finally:
        loader.close()
    tokens = steps * batch_rows * CONTEXT
    log(f"trained {steps} steps, {tokens / 1e6:.0f} M tokens, last loss {loss:.4f}")
    found = evaluate.evaluate(run.save(), run.tokenizer, arguments.each or (8 if arguments.tiny else 500))
    for subject, share in found.items():
        log(f"{subject}: {share:.1%}")
    (arguments.out / "evaluation.json").write_text(json.dumps(found, indent=2) + "\n")
    card = model_card(run.parameters, tokens, loss, found, went_on=bool(arguments.start or arguments.resume))
    (arguments.out / "model" / "MODEL_CARD.md").write_text(card)


if __name__ == "__main__":
    main()
