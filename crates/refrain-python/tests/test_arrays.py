"""Arrays, operators, indexing and errors of `mlx.core`, compared with NumPy."""

import array
import copy
import gc
import pickle
import reprlib
import weakref

import mlx.core as mx
import numpy as np
import pytest

DTYPES = ["bool_", "uint8", "uint32", "int32", "float16", "bfloat16", "float32"]


def drawn(*shape: int) -> np.ndarray:
    """Random numbers, the same in every run."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def same(ours: mx.array, theirs: np.ndarray, tolerance: float = 1e-5) -> None:
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.array(ours), theirs, rtol=tolerance, atol=tolerance)


def test_makes_arrays_of_lists_numbers_and_numpy():
    assert mx.array([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert mx.array(1).dtype == mx.int32
    assert mx.array(1.5).dtype == mx.float32
    assert mx.array([True, False]).dtype == mx.bool_
    assert mx.array([1, 2.5]).dtype == mx.float32
    assert mx.array(np.float64(2)).dtype == mx.float32
    assert mx.array([mx.array([1, 2]), mx.array([3, 4])]).shape == (2, 2)
    same(mx.array(drawn(3, 4).T), drawn(3, 4).T)
    with pytest.raises(ValueError, match="non-uniform"):
        mx.array([[1, 2], [3]])


@pytest.mark.parametrize("name", DTYPES)
def test_elements_survive_lists_pickle_and_copies(name):
    array = mx.array([[0, 1], [1, 0]]).astype(getattr(mx, name))
    assert array.dtype == getattr(mx, name)
    for again in [pickle.loads(pickle.dumps(array)), copy.deepcopy(array), mx.array(array.tolist(), array.dtype)]:
        assert again.dtype == array.dtype
        assert again.tolist() == array.tolist()


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", ">", ">="])
def test_operators_agree_with_numpy(operator):
    a, b = np.abs(drawn(3, 4)) + 0.5, np.abs(drawn(4)) + 1
    assert_same = eval(f"lambda x, y: x {operator} y")
    same(assert_same(mx.array(a), mx.array(b)), assert_same(a, b), 1e-4)
    same(assert_same(mx.array(a), 2), assert_same(a, np.float32(2)), 1e-4)
    same(assert_same(2, mx.array(a)), assert_same(np.float32(2), a), 1e-4)


def test_python_numbers_do_not_widen():
    half = mx.array([1.0], mx.float16)
    assert (half + 1.5).dtype == mx.float16
    assert (mx.array([1]) + 1).dtype == mx.int32
    assert (mx.array([1]) + 1.5).dtype == mx.float32
    assert (half + mx.array([1.0])).dtype == mx.float32


KEYS = [
    np.s_[1],
    np.s_[-1, 2],
    np.s_[::2, 1:],
    np.s_[..., ::-1],
    np.s_[None, :, 0, None],
    np.s_[[0, 2, 0]],
    np.s_[[0, 2], [1, 3]],
    np.s_[:, [0, 2], 1],
]


def test_operands_of_numpy_take_the_dtype_of_the_array_beside_them():
    half = mx.ones(2, mx.bfloat16)
    for other in [np.float32(2), np.float64(2), np.int64(2), np.array([2, 2], np.float32), np.array(2)]:
        for made in [half * other, mx.add(half, other), mx.maximum(half, other), mx.where(half > 0, half, other)]:
            assert made.dtype == mx.bfloat16
    assert (mx.arange(4) * np.array([0.5, 1.5, 2.5, 3.5])).tolist() == [0, 1, 4, 9]
    assert (mx.arange(2) + np.int64(1)).dtype == mx.int32
    assert mx.add(np.float32(1), 2).dtype == mx.float32


def test_running_extremes_of_narrow_integers_begin_with_theirs():
    array = mx.array([3, 1, 2], mx.int8)
    assert mx.cummax(array, inclusive=False).tolist() == [-128, 3, 3]
    assert mx.cummin(array.astype(mx.int16), inclusive=False).tolist() == [32767, 3, 1]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_reads_what_numpy_reads(key):
    theirs = drawn(3, 4, 5)
    same(mx.array(theirs)[key], theirs[key])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_writes_where_numpy_writes(key):
    theirs = drawn(3, 4, 5)
    ours = mx.array(theirs)
    before = ours + 0
    ours[key] = 7
    theirs = theirs.copy()
    theirs[key] = 7
    same(ours, theirs)
    same(before, drawn(3, 4, 5))


def test_assignment_changes_the_object_and_no_other_array():
    first = mx.zeros((3,))
    alias, part = first, first[:2]
    first[0] = 1
    first += 1
    assert alias.tolist() == [2, 1, 1]
    assert part.tolist() == [0, 0]


def test_at_counts_repeated_indices():
    counts = mx.zeros((3,)).at[mx.array([0, 0, 2])].add(1)
    assert counts.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda: mx.zeros((2, 3)).sum(axis=2), IndexError),
        (lambda: mx.zeros((2, 3)).sum(axis=2), ValueError),
        (lambda: mx.zeros((2, 3)) @ mx.zeros((2, 3)), ValueError),
        (lambda: mx.zeros((2, 3)) + mx.zeros((2, 4)), ValueError),
        (lambda: mx.exp("text"), TypeError),
        (lambda: mx.zeros((2,)) + "text", ValueError),
        (lambda: mx.zeros((2,)).item(), ValueError),
        (lambda: mx.fft.fft(mx.zeros((2,))), RuntimeError),
        (lambda: mx.grad(lambda x: x)(mx.zeros(1)), RuntimeError),
        (lambda: mx.fast.metal_kernel("k", [], [], "")(), RuntimeError),
        (lambda: len(mx.array(1)), TypeError),
        (lambda: mx.zeros((2,))[True], ValueError),
        (lambda: mx.zeros((2, 2))[0, False], ValueError),
        (lambda: mx.zeros((2, 2)).at[True].add(1), ValueError),
        (lambda: mx.zeros((2, 2)).__setitem__((0, True), 1), ValueError),
    ],
)
def test_raises_the_errors_of_mlx_at_the_call(function, error):
    with pytest.raises(error):
        function()


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]


@pytest.mark.parametrize("operator", [*OPERATORS, "<", "<=", "==", "!=", ">", ">="])
def test_no_operator_takes_none(operator):
    for text in [f"a {operator} None", f"None {operator} a"]:
        with pytest.raises(TypeError):
            eval(text, {"a": mx.array([1])})
    if operator in OPERATORS:
        with pytest.raises(TypeError):
            exec(f"a {operator}= None", {"a": mx.array([1])})


def test_a_truth_value_sets_all_or_nothing():
    array = mx.zeros((2,))
    array[False] = 1
    assert array.tolist() == [0, 0]
    array[True] = 1
    assert array.tolist() == [1, 1]


def test_prints_as_mlx_does():
    assert repr(mx.array([[1, 2], [3, 4]])) == "array([[1, 2],\n       [3, 4]], dtype=int32)"
    assert str(mx.arange(100)) == "array([0, 1, 2, ..., 97, 98, 99], dtype=int32)"
    assert str(mx.array([0.1, 1e-8, 1e10])) == "array([0.1, 1e-08, 1e+10], dtype=float32)"
    assert f"{mx.array(1.25):.1f}" == "1.2"
    assert repr(mx.float32) == "mlx.core.float32"


def test_arrays_are_freed_with_their_last_name():
    array = mx.zeros((4,))
    reference = weakref.ref(array)
    del array
    gc.collect()
    assert reference() is None


def test_random_numbers_follow_the_seed():
    mx.random.seed(5)
    first = mx.random.normal((4,)).tolist()
    mx.random.seed(5)
    assert mx.random.normal((4,)).tolist() == first
    assert mx.random.normal((4,)).tolist() != first
    key = mx.random.key(0)
    # Words that MLX 0.32.4 draws with this key.
    assert mx.random.split(key).tolist() == [[4146024105, 967050713], [2718843009, 1272950319]]


def test_reprlib_prints_arrays_of_both_kinds():
    assert reprlib.repr(mx.array([1, 2])) == repr(mx.array([1, 2]))
    assert reprlib.repr(array.array("i", [1, 2])) == "array('i', [1, 2])"


def test_vmap_gives_each_call_an_array_of_its_own():
    def marked(x: mx.array, at: mx.array) -> mx.array:
        x[at] = 1
        return x

    x = mx.zeros(3, mx.int32)
    marks = mx.vmap(marked, in_axes=(None, 0))(x, mx.arange(3))
    assert marks.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert x.tolist() == [0, 0, 0]
