"""Images: transformers, convolutional networks, segmentation, depth, detection. What needs timm or torchvision is not here."""

import torch

from . import family, from_config
from .inputs import pixels


def vit_like(s, **more):
    return {"hidden_size": s.width, "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "intermediate_size": s.inner,
            "image_size": s.image, "patch_size": 16} | more


VITS = {
    "vit": ("ViTForImageClassification", "ViTConfig", {}),
    "deit": ("DeiTModel", "DeiTConfig", {}),
    "beit": ("BeitModel", "BeitConfig", {}),
    "dinov2": ("Dinov2Model", "Dinov2Config", {"mlp_ratio": 4}),
    "vit_msn": ("ViTMSNModel", "ViTMSNConfig", {}),
    "ijepa": ("IJepaModel", "IJepaConfig", {}),
    "yolos": ("YolosForObjectDetection", "YolosConfig", {"num_detection_tokens": 20}),
}


def add_vit(name, model, config, more):
    @family(name, "detection" if name == "yolos" else "vision")
    def build(s):
        settings = vit_like(s, **more)
        if name == "yolos":
            settings["image_size"] = [s.image, s.image]
        return from_config(name, model, config, **settings), pixels(s)


for _name, (_model, _config, _more) in VITS.items():
    add_vit(_name, _model, _config, _more)


