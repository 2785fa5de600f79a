"""Packs documents into rows of token ids, in background processes.

A row holds CONTEXT + 1 ids (int16). An id that does not count in the loss is stored as -(id + 1), so one array holds
both ids and mask.
"""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer

from corpus import END_OF_TEXT, Segment, documents
from train_tokenizer import CONTEXT

ROW = CONTEXT + 1


def encode(tokenizer: Tokenizer, batch: list[list[Segment]]) -> list[np.ndarray]:
    """The ids of each document (int16), negative if not learned."""
    texts = [text for segments in batch for text, _ in segments]
    encoded = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    result = []
    for segments in batch:
        parts = []
        for _, learned in segments:
            ids = np.asarray(next(encoded).ids, dtype=np.int16)
            parts.append(ids if learned else -(ids + 1))
        result.append(np.concatenate(parts)[:ROW])
    return result


def pack(rng: Random, encoded: list[np.ndarray], padding: int) -> list[np.ndarray]:
    """Packs whole documents into rows, first-fit by decreasing length, and fills the rest with `padding`."""
    rows: list[list[np.ndarray]] = []
    room: list[int] = []
    for ids in sorted(encoded, key=len, reverse=True):
        fitting = next((i for i, left in enumerate(room) if left >= len(ids)), None)
        if fitting is None:
            rows.append([])
            room.append(ROW)
            fitting = len(rows) - 1
        rows[fitting].append(ids)
        room[fitting] -= len(ids)
    filler = np.full(ROW, -(padding + 1), dtype=np.int16)
    packed = []
    for row, left in zip(rows, room):
        rng.shuffle(row)
        packed.append(np.concatenate([*row, filler[:left]]))
    return packed


def batches(tokenizer: Tokenizer, seed: int, batch_rows: int) -> Iterator[np.ndarray]:
    """The endless stream of [batch_rows, ROW] arrays of a seed."""
    rng = Random(seed)
    stream = documents(seed)
    padding = tokenizer.token_to_id(END_OF_TEXT)
    waiting: list[np.ndarray] = []
    while True:
        while len(waiting) < batch_rows:
            drawn = [next(stream) for _ in range(1000)]
            waiting += pack(rng, encode(tokenizer, drawn), padding)
            rng.shuffle(waiting)
        yield np.stack(waiting[:batch_rows])
        del waiting[:batch_rows]


def _produce(tokenizer_file: str, seed: int, batch_rows: int, queue: multiprocessing.Queue) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for batch in batches(Tokenizer.from_file(tokenizer_file), seed, batch_rows):
        queue.put(batch)


class Loader:
    """Produces new batches in `processes` background processes.

    Create it before using the GPU: the processes are forked.
    """

    def __init__(self, tokenizer_file: Path, seed: int, batch_rows: int, processes: int) -> None:
        context = multiprocessing.get_context("fork")
        self._queue = context.Queue(maxsize=8 * processes)
        self._processes = [
            context.Process(
                target=_produce,
                args=(str(tokenizer_file), seed * 1000 + number + 1, batch_rows, self._queue),
                daemon=True,
            )
            for number in range(processes)
        ]
        for process in self._processes:
            process.start()

    def next(self) -> np.ndarray:
        """Returns a new batch [batch_rows, ROW] int16."""
        return self._queue.get(timeout=120)

    def close(self) -> None:
        """Stops the background processes."""
        for process in self._processes:
            process.terminate()
