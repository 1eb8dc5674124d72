"""What happens to a program's models and processes in a soak: weights change, threads come and go, the process forks, loaders have workers."""

import copy
import faulthandler
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback

import torch
from soak_check import Tier
from torch.nn import functional as F

CHILD_SECONDS = 60  # after which a forked child or a loader counts as hung


# ---- weights: every change replaces most of a value, so that a pack of the old one would be far off ---------------------------------------


def mix(old, fresh):
    return 0.5 * old + fresh


def each(living, generator):
    for name, p in living.parameters():
        yield name, p, living.fresh(name, p, generator).to(p.dtype)


def by_optimizer(make):
    def change(living, generator):
        weights = []
        for _, p, fresh in each(living, generator):
            if not p.requires_grad:
                return False
            p.grad = 0.5 * p.detach() - fresh
            weights.append(p)
        make(weights, max(living.spreads.values(), default=0.02)).step()
        for p in weights:
            p.grad = None
        return True

    return change


def load_state(living, generator):
    state = {name: value.clone() for name, value in living.model.state_dict().items()}
    for name, p, fresh in each(living, generator):
        state[name] = mix(p.detach(), fresh)
    for name, p in living.model.named_parameters(remove_duplicate=False):  # tied weights have several names
        state[name] = state[next(other for other, q in living.model.named_parameters() if q is p)]
    living.model.load_state_dict(state)


def swap_data(living, generator):
    for _, p, fresh in each(living, generator):
        p.data = mix(p.detach(), fresh)


def data_in_place(living, generator):
    for _, p, fresh in each(living, generator):
        p.data.mul_(0.5).add_(fresh)


def numpy_alias(living, generator):
    for _, p, fresh in each(living, generator):
        if p.dtype == torch.float32:
            array = p.detach().numpy()
            array *= 0.5
            array += fresh.numpy()


def copy_in_place(living, generator):
    with torch.no_grad():
        for _, p, fresh in each(living, generator):
            p.copy_(mix(p, fresh))


def one_element(living, generator):
    with torch.no_grad():
        for _, p, _ in each(living, generator):
            p.view(-1)[int(torch.randint(p.numel(), (1,), generator=generator))] = 20 * float(p.float().std())


def new_parameters(living, generator):
    for module in living.model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if p.dim() >= 2 and isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
                fresh = torch.randn(p.shape, generator=generator) * max(float(p.detach().float().std()), 1e-3)
                setattr(module, name, torch.nn.Parameter(fresh, p.requires_grad))


def copied(living, generator):
    living.model = copy.deepcopy(living.model)
    data_in_place(living, generator)


def pickled(living, generator):
    living.model = pickle.loads(pickle.dumps(living.model))
    numpy_alias(living, generator)


def shared(living, generator):
    living.model.share_memory()
    data_in_place(living, generator)


def other_dtype_and_back(living, generator):
    living.model.to(torch.bfloat16).to(torch.float32)
    copy_in_place(living, generator)


def flatten(living):
    """What a program does after it moved the weights of a recurrent layer."""
    for module in living.model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.flatten_parameters()


CHANGES = {
    "sgd": by_optimizer(lambda w, spread: torch.optim.SGD(w, lr=1.0)),
    "fused sgd": by_optimizer(lambda w, spread: torch.optim.SGD(w, lr=1.0, fused=True)),
    "adamw": by_optimizer(lambda w, spread: torch.optim.AdamW(w, lr=spread)),
    "fused adam": by_optimizer(lambda w, spread: torch.optim.Adam(w, lr=spread, fused=True)),
    "fused adamw": by_optimizer(lambda w, spread: torch.optim.AdamW(w, lr=spread, fused=True)),
    "load_state_dict": load_state,
    "data =": swap_data,
    "data in place": data_in_place,
    "numpy alias": numpy_alias,
    "copy_": copy_in_place,
    "one element": one_element,
    "new parameters": new_parameters,
    "deepcopy": copied,
    "pickle": pickled,
    "share_memory": shared,
    "bfloat16 and back": other_dtype_and_back,
}
OF_INFERENCE_TENSORS = ("copy_", "data in place", "numpy alias")  # what torch allows with a model made under inference_mode


# ---- other processes --------------------------------------------------------------------------------------------------------------------


def run_child(work, seconds=CHILD_SECONDS):
    """work(say) in a forked child, which ends without handlers; (exit code, or None where it hung; the steps that it named)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            faulthandler.dump_traceback_later(seconds * 0.9)
            torch.set_num_threads(1)  # a pool of OpenMP threads does not survive a fork, with stock either
            code = work(lambda step: os.write(writing, f"{step}\n".encode()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    steps, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([reading], [], [], 1.0)[0]:
            part = os.read(reading, 4096)
            if not part:
                break
            steps += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    return (None if time.monotonic() >= until and code == -signal.SIGKILL else code), steps.decode().split("\n")[:-1]


def busy(call, while_):
    """A thread that calls until it is told to stop; its exceptions come back."""
    problems = []

    def work():
        try:
            while while_():
                call()
        except Exception as problem:
            problems.append(repr(problem))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, problems


def compute_row(x, weight):
    return F.gelu(F.conv1d(x, weight, padding=1))


class Rows(torch.utils.data.Dataset):
    """Computes in the worker, with stock first, and says whether the op tier was there.

    A convolution: a worker's first product may spin for ever in MKL's memory manager (mm_account_ptr_by_tid), with stock as well.
    """

    def __init__(self, weight, inputs):
        self.weight, self.inputs = weight, inputs
        self.stages = torch.zeros(len(inputs), dtype=torch.int64).share_memory_()  # of each row: 1 in stock, 2 beyond it

    def hung_in_stock(self):
        return bool((self.stages == 1).any())

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        with torch.no_grad():
            self.stages[i] = 1
            with Tier().off():
                compute_row(self.inputs[i], self.weight)
            self.stages[i] = 2
            for _ in range(3):
                result = compute_row(self.inputs[i], self.weight)
        return result, "_ipexrun_hook" in sys.modules
