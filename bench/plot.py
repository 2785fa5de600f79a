#!/usr/bin/env python3
"""Draws the plots of the README from the rows in bench/reports: python3 bench/plot.py

Needs matplotlib 3.10 (pip install matplotlib==3.10.3).
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot

REPORTS = Path(__file__).resolve().parent / "reports"
# A fixed hash salt, and no date, make the output reproducible.
pyplot.rcParams.update({"svg.hashsalt": "refrain", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False})
pyplot.rcParams["axes.spines.right"] = False


def points(rows, model, kind, axis):
    """Maps x values to tokens/s of the rows of a model. `axis` returns the x value of a row, or None to skip it.

    Of several rows with the same x value, the latest counts.
    """
    chosen = [row for row in rows if row["model"] == f"synthetic:{model}" and row["test"].startswith(kind)]
    found = {axis(row): row["tokens_per_s"] for row in chosen if axis(row) is not None}
    return dict(sorted(found.items()))


def draw(axes, title, label, ours, peers, ticks):
    """Draws one plot: our points and those of each peer as lines."""
    axes.plot(list(ours), list(ours.values()), marker="o", color="#b3261e", label="Refrain, Vulkan")
    for peer, marker in zip(peers, "s^D"):
        theirs = {int(at): value for at, value in peer[0].items()}
        axes.plot(list(theirs), list(theirs.values()), marker=marker, linestyle="--", label=peer[1])
    axes.set(title=title, xlabel=label, ylim=(0, None))
    if ticks:
        axes.set_xscale("log", base=2)
    axes.set_xticks(list(ours), [f"{at:,}" for at in ours], rotation=45)
    axes.grid(alpha=0.3)


def main():
    report = json.loads((REPORTS / "nvidia-h200-prompts.json").read_text())
    others = json.loads((REPORTS / "peers-h200.json").read_text())["peers"]
    rows = report["rows"]
    peers = lambda of: [(peer[of], f"{peer['name']} ({peer['version']})") for peer in others if peer[of]]
    figure, plots = pyplot.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    of_length = lambda row: int(row["test"][2:]) if row["depth"] == 0 and row["batch"] == 1 else None
    of_depth = lambda row: row["depth"] if row["batch"] == 1 else None
    # Batches next to each other would only crowd the labels.
    of_batch = lambda row: row["batch"] if row["depth"] == 256 and row["batch"] in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64) else None
    lengths = points(rows, "qwen3-8b:q4_0", "pp", of_length)
    draw(plots[0], "Qwen3-8B Q4_0: prompts", "tokens of a prompt", lengths, peers("prompt"), True)
    depths = points(rows, "qwen3-8b:q4_0", "tg", of_depth)
    draw(plots[1], "Qwen3-8B Q4_0: one stream", "tokens before", depths, peers("depth"), False)
    batches = points(rows, "qwen3-8b:q4_k_m", "tg", of_batch)
    draw(plots[2], "Qwen3-8B Q4_K_M: together", "sequences", batches, peers("batch"), True)
    plots[0].set_ylabel("tokens a second")
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"{report['device']}, {report['vulkan']['driver']}")
    figure.savefig(REPORTS / "nvidia-h200.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
