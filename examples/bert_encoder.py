"""A BERT encoder of any size with random weights, called in a loop: plain PyTorch and transformers, for measuring speed.

    python examples/bert_encoder.py [--layers 12] [--hidden 768] [--batch-size 8] [--length 128] [--calls 30]
"""

import argparse
import time

import torch
from transformers import BertConfig, BertModel


def main():
    parser = argparse.ArgumentParser(description="time a BERT encoder with random weights")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--calls", type=int, default=30)
    args = parser.parse_args()

    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=args.layers, hidden_size=args.hidden, num_attention_heads=args.hidden // 64, intermediate_size=4 * args.hidden
    )
    model = BertModel(config).eval()
    tokens = torch.randint(0, config.vocab_size, (args.batch_size, args.length))

    checksum = 0.0
    start = time.perf_counter()
    with torch.no_grad():
        for _ in range(args.calls):
            checksum += model(tokens).last_hidden_state.mean().item()
    seconds = time.perf_counter() - start
    print(f"checksum: {checksum / args.calls:.6f}")
    print(f"throughput: {args.calls * args.batch_size / seconds:.2f} samples/s")


if __name__ == "__main__":
    main()
