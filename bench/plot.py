#!/usr/bin/env python3
"""Draw what `measure_claims.py` has measured: seven figures, as SVG and PNG, each on light ground and on dark (`NAME-dark`).

    plot.py --data DIR --out docs/figures

Needs matplotlib. README.md says which file each figure is drawn from.
"""
import argparse
import csv
import json
import math
import pathlib
import re
import statistics

from common import fail

# Colours that the colour-blind tell apart (Okabe and Ito).
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
GREY, LIGHT = "#666666", "#DDDDDD"
# On dark ground, where they are not bright enough.
DARK = {BLACK: "#E6E6E6", BLUE: "#4DA3E0", VERMILLION: "#F0824A", GREEN: "#2FBF95", GREY: "#A8B0B8", LIGHT: "#3A4148"}
DARK_GROUND = "#0D1117"
STYLE = {"font.size": 9, "axes.labelsize": 9, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "legend.fontsize": 8.5,
         "svg.hashsalt": "megalith", "axes.linewidth": 0.7, "lines.linewidth": 1.3}
WIDTH = 6.3  # inches: the text of an A4 page
MODES = {"resident": (BLUE, "o", "-"), "graph": (GREEN, "s", "--"), "host": (VERMILLION, "^", ":")}
PERCENTILES = {"p50": (BLUE, "o", "-"), "p95": (GREEN, "s", "--"), "p99": (ORANGE, "D", "-."),
               "max": (VERMILLION, "^", ":")}
POLICIES = {"adaptive_speculative": "EMA", "adaptive_aimd": "AIMD", "adaptive_expected_gain": "gain"}
DEVICES = {"reference": "reference executor", "cpu": "CPU executor"}


class Missing(Exception):
    """A file, a column or a row that a figure needs."""


class Table:
    """The CSV of a sweep, or of `megalith bench`."""

    def __init__(self, folder, name):
        self.name, self.path = name, pathlib.Path(folder) / name
        try:
            with open(self.path, newline="") as file:
                reader = csv.DictReader(file)
                self.rows = list(reader)
                self.columns = reader.fieldnames or []
        except OSError as error:
            raise Missing(f"{self.path}: {error.strerror}; bench/measure_claims.py makes it") from None
        if not self.rows:
            raise Missing(f"{self.path}: it has no rows")

    @property
    def unit(self):
        return "ms" if "ttft_p50_ms" in self.columns else "ticks"

    def need(self, *names):
        """These columns are there, and filled."""
        for name in names:
            if name not in self.columns:
                raise Missing(f"{self.path}: there is no column `{name}`")
            if not any(row[name] for row in self.rows):
                raise Missing(f"{self.path}: nothing is in the column `{name}`"
                              + ("; a GPU fills it" if self.unit == "ticks" else ""))

    def values(self, name):
        """Each once, in order; numbers by size."""
        found = list(dict.fromkeys(row[name] for row in self.rows))
        return sorted(found, key=int) if all(value.isdigit() for value in found) else found

    def numbers(self, name, **where):
        """Of all repeats."""
        return [float(row[name]) for row in self.rows
                if row[name] and all(row[key] == value for key, value in where.items())]

    def number(self, name, **where):
        """The median of all repeats; None where there is none."""
        found = self.numbers(name, **where)
        return statistics.median(found) if found else None

    def subtitle(self, *more):
        """Device, shape, context, tokens, and whether drafts were synthetic."""
        row = self.rows[0]
        parts = [row["device_name"] or DEVICES.get(row["device"], row["device"]), row["shape"],
                 f"context {', '.join(self.values('context'))}",
                 f"{', '.join(self.values('tokens_per_request'))} new tokens a request", *more]
        if any(value != "none" for value in self.values("synthetic_acceptance")):
            parts.append("synthetic drafts")
        return ", ".join(parts)


