"""An hour of hostile clients against `refrain serve demo` on the CPU, with one core left free for everybody else.

    python3 tests/hostile/hour.py target/release/refrain --minutes 60

Rounds of attacks run one after another, over and over. Meanwhile a process of its own asks /health every 50 ms on a new
connection, and another one asks a question as a polite client does. The verdict at the end: the server is the same
process, its model was not loaded again, /health answered within 100 ms throughout, no answer was wrong, the memory after
each round, with as much stored as the server keeps, is within 5 % of that after ten minutes, and the peak is at most
1.5 GB above it. Exit code 1 if one of these does not hold. Needs Linux and Python 3.11; no packages.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from target import Attack, Server, busy_seconds, request, split_cores  # noqa: E402

ROUNDS = ["grammars", "texts", "leavers", "slow", "web", "streams", "drains"]
WATCH_INTERVAL = 0.05
MAX_HEALTH = 0.1
MAX_IDLE_GROWTH = 1.05
MAX_PEAK_MB = 1500
# Seconds without requests before the memory is read.
SETTLE = 5
BASELINE_SECONDS = 600
# A client that gives up after this many seconds has waited too long for /health.
HEALTH_TIMEOUT = 30
COUNTERS = ["refrain:device_restarts_total"]
# Prompts of so many tokens are more than the KV cache holds.
FILLING_PROMPTS = (16, 1000)
# Conversations of so many bytes are more than the server stores.
FILLING_CONVERSATIONS = (20, 4_000_000)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("refrain", help="the program")
    parser.add_argument("--minutes", type=float, default=60, help="how long [%(default)s]")
    parser.add_argument("--round", type=float, default=40, help="seconds of a round [%(default)s]")
    parser.add_argument("--rounds", default=",".join(ROUNDS), help="which rounds [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of requests [%(default)s]")
    parser.add_argument("--nice", type=int, default=0, help="nice value of the server, for a machine that others use")
    parser.add_argument("--show", type=int, default=3, help="wrong answers to print for each round [%(default)s]")
    return parser.parse_args()


class Watch:
    """What the watcher and the polite client saw since the last reset. Shared between processes."""

    def __init__(self):
        self.slowest = multiprocessing.Value("d", 0)
        self.late = multiprocessing.Value("i", 0)
        self.failed = multiprocessing.Value("i", 0)
        self.asleep = multiprocessing.Value("d", 0)
        self.question = multiprocessing.Value("d", 0)
        self.wrong = multiprocessing.Value("i", 0)

    def take(self):
        values = {name: value.value for name, value in vars(self).items()}
        for value in vars(self).values():
            value.value = 0
        return values


def prefer():
    """Runs this process before others of its core, where the system allows it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        try:
            os.nice(-10)
        except OSError:
            pass


def watch_health(port, cores, watch):
    """Asks /health every 50 ms."""
    os.sched_setaffinity(0, cores)
    prefer()
    while True:
        begin = time.monotonic()
        try:
            status, _ = request(port, "GET", "/health", timeout=HEALTH_TIMEOUT)
        except OSError:
            status = 0
        took = time.monotonic() - begin
        watch.slowest.value = max(watch.slowest.value, took)
        watch.late.value += took > MAX_HEALTH
        watch.failed.value += status != 200
        wanted = max(0, WATCH_INTERVAL - took)
        begin = time.monotonic()
        time.sleep(wanted)
        # The watcher's own delay says how busy its core is.
        watch.asleep.value = max(watch.asleep.value, time.monotonic() - begin - wanted)


def ask_politely(port, cores, watch):
    """Asks one question after another, whose answer is known."""
    os.sched_setaffinity(0, cores)
    body = {"temperature": 0, "max_tokens": 20, "messages": [{"role": "user", "content": "What is 12 + 30?"}]}
    while True:
        begin = time.monotonic()
        try:
            status, answer = request(port, "POST", "/v1/chat/completions", body)
            is_fine = status == 503 or "42" in json.loads(answer)["choices"][0]["message"]["content"]
        except (OSError, LookupError, ValueError):
            is_fine = False
        watch.question.value = max(watch.question.value, time.monotonic() - begin)
        watch.wrong.value += not is_fine
        time.sleep(1)


def attack(name, port, program, seconds, seed, cores, results):
    """Runs one round in a process of its own, which leaves the core to the watcher."""
    os.sched_setaffinity(0, cores)
    os.nice(5)
    random.seed(seed)
    one = Attack(port, program, seconds)
    importlib.import_module(name).run(one)
    results.put((dict(one.outcomes.counts), one.outcomes.wrong))


def fill_cache(server):
    """Lets the server touch all of its KV cache, whose memory the system provides on first use."""
    count, length = FILLING_PROMPTS
    for _ in range(count):
        tokens = [random.randrange(256) for _ in range(length)]
        expect_success(server, "/v1/completions", {"prompt": tokens, "max_tokens": 1})


def fill_store(server):
    """Stores as much as the server keeps, so that its memory does not depend on what clients stored last."""
    count, length = FILLING_CONVERSATIONS
    for _ in range(count):
        items = [{"role": "user", "content": "x" * length}]
        expect_success(server, "/v1/conversations", {"items": items})


def expect_success(server, path, body):
    status, answer = request(server.port, "POST", path, body)
    if status != 200:
        raise SystemExit(f"{path} answered {status} between rounds: {answer[:200]}")


def processes(target, *rest):
    process = multiprocessing.Process(target=target, args=rest, daemon=True)
    process.start()
    return process


