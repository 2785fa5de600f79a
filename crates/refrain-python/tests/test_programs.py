"""How often programs are lowered, and arrays copied."""

import subprocess
import sys

import mlx.core as mx
import refrain.mlx
from refrain import _core


class Counts:
    """What was counted inside a `with` block."""

    def __enter__(self):
        self.before = _core._program_counts()
        return self

    def __exit__(self, *error):
        counts = [after - before for before, after in zip(self.before, _core._program_counts(), strict=True)]
        self.lowered, self.found, self.in_place, self.copied, self.replayed = counts


def test_an_array_that_nothing_else_names_is_updated_in_place():
    # Zeros are one element until the first update makes an array of them.
    cache = mx.zeros((1, 2, 8, 4))
    cache[..., 7:8, :] = 0.0
    mx.eval(cache)
    with Counts() as counts:
        for step in range(3):
            cache[..., step : step + 1, :] = mx.full((1, 2, 1, 4), step + 1.0)
            mx.eval(cache)
    assert (counts.in_place, counts.copied) == (3, 0)
    assert cache[0, 1, :, 0].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    before = cache[:]
    alias = cache[0]
    mx.eval(alias)
    with Counts() as counts:
        cache[..., 3:4, :] = 9.0
        mx.eval(cache)
    assert (counts.in_place, counts.copied) == (0, 1)
    assert alias[0, :, 0].tolist() == before[0, 0, :, 0].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert cache[0, 1, :, 0].tolist() == [1, 2, 3, 9, 0, 0, 0, 0]


def test_explains_why_a_program_was_lowered():
    x = mx.arange(7)
    mx.eval(x * 2 + x)
    mx.eval(x * 3 + x)
    text = refrain.mlx.explain()
    assert "program lowered: array" in text
    assert "as before" in text


def attend(cache, used, tokens):
    """Attention of some tokens over a cache of keys and values, as mlx-lm's models and caches write it."""
    queries = mx.random.normal((1, 4, tokens, 8), key=mx.random.key(used))
    new = mx.random.normal((1, 2, tokens, 8), key=mx.random.key(used + 1))
    queries, keys = (mx.fast.rope(x, 8, traditional=False, base=1e4, scale=1.0, offset=used) for x in (queries, new))
    for array, part in zip(cache, (keys, new), strict=True):
        array[..., used : used + tokens, :] = part
    keys, values = (array[..., : used + tokens, :] for array in cache)
    mask = "causal" if tokens > 1 else None
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.35, mask=mask)


def decoded(cache, steps, grow=lambda cache, used: cache):
    """How many programs each token lowers, and how many arrays it copies, after a prompt that fills the steps before."""
    mx.eval(cache)
    mx.eval(attend(cache, 0, steps[0]))
    lowered, copied = [], []
    for used in steps:
        with Counts() as counts:
            cache = grow(cache, used)
            mx.eval(attend(cache, used, 1))
        lowered.append(counts.lowered)
        copied.append(counts.copied)
    return lowered, copied


def test_a_decode_loop_is_lowered_at_its_first_two_tokens():
    cache = [mx.zeros((1, 2, 32, 8)) + 0.0 for _ in range(2)]
    lowered, copied = decoded(cache, range(5, 20))
    assert lowered == [1, 1] + [0] * 13, refrain.mlx.explain()
    assert copied == [0] * 15


def test_a_cache_that_grows_costs_two_programs_and_no_copy_of_what_it_grew_to():
    def grow(cache, used):
        if used != 16:
            return cache
        return [mx.concatenate([array, mx.zeros((1, 2, 24, 8))], axis=2) for array in cache]

    cache = [mx.zeros((1, 2, 16, 8)) + 0.0 for _ in range(2)]
    lowered, copied = decoded(cache, range(10, 24), grow)
    assert lowered[2:] == [0] * 4 + [1, 1] + [0] * 6, refrain.mlx.explain()
    assert copied == [0] * 14


def test_a_loop_that_is_a_token_ahead_reads_every_token():
    weight = mx.eye(4) * 0.5
    token = mx.ones((4,))
    mx.async_eval(token)
    found = []
    for _ in range(20):
        following = token @ weight + 1
        mx.async_eval(following)
        found.append(token[0].item())
        token = following
    expected = [1.0]
    for _ in range(19):
        expected.append(expected[-1] * 0.5 + 1)
    assert found == expected


def test_a_process_ends_while_arrays_are_computed():
    program = """
import refrain.mlx
refrain.mlx.install()
import mlx.core as mx
x = mx.ones((300, 300))
for _ in range(30):
    x = x @ x * 0.001
    mx.async_eval(x)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
