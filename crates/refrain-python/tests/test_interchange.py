"""NumPy, the buffer protocol, DLPack and files."""

import io

import mlx.core as mx
import numpy as np
import pytest


@pytest.mark.parametrize("name", ["bool", "uint8", "uint32", "int32", "float16", "float32"])
def test_numpy_arrays_come_back_equal(name):
    theirs = np.arange(12).reshape(3, 4).astype(name)
    ours = mx.array(theirs[:, ::2])
    again = np.array(ours)
    assert again.dtype == theirs.dtype
    assert again.flags.writeable
    np.testing.assert_array_equal(again, theirs[:, ::2])


def test_buffers_are_read_only_copies():
    array = mx.arange(6).reshape(2, 3)
    view = memoryview(array)
    assert (view.format, view.shape, view.readonly) == ("i", (2, 3), True)
    array[0, 0] = 9
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert memoryview(mx.array(1.5)).tolist() == 1.5
    with pytest.raises(BufferError):
        memoryview(mx.array([1.0], mx.bfloat16))


def test_dlpack_goes_both_ways():
    theirs = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert mx.from_dlpack(theirs[:, 1::2]).tolist() == theirs[:, 1::2].tolist()
    again = np.from_dlpack(mx.array(theirs))
    np.testing.assert_array_equal(again, theirs)
    assert mx.array(1).__dlpack_device__() == (1, 0)
    with pytest.raises(ValueError, match="copied"):
        mx.from_dlpack(theirs, copy=False)


def test_a_dlpack_capsule_is_used_once():
    class Reuse:
        capsule = mx.array([1.0]).__dlpack__()

        def __dlpack__(self):
            return self.capsule

    assert mx.from_dlpack(Reuse()).tolist() == [1.0]
    with pytest.raises(TypeError, match="not used yet"):
        mx.from_dlpack(Reuse())


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_files_give_back_their_arrays(tmp_path, suffix):
    arrays = {"a": mx.arange(6).reshape(2, 3), "b": mx.array([0.5, 1.5], mx.float16)}
    path = tmp_path / f"arrays.{suffix}"
    if suffix == "npz":
        mx.savez(path, **arrays)
        assert sorted(np.load(path)) == ["a", "b"]
    else:
        mx.save_safetensors(path, arrays, metadata={"made": "here"})
        assert mx.load(path, return_metadata=True)[1]["made"] == "here"
    loaded = mx.load(path)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].tolist() == array.tolist()


def test_files_may_be_open():
    file = io.BytesIO()
    mx.save(file, mx.arange(3))
    assert np.load(io.BytesIO(file.getvalue())).tolist() == [0, 1, 2]
    file = io.BytesIO()
    mx.save_safetensors(file, {"a": mx.array([1.0], mx.bfloat16)})
    file.seek(0)
    assert mx.load(file, format="safetensors")["a"].tolist() == [1.0]
