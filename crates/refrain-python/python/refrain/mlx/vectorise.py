"""`vmap`: a function of arrays as a function of batches, one element of the batch after another."""

import copy
from collections.abc import Callable

from refrain import _core


def _rebuilt(tree: object, parts: list) -> object:
    """A list or tuple of parts, of the class of `tree`."""
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def _flatten(tree: object, axes: object, leaves: list) -> object:
    """Collects the arrays of a tree with their axes; returns the tree with places instead of arrays."""
    no_prefix = ValueError("[vmap] the tree of axes is no prefix of the arguments' tree.")
    if isinstance(tree, dict):
        if isinstance(axes, list | tuple) or (isinstance(axes, dict) and axes.keys() != tree.keys()):
            raise no_prefix
        return {
            key: _flatten(part, axes[key] if isinstance(axes, dict) else axes, leaves) for key, part in tree.items()
        }
    if isinstance(tree, list | tuple):
        if isinstance(axes, dict) or (isinstance(axes, list | tuple) and len(axes) != len(tree)):
            raise no_prefix
        each = axes if isinstance(axes, list | tuple) else [axes] * len(tree)
        return _rebuilt(tree, [_flatten(part, axis, leaves) for part, axis in zip(tree, each, strict=True)])
    if isinstance(axes, list | tuple) and len(axes) == 1:
        axes = axes[0]
    if not isinstance(axes, int | None):
        raise no_prefix
    if not isinstance(tree, _core.array):
        raise ValueError("[vmap] the function's inputs and outputs must be arrays.")
    leaves.append((tree, axes))
    return len(leaves) - 1


def _fill(tree: object, leaves: list) -> object:
    """The tree with arrays in their places."""
    if isinstance(tree, dict):
        return {key: _fill(part, leaves) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return _rebuilt(tree, [_fill(part, leaves) for part in tree])
    return leaves[tree]


def _batch_size(leaves: list) -> int:
    """How many elements the batch has."""
    sizes = set()
    for array, axis in leaves:
        if axis is None:
            continue
        if not -array.ndim <= axis < array.ndim:
            raise ValueError(f"[vmap] Invalid vmap axis {axis} for an input of {array.ndim} dimensions.")
        sizes.add(array.shape[axis])
    if len(sizes) != 1:
        raise ValueError(
            f"[vmap] Inconsistent axis sizes: {sorted(sizes)}." if sizes else "[vmap] No input has an axis."
        )
    return sizes.pop()


def _element(array: "_core.array", axis: int | None, at: int) -> "_core.array":
    # The function may assign to its arguments, which changes neither the caller's array nor another element's.
    return copy.copy(array) if axis is None else _core.take(array, at, axis)


def _stacked(results: list, axis: int | None) -> "_core.array":
    """The results of all elements along an axis; the first one where they have no axis."""
    if axis is None:
        return results[0]
    rank = results[0].ndim + 1
    if not -rank <= axis < rank:
        raise ValueError(f"[vmap] Invalid output axis {axis} for an output of {rank - 1} dimensions.")
    return _core.stack(results, axis)


def vmap(fun: Callable, in_axes: object = 0, out_axes: object = 0) -> Callable:
    """A function of batches: `in_axes` and `out_axes` say which axes of its inputs and outputs are the batch's."""

    if not isinstance(in_axes, int | list | tuple | dict | None):
        raise ValueError("[vmap] in_axes must be an integer, None, or a tree of them.")

    def vectorised(*args: object) -> object:
        inputs: list = []
        structure = _flatten(args, (in_axes,) if isinstance(in_axes, dict) else in_axes, inputs)
        outputs, shape = [], None
        for at in range(_batch_size(inputs)):
            result = fun(*_fill(structure, [_element(array, axis, at) for array, axis in inputs]))
            leaves: list = []
            shape = _flatten(result, out_axes, leaves)
            outputs.append(leaves)
        if shape is None:
            raise ValueError("[vmap] the batch is empty.")
        columns = zip(*outputs, strict=True)
        return _fill(shape, [_stacked([one for one, _ in column], column[0][1]) for column in columns])

    return vectorised
