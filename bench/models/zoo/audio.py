"""Sound: from samples, and from spectrograms."""

import torch

from . import family, from_config
from .inputs import sound


def wav_like(s, **more):
    return {"hidden_size": s.width, "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "intermediate_size": s.inner,
            "conv_dim": (128,) * 7, "num_conv_pos_embedding_groups": 8, "num_conv_pos_embeddings": 32, "vocab_size": 32,
            "apply_spec_augment": False, "mask_time_prob": 0.0, "mask_feature_prob": 0.0} | more


WAVS = {
    "wav2vec2": ("Wav2Vec2ForCTC", "Wav2Vec2Config", {}),
    "hubert": ("HubertModel", "HubertConfig", {}),
    "wavlm": ("WavLMModel", "WavLMConfig", {}),
    "unispeech": ("UniSpeechModel", "UniSpeechConfig", {}),
    "unispeech_sat": ("UniSpeechSatModel", "UniSpeechSatConfig", {}),
    "wav2vec2_conformer": ("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", {"position_embeddings_type": "rotary"}),
    "sew": ("SEWModel", "SEWConfig", {"conv_dim": (64, 128, 128, 128, 128, 256, 256), "conv_kernel": (10, 3, 3, 3, 3, 2, 2),
                                      "conv_stride": (5, 2, 2, 2, 2, 2, 2)}),
    "sew_d": ("SEWDModel", "SEWDConfig", {"conv_dim": (64, 128, 128, 128, 128, 256, 256), "conv_kernel": (10, 3, 3, 3, 3, 2, 2),
                                          "conv_stride": (5, 2, 2, 2, 2, 2, 2)}),
}


def add_wav(name, model, config, more):
    @family(name, "audio")
    def build(s):
        return from_config(name, model, config, **wav_like(s, **more)), sound(s)


for _name, (_model, _config, _more) in WAVS.items():
    add_wav(_name, _model, _config, _more)


@family("whisper", "audio")
def _(s):
    model = from_config("whisper", "WhisperModel", "WhisperConfig", vocab_size=s.vocabulary, d_model=s.width, encoder_layers=s.layers,
                        decoder_layers=s.layers // 2, encoder_attention_heads=s.heads,
                        decoder_attention_heads=s.heads, encoder_ffn_dim=s.inner, decoder_ffn_dim=s.inner, max_source_positions=100,
                        max_target_positions=64, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                        apply_spec_augment=False)
    return model, {"input_features": torch.randn(s.batch, 80, 200), "decoder_input_ids": torch.randint(10, s.vocabulary, (s.batch, 16))}


@family("speech_to_text", "audio")
def _(s):
    model = from_config("speech_to_text", "Speech2TextModel", "Speech2TextConfig", vocab_size=s.vocabulary, d_model=s.width,
                        encoder_layers=s.layers, decoder_layers=s.layers // 2, encoder_attention_heads=s.heads,
                        decoder_attention_heads=s.heads, encoder_ffn_dim=s.inner, decoder_ffn_dim=s.inner, use_cache=False)
    return model, {"input_features": torch.randn(s.batch, 200, 80), "decoder_input_ids": torch.randint(10, s.vocabulary, (s.batch, 16))}


@family("audio_spectrogram_transformer", "audio")
def _(s):
    model = from_config("audio_spectrogram_transformer", "ASTModel", "ASTConfig", hidden_size=s.width, num_hidden_layers=s.layers,
                        num_attention_heads=s.heads, intermediate_size=s.inner, max_length=128)
    return model, {"input_values": torch.randn(s.batch, 128, 128)}


@family("moonshine", "audio")
def _(s):
    model = from_config("moonshine", "MoonshineModel", "MoonshineConfig", vocab_size=s.vocabulary, hidden_size=s.width,
                        intermediate_size=s.inner, encoder_num_hidden_layers=s.layers, decoder_num_hidden_layers=s.layers // 2,
                        encoder_num_attention_heads=s.heads, decoder_num_attention_heads=s.heads, use_cache=False,
                        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return model, {"input_values": torch.randn(s.batch, s.samples), "decoder_input_ids": torch.randint(10, s.vocabulary, (s.batch, 16))}
