"""Inputs of a call; the caller seeds torch."""

import torch


def ids(s, **more):
    """Token ids without the special ones at the start of the vocabulary."""
    return {"input_ids": torch.randint(10, s.vocabulary, (s.batch, s.length)),
            "attention_mask": torch.ones(s.batch, s.length, dtype=torch.long), **more}


def ids_of_both(s):
    return ids(s, decoder_input_ids=torch.randint(10, s.vocabulary, (s.batch, s.length // 2)))


def pixels(s, channels=3, image=None, batch=None):
    image = image or s.image
    return {"pixel_values": torch.randn(batch or s.batch, channels, image, image)}


def sound(s):
    return {"input_values": torch.randn(s.batch, s.samples)}
