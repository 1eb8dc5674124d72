"""The polynomials of kernels/simd/activation_kinds.h, exp2.h and pointwise.cpp: minimax fits by the Remez exchange, in doubles.

Prints them as C++ arrays of fp32, lowest power first, with the largest error that the rounded coefficients leave.

python kernels/tools/fit_activation.py [--degree-erf 14] [--degree-exp 5] [--cut 5.3]
python kernels/tools/fit_activation.py --pieces
"""

import argparse
import math

import numpy as np


def remez(f, weight, low, high, degree, rounds=60):
    """Coefficients c of sum c[k] u^k that minimize max |weight (p - f)| on [low, high], in doubles on a fine grid."""
    grid = np.cos(np.linspace(np.pi, 0, 20001)) * (high - low) / 2 + (high + low) / 2
    target, w = f(grid), weight(grid)
    at = np.round(np.linspace(0, len(grid) - 1, degree + 2)).astype(int)
    for _ in range(rounds):
        signs = (-1.0) ** np.arange(degree + 2)
        matrix = np.vander(grid[at], degree + 1, increasing=True)
        solution = np.linalg.solve(np.column_stack([matrix, signs / w[at]]), target[at])
        c = solution[:-1]
        error = w * (np.polynomial.polynomial.polyval(grid, c) - target)
        # One extremum a run of equal sign; of these the degree + 2 neighbours with the largest smallest one.
        runs = np.split(np.arange(len(grid)), np.flatnonzero(np.diff(np.sign(error))) + 1)
        peaks = [run[np.argmax(np.abs(error[run]))] for run in runs]
        while len(peaks) > degree + 2:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if len(peaks) < degree + 2 or np.array_equal(peaks, at):
            break
        at = np.array(peaks)
    return c, np.max(np.abs(error))


def fit(f, weight, low, high, degree):
    """remez(), and the error that is left when each coefficient is rounded to fp32."""
    c = [float(np.float32(v)) for v in remez(f, weight, low, high, degree)[0]]
    grid = np.linspace(low, high, 100001)
    return c, np.max(np.abs(weight(grid) * (np.polynomial.polynomial.polyval(grid, c) - f(grid))))


def half_erf(cut, degree):
    """(Phi(x) - 1/2) / x = P(w), w = 2 x^2 / cut^2 - 1, for |x| <= cut; the error is that of Phi.

    The target is raised by `over` (x / cut)^9, so that Phi comes out just beyond 0 and 1 at the cut, where it is clamped to them.
    """
    over = 0.5 * math.erfc(cut / math.sqrt(2)) + 1e-7

    def x_of(w):
        return np.sqrt(np.maximum((w + 1) / 2, 1e-12)) * cut

    def f(w):
        x = x_of(w)
        return np.array([(0.5 * math.erf(v / math.sqrt(2)) + over * (v / cut) ** 9) / v for v in x])

    return fit(f, lambda w: x_of(w) + 0.05, -1.0, 1.0, degree)


def exp2_less_1(degree):
    """(2^f - 1) / f for |f| <= 1/2, relative error."""

    def f(u):
        u = np.where(np.abs(u) < 1e-9, 1e-9, u)
        return np.expm1(u * math.log(2)) / u

    return fit(f, lambda u: 1 / f(u), -0.5, 0.5, degree)


def log_rest(degree):
    """(log(1 + f) - f + f^2 / 2) / f^3 for 1 + f between the roots of 1/2 and 2; the error is that times f^2."""

    def f(v):
        v = np.where(np.abs(v) < 1e-3, 1e-3, v).astype(np.longdouble)
        return ((np.log1p(v) - v + v * v / 2) / v**3).astype(float)

    return fit(f, lambda v: v * v + 1e-6, math.sqrt(0.5) - 1, math.sqrt(2) - 1, degree)


def normal_cdf(v):
    return 0.5 * math.erfc(-v / math.sqrt(2))


def phi_pieces(width, degree):
    """32 pieces of Phi: piece i is a polynomial in r = x - (i - 15) width for |r| <= width / 2, near the least relative error.

    The first is 0 and the last is 1, where Phi is so within fp32 of what matters. Coefficients[k][i], and the largest error of Phi.
    """
    half = width / 2
    pieces, worst = [], 0.0
    for i in range(1, 31):
        center = (i - 15) * width

        def f(r):
            return np.array([normal_cdf(center + v) for v in r])

        # Least squares over Chebyshev nodes: on an interval this short as good as a minimax fit, and never degenerate.
        nodes = half * np.cos(np.pi * (np.arange(400) + 0.5) / 400)
        c = np.polynomial.polynomial.polyfit(nodes / half, f(nodes), degree, w=1 / f(nodes)) / half ** np.arange(degree + 1)
        c = [float(np.float32(v)) for v in c]
        pieces.append(c)
        worst = max(worst, np.max(np.abs(np.polynomial.polynomial.polyval(nodes, c) - f(nodes))))
    zeros = [0.0] * degree
    pieces = [[0.0] + zeros] + pieces + [[1.0] + zeros]
    return [[piece[k] for piece in pieces] for k in range(degree + 1)], worst


def show_pieces(name, coefficients, error):
    print(f"// {error:.2g}")
    print(f"constexpr float {name}[{len(coefficients)}][32] = {{")
    for row in coefficients:
        print("    {" + ", ".join(f"{c:.9g}" + ("f" if "." in f"{c:.9g}" or "e" in f"{c:.9g}" else ".0f") for c in row) + "},")
    print("};")


def show(name, coefficients, error):
    print(f"constexpr float {name}[] = {{{', '.join(f'{c:.9g}f' for c in coefficients)}}};  // {error:.2g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--degree-erf", type=int, default=14)
    parser.add_argument("--degree-exp", type=int, default=5)
    parser.add_argument("--degree-log", type=int, default=8)
    parser.add_argument("--cut", type=float, default=5.3)
    parser.add_argument("--width", type=float, default=23 / 64)
    parser.add_argument("--degree-piece", type=int, default=5)
    parser.add_argument("--pieces", action="store_true", help="print kernels/simd/phi_pieces.h instead")
    args = parser.parse_args()
    if args.pieces:
        show_pieces("kPhi", *phi_pieces(args.width, args.degree_piece))
        return
    show("kExp2Less1", *exp2_less_1(args.degree_exp))
    show("kHalfErf", *half_erf(args.cut, args.degree_erf))
    show("kLogRest", *log_rest(args.degree_log))


if __name__ == "__main__":
    main()
