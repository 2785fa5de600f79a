"""The server under test: starting it, sending requests to it, its memory and its metrics."""

import collections
import contextlib
import ctypes
import http.client
import json
import os
import signal
import subprocess
import threading
import time

# Seconds that a request may take before the client gives up. A round must end.
PATIENCE = 180
# The server's limit of a body in bytes.
MAX_BODY = 16 << 20


def die_with_parent():
    """Lets this process be killed with the one that started it."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Server:
    """A server process. Leaving the block kills it."""

    def __init__(self, program, arguments=(), cores=None, nice=0):
        command = [program, "serve", "demo", "--device", "cpu", "--port", "0", "-q", *arguments]
        if cores:
            command = ["taskset", "-c", ",".join(map(str, sorted(cores))), *command]
        if nice:
            command = ["nice", "-n", str(nice), *command]
        # A session of its own, so that its share of the cores can be set.
        options = {"start_new_session": True, "preexec_fn": die_with_parent}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        if nice:
            # Sessions share the cores before the processes of a session do.
            with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/autogroup", "w") as file:
                file.write(str(nice))
        line = self.process.stdout.readline()
        if "://" not in line:
            raise SystemExit(f"the server did not start: {line!r}")
        self.pid = self.process.pid
        self.port = int(line.strip().rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def is_running(self):
        return self.process.poll() is None

    def status(self, name):
        """A figure of /proc/PID/status in MB."""
        with open(f"/proc/{self.pid}/status") as lines:
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":"))

    def resident(self):
        """Resident memory in MB."""
        return self.status("VmRSS")

    def peak(self):
        """Highest resident memory in MB since `reset_peak`."""
        return self.status("VmHWM")

    def seconds(self):
        """Processor time that it used."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reset_peak(self):
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/clear_refs", "w") as file:
            file.write("5")

    def metrics(self):
        text = request(self.port, "GET", "/metrics")[1].decode()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if "_bucket{" not in line}

    def wait_until_idle(self, seconds=PATIENCE):
        """Waits until no request is left. Returns whether that happened in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                metrics = self.metrics()
                if not metrics["vllm:num_requests_running"] + metrics["vllm:num_requests_waiting"]:
                    return True
            time.sleep(0.2)
        return False


def request(port, method, path, body=None, headers=None, timeout=PATIENCE):
    """Sends one request on a connection of its own. Returns status and body."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body, ensure_ascii=False).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class Outcomes:
    """Counts what became of the requests of a round, and keeps what should not have happened."""

    def __init__(self):
        self.counts = collections.Counter()
        self.wrong = []
        self.lock = threading.Lock()

    def add(self, what, wrong=None):
        with self.lock:
            self.counts[what] += 1
            if wrong and len(self.wrong) < 20:
                self.wrong.append(wrong)

    def check(self, is_right, what):
        """Counts a property that must hold."""
        self.add("held" if is_right else "broken", None if is_right else what)


class Attack:
    """What a round needs to send its requests."""

    def __init__(self, port, program, seconds):
        self.port = port
        self.program = program
        self.end = time.monotonic() + seconds
        self.outcomes = Outcomes()

    def is_over(self):
        return time.monotonic() > self.end

    def send(self, name, path, body, method="POST", allowed=None, headers=None):
        """Sends a request and counts its status. Any answer below 500 is fine, and 503, unless `allowed` is given."""
        try:
            status, answer = request(self.port, method, path, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            # A body over the server's limit is refused before all of it is read.
            size = len(body if isinstance(body, bytes) else json.dumps(body))
            self.outcomes.add("cut off", None if size > MAX_BODY else f"{name}: the connection was closed")
            return None
        except (OSError, http.client.HTTPException) as why:
            self.outcomes.add(type(why).__name__, f"{name}: {why!r}")
            return None
        is_fine = status in allowed if allowed else status < 500 or status == 503
        self.outcomes.add(status, None if is_fine else f"{name}: {status} {answer[:200]!r}")
        return status

    def each(self, items, work, threads=4):
        """Calls `work` with each item on several threads, until all are done or the time is over."""
        waiting = collections.deque(items)

        def worker():
            while not self.is_over():
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                try:
                    work(item)
                except Exception as why:  # A fault of the script must show in the table too.
                    self.outcomes.add("script", f"{work.__name__}: {why!r}")

        together([worker] * threads)


def together(works):
    """Runs functions on threads of their own until all have returned."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def busy_seconds(cores):
    """Processor time that was used on these cores since the system started."""
    total = 0
    with open("/proc/stat") as lines:
        for line in lines:
            name, *times = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
                # All but idle time and the time that waits for disks.
                total += sum(map(int, times[:3] + times[5:8]))
    return total / os.sysconf("SC_CLK_TCK")


def split_cores():
    """The cores for the server, and the one that stays free for everybody else."""
    cores = sorted(os.sched_getaffinity(0))
    return (set(cores[:-1]), {cores[-1]}) if len(cores) > 1 else (set(cores), set(cores))
