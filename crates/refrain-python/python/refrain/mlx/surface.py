"""The names of mlx.core 0.32.4, and what the ones that are missing raise."""

from collections.abc import Callable


def _names(text: str) -> list[str]:
    return text.split()


TOP_LEVEL = frozenset(
    _names("""
    ArrayAt ArrayIterator ArrayLike Device DeviceType Dtype DtypeCategory FunctionExporter PrintOptions Stream
    StreamContext ThreadLocalStream _PrintOptionsContext __array_namespace_info__ __version__ _gc_func abs acos
    acosh add addmm all allclose any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin
    argpartition argsort array array_equal as_strided asarray asin asinh astype async_eval atan atan2 atanh
    atleast_1d atleast_2d atleast_3d bartlett bfloat16 bitwise_and bitwise_invert bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor blackman block_masked_mm bool_ broadcast_arrays broadcast_shapes
    broadcast_to can_cast ceil checkpoint clear_cache clear_streams clip compile complex64 complexfloating
    concat concatenate conj conjugate contiguous conv1d conv2d conv3d conv_general conv_transpose1d
    conv_transpose2d conv_transpose3d convolve cos cosh count_nonzero cpu cummax cummin cumprod cumsum
    cumulative_prod cumulative_sum custom_function default_device default_stream degrees depends dequantize
    device_count device_info diag diagonal diff disable_compile divide divmod e einsum einsum_path empty
    empty_like enable_compile equal erf erfinv euler_gamma eval exp expand_dims expm1 export_function
    export_to_dot exporter eye finfo flatten flip float16 float32 float64 floating floor floor_divide
    from_dlpack from_fp8 full full_like gather_mm gather_qmm gather_qqmm generic get_active_memory
    get_array_buffer_size get_cache_memory get_memory_limit get_peak_memory get_printoptions gpu grad greater
    greater_equal hadamard_transform hamming hanning identity iinfo imag import_function inexact inf inner int16
    int32 int64 int8 integer is_available isclose isdtype isfinite isinf isnan isneginf isposinf issubdtype jvp
    kron left_shift less less_equal linspace load log log10 log1p log2 logaddexp logcumsumexp logical_and
    logical_not logical_or logical_xor logsumexp matmul matrix_norm matrix_transpose max maximum mean median
    meshgrid min minimum minmax moveaxis multiply nan nan_to_num negative new_stream new_thread_local_stream
    new_thread_unsafe_stream newaxis not_equal number ones ones_like outer pad partition permute_dims pi
    positive pow power printoptions prod put_along_axis qqmm quantize quantized_matmul radians real reciprocal
    remainder repeat reset_peak_memory reshape result_type right_shift roll round rsqrt save save_gguf
    save_safetensors savez savez_compressed searchsorted segmented_mm set_cache_limit set_default_device
    set_default_stream set_memory_limit set_printoptions set_wired_limit sigmoid sign signedinteger sin sinh
    slice slice_update softmax sort split sqrt square squeeze stack std stop_gradient stream subtract sum
    swapaxes synchronize take take_along_axis tan tanh tensordot tile to_fp8 topk trace transpose tri tril triu
    trunc uint16 uint32 uint64 uint8 unflatten unique unsignedinteger unstack value_and_grad var vecdot view vjp
    vmap where zeros zeros_like
    """)
)

SUBMODULES = {
    "cuda": _names("""
        is_available
    """),
    "distributed": _names("""
        Group all_gather all_max all_min all_sum init is_available recv recv_like send sum_scatter
    """),
    "fast": _names("""
        cross_entropy cuda_kernel gated_delta_update layer_norm metal_kernel precompiled_cuda_kernel rms_norm rope
        scaled_dot_product_attention
    """),
    "fft": _names("""
        fft fft2 fftfreq fftn fftshift ifft ifft2 ifftn ifftshift irfft irfft2 irfftn istft rfft rfft2 rfftfreq
        rfftn stft
    """),
    "linalg": _names("""
        cholesky cholesky_inv cross det eig eigh eigvals eigvalsh inv lu lu_factor norm pinv qr slogdet solve
        solve_triangular svd tri_inv
    """),
    "metal": _names("""
        clear_cache device_info get_active_memory get_cache_memory get_peak_memory is_available reset_peak_memory
        set_cache_limit set_memory_limit set_wired_limit start_capture stop_capture
    """),
    "random": _names("""
        bernoulli categorical gumbel key laplace multivariate_normal normal permutation randint seed split
        truncated_normal uniform
    """),
}

ARRAY_NAMES = _names("""
    T __abs__ __add__ __and__ __array__ __array_namespace__ __bool__ __bytes__ __complex__ __copy__ __deepcopy__
    __div__ __dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __format__ __ge__ __getitem__ __gt__
    __hash__ __iadd__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __index__ __init__
    __int__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __iter__ __itruediv__ __ixor__ __le__ __len__
    __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rdiv__
    __repr__ __rfloordiv__ __rmod__ __rmul__ __rpow__ __rshift__ __rsub__ __rtruediv__ __setitem__ __setstate__
    __sub__ __truediv__ __xor__ abs all any argmax argmin astype at conj cos cummax cummin cumprod cumsum diag
    diagonal dtype exp flatten imag item itemsize log log10 log1p log2 logcumsumexp logsumexp mT max mean min
    moveaxis nbytes ndim prod real reciprocal reshape round rsqrt shape sin size split sqrt square squeeze std
    sum swapaxes tolist transpose var view
""")


def unsupported(name: str) -> Callable:
    """A function in the place of one that is missing: it raises NotImplementedError, which is a RuntimeError."""

    def missing(*args: object, **kwargs: object) -> None:
        raise NotImplementedError(f"[{name}] mlx.core.{name} is not supported by Refrain yet")

    missing.__name__ = name.rpartition(".")[2]
    missing.__doc__ = "Raises NotImplementedError: Refrain does not have it yet."
    missing.is_missing = True
    return missing
