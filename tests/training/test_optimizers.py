"""Fused optimizers inside step() (python/ipexrun/training/optimizers.py).

Risk covered: parameters or state that differ from stock's by more than rounding; a switch that stays after the step, or is seen in
param_groups, state_dict, hooks or a pickle; a step that stock refuses or handles in its own way (sparse, closures, scaled, compiled) and
ours does not; a write that autograd misses.

One file, though long: every case trains the same few networks beside stock and compares by the same functions.
"""

import copy
import functools
import gc
import io
import pickle
import sys
import threading

import pytest
import torch
from torch.optim import SGD, Adagrad, Adam, AdamW

STEPS = 14
KINDS = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    (Adam, {"lr": 1e-2}),
    (Adam, {"lr": 1e-2, "amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    (AdamW, {"lr": 1e-2, "betas": (0.8, 0.9), "eps": 1e-6}),
    (AdamW, {"lr": 1e-2, "amsgrad": True}),
    (Adagrad, {"lr": 1e-2, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    (Adagrad, {"lr": 1e-2, "weight_decay": 0.1}),
]


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Tanh(), torch.nn.Conv1d(40, 8, 1), torch.nn.Flatten()).to(dtype)


def loss_of(net, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(6, 24, generator=generator).to(next(net.parameters()).dtype)
    return net[2](net[1](net[0](x)).unsqueeze(-1)).pow(2).mean()


def train(net, optimizer, steps=STEPS, first=0):
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = loss_of(net, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def note_of(optimizer):
    """What the package says of the optimizer that was made last."""
    optimizers = sys.modules["ipexrun.training.optimizers"]
    return optimizers._steppers[optimizer].note()


def close(mine, stock, bound):
    mine, stock = mine.detach().double(), stock.detach().double()
    assert (mine - stock).norm() <= bound * stock.norm() + 1e-30


def same_state(mine, stock, bound=1e-5):
    assert mine["param_groups"] == stock["param_groups"]
    assert mine["state"].keys() == stock["state"].keys()
    for index, state in stock["state"].items():
        assert list(mine["state"][index]) == list(state)
        for name, value in state.items():
            other = mine["state"][index][name]
            if isinstance(value, torch.Tensor):
                assert other.dtype == value.dtype and other.shape == value.shape and other.stride() == value.stride()
                close(other, value, bound)
            else:
                assert other == value


def both(hook, run):
    """(ours, stock's) of a function that makes and trains a model."""
    mine = run()
    hook.set_enabled(False)
    stock = run()
    hook.set_enabled(True)
    return mine, stock


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind, settings", KINDS)
def test_trains_as_stock_does(hook, kind, settings, dtype):
    def run():
        net = model(dtype)
        optimizer = kind(net.parameters(), **settings)
        return net, optimizer, train(net, optimizer)

    (net, optimizer, losses), (stock_net, stock_optimizer, stock_losses) = both(hook, run)
    assert note_of(optimizer)["fused"] >= 3, note_of(optimizer)
    bound = 1e-5 if dtype is torch.float32 else 1e-12
    for mine, stock in zip(net.parameters(), stock_net.parameters()):
        close(mine, stock, bound)
    same_state(optimizer.state_dict(), stock_optimizer.state_dict(), 10 * bound)
    assert losses == pytest.approx(stock_losses, rel=100 * bound)


def test_is_undone_before_step_returns(hook):
    net = model()
    optimizer = AdamW(net.parameters())
    functions = {name: getattr(sys.modules[f"torch.optim.{name}"], name) for name in ("sgd", "adam", "adagrad")}
    seen = []

    def look(one, args, kwargs):
        seen.append([(group["fused"], group["foreach"]) for group in one.param_groups])

    optimizer.register_step_pre_hook(look)
    optimizer.register_step_post_hook(look)
    for step in range(6):
        train(net, optimizer, 1, step)
        assert functions == {name: getattr(sys.modules[f"torch.optim.{name}"], name) for name in functions}
        assert pickle.loads(pickle.dumps(optimizer.state_dict()))["param_groups"][0]["fused"] is None
    assert note_of(optimizer)["fused"] > 0
    assert all(group == (None, None) for groups in seen for group in groups) and len(seen) == 12
    assert not hasattr(optimizer, "_step_supports_amp_scaling")


def test_an_exception_inside_a_step_leaves_stock_behind(hook):
    net = model()
    optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
    train(net, optimizer, 5)
    stock = sys.modules["torch.optim.sgd"].sgd

    def closure():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        optimizer.step(closure)
    train(net, optimizer, 3)
    assert sys.modules["torch.optim.sgd"].sgd is stock


@pytest.mark.parametrize(
    "settings", [{"foreach": True}, {"foreach": False}, {"fused": True}, {"fused": False}, {"differentiable": True}, {"capturable": False}]
)
def test_what_the_program_chose_stays(hook, settings):
    net = model()
    if settings == {"differentiable": True}:
        net.requires_grad_(False)
    optimizer = Adam(net.parameters(), **settings)
    for _ in range(4):
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    assert (note_of(optimizer)["fused"] > 0) == (settings == {"capturable": False})


def test_subclasses_and_other_optimizers_stay(hook):
    class Mine(AdamW):
        pass

    for kind in (Mine, torch.optim.RMSprop, torch.optim.NAdam):
        net = model()
        optimizer = kind(net.parameters())
        train(net, optimizer, 4)
        assert optimizer not in sys.modules["ipexrun.training.optimizers"]._steppers


@pytest.mark.parametrize("make", [lambda ps: torch.optim.RMSprop(ps), lambda ps: SGD(ps, lr=0.1, foreach=False), lambda ps: torch.optim.LBFGS(ps, max_iter=1)])
def test_optimizers_that_are_left_to_stock_are_asked_about_no_more(hook, monkeypatch, make):
    net = model()
    optimizer = make(net.parameters())

    def step():
        optimizer.zero_grad()
        loss_of(net, 0).backward()
        optimizer.step(lambda: loss_of(net, 0))

    step()
    step()
    optimizers, asked = sys.modules["ipexrun.training.optimizers"], []
    monkeypatch.setattr(optimizers, "before", lambda optimizer: asked.append("before"))
    monkeypatch.setattr(optimizers, "after", lambda optimizer: asked.append("after"))
    for _ in range(3):
        step()
    known = id(optimizer) in optimizers.resting
    assert (known, asked) == ((False, ["before", "after"] * 3) if isinstance(optimizer, torch.optim.LBFGS) else (True, []))
    if optimizer in optimizers._steppers:
        assert note_of(optimizer)["steps"] == 5
    key = id(optimizer)
    del optimizer, step
    gc.collect()
    assert key not in optimizers.resting


def test_of_many_optimizers_those_of_a_few_steps_are_not_checked(hook):
    """A program that makes one for each task would pay 0.5 ms each."""
    train(model(), SGD(model().parameters(), lr=0.1), 1)
    optimizers = sys.modules["ipexrun.training.optimizers"]
    nets = [model() for _ in range(optimizers.MADE + 1)]
    for i, net in enumerate(nets):
        net[2] = torch.nn.Conv1d(40, 9 + i, 1)  # of kinds of their own
    made = [SGD(net.parameters(), lr=0.1) for net in nets]
    for net, optimizer in zip(nets, made):
        train(net, optimizer, 1)
    steppers = [optimizers._steppers[optimizer] for optimizer in made]
    assert steppers[0].phase == "race" and steppers[-1].phase == "check" and not steppers[-1].shared.checked
    train(nets[-1], made[-1], optimizers.LATER_STEP)
    assert steppers[-1].phase != "check"


def test_optimizers_of_one_kind_are_checked_and_raced_together(hook, monkeypatch):
    """A program that makes one for each of its models: three steps each decide nothing by themselves."""
    train(model(), SGD(model().parameters(), lr=0.1), 1)
    optimizers = sys.modules["ipexrun.training.optimizers"]
    checked, check = [], optimizers.Stepper.check
    monkeypatch.setattr(optimizers.Stepper, "check", lambda self, *more: checked.append(1) or check(self, *more))
    optimizers._kinds.clear()
    for steps in (3, 1):
        for _ in range(150):
            net = model()
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
            train(net, optimizer, steps)
    note = note_of(optimizer)
    assert len(checked) == 1 and note["choice"] in ("fused", "stock") and note["fused"] == (note["choice"] == "fused"), note
    other = torch.optim.AdamW(net.parameters(), lr=0.01, maximize=True)
    train(net, other, 1)
    assert note_of(other)["choice"] == "undecided" and len(checked) == 2


def test_ranks_take_no_decision_that_timing_made_elsewhere(hook, monkeypatch):
    """Rank by rank it may be another one, and replicas would round apart."""
    for steps in (3, 60):
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        train(net, optimizer, steps)
    optimizers = sys.modules["ipexrun.training.optimizers"]
    (kind,) = (one for signature, one in optimizers._kinds.items() if torch.optim.AdamW in signature)
    kind.decided = "stock", "as timing had it in this rank"
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    train(net, optimizer, 4)
    assert note_of(optimizer)["choice"] == "fused" and note_of(optimizer)["fused"] == 3, note_of(optimizer)


@pytest.mark.parametrize("kind", [SGD, Adagrad])
def test_sparse_gradients_stay(hook, kind):
    def run():
        torch.manual_seed(0)
        table = torch.nn.Embedding(20, 8, sparse=True)
        optimizer = kind(table.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            table(torch.tensor([1, 2, 2, step])).pow(2).sum().backward()
            optimizer.step()
        return table.weight, optimizer

    (mine, optimizer), (stock, _) = both(hook, run)
    assert torch.equal(mine, stock) and note_of(optimizer)["fused"] == 0


def test_sparse_gradients_after_dense_ones(hook):
    weight = torch.nn.Parameter(torch.ones(4, 3))
    optimizer = SGD([weight], lr=0.5)
    for step in range(8):
        dense = torch.full((4, 3), 0.25)
        weight.grad = dense.to_sparse() if step >= 6 else dense
        optimizer.step()
    assert torch.allclose(weight, torch.zeros(4, 3)) and note_of(optimizer)["choice"] == "stock"


@pytest.mark.parametrize("make", [lambda t: t.to(torch.bfloat16), lambda t: t.t(), lambda t: t.to(torch.complex64)])
def test_other_tensors_stay(hook, make):
    weight = torch.nn.Parameter(make(torch.randn(6, 5)))
    optimizer = AdamW([weight])
    for _ in range(4):
        weight.grad = torch.randn(6, 5).to(weight.dtype).reshape(weight.shape)
        optimizer.step()
    assert note_of(optimizer)["fused"] == 0


def test_images_in_channels_last(hook):
    def run():
        torch.manual_seed(0)
        net = torch.nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
        optimizer = AdamW(net.parameters(), lr=1e-2)
        for step in range(8):
            optimizer.zero_grad()
            x = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(step)).contiguous(memory_format=torch.channels_last)
            net(x).pow(2).mean().backward()
            optimizer.step()
        return net, optimizer

    (net, optimizer), (stock, _) = both(hook, run)
    for mine, theirs in zip(net.parameters(), stock.parameters()):
        assert mine.stride() == theirs.stride()
        close(mine, theirs, 1e-5)


@pytest.mark.parametrize("kind, settings", [(SGD, {"lr": 0.1, "momentum": 0.9}), (AdamW, {"lr": 1e-2})])
def test_strides_of_single_elements_say_nothing(hook, kind, settings):
    """Gradients of convolutions of one pixel, between images channels last: the same places in memory, other strides."""

    def run():
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(8, 4, 1, 1))
        optimizer = kind([weight], **settings)
        for step in range(8):
            weight.grad = torch.randn(8, 4, generator=torch.Generator().manual_seed(step)).as_strided((8, 4, 1, 1), (4, 1, 4, 4))
            optimizer.step()
        return weight, optimizer

    (weight, optimizer), (stock, stock_optimizer) = both(hook, run)
    assert note_of(optimizer)["fused"] >= 2, note_of(optimizer)
    close(weight, stock, 1e-5)
    same_state(optimizer.state_dict(), stock_optimizer.state_dict(), 1e-4)


def test_parameters_without_gradients_and_of_different_ages(hook):
    def run():
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(5, 5)) for _ in range(3)]
        parameters[2].requires_grad_(False)
        optimizer = SGD(parameters, lr=0.1, momentum=0.9)
        for step in range(10):
            optimizer.zero_grad()
            used = parameters[:1] if step < 4 else parameters[:2]
            sum((one * (step + 1)).sum() for one in used).backward()
            optimizer.step()
        return parameters, optimizer

    (mine, _), (stock, _) = both(hook, run)
    for one, other in zip(mine, stock):
        close(one, other, 1e-6)


def test_several_groups_schedules_clipping_and_accumulation(hook):
    def run():
        net = model()
        optimizer = AdamW([{"params": net[0].parameters(), "lr": 1e-2}, {"params": net[2].parameters(), "weight_decay": 0.5}], lr=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[1e-2, 1e-3], total_steps=12)
        for step in range(12):
            for part in range(2):
                loss_of(net, 2 * step + part).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return net, optimizer

    (net, optimizer), (stock, stock_optimizer) = both(hook, run)
    assert note_of(optimizer)["fused"] > 0
    for mine, theirs in zip(net.parameters(), stock.parameters()):
        close(mine, theirs, 1e-5)
    same_state(optimizer.state_dict(), stock_optimizer.state_dict(), 1e-4)


def test_a_scaler_keeps_its_unfused_path(hook):
    def run():
        net = model()
        optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        for step in range(9):
            optimizer.zero_grad()
            loss = loss_of(net, step)
            scaler.scale(loss * (float("inf") if step == 5 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
        return net, scaler.get_scale(), optimizer

    (net, scale, _), (stock, stock_scale, _) = both(hook, run)
    assert scale == stock_scale
    for mine, theirs in zip(net.parameters(), stock.parameters()):
        close(mine, theirs, 1e-5)


def test_autograd_sees_the_write(hook):
    net = model()
    optimizer = AdamW(net.parameters())
    train(net, optimizer, 3)
    fused = []
    for step in range(8):
        before = note_of(optimizer)["fused"]
        loss = net[2](net[1](net[0](torch.randn(6, 24, requires_grad=True))).unsqueeze(-1)).sum()
        optimizer.zero_grad()
        loss_of(net, step).backward()
        optimizer.step()
        fused.append(note_of(optimizer)["fused"] > before)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert any(fused)


def test_goes_from_stock_to_fused_and_back_by_checkpoints(hook):
    def resume(first_enabled, then_enabled):
        hook.set_enabled(first_enabled)
        net = model()
        optimizer = AdamW(net.parameters(), lr=1e-2)
        train(net, optimizer, 8)
        file = io.BytesIO()
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        hook.set_enabled(then_enabled)
        saved = torch.load(file)
        net, other = model(), None
        other = AdamW(net.parameters(), lr=1e-2)
        net.load_state_dict(saved["net"])
        other.load_state_dict(saved["optimizer"])
        losses = train(net, other, 8, 8)
        hook.set_enabled(True)
        return losses

    stock = resume(False, False)
    for first, then in [(True, False), (False, True), (True, True)]:
        assert resume(first, then) == pytest.approx(stock, rel=1e-3)


def test_copies_and_pickles(hook):
    net = model()
    optimizer = Adam(net.parameters())
    train(net, optimizer, 4)
    other = pickle.loads(pickle.dumps(copy.deepcopy(optimizer)))
    same_state(other.state_dict(), optimizer.state_dict())


def test_nothing_is_kept_alive(hook):
    import gc
    import weakref

    net = model()
    optimizer = AdamW(net.parameters())
    train(net, optimizer, 4)
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


def test_threads_with_optimizers_of_their_own(hook):
    results, problems = {}, []

    def work(number):
        try:
            net = torch.nn.Linear(16, 16)
            with torch.no_grad():
                net.weight.copy_(torch.linspace(-1, 1, 256).view(16, 16) * (number + 1))
                net.bias.zero_()
            optimizer = AdamW(net.parameters(), lr=1e-2)
            for _ in range(20):
                optimizer.zero_grad()
                net(torch.ones(2, 16)).pow(2).mean().backward()
                optimizer.step()
            results[number] = net.weight.detach().clone()
        except Exception as problem:
            problems.append(problem)

    def all_at_once():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return dict(results)

    mine = all_at_once()
    stock = {}
    for number in range(4):
        hook.set_enabled(False)
        work(number)
        stock[number] = results[number]
        hook.set_enabled(True)
    assert not problems
    for number, weight in stock.items():
        close(mine[number], weight, 1e-4)


@pytest.mark.parametrize("how", ["deterministic", "disabled"])
def test_is_stock_where_nothing_may_decide(hook, how):
    if how == "deterministic":
        torch.use_deterministic_algorithms(True)
    else:
        hook.set_enabled(False)
    try:
        net = model()
        optimizer = AdamW(net.parameters())
        train(net, optimizer, 6)
        assert optimizer not in sys.modules["ipexrun.training.optimizers"]._steppers
    finally:
        torch.use_deterministic_algorithms(False)


def test_inside_a_compiled_step(hook):
    def run():
        net = model()
        optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
        step = torch.compile(lambda: optimizer.step(), backend="eager")
        for number in range(4):
            optimizer.zero_grad()
            loss_of(net, number).backward()
            step()
        return list(net.parameters())

    mine, stock = both(hook, run)
    for one, other in zip(mine, stock):
        close(one, other, 1e-5)


def test_a_step_that_raised_leaves_nothing_behind_once_another_optimizer_stepped():
    module = sys.modules["torch.optim.adam"]
    adam = module.adam
    nets = [model(), model()]
    first, second = (Adam(net.parameters(), lr=1e-2) for net in nets)

    def raising():
        raise KeyError("of the program")

    with pytest.raises(KeyError):
        first.step(raising)
    for optimizer, net in ((second, nets[1]), (first, nets[0])):
        train(net, optimizer, steps=3)
        assert module.adam is adam
    patched = lambda *lists, **settings: adam(*lists, **settings)  # noqa: E731
    module.adam = patched
    try:
        train(nets[0], first, steps=3)
        assert module.adam is patched, "what the program put there"
    finally:
        module.adam = adam


def test_a_step_that_raised_leaves_subclasses_and_functions_to_stock(hook):
    class Mine(AdamW):
        pass

    first, net = model(), model()
    raising = AdamW(first.parameters())
    train(first, raising, 9)  # the next one would be fused
    module = sys.modules["torch.optim.adam"]
    adam, calls = module.adam, []
    module.adam = lambda *lists, **settings: (calls.append(settings.get("fused")), adam(*lists, **settings))[1]
    try:
        with pytest.raises(KeyError):
            raising.step(lambda: {}["mine"])
        train(net, Mine(net.parameters()), 2)
        weight = torch.zeros(3)
        with pytest.raises(KeyError):
            raising.step(lambda: {}["mine"])
        module.adam([weight], [torch.ones(3)], [torch.zeros(3)], [torch.zeros(3)], [], [torch.zeros(())], amsgrad=False, beta1=0.9, beta2=0.99,
                    lr=0.1, weight_decay=0.0, eps=1e-8, maximize=False)
    finally:
        module.adam = adam
    assert weight[0] != 0 and calls and not any(calls), calls


def test_a_fused_kernel_that_refuses_is_not_the_programs_problem(hook, monkeypatch):
    def refuses(*lists, **settings):
        raise TypeError("another torch")

    monkeypatch.setattr(torch, "_fused_adam_", refuses)
    net = model()
    optimizer = Adam(net.parameters())
    train(net, optimizer, 4)
    assert note_of(optimizer) == {"optimizer": "Adam", "choice": "stock", "reason": "another torch", "steps": 4, "fused": 0}


@pytest.mark.parametrize("at", [0, 12])
@pytest.mark.parametrize("kind, name", [(Adam, "_single_tensor_adam"), (Adam, "adam"), (SGD, "_default_to_fused_or_foreach"), (Adagrad, "_single_tensor_adagrad")])
def test_functions_that_the_program_replaced_are_called_in_each_step(hook, monkeypatch, kind, name, at):
    module = sys.modules[kind.__module__]
    torchs, calls = getattr(module, name), []
    net = model()
    optimizer = kind(net.parameters(), lr=1e-2)
    train(net, optimizer, at)
    monkeypatch.setattr(module, name, functools.wraps(torchs)(lambda *lists, **settings: (calls.append(1), torchs(*lists, **settings))[1]))
    train(net, optimizer, STEPS, at)
    assert len(calls) == STEPS and note_of(optimizer)["choice"] == "stock"
    assert at or note_of(optimizer)["reason"] == sys.modules["ipexrun.training.optimizers"].REPLACED  # later it may have lost the race already


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_a_parameter_that_is_listed_twice_is_stepped_as_stock_does(hook):
    def run():
        generator = torch.Generator().manual_seed(0)
        weights = [torch.nn.Parameter(torch.zeros(8, 8)) for _ in range(40)]
        weights[21] = weights[3]  # none of the sample
        optimizer = Adam(weights, lr=1e-2)
        for _ in range(STEPS):
            for weight in weights:
                weight.grad = torch.randn(8, 8, generator=generator) + 0.5
            optimizer.step()
        return weights[3], optimizer

    (mine, optimizer), (stock, _) = both(hook, run)
    assert torch.equal(mine, stock) and note_of(optimizer)["choice"] == "stock"


def test_groups_that_come_later_are_checked_as_the_first_were(hook, monkeypatch):
    weights = [torch.nn.Parameter(torch.ones(3, 4)) for _ in range(2)]
    optimizer = SGD([weights[0]], lr=0.1, momentum=0.9)
    stepper = sys.modules["ipexrun.training.optimizers"].Stepper
    checked, check = [], stepper.check

    def look(self, lists, settings, kind):
        checked.append((settings["maximize"], lists[2][0] is None))
        return check(self, lists, settings, kind)

    monkeypatch.setattr(stepper, "check", look)
    for step in range(16):
        if step == 8:
            sys.modules["ipexrun.training.optimizers"]._steppers[optimizer].phase = "fused"  # however fast it was
            optimizer.add_param_group({"params": [weights[1]], "maximize": True})
        for weight in weights:
            weight.grad = torch.full_like(weight, 0.5)
        optimizer.step()
    assert set(checked) == {(False, True), (False, False), (True, True), (True, False)} and note_of(optimizer)["fused"] > 0
    assert torch.allclose(weights[0] < 1, torch.tensor(True)) and torch.allclose(weights[1] > 1, torch.tensor(True))


def test_a_parameter_without_state_is_stocks_for_that_step_only(hook):
    weights = [torch.nn.Parameter(torch.ones(40, 40)) for _ in range(2)]
    optimizer = SGD(weights, lr=0.1, momentum=0.9)
    for step in range(20):
        for weight in weights if step >= 5 else weights[:1]:
            weight.grad = torch.full_like(weight, 0.5)
        optimizer.step()
    note = note_of(optimizer)
    assert note["fused"] > 0 and "ages" not in note["reason"], note


def test_tensors_of_inference_mode(hook):
    with torch.inference_mode():
        weight = torch.nn.Parameter(torch.ones(8, 8), requires_grad=False)
        optimizer = AdamW([weight])
        for _ in range(8):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
    assert note_of(optimizer)["fused"] > 0 and weight.mean() < 1
