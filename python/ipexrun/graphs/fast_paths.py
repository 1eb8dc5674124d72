"""The fast paths of nn.TransformerEncoderLayer and nn.MultiheadAttention in eval mode, one operator each, in the operators that they consist of: products,
norms and attention that a graph of ours knows, can join and can round to bf16. The method is torch's own (aten/src/ATen/native/transformers): the mask means
what it means there, and a sum has the type of what it is added to in place there, which is 16 bits wide under autocast.

Masks: True where nothing is looked at, of (length, length), (batch, length) or (batch, num_heads, length, length) by their type 0, 1, 2. NotImplemented for
what is written out nowhere: nested tensors, inputs without batches."""

import functools
import math

import torch
from torch.nn import functional


def encoder_layer(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight_1, norm_bias_1,
                  norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None):
    """src: (batch, length, embed_dim), and the result likewise."""

    def plus(x, more):
        return (x + more).to(x.dtype)

    def norm(x, weight, bias):
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    if left_whole(src, mask, mask_type):
        return NotImplemented
    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    x = attended((x, x, x), num_heads, qkv_weight, qkv_bias, mask, mask_type)
    x = plus(functional.linear(x, proj_weight, proj_bias), src)
    if not norm_first:
        x = norm(x, norm_weight_1, norm_bias_1)
    inside = norm(x, norm_weight_2, norm_bias_2) if norm_first else x
    inside = functional.linear(inside, ffn_weight_1, ffn_bias_1)
    inside = functional.gelu(inside) if use_gelu else functional.relu(inside)
    x = plus(functional.linear(inside, ffn_weight_2, ffn_bias_2), x)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


def multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask=None, need_weights=True,
                         average_attn_weights=True, mask_type=None):
    """query, key, value: (batch, length, embed_dim); the result likewise, and what each place looked at: (batch, length, length), or with num_head in second
    place where that is not averaged, or None."""
    if any(left_whole(one, mask, mask_type) for one in (query, key, value)):
        return NotImplemented
    if not need_weights:
        return functional.linear(attended((query, key, value), num_head, qkv_weight, qkv_bias, mask, mask_type), proj_weight, proj_bias), None
    queries, keys, values = heads((query, key, value), num_head, qkv_weight, qkv_bias)
    looks = attention_weights(queries, keys, mask, mask_type)
    result = functional.linear(side_by_side(torch.matmul(looks, values)), proj_weight, proj_bias)
    return result, looks.sum(1) / num_head if average_attn_weights else looks


def left_whole(x, mask, mask_type):
    return x.is_nested or x.dim() != 3 or (mask is not None and mask_type is None)


def attended(inputs, num_heads, weight, bias, mask, mask_type):
    queries, keys, values = heads(inputs, num_heads, weight, bias)
    if mask is None:
        return side_by_side(functional.scaled_dot_product_attention(queries, keys, values))
    return side_by_side(torch.matmul(attention_weights(queries, keys, mask, mask_type), values))


def heads(inputs, num_heads, weight, bias):
    """Queries, keys and values, each (batch, num_heads, length, width / num_heads). weight: (3 * width, width), in this order."""

    def split(x, parts):
        batch, length, width = x.shape
        return x.view(batch, length, parts, num_heads, width // parts // num_heads).permute(2, 0, 3, 1, 4).unbind(0)

    query, key, value = inputs
    if query is key and key is value:
        return split(functional.linear(query, weight, bias), 3)
    return [split(functional.linear(x, *parts), 1)[0] for x, *parts in zip(inputs, weight.chunk(3), bias.chunk(3))]


def attention_weights(queries, keys, mask, mask_type):
    """A row in which the mask leaves nothing gives what torch's masked softmax gives."""
    scores = torch.matmul(queries / math.sqrt(queries.shape[-1]), keys.transpose(-2, -1))
    if mask is None:
        return torch.softmax(scores, -1)
    return torch._masked_softmax(scores, mask.to(torch.bool), 3, mask_type)  # modules give masks of -inf and 0


def side_by_side(found):
    batch, num_heads, length, width = found.shape
    return found.transpose(1, 2).reshape(batch, length, num_heads * width)


FORMS = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
    torch.ops.aten._native_multi_head_attention.default: multi_head_attention,
}


def written_out():
    """What AOTAutograd is to write out, asked for where the program's own autocast can be seen: it traces without, and these operators' parts obey it."""
    if not torch.is_autocast_enabled("cpu"):
        return dict(FORMS)
    context = functools.partial(torch.autocast, "cpu", torch.get_autocast_dtype("cpu"), cache_enabled=False)
    return {operator: functools.partial(within, context, form) for operator, form in FORMS.items()}


def within(context, form, *args, **kwargs):
    with context():
        return form(*args, **kwargs)
