"""How many results of a classifier with few scores miss the accuracy rule?

Usage: ipexrun python small_heads.py [--labels N] [--batch N] [--seconds S] [--trained] [--seed N]

A BERT of 6 layers with random weights answers random tokens for so many seconds; then some of its calls are computed once more by stock's
kernels (a copy of the model), and rows further than 3e-2 away are counted. --trained: a bias keeps the scores far from zero, as training does.
Needs transformers; without ipexrun it says nothing (0 rows).
"""

import argparse
import copy
import time

import torch

BOUND = 3e-2  # of the accuracy rule for a module
LOOKED_AT = 400  # calls


def model_of(options):
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(options.seed)
    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, num_labels=options.labels, vocab_size=5000)
    model = BertForSequenceClassification(config).eval()
    if options.trained:
        torch.nn.init.uniform_(model.classifier.bias, 2, 3)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=2, help="scores of a row")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--trained", action="store_true", help="scores far from zero")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = model_of(options)
    stock = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(options.seed + 1)
    calls = []
    end = time.monotonic() + options.seconds
    with torch.no_grad():
        while time.monotonic() < end:
            tokens = torch.randint(0, 5000, (options.batch, 64), generator=generator)
            mask = torch.ones_like(tokens)
            calls.append((tokens, mask, model(tokens, attention_mask=mask).logits))
        try:
            import ipexrun

            ipexrun.set_enabled(False)
        except ImportError:
            pass
        errors = []
        for tokens, mask, found in calls[:: max(len(calls) // LOOKED_AT, 1)]:
            truth = stock(tokens, attention_mask=mask).logits
            errors.append((found - truth).norm(dim=1) / truth.norm(dim=1))
    errors = torch.cat(errors)
    print(f"{len(calls)} calls; of {len(errors)} rows looked at {int((errors > BOUND).sum())} are more than {BOUND:.0e} away; median {errors.median():.1e}, worst {errors.max():.1e}")


if __name__ == "__main__":
    main()
