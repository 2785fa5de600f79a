"""Kernels in Metal's and CUDA's languages: they can be made, as programs do when they are imported, but not called."""

from collections.abc import Callable, Sequence


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: object | None = None,
) -> Callable:
    """A kernel that raises RuntimeError when it is called: there is no Metal here."""

    def call(*args: object, **kwargs: object) -> None:
        raise RuntimeError(f"[metal_kernel] No Metal back-end: kernel {name!r} cannot run on a Vulkan device.")

    return call


def cuda_kernel(*args: object, **kwargs: object) -> Callable:
    """Raises RuntimeError: there is no CUDA here."""
    raise RuntimeError("[cuda_kernel] No CUDA back-end.")


def precompiled_cuda_kernel(*args: object, **kwargs: object) -> Callable:
    """Raises RuntimeError: there is no CUDA here."""
    raise RuntimeError("[precompiled_cuda_kernel] No CUDA back-end.")