class Run:
    """A trace, and what measure_claims.py says of it."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "blocks.jsonl"
        about = pathlib.Path(folder) / "blocks.json"
        try:
            self.about = json.loads(about.read_text())
            lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        except OSError as error:
            raise Missing(f"{error.filename}: {error.strerror}; bench/measure_claims.py makes it") from None
        except ValueError as error:
            raise Missing(f"{self.path}: not the JSON lines of a trace: {error}") from None
        if not lines or "megalith_trace" not in lines[0] or "results" not in lines[-1]:
            raise Missing(f"{self.path}: not a whole trace")
        self.ticks, self.results = lines[1:-1], lines[-1]["results"]
        for key in ("device", "shape", "pages", "page_tokens", "watermark", "acceptance"):
            if key not in self.about:
                raise Missing(f"{about}: there is no member `{key}`")

    def gauge(self, name, needed=True):
        """Value of a gauge by request and tick."""
        found = {}
        for tick in self.ticks:
            for slot in tick["slots"]:
                if name in slot.get("trace", {}):
                    found.setdefault(slot["request"], {})[tick["tick"]] = float(slot["trace"][name])
        if needed and not found:
            raise Missing(f"{self.path}: no tick has the gauge `{name}`")
        return found

    def pressure(self):
        """Ticks under pressure, as the kernel saw it."""
        gauge = self.gauge("kv.target.pressure")
        return sorted({tick for values in gauge.values() for tick, value in values.items() if value})

    def blocks(self):
        """By request and tick: drafts proposed, and how many of them were right. A block's rows follow each other: the token
        before it, then the drafts."""
        found = {}
        for tick in self.ticks:
            requests = {slot["slot"]: slot["request"] for slot in tick["slots"]}
            for rows in (each["rows"] for each in tick["passes"]):
                own = {}
                for slot, token, _, _, _, _, flags, result in rows:
                    if flags & 2 and slot in requests:
                        own.setdefault(requests[slot], []).append((token, result))
                for request, fed in own.items():
                    right = 0
                    while right + 1 < len(fed) and fed[right + 1][0] == fed[right][1]:
                        right += 1
                    found.setdefault(request, {})[tick["tick"]] = (len(fed) - 1, right)
        if not found:
            raise Missing(f"{self.path}: nothing was proposed in it")
        return found

    def alpha(self, request):
        """The acceptance that was asked of a request; "" where that is not known."""
        profile = self.about["acceptance"]
        if not profile or ":" in profile:
            return ""
        parts = profile.split(",")
        return parts[request % len(parts)]

    def subtitle(self):
        about = self.about
        return (f"{about['device']}, {about['shape']}, {len(self.results)} requests"
                f"{', 8 slots' if about.get('slots') == 8 else ''}, {about['pages']} pages of "
                f"{about['page_tokens']} positions"
                + (", synthetic drafts" if about["acceptance"] else ""))


def start(rows=1, columns=1, height=2.6, **options):
    import matplotlib.pyplot as plot
    figure, axes = plot.subplots(rows, columns, figsize=(WIDTH, height), squeeze=False,
                                 layout="constrained", **options)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_axisbelow(True)
    return figure, axes


def head(figure, title, subtitle):
    """Title and subtitle, left-aligned above all."""
    import textwrap
    lines = textwrap.wrap(subtitle, 96)
    inches = figure.get_figheight()
    extra = 0.36 + 0.16 * len(lines)
    figure.set_figheight(inches + extra)
    figure.get_layout_engine().set(rect=(0, 0, 1, inches / (inches + extra)))
    figure.text(0.01, 1 - 0.05 / (inches + extra), title, fontsize=11, weight="bold", va="top")
    figure.text(0.01, 1 - 0.28 / (inches + extra), "\n".join(lines), fontsize=8.5, color=GREY, va="top")


def grid(axis, which="y"):
    axis.grid(axis=which, color=LIGHT, linewidth=0.6)


def from_zero(axes):
    """Of axes that share their scale, when all is drawn."""
    axes[0].set_ylim(0, max(axis.get_ylim()[1] for axis in axes))


def short(name):
    return name.replace("_", " ")


def eager_launches(folder, table, batch):
    """Of kernels, for each token of PyTorch's eager step, where control_modes.py has counted them; else None."""
    path = pathlib.Path(folder) / "control_modes.json"
    if not path.exists():
        return None
    shapes = table.values("shape")
    return next((row["launches_per_step"] for row in json.loads(path.read_text())["rows"]
                 if row["control"] == "PyTorch eager" and row["shape"] in shapes and str(row["batch"]) == batch), None)


