"""Text with images, time series, decisions, recommendation, diffusion."""

import torch

from models.dlrm import Dlrm
from models.unet import Unet

from . import family, from_config
from .inputs import ids, pixels


def tower_settings(s):
    return {"hidden_size": s.width, "intermediate_size": s.inner, "num_hidden_layers": s.layers, "num_attention_heads": s.heads}


def two_towers(s):
    words = {"vocab_size": s.vocabulary, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    text = tower_settings(s) | words
    return {"text_config": text, "vision_config": tower_settings(s) | {"image_size": s.image, "patch_size": 16}}


@family("clip", "text and image")
def _(s):
    return from_config("clip", "CLIPModel", "CLIPConfig", projection_dim=128, **two_towers(s)), ids(s) | pixels(s)


@family("siglip", "text and image")
def _(s):
    return from_config("siglip", "SiglipModel", "SiglipConfig", **two_towers(s)), ids(s) | pixels(s)


@family("altclip", "text and image")
def _(s):
    towers = two_towers(s)
    towers["text_config"]["project_dim"] = 128
    return from_config("altclip", "AltCLIPModel", "AltCLIPConfig", projection_dim=128, **towers), ids(s) | pixels(s)


@family("vilt", "text and image")
def _(s):
    model = from_config("vilt", "ViltModel", "ViltConfig", vocab_size=s.vocabulary, image_size=s.image, patch_size=16, max_image_length=-1,
                        max_position_embeddings=s.length,
                        **tower_settings(s))
    return model, ids(s) | pixels(s) | {"pixel_mask": torch.ones(s.batch, s.image, s.image, dtype=torch.long)}


@family("decision_transformer", "decision")
def _(s):
    model = from_config("decision_transformer", "DecisionTransformerModel", "DecisionTransformerConfig", state_dim=17, act_dim=4,
                        hidden_size=s.width, n_layer=s.layers, n_head=s.heads, max_ep_len=100)
    steps = s.length // 2
    return model, {"states": torch.randn(s.batch, steps, 17), "actions": torch.randn(s.batch, steps, 4),
                   "rewards": torch.randn(s.batch, steps, 1),
                   "returns_to_go": torch.randn(s.batch, steps, 1), "timesteps": torch.arange(steps).repeat(s.batch, 1),
                   "attention_mask": torch.ones(s.batch, steps)}


def series_like(s, **more):
    return {"prediction_length": 24, "context_length": 96, "lags_sequence": [1, 2, 3], "d_model": s.width // 2,
            "encoder_layers": s.layers // 2, "decoder_layers": s.layers // 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
            "encoder_ffn_dim": s.inner, "decoder_ffn_dim": s.inner, "num_time_features": 2, "use_cache": False} | more


def series_inputs(s):
    batch, past, future = 4 * s.batch, 99, 24
    return {"past_values": torch.rand(batch, past) + 0.5, "past_time_features": torch.randn(batch, past, 2),
            "past_observed_mask": torch.ones(batch, past), "future_values": torch.rand(batch, future) + 0.5,
            "future_time_features": torch.randn(batch, future, 2)}


SERIES = {
    "time_series_transformer": ("TimeSeriesTransformerModel", "TimeSeriesTransformerConfig", {}),
    "informer": ("InformerModel", "InformerConfig", {"attention_type": "full"}),
    "autoformer": ("AutoformerModel", "AutoformerConfig", {"label_length": 24}),
}


def add_series(name, model, config, more):
    @family(name, "time series")
    def build(s):
        return from_config(name, model, config, **series_like(s, **more)), series_inputs(s)


for _name, (_model, _config, _more) in SERIES.items():
    add_series(_name, _model, _config, _more)


@family("patchtst", "time series")
def _(s):
    model = from_config("patchtst", "PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=7, context_length=256, patch_length=16,
                        patch_stride=8, num_hidden_layers=s.layers, d_model=s.width // 2, num_attention_heads=4, ffn_dim=s.inner,
                        prediction_length=24)
    return model, {"past_values": torch.randn(s.batch, 256, 7)}


@family("patchtsmixer", "time series")
def _(s):
    model = from_config("patchtsmixer", "PatchTSMixerForPrediction", "PatchTSMixerConfig", num_input_channels=7, context_length=256,
                        patch_length=16, patch_stride=8, num_layers=s.layers, d_model=s.width // 2, prediction_length=24)
    return model, {"past_values": torch.randn(2 * s.batch, 256, 7)}


@family("timesformer", "video")
def _(s):
    image = s.image // 2 // 16 * 16
    model = from_config("timesformer", "TimesformerModel", "TimesformerConfig", image_size=image, num_frames=4, patch_size=16,
                        **tower_settings(s))
    return model, {"pixel_values": torch.randn(s.batch, 4, 3, image, image)}


@family("dlrm", "recommender")
def _(s):
    batch, tables, rows, per_bag = 128 * s.batch, 8, 1000, 4
    model = Dlrm(tables=tables, rows=rows, width=64, bottom=(2 * s.width, s.width), top=(2 * s.width, s.width))
    return model, {"dense": torch.randn(batch, 13), "indices": torch.randint(0, rows, (tables, per_bag * batch)),
                   "offsets": torch.arange(0, per_bag * batch, per_bag).repeat(tables, 1)}


@family("unet", "diffusion")
def _(s):
    return Unet(width=s.width // 4), {"x": torch.randn(s.batch, 4, 32, 32), "steps": torch.randint(0, 1000, (s.batch,))}
