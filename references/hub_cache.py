"""Compares the caches written by `refrain pull` and by huggingface_hub, and lets each program read the cache of the other.

A local server acts as the hub; nothing is downloaded.

    references/hub_cache.py target/release/refrain
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPO = "acme/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 1000
FILES = {
    "config.json": b'{"dtype": "bfloat16"}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 200,
    "additional_chat_templates/rag.jinja": b"{{ x }}",
}
# Files of huggingface_hub that are not compared.
IGNORED = ("CACHEDIR.TAG", ".locks", "trees", ".no_exist")

contents_sent = []


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def etag(content):
    return git_hash(content) if len(content) < LARGE else hashlib.sha256(content).hexdigest()


def entry(path, name_key, id_key, sha_key):
    content = FILES[path]
    item = {name_key: path, "size": len(content), id_key: git_hash(content)}
    if len(content) >= LARGE:
        item["lfs"] = {sha_key: etag(content), "size": len(content), "pointerSize": 134}
    return item


class Hub(BaseHTTPRequestHandler):
    """The routes of the hub that downloads use."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET(send=False)

    def do_GET(self, send=True):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path.startswith(f"/api/models/{REPO}/revision/"):
            siblings = [entry(name, "rfilename", "blobId", "sha256") for name in FILES]
            return self.reply(json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode(), send)
        if path.startswith(f"/api/models/{REPO}/tree/"):
            tree = [{"type": "file", **entry(name, "path", "oid", "oid")} for name in FILES]
            return self.reply(json.dumps(tree).encode(), send)
        name = path.removeprefix(f"/{REPO}/resolve/").partition("/")[2]
        if name not in FILES:
            return self.send_error(404)
        if send:
            contents_sent.append(name)
        return self.reply(FILES[name], send, {"ETag": f'"{etag(FILES[name])}"', "X-Repo-Commit": COMMIT})

    def reply(self, body, send, headers=None):
        self.send_response(200)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if send:
            self.wfile.write(body)


def tree(cache):
    """Maps paths to their content or link target."""
    found = {}
    for folder, folders, files in os.walk(cache):
        folders[:] = [name for name in folders if name not in IGNORED]
        for name in files:
            path = Path(folder, name)
            if name not in IGNORED:
                key = str(path.relative_to(cache))
                found[key] = ("-> " + os.readlink(path)) if path.is_symlink() else path.read_bytes()
    return found


def run(command, cache, address, **variables):
    """Runs a program with this cache and hub. Returns its output."""
    environment = {"HF_HUB_CACHE": cache, "HF_ENDPOINT": address, "HF_HUB_DISABLE_XET": "1", **variables}
    contents_sent.clear()
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def python(code):
    return [sys.executable, "-c", f"from huggingface_hub import *; {code}"]


def main(refrain):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    download = f"print(snapshot_download({REPO!r}))"
    with tempfile.TemporaryDirectory() as theirs, tempfile.TemporaryDirectory() as ours:
        run(python(download), theirs, address)
        assert sorted(contents_sent) == sorted(FILES), contents_sent
        run([refrain, "pull", REPO], ours, address)
        assert sorted(contents_sent) == sorted(FILES), contents_sent
        assert tree(theirs) == tree(ours), (sorted(tree(theirs)), sorted(tree(ours)))
        print("both write the same", len(tree(ours)), "files and links")

        path = run(python(download), ours, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
        assert path.startswith(ours) and not contents_sent
        run(python(download), ours, address)
        assert not contents_sent, contents_sent
        scanned = run(python("r = scan_cache_dir(); print(len(r.repos), len(r.warnings))"), ours, address)
        assert scanned == "1 0", scanned
        for name, content in FILES.items():
            get = python(f"print(hf_hub_download({REPO!r}, {name!r}, local_files_only=True))")
            assert Path(run(get, ours, "http://127.0.0.1:9")).read_bytes() == content, name
        print("huggingface_hub uses the cache of refrain without another download")

        path = run([refrain, "pull", REPO, "--offline"], theirs, "http://127.0.0.1:9")
        assert path.startswith(theirs), path
        run([refrain, "pull", REPO], theirs, address)
        assert not contents_sent, contents_sent
        blobs = next(Path(theirs).glob("models--*")) / "blobs"
        leftover = blobs / f"{etag(FILES['model.safetensors'])}.0badcafe.incomplete"
        leftover.write_bytes(b"left by a killed download of huggingface_hub")
        listed = json.loads(run([refrain, "list", "--json"], theirs, address))
        assert listed["interrupted"] == [], listed
        run([refrain, "pull", REPO], theirs, address)
        assert not leftover.exists() and not contents_sent, contents_sent
        assert [model["name"] for model in listed["models"]] == [REPO], listed
        print("refrain uses the cache of huggingface_hub without another download")

        run([refrain, "rm", REPO, "--yes"], theirs, address)
        assert tree(theirs) == {}, tree(theirs)
        scanned = run(python("r = scan_cache_dir(); print(len(r.repos), len(r.warnings))"), theirs, address)
        assert scanned == "0 0", scanned
        print("huggingface_hub accepts the cache after refrain removed a model")


if __name__ == "__main__":
    main(sys.argv[1])
