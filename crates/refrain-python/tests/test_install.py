"""How the module takes the place of `mlx.core`; each test starts an interpreter of its own."""

import subprocess
import sys
import textwrap


def run(program: str, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess:
    """Runs a program that has not imported anything yet."""
    command = [sys.executable, *arguments] if arguments else [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def printed(program: str) -> str:
    result = run(program)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_installs_once_and_gives_the_submodules():
    program = """
        import refrain.mlx
        refrain.mlx.install("cpu")
        refrain.mlx.install()
        import mlx.core as mx
        import mlx.core.random as random
        from mlx.core import fast
        import mlx
        print(mlx.core is mx, random is mx.random, fast is mx.fast, mx.array.__module__, mx.default_device())
    """
    assert printed(program) == "True True True mlx.core Device(cpu, 0)"


def test_refuses_where_another_mlx_core_is_loaded():
    program = """
        import sys, types
        sys.modules["mlx.core"] = types.ModuleType("mlx.core")
        import refrain.mlx
        try:
            refrain.mlx.install()
        except RuntimeError as error:
            print(error)
    """
    assert "another mlx.core is imported already" in printed(program)


def test_runs_scripts_and_modules(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sys, mlx.core as mx\nprint(mx.arange(3).tolist(), sys.argv[1:], __name__)\n")
    result = run("", "-m", "refrain.mlx", "--device", "cpu", str(script), "a", "-b")
    assert result.stdout.strip() == "[0, 1, 2] ['a', '-b'] __main__", result.stderr
    result = run("", "-m", "refrain.mlx", "-m", "timeit", "-n", "1", "-r", "1", "import mlx.core")
    assert result.returncode == 0, result.stderr
    assert run("", "-m", "refrain.mlx").returncode == 2


def test_runs_code_and_standard_input():
    code = "import sys, mlx.core as mx\ndef f(): return mx.arange(3)\nprint(f().tolist(), sys.argv, f.__module__)\n"
    result = run("", "-m", "refrain.mlx", "--device=cpu", "-c", code, "a", "-b")
    assert result.stdout.strip() == "[0, 1, 2] ['-c', 'a', '-b'] __main__", result.stderr
    result = run("", "-m", "refrain.mlx", "-", "a", stdin=code)
    assert result.stdout.strip() == "[0, 1, 2] ['-', 'a'] __main__", result.stderr
    result = run("", "-m", "refrain.mlx", "-c", "raise SystemExit(3)")
    assert result.returncode == 3, result.stderr


def test_unknown_devices_are_refused():
    program = """
        import refrain.mlx
        refrain.mlx.install("no such device")
        import mlx.core
    """
    result = run(program)
    assert result.returncode == 1
    assert "RuntimeError" in result.stderr


def test_a_forked_process_refuses_to_compute():
    program = """
        import os, sys, refrain.mlx
        refrain.mlx.install()
        import mlx.core as mx
        array = mx.arange(3)
        array.tolist()
        # What is being computed when the process forks is not waited for in the child.
        mx.async_eval(mx.ones((500, 500)) @ mx.ones((500, 500)))
        child = os.fork()
        if child == 0:
            try:
                array.tolist()
            except RuntimeError as error:
                sys.exit(0 if "fork" in str(error) else 2)
            sys.exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), array.tolist())
    """
    assert printed(program) == "0 [0, 1, 2]"


def test_processes_that_are_started_anew_have_it(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
            import multiprocessing, sys
            import mlx.core as mx

            def work(queue):
                queue.put((mx.arange(3).tolist(), mx.__refrain__, str(mx.default_device())))

            if __name__ == "__main__":
                for method in ("spawn", "forkserver"):
                    context = multiprocessing.get_context(method)
                    queue = context.Queue()
                    process = context.Process(target=work, args=(queue,))
                    process.start()
                    print(queue.get(timeout=60))
                    process.join()
        """)
    )
    result = run("", "-m", "refrain.mlx", "--device", "cpu", str(script))
    assert result.stdout.splitlines() == 2 * ["([0, 1, 2], True, 'Device(cpu, 0)')"], result.stderr
