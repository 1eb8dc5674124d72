"""The fast path of nn.TransformerEncoderLayer in eval mode, one operator, in the operators that it consists of: products, norms and attention that a graph
of ours knows, can join and can round to bf16. (nn.MultiheadAttention's own is taken by no traced module.) The method is torch's (aten/src/ATen/native/transformers):
the mask means what it means there, and a sum has the type of what it is added to in place there, which is 16 bits wide under autocast."""

import functools
import math

import torch
from torch.nn import functional


def encoder_layer(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight_1, norm_bias_1,
                  norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None):
    """src: (batch, length, embed_dim), and the result likewise. mask: True where nothing is looked at, of (length, length), (batch, length) or
    (batch, num_heads, length, length) by its type 0, 1, 2. NotImplemented for what is written out nowhere: nested tensors, inputs without batches."""

    def plus(x, more):
        return (x + more).to(x.dtype)

    def norm(x, weight, bias):
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    if src.is_nested or src.dim() != 3 or (mask is not None and mask_type is None):
        return NotImplemented
    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    x = attended(x, num_heads, qkv_weight, qkv_bias, mask, mask_type)
    x = plus(functional.linear(x, proj_weight, proj_bias), src)
    if not norm_first:
        x = norm(x, norm_weight_1, norm_bias_1)
    inside = norm(x, norm_weight_2, norm_bias_2) if norm_first else x
    inside = functional.linear(inside, ffn_weight_1, ffn_bias_1)
    inside = functional.gelu(inside) if use_gelu else functional.relu(inside)
    x = plus(functional.linear(inside, ffn_weight_2, ffn_bias_2), x)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


def attended(x, num_heads, weight, bias, mask, mask_type):
    """weight: (3 * width, width), of queries, keys and values in this order. A row in which the mask leaves nothing is NaN, as in torch's masked softmax."""
    batch, length, width = x.shape
    heads = functional.linear(x, weight, bias).view(batch, length, 3, num_heads, width // num_heads).permute(2, 0, 3, 1, 4)
    queries, keys, values = heads.unbind(0)
    if mask is None:
        found = functional.scaled_dot_product_attention(queries, keys, values)
    else:
        scores = torch.matmul(queries / math.sqrt(queries.shape[-1]), keys.transpose(-2, -1))
        hidden = mask.to(torch.bool)  # modules give masks of -inf and 0
        hidden = hidden.view(batch, 1, 1, length) if mask_type == 1 else hidden
        found = torch.matmul(torch.softmax(scores.masked_fill(hidden, -math.inf), -1), values)
    return found.transpose(1, 2).reshape(batch, length, width)


ENCODER_LAYER = torch.ops.aten._transformer_encoder_layer_fwd.default


def written_out(module):
    """What AOTAutograd is to write out of a graph of TorchDynamo's, asked for where the autocast around the call can be seen: it traces without, and the
    operator's parts obey it. Nothing where the graph begins or ends autocast itself."""
    if any("autocast" in getattr(node.target, "__name__", "") for node in module.graph.nodes):
        return {}
    if not torch.is_autocast_enabled("cpu"):
        return {ENCODER_LAYER: encoder_layer}
    context = functools.partial(torch.autocast, "cpu", torch.get_autocast_dtype("cpu"), cache_enabled=False)
    return {ENCODER_LAYER: functools.partial(within, context)}


def within(context, *args, **kwargs):
    with context():
        return encoder_layer(*args, **kwargs)
