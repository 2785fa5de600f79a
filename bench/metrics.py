"""Formats the Markdown table of a report: metrics, their share of the hardware limit, and their targets."""

import json

CHUNK = 2048  # the most tokens that `refrain explain --prompt` accepts


class Work:
    """Counts the multiplications of prompts with `refrain explain`, which needs neither weights nor the device."""

    def __init__(self, program):
        self.program, self.cache = program, {}

    def chunk(self, row, tokens, depth):
        # The count does not depend on the format.
        key = (row["arch"], row["parameters"], tokens, depth)
        if key not in self.cache:
            command = ["explain", row["model"], "--prompt", tokens, "--depth", depth, "--json"]
            output = self.program.run(*command, device="null", seconds=20)
            self.cache[key] = json.loads(output)["token"]["multiplications"]
        return self.cache[key]

    def of(self, row):
        """Multiplications of a whole prompt: later chunks attend to earlier ones."""
        tokens = int(row["test"][2:])
        chunks = ((min(CHUNK, tokens - at), row["depth"] + at) for at in range(0, tokens, CHUNK))
        return row["batch"] * sum(self.chunk(row, *chunk) for chunk in chunks)


def test_name(row):
    """Name of a row within its model, such as `tg64 d256 b8`."""
    depth = f" d{row['depth']}" if row["depth"] else ""
    return row["test"] + depth + (f" b{row['batch']}" if row["batch"] > 1 else "")


def by_name(report):
    """Rows by model and test name; the latest row of each."""
    return {(row["model"], test_name(row)): row for row in report["rows"]} if report else {}


def step_ms(row):
    """Milliseconds of a whole prompt, or of one decode step."""
    return row["ms_per_token"] * (int(row["test"][2:]) if row["test"].startswith("pp") else 1)


def ratios(times, rows):
    """Yields the time ratios that the table lists, as (model, numerator row, denominator row, entry of the table)."""
    for time in times:
        model = time["model"]
        if "batches" in time:
            batches = sorted(row["batch"] for (of, _), row in rows.items() if of == model and test_name({**row, "batch": 1}) == time["batches"])
            names = [time["batches"] + (f" b{batch}" if batch > 1 else "") for batch in batches]
            pairs = list(zip(names[1:], names))
        else:
            pairs = [(time["of"], time["over"])]
        for of, over in pairs:
            if (model, of) in rows and (model, over) in rows:
                yield model, of, over, time


def ratio(rows, model, of, over):
    if (model, of) in rows and (model, over) in rows:
        return step_ms(rows[model, of]) / step_ms(rows[model, over])


def share(row, peak, work):
    """Share of the hardware limit: memory bandwidth for decode, TFLOP/s for prompts."""
    if row["bandwidth_share"]:
        return f"{100 * row['bandwidth_share']:.0f} % of bandwidth"
    if peak and row["test"].startswith("pp"):
        try:
            tflops = 2 * work.of(row) / step_ms(row) / 1e9
        except RuntimeError:
            return ""
        return f"{100 * tflops / peak:.0f} % of {peak} TFLOP/s"
    return ""


def change(now, earlier):
    return ["-", "-"] if earlier is None else [format_number(earlier), f"{100 * (now / earlier - 1):+.1f} %"]


def format_number(number):
    return f"{number:,.0f}" if number >= 1000 else f"{number:.1f}" if number >= 20 else f"{number:.2f}"


def verdict(now, minimum=None, maximum=None):
    """The target as text, and whether it is met."""
    if minimum is None and maximum is None:
        return ["", ""]
    met = (minimum is None or now >= minimum) and (maximum is None or now <= maximum)
    if maximum is None:
        target = f"≥ {minimum:,}"
    elif minimum is None:
        target = f"≤ {maximum:,}"
    else:
        target = f"{minimum:,} to {maximum:,}"
    return [target, "met" if met else "missed"]


def describe(report):
    """The device and the commit that were measured."""
    driver = (report.get("vulkan") or {}).get("driver")
    device = report["device"] + (f", {driver}" if driver else "")
    return f"{device}, read bandwidth {report['probe_gbps']:,.0f} GB/s; commit {report['git']}, {report.get('date', 'no date')}"


def table(settings, report, before, work):
    """The Markdown table of all rows of a report and of their time ratios."""
    rows, earlier = by_name(report), by_name(before)
    targets = {(run["model"], name): target for run in settings["runs"] for name, target in run.get("wanted", {}).items()}
    device = report["device"]
    target_device = settings.get("wanted_of", device)
    peak = next((peak for name, peak in settings.get("peak_tflops", {}).items() if name in device), None)
    speeds, times = [], []
    for name, row in rows.items():
        now = row["tokens_per_s"]
        was = change(now, earlier[name]["tokens_per_s"] if name in earlier else None) if before else []
        speeds.append([" ".join(name), format_number(now), *was, share(row, peak, work), *verdict(now, minimum=targets.get(name))])
    for model, above, below, time in ratios(settings.get("times", []), rows):
        now = ratio(rows, model, above, below)
        was = change(now, ratio(earlier, model, above, below)) if before else []
        times.append([f"{model} {above} / {below}", format_number(now), *was, *verdict(now, time.get("least"), time.get("most"))])
    # Targets of one device are neither met nor missed by another.
    shown = lambda line: [line[0].removeprefix("synthetic:"), *line[1:-1], line[-1] if target_device in device else ""]
    compared = ["before", "change"] if before else []
    text = [describe(report), *([f"before: {describe(before)}"] if before else []), ""]
    text += markdown(["row", "tokens/s", *compared, "share of limit", f"target on {target_device}", "result"], map(shown, speeds))
    if times:
        text += ["", *markdown(["time of / time of", "ratio", *compared, f"target on {target_device}", "result"], map(shown, times))]
    text += [""] + [f"target not measured: {' '.join(name)}: ≥ {target:,}" for name, target in targets.items() if name not in rows]
    return "\n".join(text)


def markdown(head, lines):
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines]]


def checks(results):
    """Formats check results: per mode the number of logits files and the largest error, then the checks on the demo."""
    lines = []
    for mode, errors in results["logits"].items():
        numbers = {name: error for name, error in errors.items() if isinstance(error, float)}
        worst = max(numbers, key=numbers.get, default="-")
        largest = f"{numbers[worst]:.1e} ({worst})" if numbers else "-"
        lines.append([mode, f"{len(numbers)} of {len(errors)}", largest])
    text = markdown(["logits", "computed", "largest relative L2"], lines)
    text += [f"{mode}: {name}: {error}" for mode, errors in results["logits"].items() for name, error in errors.items() if isinstance(error, str)]
    text += ["", *(f"{check}: {result}" for check, result in results.items() if check != "logits")]
    return "\n".join(text)
