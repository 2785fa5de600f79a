"""`mx.compile`: a function runs once for each kind of argument, and computes the same."""

import inspect

import mlx.core as mx
import pytest


class Counted:
    """A function that counts how often it runs."""

    def __init__(self, function):
        self.function = function
        self.runs = 0

    def __call__(self, *args, **kwargs):
        self.runs += 1
        return self.function(*args, **kwargs)


def compiled(function):
    counted = Counted(function)
    return counted, mx.compile(counted)


def test_a_function_runs_once_for_each_kind_of_argument():
    counted, f = compiled(lambda x, scale, add=0: mx.exp(x) * scale + add)
    x = mx.array([0.0, 1.0])
    for n in range(3):
        assert mx.allclose(f(x + n, 2.0), mx.exp(x + n) * 2)
    assert counted.runs == 1
    assert mx.allclose(f(x, 3.0), mx.exp(x) * 3)
    assert mx.allclose(f(x, 2.0, add=1), mx.exp(x) * 2 + 1)
    assert f(x.astype(mx.float16), 2.0).dtype == mx.float16
    assert f(mx.zeros((3, 1)), 2.0).shape == (3, 1)
    assert counted.runs == 5


def test_results_keep_their_structure_and_dtypes():
    x, y = mx.array([1, 2]), mx.array([3, 4])
    for kind in (tuple, list):
        _, f = compiled(lambda a, kind=kind: kind([a[0] > a[1], a[0].astype(mx.int8), a[0]]))
        for _ in range(2):
            made = f((x, y))
            assert type(made) is kind
            assert [part.dtype for part in made] == [mx.bool_, mx.int8, mx.int32]
            assert [part.tolist() for part in made] == [[False, False], [1, 2], [1, 2]]


def test_a_compiled_function_shows_what_it_compiles():
    def scaled(x: mx.array, scale: float = 2.0) -> mx.array:
        """Scales."""
        return x * scale

    scaled.note = "an attribute"
    made = mx.compile(scaled)
    for attribute in ["__name__", "__qualname__", "__doc__", "__module__", "note"]:
        assert getattr(made, attribute) == getattr(scaled, attribute)
    assert inspect.signature(made) == inspect.signature(scaled)
    assert made(mx.array([1.0])).tolist() == [2.0]


def test_functions_may_use_each_other():
    _, inner = compiled(lambda x: x * mx.sigmoid(x))
    counted, outer = compiled(lambda x, y: inner(x) * y + inner(y))
    for n in range(1, 4):
        x, y = mx.full((2, 3), 0.5 * n), mx.full((2, 3), -1.0 * n)
        expected = x * mx.sigmoid(x) * y + y * mx.sigmoid(y)
        assert mx.allclose(outer(x, y), expected)
    assert counted.runs == 1
    # The same function twice in one program, of the same and of other arrays.
    x = mx.array([0.25, -2.0])
    assert mx.allclose(inner(inner(x)) + inner(x), outer(x, mx.ones((2,))) - inner(mx.ones((2,))) + inner(inner(x)))


def test_a_function_that_reads_other_arrays_runs_each_time():
    state = {"computed": mx.array([1.0]), "lazy": mx.array([1.0]) + 1}
    mx.eval(state["computed"])
    for name in state:
        counted, f = compiled(lambda x, name=name: x + state[name])
        assert f(mx.array([1.0])).item() == 1 + state[name].item()
        state[name] = mx.array([5.0]) * 2
        assert f(mx.array([1.0])).item() == 11
        assert counted.runs > 2


def test_a_function_that_needs_elements_runs_each_time():
    counted, f = compiled(lambda x: x * 2 if x.item() > 0 else x)
    assert [f(mx.array(n)).item() for n in (1.0, -1.0, 3.0)] == [2, -1, 6]
    assert counted.runs >= 3


def test_errors_are_those_of_the_function():
    def fails(x):
        raise KeyError("none")

    with pytest.raises(KeyError):
        mx.compile(fails)(mx.array(1.0))
    with pytest.raises(ValueError):
        mx.compile(lambda x, y: x + y)(mx.zeros((2,)), mx.zeros((3,)))
    with pytest.raises(TypeError):
        mx.compile(3)


def test_random_numbers_differ_between_calls():
    f = mx.compile(lambda x: x + mx.random.uniform(shape=(8,)))
    assert not mx.array_equal(f(mx.zeros((8,))), f(mx.zeros((8,))))


def test_compilation_can_be_disabled():
    counted, f = compiled(lambda x: x + 1)
    mx.disable_compile()
    try:
        for _ in range(3):
            assert f(mx.array(1)).item() == 2
        assert counted.runs == 3
    finally:
        mx.enable_compile()
    for _ in range(3):
        assert f(mx.array(1)).item() == 2
    assert counted.runs == 4


def test_a_function_has_its_own_attributes():
    @mx.compile
    def doubled(x):
        """Twice x."""
        return x + x

    assert doubled.__name__ == "doubled"
    assert doubled(x=mx.array(2)).item() == 4
