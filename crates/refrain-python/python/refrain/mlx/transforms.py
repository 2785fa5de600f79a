"""Transformations of functions; derivatives are not there yet."""

import functools
import os
from collections.abc import Callable, Sequence

from refrain import _core


def _missing(name: str, what: str) -> Callable:
    def transform(*args: object, **kwargs: object) -> object:
        raise NotImplementedError(f"[{name}] {what} by Refrain yet")

    transform.is_missing = True
    return transform


def compile(
    fun: Callable, inputs: object | None = None, outputs: object | None = None, shapeless: bool = False
) -> Callable:
    """A function that runs once for each kind of argument: see `compiled_function`. One that reads or writes further
    arrays is returned as it is: operations are lazy, and what they build is compiled when it is computed."""
    compiled = _core.compiled_function(fun)
    if inputs is not None or outputs is not None:
        return fun
    return functools.update_wrapper(compiled, fun)


def disable_compile() -> None:
    """Compiled functions run each time."""
    _core._disable_compile(True)


def enable_compile() -> None:
    """Compiled functions run once for each kind of argument."""
    _core._disable_compile(False)


if "MLX_DISABLE_COMPILE" in os.environ:
    disable_compile()


def checkpoint(fun: Callable) -> Callable:
    """The function itself: without derivatives there is nothing to keep or to compute again."""
    return fun


def grad(fun: Callable, argnums: int | Sequence[int] | None = None, argnames: str | Sequence[str] = ()) -> Callable:
    """A function that raises NotImplementedError."""
    return _missing("grad", "derivatives are not computed")


def value_and_grad(
    fun: Callable, argnums: int | Sequence[int] | None = None, argnames: str | Sequence[str] = ()
) -> Callable:
    """A function that raises NotImplementedError."""
    return _missing("value_and_grad", "derivatives are not computed")


# They make functions that raise.
grad.is_missing = value_and_grad.is_missing = True

jvp = _missing("jvp", "derivatives are not computed")
vjp = _missing("vjp", "derivatives are not computed")
export_function = _missing("export_function", "functions are not exported")
import_function = _missing("import_function", "functions are not imported")
exporter = _missing("exporter", "functions are not exported")
export_to_dot = _missing("export_to_dot", "graphs are not exported")


class FunctionExporter:
    """Exports a function for several shapes; there is no way to make one yet."""

    def __init__(self) -> None:
        raise NotImplementedError("[FunctionExporter] functions are not exported by Refrain yet")


class custom_function:
    """A function with derivatives of its own, which are kept for later versions."""

    def __init__(self, f: Callable) -> None:
        self._function = f

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._function(*args, **kwargs)

    def vjp(self, f: Callable) -> "custom_function":
        """Accepts the function of vector-Jacobian products."""
        return self

    def jvp(self, f: Callable) -> "custom_function":
        """Accepts the function of Jacobian-vector products."""
        return self

    def vmap(self, f: Callable) -> "custom_function":
        """Accepts the vectorised function."""
        return self


def _gc_func(*args: object) -> None:
    """A placeholder for the class of MLX's compiled functions."""
