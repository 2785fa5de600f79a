"""How often programs are lowered, and arrays copied."""

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
        self.lowered, self.found, self.in_place, self.copied = counts


def test_an_array_that_nothing_else_names_is_updated_in_place():
    cache = mx.zeros((1, 2, 8, 4))
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
