"""What a capture costs, in CPU time of the thread that it happens in, and how much of a program is to have gone by before it is worth that
(docs/decisions/0030-when-a-module-is-traced.md, 0052-what-trying-may-cost.md).

Thread rule: under the interpreter lock."""

import os

from . import importing, python_speed

BASE_S, PER_MODULE_S = 0.3, 0.006  # price of a capture where Python is as fast as python_speed's reference, TorchDynamo once imported
PER_OPERATOR_S, CHANGING = 0.0008, 3.2  # the same by the operators of a call, where that is more; sizes that change take so many times longer
LATER = 3.0  # times a usual wait where tracing may well be in vain
TRIAL_CALLS, ROUNDED_CALLS = 4, 2  # calls that a capture costs besides its trace, in which the module and its graph both compute: so many decide where products
# may be rounded, which nearly always gains
EARNS = 1.25  # times a trace's price that the last run's calls would have saved, for one at the begin of the next run
PATIENCE = 1.0 if os.environ.get("IPEXRUN_SELECT") == "thorough" else 3.0  # capture once so many times its price was spent in the module
LIKELY, COMPUTES_S = 2.0, 5e-3  # the same of calls that take so long, in most of which more is computed than arranged
SAVED_BETWEEN, SAVED_INSIDE = 0.55, 0.1  # of the time of a call between such operators, and in them (docs/decisions/0052)
UNLIKELY = 2 * PATIENCE  # the same where products are as fast as they get: what is around them, the rest of a call, is all that a graph can save
FASTER, IN_PARTS = 1.1, 6.0  # times float32's speed, from which on products in bf16 make up for a trace, and those in float32 as sums of bf16 parts
TIMES_LONGER, LEAST_S = 4, 6.0  # what a trace may take: CPU time over its usual price, and at least so many seconds

_scale = None  # measured price of the last capture over its usual one


def usual_price_s(modules, operators=0, changing=False):
    """What a capture takes where Python is as fast as the reference and TorchDynamo is there."""
    return BASE_S + max(PER_MODULE_S * modules, PER_OPERATOR_S * operators * (CHANGING if changing else 1))


def predicted_s(modules, operators=0, changing=False):
    """What capturing a module of so many is going to take, by the last capture if there was one."""
    return importing.remaining_s() + (python_speed.slowness() if _scale is None else _scale) * usual_price_s(modules, operators, changing)


def products_gain(bf16_speed, rounds, convolutions):
    """Whether most products of a module are likely to be faster in a graph: where the CPU multiplies so many times as fast in bf16 as in float32, if they
    may be rounded or else in parts; or as convolutions, which are channels last there."""
    return convolutions or bf16_speed >= (FASTER if rounds else IN_PARTS)


def patience(mean_s, products_gain, answered):
    """How many times its price is to have been spent in a module whose calls take `mean_s`. A trace has earned its price after as many times that as one over
    the share that it saves: half and more of products that gain, a seventh in the middle of what float32 was seen to gain otherwise (docs/zoo.md).
    `answered`: the share of a call in operators that the op tier has made faster already, of which a graph saves little."""
    saves = SAVED_INSIDE + (SAVED_BETWEEN - SAVED_INSIDE) * (1 - min(answered, 1.0))
    if mean_s < COMPUTES_S:
        usual = PATIENCE
    else:
        usual = min(PATIENCE, LIKELY) if products_gain else UNLIKELY
    return max(usual, min(PATIENCE, LIKELY) / (LIKELY * saves))


def limit_s(price_s):
    """CPU time that one trace may take, by what is usual on the machine of python_speed's reference. Its call lasts as long, so a program that answers
    requests stands still meanwhile. What the last trace took says nothing here: that may be the one that took too long."""
    return max(TIMES_LONGER * python_speed.slowness() * (importing.USUAL_S + price_s), LEAST_S)


def measured(seconds, usual_s):
    """A capture that usually takes `usual_s` took so long: by that the next ones are predicted."""
    global _scale
    _scale = min(max(seconds / usual_s, 0.1), 20.0)