def draw_launches(folder):
    table = Table(folder, "control.csv")
    names = ("host_kernel_launches", "host_synchronizations")
    table.need("control", *names)
    pipelines = table.values("pipeline")
    modes = [mode for mode in ("host", "graph", "resident") if mode in table.values("control")]
    batch = table.values("requests")[-1]
    figure, axes = start(1, len(pipelines), 2.5, sharey=True)
    eager = eager_launches(folder, table, batch)
    for axis, pipeline in zip(axes[0], pipelines):
        # Eager PyTorch decodes plainly.
        shown = modes if not eager or any(table.numbers("tokens_proposed", pipeline=pipeline)) else ["PyTorch\neager", *modes]
        for number, (name, label, colour) in enumerate(zip(names, ("launches", "synchronisations"), (BLUE, ORANGE))):
            heights = [table.number(name, pipeline=pipeline, control=mode, requests=batch) or 0 for mode in modes]
            if len(shown) > len(modes):
                heights.insert(0, eager * int(table.values("tokens_per_request")[-1]) if number == 0 else math.nan)
            bars = axis.bar([i + 0.4 * number - 0.2 for i in range(len(shown))], heights, 0.38, color=colour, label=label)
            axis.bar_label(bars, [f"{int(height):,}" if height == height else "" for height in heights], fontsize=8, padding=1)
        axis.set_yscale("log")
        axis.set_ylim(0.7, axis.get_ylim()[1] * 3)
        axis.set_xticks(range(len(shown)), shown)
        axis.set_title(short(pipeline), fontsize=9)
        grid(axis)
    axes[0][0].set_ylabel("calls of a run (log)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    head(figure, "Launches and synchronisations of a run, by who keeps the loop", table.subtitle(f"batch {batch}"))
    return figure


def draw_times(table, axes, floor):
    """Time between tokens by mode and batch: an axis for each pipeline."""
    column = f"tpot_{table.unit}"
    table.need("control", "tokens_proposed", column)
    batches = table.values("requests")
    for axis, pipeline in zip(axes, table.values("pipeline")):
        for mode, (colour, marker, line) in MODES.items():
            found = [(i, sorted(table.numbers(column, pipeline=pipeline, control=mode, requests=batch)))
                     for i, batch in enumerate(batches)]
            found = [(i, values) for i, values in found if values]
            if not found:
                continue
            middle = [statistics.median(values) for _, values in found]
            axis.errorbar([i for i, _ in found], middle,
                          [[m - v[0] for m, (_, v) in zip(middle, found)], [v[-1] - m for m, (_, v) in zip(middle, found)]],
                          color=colour, marker=marker, linestyle=line, markersize=4, capsize=2, label=mode)
        # A pass gives a request one token where nothing is proposed, so that there the floor is one.
        if floor and not any(table.numbers("tokens_proposed", pipeline=pipeline)):
            found = [(i, floor.number("floor_ms", batch=batch)) for i, batch in enumerate(batches)]
            found = [(i, value) for i, value in found if value is not None]
            axis.plot(*zip(*found), color=GREY, linestyle=(0, (1, 2)), label="floor: reading weights, K and V")
        axis.set_xticks(range(len(batches)), batches)
        axis.set_title(f"{table.values('shape')[0]}, {short(pipeline)}", fontsize=9)
        grid(axis)
    from_zero(axes)
    axes[0].set_ylabel(f"{table.unit} per token\nof a request")


def draw_time_per_token(folder):
    tables = [Table(folder, "control.csv")]
    if (pathlib.Path(folder) / "control-demo.csv").exists():
        tables.append(Table(folder, "control-demo.csv"))
    floor = Table(folder, "bench.csv") if tables[0].unit == "ms" else None
    if floor:
        floor.need("batch", "floor_ms")
    figure, axes = start(len(tables), len(tables[0].values("pipeline")), 0.4 + 2.1 * len(tables), sharey="row", sharex=True)
    for table, row in zip(tables, axes):
        draw_times(table, row, floor if table is tables[0] else None)
    for axis in axes[-1]:
        axis.set_xlabel("requests")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    repeats = len(tables[0].values("repeat"))
    subtitle = tables[0].subtitle(f"median{f', least and most of {repeats} runs' if repeats > 1 else ''}")
    head(figure, "Time between tokens, by who keeps the loop", subtitle.replace(f"{tables[0].values('shape')[0]}, ", ""))
    return figure


def mark_pressure(axis, ticks, **options):
    """Shades the ticks; neighbours are one span."""
    spans = []
    for tick in ticks:
        if spans and tick <= spans[-1][1]:
            spans[-1][1] = tick + 1
        else:
            spans.append([tick, tick + 1])
    for first, last in spans:
        axis.axvspan(first, last, linewidth=0, **options)
    return len(ticks)


def draw_blocks(folder):
    run = Run(folder)
    blocks, pressure = run.blocks(), run.pressure()
    last = run.ticks[-1]["tick"] + 1
    most = max(proposed for by_tick in blocks.values() for proposed, _ in by_tick.values())
    count = len(run.results)
    figure, axes = start(2, 1, 0.9 + 0.2 * count, sharex=True, gridspec_kw={"height_ratios": [0.7, count]})
    band, axis = axes[0][0], axes[1][0]
    mark_pressure(band, pressure, color=VERMILLION)
    band.set_yticks([0.5], ["pressure"])
    band.set_ylim(0, 1)
    band.tick_params(length=0)
    band.spines[:].set_visible(False)
    band.axhline(0, color=LIGHT, linewidth=0.8)
    import matplotlib
    colours = matplotlib.colormaps["viridis"].resampled(most + 1)
    cells = [[blocks.get(request, {}).get(tick, (float("nan"),))[0] for tick in range(last)]
             for request in range(count)]
    image = axis.pcolormesh(range(last + 1), range(count + 1), cells, cmap=colours, vmin=-0.5, vmax=most + 0.5,
                            rasterized=True)
    axis.set_yticks([i + 0.5 for i in range(count)],
                    [f"{i} (α {run.alpha(i)})" if run.alpha(i) else str(i) for i in range(count)])
    axis.invert_yaxis()
    axis.set_ylabel("request")
    axis.set_xlabel("tick")
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=30, ticks=range(most + 1))
    bar.set_label("drafts proposed")
    head(figure, "Block size of each request over time", run.subtitle() + ". Empty: nothing is verified")
    return figure


