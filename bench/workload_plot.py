#!/usr/bin/env python3
"""What bench/workloads.py --json wrote, as a picture: for each workload and dtype each contender's time over that of ipexrun, with its 95% interval.

    python bench/workload_plot.py results.json --out docs/workloads.svg

Wants matplotlib. Bars to the right of 1 are slower than ipexrun. The axis is logarithmic; a contender that did not run has no bar.
"""

import argparse
import json
import math
import statistics
import sys

import workloads

COLOURS = {"stock": "0.75", "eager": "#d8b365", "compile": "#5ab4ac", "openvino": "#7b6db0", "ipex": "#c7617c"}
NAMES = {"stock": "stock", "eager": "converted by hand", "compile": "torch.compile", "openvino": "OpenVINO", "ipex": "IPEX"}


def fastest(rows, column):
    """{group: (ratio, low, high)}: of each group's forms in that column the one with the least time."""
    found = {}
    for name, row in rows.items():
        group, ratio = name.split()[0], row["over_ipexrun"]
        if name.startswith("ipexrun") or not ratio or group != "stock" and row["column"] != column:
            continue
        if group not in found or row["ms"] < found[group][0]:
            found[group] = (row["ms"], (ratio["ratio"], *ratio["interval_95"]))
    return {group: ratio for group, (_, ratio) in found.items()}


def columns_of(results):
    """{column: {workload: {group: ratios}}} of what ran beside ipexrun there. Stock, which is float32, stands in both: its time over ours of that column."""
    columns = {}
    for column, mine in workloads.COLUMNS.items():
        for workload, found in results.items():
            rows = found["rows"]
            if mine not in rows:
                continue
            beside = fastest(rows, column)
            if column == "bf16" and "stock" in rows:  # its interval was taken beside float32
                beside["stock"] = (rows["stock"]["ms"] / rows[mine]["ms"],) * 3
            columns.setdefault(column, {})[workload] = beside
    return columns


def draw(columns, title, out):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "workloads"})  # text stays text; the same numbers make the same file
    from matplotlib import pyplot, ticker

    groups = [group for group in COLOURS if any(group in beside for rows in columns.values() for beside in rows.values())]
    count = max(len(rows) for rows in columns.values())
    every = [ratio for rows in columns.values() for beside in rows.values() for ratio in beside.values()]
    reach = (min(0.9, *(low for _, low, _ in every)), 1.25 * max(high for _, _, high in every))
    figure, panels = pyplot.subplots(1, len(columns), figsize=(5.2 * len(columns), 1.1 + 0.17 * count * (len(groups) + 1)), sharex=True, squeeze=False)
    height = 1 / (len(groups) + 1)
    for axes, (column, rows) in zip(panels[0], columns.items()):
        for place, beside in enumerate(rows.values()):
            for number, group in enumerate(groups):
                if group not in beside:
                    continue
                ratio, low, high = beside[group]
                y = place + (number - (len(groups) - 1) / 2) * height
                axes.barh(y, ratio - 1, left=1, height=0.9 * height, color=COLOURS[group], label=NAMES[group] if place == 0 else None)
                if high > low:
                    axes.plot([low, high], [y, y], color="0.2", linewidth=0.9)
                axes.annotate(f"{ratio:.2f}", (max(ratio, high, 1), y), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
        axes.set_yticks(range(len(rows)), [(workloads.WORKLOADS | workloads.LARGER).get(name, name) for name in rows], fontsize=9)
        axes.invert_yaxis()
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlim(*reach)
        axes.xaxis.set_major_locator(ticker.FixedLocator([0.5, 0.8, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24]))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        best = [min(ratio for ratio, _, _ in beside.values()) for beside in rows.values() if beside]
        mean = f"; the best of the others {math.exp(statistics.fmean(map(math.log, best))):.2f} in the geometric mean" if best else ""
        axes.set_title(f"{column}{mean}", fontsize=9)
        axes.set_xlabel("time over ipexrun's (right of 1: slower than ipexrun)", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    handles = dict(zip(*reversed(panels[0][0].get_legend_handles_labels())))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles), fontsize=8, frameon=False)
    if title:
        figure.suptitle(title, fontsize=10)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(out, dpi=110, metadata={"Date": None} if out.endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", help="JSON files of bench/workloads.py; a workload of a later file replaces that of an earlier one")
    parser.add_argument("--out", default="workloads.svg", help="picture; its suffix says the format")
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    results = {}
    for path in options.results:
        try:
            with open(path) as file:
                results |= json.load(file)
        except (OSError, ValueError) as problem:
            parser.error(f"{path}: {problem}")
    columns = columns_of(results)
    if not columns:
        parser.error(f"{', '.join(options.results)}: no workload in which ipexrun took part")
    try:
        draw(columns, options.title, options.out)
    except ImportError:
        parser.error("this Python has no matplotlib (pip install matplotlib)")
    print(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
