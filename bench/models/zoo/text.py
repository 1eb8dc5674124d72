"""Text: encoders, and encoders with decoders."""

from . import family, from_config
from .inputs import ids, ids_of_both


def bert_like(s, **more):
    return {"vocab_size": s.vocabulary, "hidden_size": s.width, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
            "intermediate_size": s.inner, "max_position_embeddings": 512} | more


# name -> (model, config, settings besides those of BERT)
ENCODERS = {
    "bert": ("BertModel", "BertConfig", {}),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {}),
    "xlm_roberta_xl": ("XLMRobertaXLModel", "XLMRobertaXLConfig", {}),
    "electra": ("ElectraModel", "ElectraConfig", {"embedding_size": 128}),
    "deberta_v2": ("DebertaV2Model", "DebertaV2Config", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"],
                                                         "position_buckets": 32}),
    "mpnet": ("MPNetModel", "MPNetConfig", {}),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {"embedding_size": None}),
    "convbert": ("ConvBertModel", "ConvBertConfig", {"embedding_size": 128}),
    "fnet": ("FNetModel", "FNetConfig", {}),
    "roformer": ("RoFormerModel", "RoFormerConfig", {"embedding_size": 128}),
    "nystromformer": ("NystromformerModel", "NystromformerConfig", {"segment_means_seq_len": 64, "num_landmarks": 16}),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1,
                                                          "eos_token_id": 2, "reference_compile": False}),
    "megatron_bert": ("MegatronBertModel", "MegatronBertConfig", {}),
    "layoutlm": ("LayoutLMModel", "LayoutLMConfig", {}),
    "rembert": ("RemBertModel", "RemBertConfig", {"input_embedding_size": 128, "output_embedding_size": 128}),
    "esm": ("EsmModel", "EsmConfig", {"pad_token_id": 1, "mask_token_id": 2, "position_embedding_type": "rotary"}),
    "big_bird": ("BigBirdModel", "BigBirdConfig", {"attention_type": "original_full"}),
    "longformer": ("LongformerModel", "LongformerConfig", {"attention_window": 32}),
}


def add_encoder(name, model, config, more):
    @family(name, "encoder")
    def build(s):
        settings = bert_like(s, **more)
        if settings.get("embedding_size", 0) is None:
            settings["embedding_size"] = s.width
        inputs = ids(s)
        if name == "fnet":
            del inputs["attention_mask"]
        return from_config(name, model, config, **settings), inputs


for _name, (_model, _config, _more) in ENCODERS.items():
    add_encoder(_name, _model, _config, _more)


@family("distilbert", "encoder")
def _(s):
    return from_config("distilbert", "DistilBertModel", "DistilBertConfig", vocab_size=s.vocabulary, dim=s.width, n_layers=s.layers,
                       n_heads=s.heads, hidden_dim=s.inner), ids(s)


@family("albert", "encoder")
def _(s):
    return from_config("albert", "AlbertModel", "AlbertConfig", **bert_like(s, embedding_size=128)), ids(s)


@family("mobilebert", "encoder")
def _(s):
    return from_config("mobilebert", "MobileBertModel", "MobileBertConfig", **bert_like(
        s, intra_bottleneck_size=128, embedding_size=128, num_attention_heads=4, intermediate_size=512, true_hidden_size=128)), ids(s)


@family("funnel", "encoder")
def _(s):
    return from_config("funnel", "FunnelModel", "FunnelConfig", vocab_size=s.vocabulary, block_sizes=[2, 2], d_model=s.width,
                       n_head=s.heads, d_head=64, d_inner=s.inner), ids(s)


@family("xlnet", "encoder")
def _(s):
    return from_config("xlnet", "XLNetModel", "XLNetConfig", vocab_size=s.vocabulary, d_model=s.width, n_layer=s.layers, n_head=s.heads,
                       d_inner=s.inner, use_mems_eval=False, use_mems_train=False), ids(s)


def bart_like(s, **more):
    return {"vocab_size": s.vocabulary, "d_model": s.width, "encoder_layers": s.layers, "decoder_layers": s.layers // 2,
            "encoder_attention_heads": s.heads, "decoder_attention_heads": s.heads, "encoder_ffn_dim": s.inner, "decoder_ffn_dim": s.inner,
            "max_position_embeddings": 512, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
            "forced_eos_token_id": 2, "use_cache": False} | more


BARTS = {
    "bart": ("BartForConditionalGeneration", "BartConfig", {}),
    "mbart": ("MBartModel", "MBartConfig", {}),
    "pegasus": ("PegasusModel", "PegasusConfig", {}),
    "marian": ("MarianModel", "MarianConfig", {"decoder_vocab_size": 1000}),
    "blenderbot": ("BlenderbotModel", "BlenderbotConfig", {}),
    "m2m_100": ("M2M100Model", "M2M100Config", {}),
}


def add_bart(name, model, config, more):
    @family(name, "encoder-decoder")
    def build(s):
        return from_config(name, model, config, **bart_like(s, **more)), ids_of_both(s)


for _name, (_model, _config, _more) in BARTS.items():
    add_bart(_name, _model, _config, _more)


def add_t5(name, model, config, more):
    @family(name, "encoder-decoder")
    def build(s):
        return from_config(name, model, config, vocab_size=s.vocabulary, d_model=s.width, d_kv=64, d_ff=s.inner, num_layers=s.layers,
                           num_decoder_layers=s.layers // 2, num_heads=s.heads, use_cache=False, **more), ids_of_both(s)


add_t5("t5", "T5ForConditionalGeneration", "T5Config", {})
add_t5("umt5", "UMT5Model", "UMT5Config", {"feed_forward_proj": "gated-gelu"})


@family("prophetnet", "encoder-decoder")
def _(s):
    return from_config("prophetnet", "ProphetNetModel", "ProphetNetConfig", vocab_size=s.vocabulary, hidden_size=s.width,
                       num_encoder_layers=s.layers, num_decoder_layers=s.layers // 2, num_encoder_attention_heads=s.heads,
                       num_decoder_attention_heads=s.heads, encoder_ffn_dim=s.inner, decoder_ffn_dim=s.inner,
                       use_cache=False), ids_of_both(s)
