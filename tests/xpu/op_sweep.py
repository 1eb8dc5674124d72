"""Every operator of torch's own table (op_db) on xpu against the CPU: forward and, where it has gradients, backward.

    IPEXRUN_XPU=any python tests/xpu/op_sweep.py --whole                      # the table of passed, fell back, failed; about 10 minutes
    IPEXRUN_XPU=any python tests/xpu/op_sweep.py --whole --dtypes float16,bfloat16,int64,bool
    IPEXRUN_XPU=any python tests/xpu/op_sweep.py --only nn.functional.gelu,add

IPEXRUN_XPU_MEMORY=buffers makes each read of device memory by the host crash at once. Work is cut into child processes, so that a crash
counts as the failure of one operator.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import types
import unittest
import warnings
from pathlib import Path

TREE = Path(os.environ.get("IPEXRUN_BUILD_DIR", Path(__file__).resolve().parents[2] / "build" / "dev"))
sys.path.insert(0, str(TREE / "lib" / "ipexrun" / "python"))

CHUNK = 40
SAMPLES = 1
# Values that are not defined: only sizes and types are compared.
UNDEFINED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_", "resize_as_"}
# Masks of dropout are the device's own (docs/decisions/0024-dropout-on-xpu.md): likewise.
UNDEFINED |= {"nn.functional.dropout", "nn.functional.multi_head_attention_forward"}
# Not a matter of the device: what torch itself asks to lie on the CPU.
CPU_ARGUMENTS = {"tensor_split"}
# Means and the like that a norm hands to its gradient: float32 for types of 16 bits, as on cuda; stock's CPU kernels keep them in the type of the input.
FLOAT_STATISTICS = {"native_layer_norm"}
# Places of equal elements come in no promised order (stock's is another for short types): the elements that they name are compared. At which place of
# the arguments the dimension stands.
PLACES = {"sort": 0, "argsort": 0, "topk": 1}
# Decompositions are unique up to signs and phases; op_db compares what is made of them, and so do its gradients.
UP_TO_SIGN = {"linalg.eig", "linalg.eigh", "linalg.svd", "svd", "linalg.qr", "qr", "pca_lowrank", "svd_lowrank", "geqrf"}


def moved(value, device, torch, keep_integers=False):
    if isinstance(value, torch.Tensor):
        if keep_integers and not value.is_floating_point():
            return value
        out = value.detach().to(device)
        return out.requires_grad_(value.requires_grad)
    if isinstance(value, torch.Generator):
        return value
    if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
        return torch.device(device)
    if isinstance(value, (list, tuple)):
        parts = [moved(one, device, torch, keep_integers) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: moved(one, device, torch, keep_integers) for key, one in value.items()}
    return value


def tensors_of(value, torch):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in tensors_of(part, torch)]
    if isinstance(value, dict):
        return [one for part in value.values() for one in tensors_of(part, torch)]
    return []


def doubled(value, torch):
    if isinstance(value, torch.Tensor):
        return value.detach().double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        parts = [doubled(one, torch) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return {key: doubled(one, torch) for key, one in value.items()} if isinstance(value, dict) else value


def dense(tensor):
    return tensor.detach().cpu().to_dense() if tensor.layout != tensor_strided() else tensor.detach().cpu()


def named(result, sample, op, input, torch):
    """What sort, argsort and topk return, with elements of the input for places."""
    at = PLACES[op.name]
    dim = sample.args[at] if len(sample.args) > at else sample.kwargs.get("dim", -1)
    values, places = result if op.name != "argsort" else (None, result)
    found = torch.take_along_dim(input.detach(), places, dim) if places.dim() else places
    return [found] if values is None else [values, found]


def tensor_strided():
    import torch

    return torch.strided


def compare(ours, stock, name, torch, what, exact=None):
    """exact: () -> what `stock` would be in float64, asked for where types of 16 bits disagree: then ours may be as far from it as stock is."""
    ours, stock = tensors_of(ours, torch), tensors_of(stock, torch)
    assert len(ours) == len(stock), f"{what}: {len(ours)} tensors instead of {len(stock)}"
    for number, (mine, right) in enumerate(zip(ours, stock)):
        small = right.dtype in (torch.float16, torch.bfloat16)
        statistics = small and mine.dtype == torch.float32 and name in FLOAT_STATISTICS
        assert mine.dtype == right.dtype or statistics, f"{what}: {mine.dtype} instead of {right.dtype}"
        assert mine.shape == right.shape, f"{what}: {tuple(mine.shape)} instead of {tuple(right.shape)}"
        if name in UNDEFINED:
            continue
        mine, right = dense(mine).resolve_conj().resolve_neg(), dense(right).resolve_conj().resolve_neg()
        if name in UP_TO_SIGN:
            mine, right = mine.abs(), right.abs()
        if statistics:
            right = right.to(mine.dtype)
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if small else {"rtol": 1e-3, "atol": 1e-4} if right.is_floating_point() or right.is_complex() else {"rtol": 0, "atol": 0}
        try:
            torch.testing.assert_close(mine, right, equal_nan=True, msg=lambda text: f"{what}: {text}", **tolerance)
        except AssertionError:
            if not small or exact is None:
                raise
            truth = dense(tensors_of(exact(), torch)[number]).double()
            far, stocks = (float((one.double() - truth).abs().max()) for one in (mine, right))
            assert far <= stocks, f"{what}: {far:.2g} from float64, stock {stocks:.2g}"


def gradients(result, inputs, torch):
    outs = [one for one in tensors_of(result, torch) if one.requires_grad]
    leaves = [one for one in inputs if one.requires_grad]
    if not outs or not leaves:
        return None
    total = sum((one.abs() if one.is_complex() else one).double().sum() for one in outs)
    return torch.autograd.grad(total, leaves, allow_unused=True)


def check(op, dtype, torch, xpu):
    """("passed" | "fell back" | "skipped", names of what fell back)."""
    differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(0)
    samples = []
    for sample in op.sample_inputs("cpu", dtype, requires_grad=differentiable):
        samples.append(sample)
        if len(samples) == SAMPLES:
            break
    if not samples:
        return "skipped", ["no samples"]
    fell_back = set()
    for sample in samples:
        keep = op.name in CPU_ARGUMENTS
        args = moved((sample.input, *sample.args), "xpu", torch, keep)
        kwargs = moved(sample.kwargs, "xpu", torch, keep)
        stock_args = moved((sample.input, *sample.args), "cpu", torch)
        stock_kwargs = moved(sample.kwargs, "cpu", torch)
        torch.manual_seed(7)
        try:
            right = op.op(*stock_args, **stock_kwargs)
            right_grads = gradients(right, tensors_of((stock_args, stock_kwargs), torch), torch) if differentiable else None
        except Exception as problem:
            return "skipped", [f"stock: {type(problem).__name__}"]
        torch.manual_seed(7)
        torch.xpu.manual_seed(7)
        xpu.forget_fallbacks()
        mine = op.op(*args, **kwargs)
        grads = gradients(mine, tensors_of((args, kwargs), torch), torch) if differentiable else None
        fell_back.update(one["name"] for one in xpu.report()["fallbacks"])
        for one in tensors_of(mine, torch):
            if op.name not in ("to", "cpu") and not one.is_xpu:
                fell_back.add("result on the CPU")

        def exact(sample=sample):
            wide = [doubled(one, torch) for one in (sample.input, *sample.args)]
            torch.manual_seed(7)
            return op.op(*wide, **doubled(sample.kwargs, torch))

        if op.name in PLACES:
            mine, right = (named(one, sample, op, where[0], torch) for one, where in ((mine, args), (right, stock_args)))
        compare(mine, right, op.name, torch, "forward", exact if op.name not in PLACES else None)
        if right_grads is not None:
            compare([g for g in grads if g is not None], [g for g in right_grads if g is not None], op.name, torch, "backward")
    return ("fell back" if fell_back else "passed"), sorted(fell_back)


def run_here(names, dtypes):
    warnings.simplefilter("ignore")
    import torch

    import ipexrun  # noqa: F401
    from ipexrun import xpu

    problem = xpu.install()
    if problem:
        sys.exit(f"no device: {problem}")
    wanted = set(names)
    for op in op_table():
        full = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if full not in wanted:
            continue
        for name in dtypes:
            dtype = getattr(torch, name)
            if dtype not in op.supported_dtypes("cpu"):
                continue
            print(json.dumps({"start": f"{full} {name}"}), flush=True)
            try:
                state, words = check(op, dtype, torch, xpu)
            except Exception as error:
                state, words = "failed", [f"{type(error).__name__}: {str(error)[:300]}"]
            print(json.dumps({"op": full, "dtype": name, "state": state, "words": words}), flush=True)


def op_table():
    if importlib.util.find_spec("expecttest") is None:  # torch's table imports it for tests that are not run here
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def all_names():
    warnings.simplefilter("ignore")
    op_db = op_table()
    return [op.name + ("." + op.variant_test_name if op.variant_test_name else "") for op in op_db]


def sweep(names, dtypes, say=lambda text: None):
    """[{"op", "dtype", "state", "words"}, ...]; state is passed, fell back, skipped or failed."""
    rows, todo = [], list(names)
    while todo:
        chunk = todo[:CHUNK]
        child = subprocess.run([sys.executable, __file__, "--here", "--only", ",".join(chunk), "--dtypes", ",".join(dtypes)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started, finished = None, set()
        for line in child.stdout.splitlines():
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            if "start" in row:
                started = row["start"]
                continue
            rows.append(row)
            finished.add(f"{row['op']} {row['dtype']}")
        todo = todo[len(chunk):]
        if child.returncode != 0:
            if started is None or started in finished:
                raise RuntimeError(f"a child ended with {child.returncode}: {child.stderr[-2000:]}")
            op, dtype = started.rsplit(" ", 1)
            rows.append({"op": op, "dtype": dtype, "state": "failed", "words": [f"the process ended with {child.returncode}"]})
            todo = chunk[chunk.index(op) + 1:] + todo
        say(f"{len(names) - len(todo)} of {len(names)}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", help="write all rows to this file")
    options = parser.parse_args()
    dtypes = options.dtypes.split(",")
    names = options.only.split(",") if options.only else all_names()
    if options.here:
        return run_here(names, dtypes)
    rows = sweep(names, dtypes, lambda text: print(text, file=sys.stderr, flush=True))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    print("| dtype | passed | fell back | skipped | failed |\n|---|---|---|---|---|")
    for dtype in dtypes:
        counts = [sum(row["state"] == state and row["dtype"] == dtype for row in rows) for state in ("passed", "fell back", "skipped", "failed")]
        print(f"| {dtype} | " + " | ".join(map(str, counts)) + " |")
    for row in rows:
        if row["state"] == "failed":
            print(f"failed: {row['op']} {row['dtype']}: {row['words'][0]}")
    return int(any(row["state"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
