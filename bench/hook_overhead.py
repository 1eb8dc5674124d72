"""What does the module-call hook cost? One nested call, one top-level call, and --bench as a share of a 1 ms call.

The stand-in plugin of tests/victims/hook takes the calls, so that the cost of the hook alone is seen; variants alternate call by
call in one process. Prints one JSON object. With --smoke: a few thousand calls, to see that it runs.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "victims" / "hook"))


def per_call_ns(function, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        function()
    return (time.perf_counter_ns() - start) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    rounds, count = (5, 200) if arguments.smoke else (101, 2000)

    import torch
    from torch import nn

    import fake

    torch.set_num_threads(1)
    plugin = fake.load()
    fake.start(plugin)
    plugin.fake_remember(0)
    hook = sys.modules["_ipexrun_hook"]

    class Empty(nn.Module):
        def forward(self, x):
            return x

    class Parent(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = Empty()

        def forward(self, x):
            for _ in range(100):
                self.child(x)

    def install():
        hook.install(
            module=nn.Module,
            tensor=torch.Tensor,
            parameter=nn.Parameter,
            tracing_state=torch._C._get_tracing_state,
            function_mode_count=torch._C._len_torch_function_stack,
        )

    def difference(function, calls):
        """Median over rounds of (with - without), the two in alternating order within a round; and the median without."""
        gaps, plain = [], []
        for number in range(rounds):
            times = {}
            for on in (True, False) if number % 2 else (False, True):
                (install if on and not hook.installed() else hook.uninstall if not on else lambda: None)()
                times[on] = per_call_ns(function, calls)
            gaps.append(times[True] - times[False])
            plain.append(times[False])
        if not hook.installed():
            install()
        return statistics.median(gaps), statistics.median(plain)

    x = torch.zeros(8, 4)
    empty, parent = Empty(), Parent()
    with torch.no_grad():
        top_ns, top_plain_ns = difference(lambda: empty(x), count)
        nested_ns, nested_plain_ns = difference(lambda: parent(x), max(1, count // 100))
    nested_ns = (nested_ns - top_ns) / 100
    out = {
        "question": "what does the module-call hook cost",
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "rounds": rounds,
        "top_level_call_ns": round(top_ns, 1),
        "nested_call_ns": round(nested_ns, 1),
        "plain_call_ns": round(top_plain_ns, 1),
        "plain_nested_call_ns": round(nested_plain_ns / 100, 1),
        "share_of_a_1_ms_call": top_ns / 1e6,
    }
    print(json.dumps(out))
    if not arguments.smoke and (top_ns > 10_000 or nested_ns > 100):
        sys.exit("hook_overhead: above the limits (10 us a top-level call, 0.1 us a nested one)")


if __name__ == "__main__":
    main()