def run_round(name, number, options, server, cores, watch):
    """Runs a round, and waits until the server is idle. Returns what was seen."""
    busy, free = cores
    server.reset_peak()
    watch.take()
    begin, own, all_work = time.monotonic(), server.seconds(), busy_seconds(busy)
    results = multiprocessing.Queue()
    process = multiprocessing.Process(
        target=attack,
        args=(name, server.port, options.refrain, options.round, options.seed + number, free, results),
    )
    process.start()
    # A round may take longer than its time: its last requests end, or time out.
    try:
        counts, wrong = results.get(timeout=options.round + 400)
    except Exception:
        counts, wrong = {}, [f"round {name} did not end"]
    process.join(10)
    process.kill()
    if not server.is_running():
        return {"wrong": wrong + [f"the server ended with {server.process.returncode}"]}
    if not server.wait_until_idle():
        wrong.append("requests are left after the round")
    fill_store(server)
    time.sleep(SETTLE)
    seen = watch.take()
    # Work of other programs on the server's cores makes it late.
    others = busy_seconds(busy) - all_work - (server.seconds() - own)
    seen["others"] = max(0, others) / (time.monotonic() - begin) / len(busy)
    wrong += [f"/health failed {seen['failed']} times"] * (seen["failed"] > 0)
    wrong += [f"{seen['wrong']} questions were answered wrongly"] * (seen["wrong"] > 0)
    return {**seen, "counts": counts, "wrong": wrong, "peak": server.peak(), "idle": server.resident()}


HEAD = f"{'time':>7} {'round':9} {'/health':>8} {'late':>5} {'watcher':>8} {'others':>6} {'question':>9} {'peak MB':>8} {'idle MB':>8}  outcomes"


def row(seconds, name, seen):
    counts = ", ".join(f"{what}: {count}" for what, count in sorted(seen["counts"].items(), key=str))
    return (
        f"{seconds / 60:6.1f}m {name:9} {seen['slowest'] * 1e3:5.0f} ms {seen['late']:5} {seen['asleep'] * 1e3:5.0f} ms "
        f"{seen['others']:6.0%} "
        f"{seen['question']:7.1f} s {seen['peak']:8.0f} {seen['idle']:8.1f}  {counts}"
    )


def run_all(options, server, cores, watch):
    """Runs rounds until the time is over. Returns them with the time at which each ended."""
    names, begin, all_rounds = options.rounds.split(","), time.monotonic(), []
    print(HEAD, flush=True)
    while time.monotonic() - begin < options.minutes * 60 or len(all_rounds) < len(names):
        name = names[len(all_rounds) % len(names)]
        seen = run_round(name, len(all_rounds), options, server, cores, watch)
        ended = time.monotonic() - begin
        if "peak" in seen:
            print(row(ended, name, seen), flush=True)
        for what in seen["wrong"][: options.show]:
            print(f"        ! {what}", flush=True)
        all_rounds.append((ended, name, seen))
        if "peak" not in seen:
            break
    return all_rounds


def verdicts(options, rounds, counters, server):
    """Returns what must hold, and whether it does."""
    measured = [(ended, seen) for ended, _, seen in rounds if "peak" in seen]
    yield "the server is the same process", server.is_running() and len(measured) == len(rounds)
    if not measured or not server.is_running():
        return
    after = {name: server.metrics()[name] for name in COUNTERS}
    yield "the model was not loaded again", after == counters
    slowest = max(seen["slowest"] for _, seen in measured)
    yield f"/health answered within 100 ms (at most {slowest * 1e3:.0f} ms)", slowest <= MAX_HEALTH
    wrong = sum(len(seen["wrong"]) for _, seen in measured)
    yield f"no answer was wrong ({wrong} were)", not wrong
    # A shorter run compares with the end of its first third, once each round ran.
    least = min(BASELINE_SECONDS, options.minutes * 60 / 3)
    first = len(options.rounds.split(","))
    later = [(ended, seen) for index, (ended, seen) in enumerate(measured) if ended >= least and index + 1 >= first]
    (minute, baseline), rest = (later[0], later[1:]) if later else (measured[-1], [])
    base = baseline["idle"]
    highest = max((seen["idle"] for _, seen in rest), default=base)
    growth = 100 * (highest / base - 1)
    yield (
        f"idle memory stayed within 5 % of {base:.0f} MB after {minute / 60:.0f} minutes ({growth:+.1f} % at most)",
        highest <= MAX_IDLE_GROWTH * base,
    )
    peak = max(seen["peak"] for _, seen in measured)
    yield f"the peak was at most 1.5 GB above it ({peak - base:.0f} MB)", peak - base <= MAX_PEAK_MB


def main():
    options = arguments()
    busy, free = split_cores()
    print(f"server on cores {sorted(busy)}, clients and watcher on {sorted(free)}, seed {options.seed}")
    # Slow clients are cut off within a round.
    with Server(options.refrain, ["--timeout", "15"], busy, options.nice) as server:
        counters = {name: server.metrics()[name] for name in COUNTERS}
        watch = Watch()
        watchers = [processes(work, server.port, free, watch) for work in (watch_health, ask_politely)]
        fill_cache(server)
        rounds = run_all(options, server, (busy, free), watch)
        for process in watchers:
            process.kill()
        held = True
        for what, holds in verdicts(options, rounds, counters, server):
            print(("holds" if holds else "FAILS") + f": {what}")
            held &= holds
        sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
