# SPDX-License-Identifier: Apache-2.0
"""The report of tools/bench: figures as JSON, as a page with plots, and as the table of docs/performance.md."""

from __future__ import annotations

import html
import json
import os
import platform
import re
from pathlib import Path

STYLE = """
body{font:14px sans-serif;margin:2em}td,th{padding:.3em .6em;text-align:left;vertical-align:top}
.scale{position:relative;width:16em;height:1em;background:#eee}
.scale b{position:absolute;height:100%}.met{background:#4a4}.missed{background:#c44}.plain{background:#48c}
.scale i{position:absolute;height:100%;border-left:2px solid #000}
figure{display:inline-block;margin:1em}
"""


def amount(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} "


def asked(figure: dict) -> str:
    if "tolerance" in figure:
        return f"1 ± {figure['tolerance']:g}"
    if "bar" not in figure:
        return ""
    return f"{'at most' if figure['better'] == 'lower' else 'at least'} {figure['bar']:g}"


def met(figure: dict) -> str:
    return {True: "met", False: "NOT MET", None: ""}[figure.get("met")]


def hits(figure: dict) -> str:
    return f"{100 * figure['hit_rate']:.4g} %" if "hit_rate" in figure else ""


def ratio(figure: dict) -> str:
    low, high = figure["ratio_quartiles"]
    spread = f" ({low:.3g} to {high:.3g}, {figure['n']})" if figure["n"] > 1 else ""
    return f"{figure['ratio']:.3g}{spread}"


def reference(figure: dict) -> str:
    return "; ".join(filter(None, (figure["reference_name"], figure.get("reference_options"))))


def without_plots(figure: dict) -> dict:
    return {key: value for key, value in figure.items() if key != "plots"}


def machine() -> dict[str, str]:
    """Describes the parts of the machine that figures depend on."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "processor": f"{os.cpu_count()} x {cpu}",
        "memory": f"{memory / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "transparent huge pages": open("/sys/kernel/mm/transparent_hugepage/enabled").read().strip(),
    }


# ---- Parts of the report ----


def write_plot(path: Path, plot: dict) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "embtier"  # the same plot gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    for name, points in plot["lines"].items():
        few = len(points) <= 20
        axes.plot(*zip(*points), label=name, marker="o" if few and len(points) > 2 else None, linewidth=1)
    axes.set(title=plot["title"], xlabel=plot["x"], ylabel=plot["y"])
    axes.set_ylim(bottom=0)
    if "%" in plot["x"]:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def write_plots(folder: Path, figures: list[dict]) -> list[Path]:
    paths = []
    for figure in figures:
        for plot in figure.get("plots", ()):
            name = re.sub(r"[^a-z0-9]+", "-", plot["title"].lower()).strip("-")
            paths.append(folder / f"{name}.svg")
            write_plot(paths[-1], plot)
    return paths


def table(figures: list[dict]) -> str:
    """Returns the table in the form of docs/performance.md."""
    lines = [f"* {key}: {value}" for key, value in machine().items()]
    lines += ["", "| figure | ours | the reference's | ratio (quartiles, n) | asked | hits | reference |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for figure in figures:
        cells = [
            figure["name"],
            f"{amount(figure['ours'])}{figure['unit']}",
            f"{amount(figure['reference'])}{figure['unit']}",
            ratio(figure),
            ", ".join(filter(None, (asked(figure), met(figure)))),
            hits(figure),
            reference(figure),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(figures: list[dict], plots: list[Path]) -> str:
    heads = ["figure", "ours", "reference", "ratio (quartiles, n)", "", "asked", "the reference", "the limit"]
    rows = []
    for figure in figures:
        bar = figure.get("bar")
        scale = 100 / max(figure["ratio"], bar or 1, 1)
        mark = f'<i style="left:{scale * bar:.2f}%"></i>' if bar else ""
        state = {True: "met", False: "missed", None: "plain"}[figure.get("met")]
        cells = [
            html.escape(figure["name"]),
            f"{amount(figure['ours'])}{figure['unit']}",
            f"{amount(figure['reference'])}{figure['unit']}",
            ratio(figure),
            f'<div class="scale"><b class="{state}" style="width:{scale * figure["ratio"]:.2f}%"></b>{mark}</div>',
            f"{asked(figure)} {met(figure)}",
            html.escape(reference(figure)),
            html.escape(figure.get("limit", "")),
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    about = "".join(f"<li>{html.escape(key)}: {html.escape(value)}</li>" for key, value in machine().items())
    drawn = "".join(f"<figure>{path.read_text().split('?>', 1)[1]}</figure>" for path in plots)
    return (
        f"<!doctype html><meta charset=utf-8><title>embtier: figures</title><style>{STYLE}</style>"
        f"<h1>embtier: figures</h1><ul>{about}</ul>"
        "<p>Ratios are ours over the reference's, medians over turns; the line is what is asked.</p>"
        f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{''.join(rows)}</table>{drawn}\n"
    )


def write(folder: Path, figures: list[dict]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "figures.jsonl", "w") as out:
        for figure in figures:
            out.write(json.dumps(figure) + "\n")
    plots = write_plots(folder, figures)
    (folder / "report.html").write_text(page(figures, plots))
    (folder / "report.md").write_text(table(figures))
