"""Tests a running server against its OpenAPI document: openapi.py URL [options of `schemathesis run`]."""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import openapi_spec_validator

HERE = Path(__file__).resolve().parent


def main(url, *options):
    with urllib.request.urlopen(f"{url}/openapi.json") as response:
        openapi_spec_validator.validate(json.load(response))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml", "run"]
    command += [f"{url}/openapi.json", "--no-color", *options]
    # The hooks lie here. The folder keeps what it writes besides.
    paths = [HERE, *map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(subprocess.run(command, cwd=folder, env=environment).returncode)


main(*sys.argv[1:])