def draw_acceptance(folder):
    run = Run(folder)
    blocks, ema = run.blocks(), run.gauge("block_size.ema")
    alphas = list(dict.fromkeys(run.alpha(request) for request in sorted(blocks)))
    # Of each kind the one that takes longest.
    chosen = [max((r for r in sorted(blocks) if run.alpha(r) == alpha), key=lambda r: len(blocks[r]))
              for alpha in alphas][:3]
    figure, axes = start(len(chosen), 1, 1.35 * len(chosen) + 0.7, sharex=True)
    for axis, request in zip(axes.flat, chosen):
        points = [(tick, right / proposed) for tick, (proposed, right) in sorted(blocks[request].items()) if proposed]
        axis.scatter(*zip(*points), s=9, color=SKY, edgecolors=BLUE, linewidths=0.4, label="accepted of proposed, a verify")
        line = sorted(ema.get(request, {}).items())
        axis.plot(*zip(*line), color=VERMILLION, linewidth=1.3, label="moving average (ema)")
        axis.set_ylim(-0.05, 1.05)
        axis.set_yticks([0, 0.5, 1])
        axis.set_title(f"request {request}" + (f", drafts right with α = {run.alpha(request)}" if run.alpha(request) else ""),
                       fontsize=9, loc="left")
        axis.set_ylabel("acceptance")
        grid(axis)
    axes[-1][0].set_xlabel("tick")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    head(figure, "Acceptance, and the average that the policy goes by", run.subtitle())
    return figure


