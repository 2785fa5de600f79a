"""Runs a program written for MLX: `python -m refrain.mlx [--device DEVICE] (-m MODULE | -c CODE | SCRIPT | -) [ARGUMENTS]`."""

import runpy
import sys
import sysconfig
import types
from pathlib import Path

import refrain.mlx

USAGE = """usage: python -m refrain.mlx [--device DEVICE] (-m MODULE | -c CODE | SCRIPT | -) [ARGUMENTS ...]
       python -m refrain.mlx --always | --never

Runs a Python program that is written for MLX, with Refrain in the place of mlx.core: a module, code, a file, or
what standard input has (-), as python itself does.

  --device DEVICE  auto (the best GPU, else the CPU), gpu, cpu, an index or a part of a name;
                   the environment variable REFRAIN_DEVICE is its default
  --always         let every Python program of this environment use Refrain for mlx.core
  --never          undo --always
"""

PATH_FILE = "refrain_mlx.pth"


def always(enabled: bool) -> None:
    """Writes or removes the file that installs the module when Python starts."""
    path = Path(sysconfig.get_path("purelib")) / PATH_FILE
    if enabled:
        path.write_text("import refrain.mlx; refrain.mlx.install()\n")
        print(f"wrote {path}")
    else:
        path.unlink(missing_ok=True)
        print(f"removed {path}")


def run_code(code: str, name: str) -> None:
    """Runs code as the main module, as `python -c` does."""
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    sys.path.insert(0, "")
    exec(compile(code, name, "exec"), main_module.__dict__)


def main(arguments: list[str]) -> None:
    """Installs the module and runs the program."""
    device = None
    while arguments:
        option = arguments.pop(0)
        if option == "--device" and arguments:
            device = arguments.pop(0)
        elif option.startswith("--device="):
            device = option.partition("=")[2]
        elif option in ("--always", "--never"):
            return always(option == "--always")
        elif option in ("-h", "--help"):
            print(USAGE, end="")
            return None
        elif option == "-m" and arguments:
            refrain.mlx.install(device)
            module = arguments.pop(0)
            sys.argv = [module, *arguments]
            # As `python -m` does, so that modules of the current directory are found.
            sys.path.insert(0, "")
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return None
        elif option == "-" or (option == "-c" and arguments):
            refrain.mlx.install(device)
            code, name = (arguments.pop(0), "<string>") if option == "-c" else (sys.stdin.read(), "<stdin>")
            sys.argv = [option, *arguments]
            run_code(code, name)
            return None
        elif not option.startswith("-"):
            refrain.mlx.install(device)
            sys.argv = [option, *arguments]
            sys.path.insert(0, str(Path(option).resolve().parent))
            runpy.run_path(option, run_name="__main__")
            return None
        else:
            break
    sys.stderr.write(USAGE)
    raise SystemExit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
