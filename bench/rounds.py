"""Whole commands against each other, interleaved: round by round, every second round in reverse order (ABBA)."""

import random
import statistics
import sys


def run_rounds(variants, rounds, measure, say=True, after=None):
    """{variant: [figure of round 0, round 1, ...]}; measure(variant) returns samples/s or None (failed: the round counts for nobody).

    after(number, found, figures) is called after each round that counts, with the round's figures and all so far."""
    figures = {variant: [] for variant in variants}
    for number in range(rounds):
        order = list(variants) if number % 2 == 0 else list(reversed(variants))
        found = {}
        for place, variant in enumerate(order):
            if say and sys.stderr.isatty():
                print(f"\r\033[Kround {number + 1} of {rounds}: {variant} ({place + 1} of {len(order)})", end="", file=sys.stderr, flush=True)
            found[variant] = measure(variant)
        if None in found.values():
            failed = [variant for variant, figure in found.items() if figure is None]
            print(f"\nround {number + 1} is left out, no figure from: {', '.join(failed)}", file=sys.stderr)
            continue
        for variant, figure in found.items():
            figures[variant].append(figure)
        if after:
            after(number, found, figures)
    if say and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return figures


def ratio(figures, variant, base):
    """Median of the paired ratios variant / base, with a bootstrap interval of 95% (percentile method, fixed seed)."""
    pairs = [mine / other for mine, other in zip(figures[variant], figures[base])]
    if not pairs:
        return None
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(pairs, k=len(pairs))) for _ in range(2000))
    return {"ratio": round(statistics.median(pairs), 3), "interval_95": [round(medians[49], 3), round(medians[1949], 3)], "pairs": len(pairs)}


def table(figures, base, width=34):
    lines = [f"{'':{width}}  {'samples/s':>10}  {'lowest':>8}  {'highest':>8}  ratio to {base} (95%)"]
    for variant, seen in figures.items():
        if not seen:
            lines.append(f"{variant:{width}}  no figure")
            continue
        r = ratio(figures, variant, base)
        spread = "" if variant == base else f"{r['ratio']:.2f} ({r['interval_95'][0]:.2f} to {r['interval_95'][1]:.2f})"
        lines.append(f"{variant:{width}}  {statistics.median(seen):10.1f}  {min(seen):8.1f}  {max(seen):8.1f}  {spread}".rstrip())
    return "\n".join(lines)