def draw_pages(folder):
    run = Run(folder)
    pressure = run.pressure()
    size, total = run.about["page_tokens"], run.about["pages"]
    ticks = [tick["tick"] for tick in run.ticks] + [run.ticks[-1]["tick"] + 1]
    valid, draft = [], []
    for tick in run.ticks:
        tables = [kv for slot in tick["slots"] for kv in slot["kv"]]
        needed = sum(min(len(kv["pages"]), -(-kv["len"] // size)) for kv in tables)
        valid.append(needed)
        draft.append(sum(len(kv["pages"]) for kv in tables) - needed)
    valid.append(valid[-1])  # the last step has an end
    draft.append(draft[-1])
    figure, axes = start(1, 1, 2.9)
    axis = axes[0][0]
    axis.stackplot(ticks, valid, draft, [total - v - d for v, d in zip(valid, draft)], colors=(BLUE, ORANGE, LIGHT),
                   labels=("live: committed tokens", "live: rejected or unverified drafts only", "free"), step="post")
    axis.axhline(run.about["watermark"] * total, color=BLACK, linestyle="--", linewidth=0.9)
    axis.annotate(f"watermark {run.about['watermark']:.0%}", (0.995, run.about["watermark"] * total),
                  xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points", fontsize=8.5, ha="right")
    mark_pressure(axis, pressure, ymin=0.97, ymax=1, color=VERMILLION)
    axis.plot([], [], color=VERMILLION, linewidth=4, label="pressure")
    axis.set_xlim(ticks[0], ticks[-1])
    axis.set_ylim(0, total * 1.04)
    axis.set_xlabel("tick")
    axis.set_ylabel("pages")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, columnspacing=1)
    head(figure, "Pages of the KV pool over time", run.subtitle())
    return figure


def draw_latencies(folder):
    """Percentiles that are equal must not hide each other: those of a batch stand side by side. The first and the third have
    their numbers."""
    table = Table(folder, "latency.csv")
    rows = {"ttft": "first token", "itl": "between appends"}
    table.need(*(f"{name}_{p}_{table.unit}" for name in rows for p in PERCENTILES))
    pipelines, batches = table.values("pipeline"), table.values("requests")
    figure, axes = start(len(pipelines), 2, 1.75 * len(pipelines), sharex=True, sharey="col")
    for line, pipeline in zip(axes, pipelines):
        for axis, (name, label) in zip(line, rows.items()):
            of = {p: [table.number(f"{name}_{p}_{table.unit}", pipeline=pipeline, requests=batch) for batch in batches]
                  for p in PERCENTILES}
            for place, (percentile, (colour, marker, _)) in enumerate(PERCENTILES.items()):
                found = [(i + 0.17 * (place - 1.5), value) for i, value in enumerate(of[percentile]) if value is not None]
                axis.plot(*zip(*found), color=colour, marker=marker, linestyle="", markersize=4, label=percentile)
            for i, (middle, late) in enumerate(zip(of["p50"], of["p99"])):
                texts = [f"{value:#.3g}".rstrip(".") for value in (middle, late) if value is not None]
                for value, text, side in zip((middle, late), texts, (-1, 1)):
                    if side > 0 and text == texts[0]:
                        continue  # once is enough
                    axis.annotate(text, (i, value), xytext=(0, 4.5 * side), textcoords="offset points", fontsize=7,
                                  ha="center", va="bottom" if side > 0 else "top", color=GREY)
            grid(axis)
            axis.tick_params(axis="x", length=0)
            axis.set_title(f"{short(pipeline)}: {label}, {table.unit}{' (log)' if name == 'ttft' else ''}", fontsize=9, loc="left")
    values = {axis: [value for a in axes[:, column] for line in a.get_lines() for value in line.get_ydata()]
              for column, axis in enumerate(axes[0])}
    first, between = axes[0]
    first.set_yscale("log")
    low, high = (10 ** turn(math.log10(of(values[first]))) for turn, of in ((math.floor, min), (math.ceil, max)))
    first.set_ylim(low / 2.5, high * 1.6)  # there are numbers beyond
    first.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    first.minorticks_off()
    between.set_ylim(0, 1.2 * max(values[between]))
    for axis in axes[-1]:
        axis.set_xticks(range(len(batches)), batches)
        axis.set_xlim(-0.6, len(batches) - 0.4)
        axis.set_xlabel("requests at once")
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    head(figure, "Latency to the first token and between tokens: percentiles", table.subtitle("numbers: p50 and p99"))
    return figure


def darkened(svg):
    """A figure on dark ground. Black is what nothing is said of; numbers on the cells of a map stay as they are."""
    svg = svg.replace('version="1.1">', f'version="1.1" fill="{DARK[BLACK]}">', 1)
    for old, new in DARK.items():
        svg = svg.replace(old.lower(), new.lower())
    svg = svg.replace('style="fill: #ffffff"/>', f'style="fill: {DARK_GROUND}"/>').replace("stroke: #ffffff", f"stroke: {DARK_GROUND}")
    if "<!-- fixed block, or policy -->" in svg:
        svg = re.sub(r'(<g id="text_\d+">\s*<!-- (?:\d+\.\d\d|–) -->\s*<g )(?=transform="[^"]*scale\(0\.08 )', r'\1fill="#000000" ', svg)
    return svg


def mixed(profile):
    """It asks other acceptance of other requests."""
    return "," in profile and ":" not in profile


def profile_name(profile):
    parts = profile.split(",")
    return f"half {parts[0]},\nhalf {parts[1]}" if mixed(profile) and len(parts) == 2 else profile


def draw_speedup(folder):
    table = Table(folder, "acceptance.csv")
    table.need("speedup_vs_plain", "param_block", "synthetic_acceptance")
    # With several batches the first and the last are drawn.
    batches = list(dict.fromkeys(table.values("requests")[i] for i in (0, -1)))
    kinds = [(row["pipeline"], row["param_block"]) for row in table.rows if row["synthetic_acceptance"] != "none"]
    kinds = sorted(dict.fromkeys(kinds), key=lambda kind: (not kind[1], int(kind[1] or 0), [*POLICIES, kind[0]].index(kind[0])))
    profiles = [value for value in table.values("synthetic_acceptance") if value != "none"]
    profiles.sort(key=lambda text: (len(text.split(",")), -float(text.split(",")[0].split(":")[0])))
    figure, axes = start(1, len(batches), 0.9 + 0.3 * len(profiles), sharey=True)
    maps = {}
    for batch in batches:
        # One request alone is no mixture.
        maps[batch] = [[float("nan") if batch == "1" and mixed(profile) else
                        table.number("speedup_vs_plain", pipeline=pipeline, param_block=block, requests=batch,
                                     synthetic_acceptance=profile) or float("nan") for pipeline, block in kinds]
                       for profile in profiles]
    found = [abs(math.log2(value)) for cells in maps.values() for line in cells for value in line if value == value]
    reach = 2 ** math.ceil(max(found, default=1) or 1)
    import matplotlib
    norm = matplotlib.colors.LogNorm(1 / reach, reach)
    for axis, (batch, cells) in zip(axes[0], maps.items()):
        image = axis.pcolormesh(cells, cmap="PuOr_r", norm=norm, edgecolors="white", linewidth=1)
        for y, line in enumerate(cells):
            best = max((value for value in line if value == value), default=None)
            for x, value in enumerate(line):
                if value != value:
                    axis.text(x + 0.5, y + 0.5, "–", ha="center", va="center", fontsize=8, color=GREY)
                else:
                    dark = abs(math.log2(value)) > 0.6 * math.log2(reach)
                    axis.text(x + 0.5, y + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=8,
                              color="white" if dark else "black", weight="bold" if value == best else "normal")
        axis.set_xticks([i + 0.5 for i in range(len(kinds))],
                        [block or POLICIES.get(pipeline, short(pipeline).replace(" ", "\n")) for pipeline, block in kinds])
        axis.set_yticks([i + 0.5 for i in range(len(profiles))], [profile_name(profile) for profile in profiles])
        axis.set_ylim(len(profiles), 0)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_xlabel("fixed block, or policy")
        axis.set_title(f"batch {batch}", fontsize=9)
    axes[0][0].set_ylabel("α: drafts that are right")
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=25, ticks=[1 / reach, 1, reach])
    bar.ax.set_yticklabels([f"1/{reach}", "1", f"{reach}"])
    bar.ax.minorticks_off()
    bar.set_label("speed-up")
    by = "" if table.unit == "ms" else "in ticks, "
    head(figure, "Speed-up over plain decoding, by acceptance and block",
         table.subtitle(f"{by}bold: best of its row"))
    return figure


FIGURES = {"launches": draw_launches, "time-per-token": draw_time_per_token, "blocks": draw_blocks,
           "acceptance": draw_acceptance, "pages": draw_pages, "latencies": draw_latencies, "speedup": draw_speedup}


def names(text):
    wanted = text.split(",")
    unknown = [name for name in wanted if name not in FIGURES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no figure `{', '.join(unknown)}`; there are {', '.join(FIGURES)}")
    return wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="bench-results", help="folder of the inputs (default bench-results)")
    parser.add_argument("--out", default="docs/figures", help="folder of the figures (default docs/figures)")
    parser.add_argument("--darken", action="store_true", help="make NAME-dark.svg of the figures that are in --out; draws none")
    parser.add_argument("--only", type=names, default=list(FIGURES), metavar="NAME,...",
                        help=f"of {', '.join(FIGURES)}; default all")
    args = parser.parse_args()
    if args.darken:
        for name in args.only:
            light = pathlib.Path(args.out) / f"{name}.svg"
            try:
                light.with_name(f"{name}-dark.svg").write_text(darkened(light.read_text()))
            except OSError as error:
                fail(f"{error.filename}: {error.strerror} (--out)")
        return
    try:
        import matplotlib
    except ImportError:
        fail("plot.py needs matplotlib: `pip install matplotlib`")
    matplotlib.use("Agg")
    matplotlib.rcParams.update(STYLE)
    out = pathlib.Path(args.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in args.only:
            figure = FIGURES[name](args.data)
            light = out / f"{name}.svg"
            figure.savefig(light, metadata={"Date": None, "Creator": None})
            figure.savefig(out / f"{name}.png", dpi=200, metadata={"Software": None})
            matplotlib.pyplot.close(figure)
            (out / f"{name}-dark.svg").write_text(darkened(light.read_text()))
    except Missing as error:
        fail(error)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror} (--out)")
    print(f"{len(args.only)} figures in {out}")


if __name__ == "__main__":
    main()
