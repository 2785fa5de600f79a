"""Functions of mlx-lm that are replaced by faster ones."""

import importlib
import sys

import mlx.core as mx
import pytest
from refrain.mlx import replacements


@pytest.mark.parametrize(
    ("parameters", "is_replaced"), [("q, k, v, g, beta, state=None, mask=None", True), ("q, k, v", False)]
)
def test_only_a_function_with_the_same_parameters_is_replaced(tmp_path, monkeypatch, parameters, is_replaced):
    package = tmp_path / "mlx_lm" / "models"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "gated_delta.py").write_text(f"def gated_delta_ops({parameters}): ...\nkept = 1\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlx_lm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        module = importlib.import_module("mlx_lm.models.gated_delta")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "mlx_lm"]:
            del sys.modules[name]
    assert module.kept == 1
    assert (module.gated_delta_ops is mx.fast.gated_delta_update) == is_replaced


def test_other_modules_are_found_as_ever():
    assert replacements.Finder().find_spec("mlx_lm.models.qwen3") is None
