"""The table that people read: figures, shares of what bounds them, and what is wanted."""

import json

CHUNK = 2048  # as many tokens as `refrain explain --prompt` takes


class Work:
    """Multiplications of prompts, by `refrain explain`, which needs neither weights nor the device for them."""

    def __init__(self, program):
        self.program, self.known = program, {}

    def chunk(self, row, tokens, depth):
        # Formats multiply alike.
        key = (row["arch"], row["parameters"], tokens, depth)
        if key not in self.known:
            ask = ["explain", row["model"], "--prompt", tokens, "--depth", depth, "--json"]
            told = self.program.run(*ask, device="null", seconds=20)
            self.known[key] = json.loads(told)["token"]["multiplications"]
        return self.known[key]

    def of(self, row):
        """A whole prompt's: later chunks attend to those before."""
        tokens = int(row["test"][2:])
        chunks = ((min(CHUNK, tokens - at), row["depth"] + at) for at in range(0, tokens, CHUNK))
        return row["batch"] * sum(self.chunk(row, *chunk) for chunk in chunks)


def test(row):
    """A row's name within its model: `tg64 d256 b8`."""
    depth = f" d{row['depth']}" if row["depth"] else ""
    return row["test"] + depth + (f" b{row['batch']}" if row["batch"] > 1 else "")


def by_name(report):
    """Rows by model and test; the latest of several."""
    return {(row["model"], test(row)): row for row in report["rows"]} if report else {}


def step(row):
    """Milliseconds of a prompt, or of one decode step."""
    return row["ms_per_token"] * (int(row["test"][2:]) if row["test"].startswith("pp") else 1)


def quotients(times, rows):
    """The quotients of times that the table asks for, as (model, names of both rows, what is asked)."""
    for time in times:
        model = time["model"]
        if "batches" in time:
            batches = sorted(row["batch"] for (of, _), row in rows.items() if of == model and test({**row, "batch": 1}) == time["batches"])
            names = [time["batches"] + (f" b{batch}" if batch > 1 else "") for batch in batches]
            pairs = list(zip(names[1:], names))
        else:
            pairs = [(time["of"], time["over"])]
        for of, over in pairs:
            if (model, of) in rows and (model, over) in rows:
                yield model, of, over, time


def quotient(rows, model, of, over):
    if (model, of) in rows and (model, over) in rows:
        return step(rows[model, of]) / step(rows[model, over])


def share(row, peak, work):
    """How near a row is to what bounds it: bytes of a decode step, products of a prompt."""
    if row["bandwidth_share"]:
        return f"{100 * row['bandwidth_share']:.0f} % of bandwidth"
    if peak and row["test"].startswith("pp"):
        try:
            tflops = 2 * work.of(row) / step(row) / 1e9
        except RuntimeError:
            return ""
        return f"{100 * tflops / peak:.0f} % of {peak} TFLOP/s"
    return ""


def change(now, earlier):
    return ["-", "-"] if earlier is None else [figure(earlier), f"{100 * (now / earlier - 1):+.1f} %"]


def figure(number):
    return f"{number:,.0f}" if number >= 1000 else f"{number:.1f}" if number >= 20 else f"{number:.2f}"


def verdict(now, least=None, most=None):
    """The wanted figure, and whether it is met."""
    if least is None and most is None:
        return ["", ""]
    met = (least is None or now >= least) and (most is None or now <= most)
    wanted = f"≥ {least:,}" if most is None else f"≤ {most:,}" if least is None else f"{least:,} to {most:,}"
    return [wanted, "met" if met else "missed"]


def about(report):
    """The device and the commit that figures are of."""
    driver = (report.get("vulkan") or {}).get("driver")
    named = report["device"] + (f", {driver}" if driver else "")
    return f"{named}, a probe reads {report['probe_gbps']:,.0f} GB/s; commit {report['git']}, {report.get('date', 'no date')}"


def table(asked, report, before, work):
    """All rows of a report, and the quotients of their times."""
    rows, earlier = by_name(report), by_name(before)
    wanted = {(run["model"], name): least for run in asked["runs"] for name, least in run.get("wanted", {}).items()}
    device = report["device"]
    of = asked.get("wanted_of", device)
    peak = next((peak for name, peak in asked.get("peak_tflops", {}).items() if name in device), None)
    speeds, times = [], []
    for name, row in rows.items():
        now = row["tokens_per_s"]
        was = change(now, earlier[name]["tokens_per_s"] if name in earlier else None) if before else []
        speeds.append([" ".join(name), figure(now), *was, share(row, peak, work), *verdict(now, least=wanted.get(name))])
    for model, above, below, time in quotients(asked.get("times", []), rows):
        now = quotient(rows, model, above, below)
        was = change(now, quotient(earlier, model, above, below)) if before else []
        times.append([f"{model} {above} / {below}", figure(now), *was, *verdict(now, time.get("least"), time.get("most"))])
    # What is wanted of one device is neither met nor missed by another.
    shown = lambda line: [line[0].removeprefix("synthetic:"), *line[1:-1], line[-1] if of in device else ""]
    compared = ["before", "change"] if before else []
    text = [about(report), *([f"before: {about(before)}"] if before else []), ""]
    text += drawn(["row", "tokens/s", *compared, "share", f"wanted of {of}", "is"], map(shown, speeds))
    if times:
        text += ["", *drawn(["time of / time of", "quotient", *compared, f"wanted of {of}", "is"], map(shown, times))]
    text += [""] + [f"wanted, but not measured: {' '.join(name)}: ≥ {least:,}" for name, least in wanted.items() if name not in rows]
    return "\n".join(text)


def drawn(head, lines):
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines]]


def checks(told):
    """For each way of computing the logits: how many were computed and which are furthest off; then what the demo did."""
    lines = []
    for way, errors in told["logits"].items():
        numbers = {name: error for name, error in errors.items() if isinstance(error, float)}
        worst = max(numbers, key=numbers.get, default="-")
        furthest = f"{numbers[worst]:.1e} ({worst})" if numbers else "-"
        lines.append([way, f"{len(numbers)} of {len(errors)}", furthest])
    text = drawn(["logits", "computed", "largest relative L2"], lines)
    text += [f"{way}: {name}: {error}" for way, errors in told["logits"].items() for name, error in errors.items() if isinstance(error, str)]
    text += ["", *(f"{what}: {said}" for what, said in told.items() if what != "logits")]
    return "\n".join(text)