@family("vit_mae", "vision")
def _(s):
    inputs = pixels(s)
    inputs["noise"] = torch.rand(s.batch, (s.image // 16) ** 2)
    return from_config("vit_mae", "ViTMAEForPreTraining", "ViTMAEConfig", **vit_like(
        s, decoder_hidden_size=128, decoder_num_hidden_layers=2, decoder_num_attention_heads=4, decoder_intermediate_size=512)), inputs


def add_swin(name, model, config):
    @family(name, "vision")
    def build(s):
        return from_config(name, model, config, image_size=s.image, embed_dim=s.width // 4, depths=[1, 1, s.layers, 1],
                           num_heads=[2, 4, 8, 16], window_size=s.image // 32), pixels(s)


add_swin("swin", "SwinModel", "SwinConfig")
add_swin("swinv2", "Swinv2Model", "Swinv2Config")


def add_convnext(name, model, config):
    @family(name, "vision")
    def build(s):
        return from_config(name, model, config, hidden_sizes=[s.width // 4 * f for f in (1, 2, 4, 8)],
                           depths=[1, 1, s.layers, 1]), pixels(s)


add_convnext("convnext", "ConvNextModel", "ConvNextConfig")
add_convnext("convnextv2", "ConvNextV2Model", "ConvNextV2Config")


def resnet_settings(s):
    return {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [1, 1, s.layers, 1], "layer_type": "basic"}


@family("resnet", "vision")
def _(s):
    return from_config("resnet", "ResNetForImageClassification", "ResNetConfig", **(resnet_settings(s) | {
        "layer_type": "bottleneck", "hidden_sizes": [128, 256, 512, 1024]})), pixels(s)


@family("regnet", "vision")
def _(s):
    return from_config("regnet", "RegNetModel", "RegNetConfig", hidden_sizes=[64, 128, 256, 512], depths=[1, 1, s.layers, 1],
                       groups_width=32), pixels(s)


@family("bit", "vision")
def _(s):
    return from_config("bit", "BitModel", "BitConfig", embedding_size=64, hidden_sizes=[128, 256, 512, 512],
                       depths=[1, 1, s.layers, 1]), pixels(s)


@family("mobilenet_v1", "vision")
def _(s):
    return from_config("mobilenet_v1", "MobileNetV1Model", "MobileNetV1Config", image_size=s.image), pixels(s)


@family("mobilenet_v2", "vision")
def _(s):
    return from_config("mobilenet_v2", "MobileNetV2Model", "MobileNetV2Config", image_size=s.image), pixels(s)


@family("mobilevit", "vision")
def _(s):
    return from_config("mobilevit", "MobileViTModel", "MobileViTConfig", image_size=s.image), pixels(s)


@family("mobilevitv2", "vision")
def _(s):
    return from_config("mobilevitv2", "MobileViTV2Model", "MobileViTV2Config", image_size=s.image), pixels(s)


@family("efficientnet", "vision")
def _(s):
    return from_config("efficientnet", "EfficientNetModel", "EfficientNetConfig", image_size=s.image, width_coefficient=1.0,
                       depth_coefficient=1.0, hidden_dim=1280), pixels(s)


@family("segformer", "segmentation")
def _(s):
    return from_config("segformer", "SegformerForSemanticSegmentation", "SegformerConfig", depths=[1, 1, 2, 1],
                       hidden_sizes=[32, 64, 160, 256], decoder_hidden_size=s.width, num_labels=10), pixels(s)


@family("pvt", "vision")
def _(s):
    return from_config("pvt", "PvtModel", "PvtConfig", image_size=s.image, depths=[1, 1, 2, 1]), pixels(s)


@family("pvt_v2", "vision")
def _(s):
    return from_config("pvt_v2", "PvtV2Model", "PvtV2Config", image_size=s.image, depths=[1, 1, 2, 1],
                       hidden_sizes=[32, 64, 160, 256]), pixels(s)


@family("poolformer", "vision")
def _(s):
    return from_config("poolformer", "PoolFormerModel", "PoolFormerConfig", depths=[1, 1, s.layers, 1]), pixels(s)


@family("focalnet", "vision")
def _(s):
    return from_config("focalnet", "FocalNetModel", "FocalNetConfig", image_size=s.image, embed_dim=s.width // 4,
                       hidden_sizes=[s.width // 4 * f for f in (1, 2, 4, 8)], depths=[1, 1, s.layers, 1]), pixels(s)


@family("levit", "vision")
def _(s):
    return from_config("levit", "LevitModel", "LevitConfig", image_size=224, depths=[2, 2, 2]), pixels(s, image=224)


@family("cvt", "vision")
def _(s):
    return from_config("cvt", "CvtModel", "CvtConfig", depth=[1, 2, max(3, s.layers)]), pixels(s)


@family("dpt", "depth")
def _(s):
    return from_config("dpt", "DPTForDepthEstimation", "DPTConfig", **vit_like(
        s, num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=128)), pixels(s)


@family("glpn", "depth")
def _(s):
    return from_config("glpn", "GLPNForDepthEstimation", "GLPNConfig", depths=[1, 1, 2, 1], hidden_sizes=[32, 64, 160, 256],
                       decoder_hidden_size=64), pixels(s)


@family("swin2sr", "super-resolution")
def _(s):
    return from_config("swin2sr", "Swin2SRForImageSuperResolution", "Swin2SRConfig", image_size=32, embed_dim=96, depths=[2, 2],
                       num_heads=[4, 4], window_size=8), pixels(s, image=32)


def resnet_backbone(s):
    from transformers.models.resnet.configuration_resnet import ResNetConfig

    return ResNetConfig(out_features=["stage2", "stage3", "stage4"], **resnet_settings(s))


def last_stage(s):
    from transformers.models.resnet.configuration_resnet import ResNetConfig

    return ResNetConfig(out_features=["stage4"], **resnet_settings(s))


def detr_like(s, **more):
    return {"d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
            "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "num_queries": 50, "use_timm_backbone": False,
            "use_pretrained_backbone": False, "backbone": None, "num_labels": 20} | more


DETRS = {
    "detr": ("DetrForObjectDetection", "DetrConfig", last_stage, {}),
    "conditional_detr": ("ConditionalDetrForObjectDetection", "ConditionalDetrConfig", last_stage, {}),
    "table_transformer": ("TableTransformerForObjectDetection", "TableTransformerConfig", last_stage, {}),
    "deformable_detr": ("DeformableDetrForObjectDetection", "DeformableDetrConfig", resnet_backbone, {"num_feature_levels": 4}),
}


def add_detr(name, model, config, backbone, more):
    @family(name, "detection")
    def build(s):
        return from_config(name, model, config, backbone_config=backbone(s), **detr_like(s, **more)), pixels(s)


for _name, (_model, _config, _backbone, _more) in DETRS.items():
    add_detr(_name, _model, _config, _backbone, _more)


@family("upernet", "segmentation")
def _(s):
    from transformers.models.resnet.configuration_resnet import ResNetConfig

    backbone = ResNetConfig(out_features=["stage1", "stage2", "stage3", "stage4"], **resnet_settings(s))
    return from_config("upernet", "UperNetForSemanticSegmentation", "UperNetConfig", backbone_config=backbone, hidden_size=128,
                       num_labels=10, auxiliary_in_channels=256), pixels(s)
