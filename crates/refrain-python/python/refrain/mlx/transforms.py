"""Transformations of functions. `compile` runs its function; derivatives are not there yet."""

from collections.abc import Callable, Sequence


def _missing(name: str, what: str) -> Callable:
    def transform(*args: object, **kwargs: object) -> object:
        raise NotImplementedError(f"[{name}] {what} by Refrain yet")

    transform.is_missing = True
    return transform


def compile(
    fun: Callable, inputs: object | None = None, outputs: object | None = None, shapeless: bool = False
) -> Callable:
    """The function itself: operations are lazy, and what they build is compiled when it is computed."""
    if not callable(fun):
        raise TypeError("[compile] expected a function")
    return fun


def disable_compile() -> None:
    """Has no effect: `compile` returns its function."""


def enable_compile() -> None:
    """Has no effect: `compile` returns its function."""


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
