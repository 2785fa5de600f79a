"""NumPy, the buffer protocol, DLPack and files."""

import io
import json
import os

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


@pytest.mark.parametrize("name", ["bool_", "int8", "uint16", "int64", "uint64", "float16", "bfloat16", "float32"])
def test_files_hold_every_dtype(tmp_path, name):
    array = mx.array([[0, 1, 3], [2, 1, 0]], dtype=getattr(mx, name))
    mx.save(str(tmp_path / "a.npy"), array)
    mx.savez(str(tmp_path / "a.npz"), x=array)
    mx.save_safetensors(str(tmp_path / "a.safetensors"), {"x": array})
    files = [mx.load(str(tmp_path / f"a.{suffix}")) for suffix in ("npy", "npz", "safetensors")]
    for found in [files[0], files[1]["x"], files[2]["x"]]:
        assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())


@pytest.mark.parametrize("dtype", [">i4", ">f2", ">f4", "<i2"])
def test_npy_of_either_order_of_bytes_is_read(tmp_path, dtype):
    theirs = np.arange(6).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "a.npy", theirs)
    assert mx.load(str(tmp_path / "a.npy")).tolist() == theirs.tolist()


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


def safetensors(path, dtype, shape, data):
    """Writes a file with the tensor `x`, and a tensor `y` of f32."""
    end = len(data)
    header = {"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]},
              "y": {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data + np.float32(1.5).tobytes())


@pytest.mark.parametrize("name", ["int8", "int16", "uint16", "int64", "uint64"])
def test_safetensors_of_all_integers_are_read(tmp_path, name):
    theirs = np.array([[1, 2], [3, 100]], name)
    safetensors(tmp_path / "a.safetensors", {"i": "I", "u": "U"}[name[0]] + name.strip("uint"), [2, 2], theirs.tobytes())
    found = mx.load(str(tmp_path / "a.safetensors"))
    assert found["x"].dtype == getattr(mx, name)
    assert found["x"].tolist() == theirs.tolist()
    assert found["y"].tolist() == [1.5]


def test_safetensors_of_floats_of_8_bits_are_read_as_bytes(tmp_path):
    for dtype in ["F8_E4M3", "F8_E5M2"]:
        safetensors(tmp_path / "a.safetensors", dtype, [3], bytes([0, 56, 200]))
        found = mx.load(str(tmp_path / "a.safetensors"))["x"]
        assert (found.dtype, found.tolist()) == (mx.uint8, [0, 56, 200])
    safetensors(tmp_path / "a.safetensors", "F64", [1], bytes(8))
    with pytest.raises(RuntimeError, match='tensor "x" has dtype F64'):
        mx.load(str(tmp_path / "a.safetensors"))


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of Unix")
def test_saved_files_have_the_permissions_of_other_files(tmp_path):
    other, path, link = tmp_path / "other", tmp_path / "a.safetensors", tmp_path / "link.safetensors"
    other.write_bytes(b"")
    mx.save_safetensors(str(path), {"x": mx.arange(2)})
    assert path.stat().st_mode == other.stat().st_mode
    path.chmod(0o664)
    link.symlink_to(path.name)
    mx.save_safetensors(str(link), {"x": mx.arange(3)})
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o664
    assert mx.load(str(path))["x"].tolist() == [0, 1, 2]
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "link.safetensors", "other"]
