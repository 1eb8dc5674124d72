"""A sample of torch's table of operators, spread over the whole of it; tests/xpu/op_sweep.py --whole runs all."""

import op_sweep

EVERY = 17


def test_operators_are_right_on_xpu():
    rows = op_sweep.sweep(op_sweep.all_names()[::EVERY], ["float32"])
    wrong = [f"{row['op']}: {row['words'][0]}" for row in rows if row["state"] == "failed"]
    assert not wrong, "\n".join(wrong)
    assert sum(row["state"] in ("passed", "fell back") for row in rows) >= 35


def test_other_types():
    names = ["add", "cumsum", "nn.functional.gelu", "softmax", "sum", "index_select", "where", "matmul", "sort"]
    rows = op_sweep.sweep(names, ["float16", "bfloat16", "int64", "bool"])
    wrong = [f"{row['op']} {row['dtype']}: {row['words'][0]}" for row in rows if row["state"] == "failed"]
    assert not wrong, "\n".join(wrong)
    assert len(rows) >= 20
