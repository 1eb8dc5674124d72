"""The optimizer Lamb, which IPEX brought and torch lacks: Adam's step, scaled for each parameter by its norm over the step's.

    from ipexrun.lamb import Lamb
    optimizer = Lamb(model.parameters(), lr=1e-3, weight_decay=0.01)

Method: You et al., Large batch optimization for deep learning: training BERT in 76 minutes, 2019, with Adam's corrections of bias. On device xpu a step
is two launches for all parameters, elsewhere a few operators on lists of tensors (torch._foreach_*). The ratio is 1 where a norm is 0.
"""

import math

import torch


class Lamb(torch.optim.Optimizer):
    """lr, eps, weight_decay >= 0, betas in [0, 1); the decay is added to the step, not to the gradient. What is kept has the parameters' type. `fused` is
    taken for IPEX's sake: the fused form is used wherever there is one."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, fused=None, maximize=False):
        del fused
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"Lamb: {name} is {value}, and may not be negative")
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"Lamb: betas are {betas}, and have to be two numbers, each at least 0 and less than 1")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for (step, _, _), parameters in self._alike(group).items():
                self._update(group, step, parameters)
        return loss

    def _alike(self, group):
        """Parameters with gradients by their step, device and type: each list is one update."""
        lists = {}
        for one in group["params"]:
            if one.grad is None:
                continue
            if one.grad.is_sparse:
                raise RuntimeError("Lamb does not support sparse gradients")
            if one.is_complex():
                raise RuntimeError("Lamb does not support complex parameters")
            state = self.state[one]
            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(one), exp_avg_sq=torch.zeros_like(one))
            state["step"] += 1
            lists.setdefault((state["step"], one.device, one.dtype), []).append(one)
        return lists

    def _update(self, group, step, parameters):
        (beta1, beta2), lr, eps, decay = group["betas"], float(group["lr"]), group["eps"], group["weight_decay"]
        grads = [one.grad for one in parameters]
        means, squares = ([self.state[one][name] for one in parameters] for name in ("exp_avg", "exp_avg_sq"))
        if parameters[0].device.type == "xpu" and hasattr(torch.ops.ipexrun_xpu, "lamb_") and beta1 > 0 and beta2 > 0:
            if torch.ops.ipexrun_xpu.lamb_(parameters, grads, means, squares, step, lr, beta1, beta2, eps, decay, group["maximize"]):
                return
        if group["maximize"]:
            grads = torch._foreach_neg(grads)
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, math.sqrt(1 - beta2**step))
        torch._foreach_add_(roots, eps)
        moves = torch._foreach_div(means, roots)
        torch._foreach_div_(moves, 1 - beta1**step)
        if decay:
            torch._foreach_add_(moves, parameters, alpha=decay)
        for one, move in zip(parameters, moves):
            of_one, of_move = one.norm(), move.norm()
            ratio = torch.where((of_one > 0) & (of_move > 0), of_one / of_move, torch.ones_like(of_one))
            one.sub_(move.mul_(ratio * lr))
