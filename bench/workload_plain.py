"""A workload as its author would write it, in float32: workload_plain.py SOCKET WORKLOAD"""

import sys

import torch
from workload_models import build
from workload_serve import serve

model, inputs, wanted = build(sys.argv[2])


def call():
    with torch.no_grad():
        return getattr(model(**inputs), wanted)


serve(sys.argv[1], call)
