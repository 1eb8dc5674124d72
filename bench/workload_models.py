"""The five workloads of docs/performance-workloads.md: models from transformers' configurations with random weights, a fixed seed."""

import torch


def resnet50(batch):
    import transformers

    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return model, {"pixel_values": torch.randn(batch, 3, 224, 224)}, "logits"


def bert(batch, **sizes):
    import transformers

    ids = torch.randint(0, 30000, (batch, 128))
    return transformers.BertModel(transformers.BertConfig(**sizes)), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, "last_hidden_state"


def vit(batch):
    import transformers

    return transformers.ViTModel(transformers.ViTConfig()), {"pixel_values": torch.randn(batch, 3, 224, 224)}, "last_hidden_state"


WORKLOADS = {
    "resnet50_b1": lambda: resnet50(1),
    "resnet50_b16": lambda: resnet50(16),
    "resnet50_b32": lambda: resnet50(32),
    "bert_b1": lambda: bert(1),
    "bert_b8": lambda: bert(8),
    "bert_b16": lambda: bert(16),
    "vit_b4": lambda: vit(4),
    "vit_b8": lambda: vit(8),
    "tiny": lambda: bert(1, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128, vocab_size=30000),
}


def build(name):
    """(model, inputs by name, name of the result that counts)."""
    torch.manual_seed(0)
    model, inputs, wanted = WORKLOADS[name]()
    return model.eval(), inputs, wanted
