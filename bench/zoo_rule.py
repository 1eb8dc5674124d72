"""The accuracy rule for whole modules, over everything that a call returned.

e(c) = RMS(c - truth) / RMS(truth), 0/0 = 0, per tensor and per sample (dimension 0 where it is the batch), the worst counts. Equal are
tensors of one dtype, shape and stride; integers and truth values exactly; NaN and infinities at the same places; the rest within
2 e(stock) + t, with t = 1e-6 in float32, and t = 3e-2 together with a cosine of at least 0.999 where bf16 is allowed.
"""

import collections

import torch

TOLERANCE = {"float32": 1e-6, "auto": 3e-2, "bfloat16": 3e-2}
COSINE = 0.999


def tensors_of(output, name="", found=None):
    """Every tensor of a call's result by its path."""
    found = {} if found is None else found
    if isinstance(output, torch.Tensor):
        found[name or "output"] = output
    elif isinstance(output, collections.abc.Mapping):
        for key, value in output.items():
            tensors_of(value, f"{name}.{key}" if name else str(key), found)
    elif isinstance(output, (list, tuple)):
        for i, value in enumerate(output):
            tensors_of(value, f"{name}[{i}]", found)
    return found


def rows(tensor, batch):
    """[samples, values] in fp64, and the whole as one more look at the same numbers."""
    flat = tensor.detach().double()
    if batch and flat.dim() > 1 and flat.shape[0] == batch:
        return flat.reshape(batch, -1)
    return flat.reshape(1, -1)


def errors(values, truth):
    """e() of each row; places where either is not finite do not count (their positions are compared elsewhere)."""
    finite = values.isfinite() & truth.isfinite()
    apart = torch.where(finite, values - truth, 0.0).norm(dim=1)
    size = torch.where(finite, truth, 0.0).norm(dim=1)
    return torch.where(apart == 0, 0.0, apart / size)


def same_places(a, b):
    return bool((a.isnan() == b.isnan()).all()) and bool((a.isinf() == b.isinf()).all()) and bool((a[a.isinf()] == b[a.isinf()]).all())


def compare_tensor(result, stock, truth, tolerance, cosine, batch=0, noise=0.0, slack=2):
    """None, or what is wrong; and the error. `truth` None: stock is the truth, and `noise` is what is known of stock's own error."""
    if (result.dtype, result.shape) != (stock.dtype, stock.shape):
        return f"{result.dtype} {tuple(result.shape)} instead of {stock.dtype} {tuple(stock.shape)}", float("inf")
    if result.stride() != stock.stride():
        return f"strides {result.stride()} instead of {stock.stride()}", float("inf")
    if not stock.is_floating_point() and not stock.is_complex():
        wrong = int((result != stock).sum())
        return (f"{wrong} of {stock.numel()} integers differ" if wrong else None), float(wrong > 0)
    if stock.is_complex():
        result, stock, truth = (None if one is None else torch.view_as_real(one.resolve_conj()) for one in (result, stock, truth))
    if stock.numel() == 0:
        return None, 0.0
    a, b = rows(result, batch), rows(stock, batch)
    if not same_places(a, b):
        return "NaN or infinity at other places", float("inf")
    c = b if truth is None else rows(truth, batch)
    error, own = errors(a, c), errors(b, c)
    over = error > slack * torch.clamp(own, min=noise) + tolerance
    worst = int(error.argmax())
    if bool(over.any()):
        at = int(over.nonzero()[0])
        return f"error {error[at]:.2e} where stock has {max(float(own[at]), noise):.1e} (row {at})", float(error.max())
    if cosine and float(error[worst]) > 0:
        # Positions are equal, so what is not finite contributes nothing.
        one, two = torch.nan_to_num(a[worst], 0, 0, 0), torch.nan_to_num(c[worst], 0, 0, 0)
        value = float(torch.dot(one, two) / (one.norm() * two.norm()))
        # Twice stock's error is four times as far from a cosine of 1.
        two_stock = torch.nan_to_num(b[worst], 0, 0, 0)
        stocks = 1.0 if truth is None else float(torch.dot(two_stock, two) / (two_stock.norm() * two.norm()))
        if not value >= min(cosine, 1 - 4 * (1 - stocks)):
            return f"cosine {value:.5f} where stock has {stocks:.5f}", float(error.max())
    return None, float(error.max())


def compare(result, stock, truth, dtype, batch=0, noise=None, slack=2):
    """({path: what is wrong}, the worst error). All three are what tensors_of() gives; truth may be None. `slack`: times stock's error."""
    wrong, worst = {}, 0.0
    if list(result) != list(stock):
        return {"output": f"{list(result)} instead of {list(stock)}"}, float("inf")
    for path, tensor in result.items():
        problem, error = compare_tensor(tensor, stock[path], None if truth is None else truth[path], TOLERANCE[dtype],
                                        COSINE if dtype != "float32" else 0, batch, (noise or {}).get(path, 0.0), slack)
        worst = max(worst, error)
        if problem:
            wrong[path] = problem
    return wrong, worst
