#!/usr/bin/env python3
"""Draws the README's plots from the rows in bench/reports: python3 bench/plot.py

Needs matplotlib 3.10 (pip install matplotlib==3.10.3).
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot

REPORTS = Path(__file__).resolve().parent / "reports"
# Without a date and with fixed names the same rows give the same file.
pyplot.rcParams.update({"svg.hashsalt": "refrain", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False})
pyplot.rcParams["axes.spines.right"] = False


def points(rows, model, kind, axis):
    """Places and tokens a second of a model's rows, by what `axis` makes of a row; None leaves a row out.

    Of rows of several starts the latest count.
    """
    chosen = [row for row in rows if row["model"] == f"synthetic:{model}" and row["test"].startswith(kind)]
    found = {axis(row): row["tokens_per_s"] for row in chosen if axis(row) is not None}
    return dict(sorted(found.items()))


def draw(place, title, label, ours, peers, ticks):
    """One plot: our points as a line, each peer's beside it."""
    place.plot(list(ours), list(ours.values()), marker="o", color="#b3261e", label="Refrain, Vulkan")
    for peer, marker in zip(peers, "s^D"):
        theirs = {int(at): value for at, value in peer[0].items()}
        place.plot(list(theirs), list(theirs.values()), marker=marker, linestyle="--", label=peer[1])
    place.set(title=title, xlabel=label, ylim=(0, None))
    if ticks:
        place.set_xscale("log", base=2)
    place.set_xticks(list(ours), [f"{at:,}" for at in ours], rotation=45)
    place.grid(alpha=0.3)


def main():
    report = json.loads((REPORTS / "nvidia-h200-prompts.json").read_text())
    others = json.loads((REPORTS / "peers-h200.json").read_text())["peers"]
    rows = report["rows"]
    peers = lambda of: [(peer[of], f"{peer['name']} ({peer['version']})") for peer in others if peer[of]]
    figure, places = pyplot.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    of_length = lambda row: int(row["test"][2:]) if row["depth"] == 0 and row["batch"] == 1 else None
    of_depth = lambda row: row["depth"] if row["batch"] == 1 else None
    # Neighbours on both sides of a step would only crowd the labels.
    of_batch = lambda row: row["batch"] if row["depth"] == 256 and row["batch"] in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64) else None
    lengths = points(rows, "qwen3-8b:q4_0", "pp", of_length)
    draw(places[0], "Qwen3-8B Q4_0: prompts", "tokens of a prompt", lengths, peers("prompt"), True)
    depths = points(rows, "qwen3-8b:q4_0", "tg", of_depth)
    draw(places[1], "Qwen3-8B Q4_0: one stream", "tokens before", depths, peers("depth"), False)
    batches = points(rows, "qwen3-8b:q4_k_m", "tg", of_batch)
    draw(places[2], "Qwen3-8B Q4_K_M: together", "sequences", batches, peers("batch"), True)
    places[0].set_ylabel("tokens a second")
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"{report['device']}, {report['vulkan']['driver']}")
    figure.savefig(REPORTS / "nvidia-h200.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
