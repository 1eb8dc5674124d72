"""Does memory grow? A line through the second half of a run, and how sure one can be of its slope.

Samples one after the other are not independent (what a round left behind stays for some rounds), so the half is cut into BATCHES of equal
length; the line goes through their medians, and the interval is that of a regression over so many points.
"""

import math
import statistics

BATCHES = 20
LEAST_BATCHES = 15  # a round that took long leaves some of them empty
STUDENT = 2.16  # 97.5% quantile of Student's t with LEAST_BATCHES - 2 degrees of freedom
STUDENT_OF_TWO = 2.06  # with twice as many, for a difference
SAMPLES_PER_BATCH = 3  # on average


def second_half(samples):
    """[(minute, value)] -> those of the second half of the time."""
    middle = (samples[0][0] + samples[-1][0]) / 2
    return [one for one in samples if one[0] >= middle]


def batches(samples):
    """Medians of BATCHES pieces of equal length; None when there are too few to speak of."""
    first, length = samples[0][0], samples[-1][0] - samples[0][0]
    pieces = [[] for _ in range(BATCHES)]
    for at, value in samples:
        pieces[min(int((at - first) / length * BATCHES), BATCHES - 1)].append((at, value))
    points = [(statistics.fmean(at for at, _ in piece), statistics.median(value for _, value in piece)) for piece in pieces if piece]
    return points if len(points) >= LEAST_BATCHES and len(samples) >= BATCHES * SAMPLES_PER_BATCH else None


def slope(samples):
    """{slope, error, low, high} in units a minute over the second half, with a 95% interval; None when there is too little."""
    if len(samples) < 2 * BATCHES * SAMPLES_PER_BATCH or samples[-1][0] <= samples[0][0]:
        return None
    points = batches(second_half(samples))
    if points is None:
        return None
    mean_at, mean = statistics.fmean(at for at, _ in points), statistics.fmean(value for _, value in points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    rise = sum((at - mean_at) * (value - mean) for at, value in points) / spread
    rest = sum((value - mean - rise * (at - mean_at)) ** 2 for at, value in points)
    error = math.sqrt(rest / (len(points) - 2) / spread)
    return {"slope": rise, "error": error, "low": rise - STUDENT * error, "high": rise + STUDENT * error}


def difference(one, other):
    """The same for one slope less another."""
    rise, error = one["slope"] - other["slope"], math.hypot(one["error"], other["error"])
    return {"slope": rise, "error": error, "low": rise - STUDENT_OF_TWO * error, "high": rise + STUDENT_OF_TWO * error}


def judge(subject, control, limit):
    """"leak": certainly steeper than the limit, by itself and against the control. "flat": certainly not. "undecided": run longer."""
    if subject is None:
        return "not judged"
    looks = [subject] + ([difference(subject, control)] if control else [])
    if all(one["low"] > limit for one in looks):
        return "leak"
    return "flat" if any(one["high"] <= limit for one in looks) else "undecided"


def plot(samples, width=64, height=8):
    """[(minute, value)] as lines of text, values in MiB."""
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return []
    start, length = samples[0][0], samples[-1][0] - samples[0][0]
    columns = [[] for _ in range(width)]
    for at, value in samples:
        columns[min(int((at - start) / length * width), width - 1)].append(value)
    means = [statistics.fmean(column) if column else None for column in columns]
    low, high = min(m for m in means if m is not None), max(m for m in means if m is not None)
    step = (high - low) / (height - 1) or 1.0
    lines = []
    for row in reversed(range(height)):
        marks = "".join("*" if m is not None and round((m - low) / step) == row else " " for m in means)
        lines.append(f"{(low + row * step) / 1024:9.1f} |{marks.rstrip()}")
    return lines + [f"{'MiB':>9} +{'-' * width}", f"{'minute':>9}  {start:<8.1f}{'':{width - 16}}{start + length:>8.1f}"]
