"""Text: decoders."""

from . import family, from_config
from .inputs import ids


def llama_like(s, **more):
    return {"vocab_size": s.vocabulary, "hidden_size": s.width, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
            "num_key_value_heads": s.heads // 2, "intermediate_size": 3 * s.width, "max_position_embeddings": 512, "use_cache": False,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | more


LLAMAS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "mistral": ("MistralModel", "MistralConfig", {}),
    "qwen2": ("Qwen2Model", "Qwen2Config", {}),
    "qwen3": ("Qwen3Model", "Qwen3Config", {"head_dim": 64}),
    "gemma": ("GemmaModel", "GemmaConfig", {"head_dim": 64}),
    "gemma2": ("Gemma2Model", "Gemma2Config", {"head_dim": 64}),
    "phi": ("PhiModel", "PhiConfig", {}),
    "phi3": ("Phi3Model", "Phi3Config", {}),
    "stablelm": ("StableLmModel", "StableLmConfig", {}),
    "olmo2": ("Olmo2Model", "Olmo2Config", {}),
    "granite": ("GraniteModel", "GraniteConfig", {}),
    "cohere": ("CohereModel", "CohereConfig", {}),
    "starcoder2": ("Starcoder2Model", "Starcoder2Config", {}),
    "glm": ("GlmModel", "GlmConfig", {"head_dim": 64}),
    "persimmon": ("PersimmonModel", "PersimmonConfig", {"num_key_value_heads": None}),
    "mixtral": ("MixtralModel", "MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": False}),
    "gpt_neox": ("GPTNeoXModel", "GPTNeoXConfig", {"num_key_value_heads": None}),
    "biogpt": ("BioGptModel", "BioGptConfig", {"num_key_value_heads": None}),
}


def add_llama(name, model, config, more):
    @family(name, "decoder")
    def build(s):
        settings = llama_like(s, **more)
        if settings["num_key_value_heads"] is None:
            del settings["num_key_value_heads"]
        return from_config(name, model, config, **settings), ids(s)


for _name, (_model, _config, _more) in LLAMAS.items():
    add_llama(_name, _model, _config, _more)


def gpt_like(s, **more):
    return {"vocab_size": s.vocabulary, "n_embd": s.width, "n_layer": s.layers, "n_head": s.heads, "n_positions": 512, "use_cache": False,
            "bos_token_id": 1, "eos_token_id": 2} | more


@family("gpt2", "decoder")
def _(s):
    return from_config("gpt2", "GPT2LMHeadModel", "GPT2Config", **gpt_like(s)), ids(s)


@family("gptj", "decoder")
def _(s):
    return from_config("gptj", "GPTJModel", "GPTJConfig", **gpt_like(s, rotary_dim=32)), ids(s)


@family("gpt_neo", "decoder")
def _(s):
    return from_config("gpt_neo", "GPTNeoModel", "GPTNeoConfig", vocab_size=s.vocabulary, hidden_size=s.width, num_layers=s.layers,
                       attention_types=[[["global", "local"], s.layers // 2]], num_heads=s.heads, use_cache=False, bos_token_id=1,
                       eos_token_id=2), ids(s)


@family("opt", "decoder")
def _(s):
    return from_config("opt", "OPTModel", "OPTConfig", vocab_size=s.vocabulary, hidden_size=s.width, num_hidden_layers=s.layers,
                       ffn_dim=s.inner, num_attention_heads=s.heads, word_embed_proj_dim=s.width, use_cache=False), ids(s)


@family("bloom", "decoder")
def _(s):
    return from_config("bloom", "BloomModel", "BloomConfig", vocab_size=s.vocabulary, hidden_size=s.width, n_layer=s.layers, n_head=s.heads,
                       use_cache=False), ids(s)


@family("falcon", "decoder")
def _(s):
    return from_config("falcon", "FalconModel", "FalconConfig", vocab_size=s.vocabulary, hidden_size=s.width, num_hidden_layers=s.layers,
                       num_attention_heads=s.heads, use_cache=False), ids(s)


@family("mamba", "decoder")
def _(s):
    inputs = ids(s)
    return from_config("mamba", "MambaModel", "MambaConfig", vocab_size=s.vocabulary, hidden_size=s.width, num_hidden_layers=s.layers // 2,
                       state_size=8, use_cache=False), {"input_ids": inputs["input_ids"]}
