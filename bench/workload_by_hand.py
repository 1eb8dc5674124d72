"""A workload in a form that its author chose and wrote: workload_by_hand.py SOCKET WORKLOAD FORM

eager DTYPE; compile MODE DTYPE; openvino DTYPE; ipex DTYPE. MODE: default, freezing, autotune (with freezing). DTYPE: float32, bfloat16
(model.bfloat16()), autocast. Images and convolutions are channels last in all of them but OpenVINO, which chooses by itself.
"""

import sys

import torch
from workload_models import build
from workload_serve import serve


class Plain(torch.nn.Module):
    """Tensors in, one tensor out."""

    def __init__(self, model, names, wanted):
        super().__init__()
        self.model, self.names, self.wanted = model, names, wanted

    def forward(self, *values):
        return getattr(self.model(**dict(zip(self.names, values))), self.wanted)


def no_change(value):
    return value


def changed(model, inputs, dtype):
    """The model and its inputs as a careful author would lay them out."""
    form = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    images = any(value.dim() == 4 for value in inputs.values()) and any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules())
    layout = {"memory_format": torch.channels_last} if images else {}
    values = {name: value.to(dtype=form, **layout) if value.is_floating_point() else value for name, value in inputs.items()}
    return model.to(dtype=form, **layout), values


def under(dtype, call):
    def answer():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"):
            return call()

    return answer


def eager(name, dtype):
    model, inputs, wanted = build(name)
    model, inputs = changed(model, inputs, dtype)
    return under(dtype, lambda: getattr(model(**inputs), wanted))


def compiled(name, mode, dtype):
    model, inputs, wanted = build(name)
    model, inputs = changed(model, inputs, dtype)
    torch._inductor.config.freezing = mode != "default"
    fast = torch.compile(model, **({"mode": "max-autotune-no-cudagraphs"} if mode == "autotune" else {}))
    return under(dtype, lambda: getattr(fast(**inputs), wanted))


def openvino(name, dtype):
    import openvino as ov

    model, inputs, wanted = build(name)
    with torch.no_grad():
        graph = ov.convert_model(Plain(model, list(inputs), wanted).eval(), example_input=tuple(inputs.values()))
    values = [value.numpy() for value in inputs.values()]
    for port, value in zip(graph.inputs, values):
        port.get_node().set_partial_shape(ov.PartialShape(value.shape))
    graph.validate_nodes_and_infer_types()
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bfloat16" else "f32"}
    fast = ov.compile_model(graph, "CPU", {**options, "INFERENCE_NUM_THREADS": torch.get_num_threads()})
    request = fast.create_infer_request()
    return lambda: request.infer(values, share_inputs=True)[fast.output(0)]


def ipex(name, dtype):
    import intel_extension_for_pytorch

    model, inputs, wanted = build(name)
    bf16 = dtype == "bfloat16"
    model, inputs = changed(Plain(model, list(inputs), wanted).eval(), inputs, "float32")
    model = intel_extension_for_pytorch.optimize(model, dtype=torch.bfloat16 if bf16 else torch.float32)
    values = tuple(inputs.values())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        fast = torch.jit.freeze(torch.jit.trace(model, values, check_trace=False, strict=False))
    return under("autocast" if bf16 else dtype, lambda: fast(*values))


FORMS = {"eager": eager, "compile": compiled, "openvino": openvino, "ipex": ipex}

if __name__ == "__main__":
    serve(sys.argv[1], FORMS[sys.argv[3]](sys.argv[2], *sys.argv[4:]))
