"""Streams, devices, and threads."""

import threading

import mlx.core as mx
import pytest


def in_thread(function):
    """What a function returns, or the error that it raises, in another thread."""
    result = []

    def call():
        try:
            result.append(function())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return result[0]


def test_a_stream_belongs_to_its_thread():
    stream = mx.new_stream(mx.cpu)
    assert isinstance(in_thread(lambda: mx.add(1, 2, stream=stream)), RuntimeError)
    shared = mx.new_thread_unsafe_stream(mx.cpu)
    assert in_thread(lambda: mx.add(1, 2, stream=shared).item()) == 3
    local = mx.new_thread_local_stream(mx.cpu)
    assert in_thread(lambda: mx.add(1, 2, stream=local).item()) == 3


def test_a_context_sets_the_default_stream():
    stream = mx.new_stream(mx.cpu)
    before = mx.default_stream(mx.cpu)
    with mx.stream(stream):
        assert mx.default_stream(mx.cpu) == stream
        assert mx.default_device() == mx.cpu
    assert mx.default_stream(mx.cpu) == before


def test_streams_and_devices_are_checked():
    with pytest.raises(TypeError):
        mx.add(1, 2, stream="cpu")
    assert mx.Device(mx.cpu) == mx.cpu
    assert mx.is_available(mx.cpu)
    assert not mx.metal.is_available()
    assert not mx.cuda.is_available()
    assert mx.distributed.init().size() == 1


def test_threads_compute_at_once():
    def compute():
        total = mx.zeros((8,))
        for step in range(50):
            total = total + step
            mx.eval(total)
        return total.tolist()

    results = []
    threads = [threading.Thread(target=lambda: results.append(compute())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[1225.0] * 8] * 6
