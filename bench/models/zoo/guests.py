"""Families of timm, torchvision and diffusers, for machines where these are installed (`./dev zoo` installs none of them). Names begin with
the package's. Weights are random, as they are everywhere in the zoo.
"""

import importlib
import importlib.util
import inspect

import torch

from . import family

TIMM = (
    "beit_base_patch16_224 halonet26t mobileone_s1 cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32 convnext_zepto_rms cpubone_nano "
    "crossvit_tiny_240 cs3darknet_focus_s cspnext_tiny davit_tiny deit_tiny_distilled_patch16_224 densenet121 dla46x_c dpn48b edgenext_xx_small "
    "efficientformer_l1 efficientformerv2_s0 efficientnet_b0 efficientvim_m1 efficientvit_b0 efficientvit_m0 vit_tiny_patch16_dinov3_qkvb "
    "eva02_tiny_patch14_224 fasternet_t0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_050 hardcorenas_b hgnetv2_b0 hiera_tiny_224 "
    "hrnet_w18_small iformer_t inception_next_atto inception_resnet_v2 inception_v3 inception_v4 lcnetv2_small levit_128s lowformer_b0 "
    "mambaout_femto maxvit_pico_rw_256 coatnet_nano_rw_224 poolformerv2_s12 caformer_s18 gmlp_ti16_224 mixer_s32_224 resmlp_12_224 "
    "mobilenetv3_small_050 mobilenetv4_conv_small mobilevit_xxs mobilevitv2_050 mvitv2_tiny jx_nest_tiny nextvit_small nf_regnet_b0 "
    "dm_nfnet_f0 pit_ti_224 pvt_v2_b0 rdnet_tiny regnety_002 repghostnet_050 repvit_m1 res2next50 resnest14d resnet10t seresnext26t_32x4d "
    "resnetv2_18 resnetv2_50x1_bit rexnet_100 selecsls42 legacy_seresnet18 sequencer2d_s shvit_s1 skresnet18 starnet_s050 swiftformer_xs "
    "swin_tiny_patch4_window7_224 swinv2_cr_tiny_224 tiny_vit_5m_224 tnt_s_patch16_224 tresnet_m twins_svt_small twins_pcpvt_small vgg11_bn "
    "visformer_tiny vit_tiny_patch16_224 vit_tiny_r_s16_p8_224 vit_srelpos_small_patch16_224 samvit_base_patch16_224 vitamin_small_224 volo_d1_224 "
    "ese_vovnet19b_slim_dw legacy_xception xception41p xcit_nano_12_p8_224"
).split()

TORCHVISION = {  # name: (module, shape of a sample, settings)
    "alexnet": ("alexnet", (3, 160, 160), {}),
    "googlenet": ("googlenet", (3, 160, 160), {"aux_logits": False, "init_weights": False}),
    "mnasnet0_5": ("mnasnet", (3, 160, 160), {}),
    "mobilenet_v3_small": ("mobilenetv3", (3, 160, 160), {}),
    "shufflenet_v2_x0_5": ("shufflenetv2", (3, 160, 160), {}),
    "squeezenet1_1": ("squeezenet", (3, 160, 160), {}),
    "swin_v2_t": ("swin_transformer", (3, 160, 160), {}),
    "deeplabv3_mobilenet_v3_large": ("segmentation", (3, 128, 128), {"weights_backbone": None}),
    "lraspp_mobilenet_v3_large": ("segmentation", (3, 160, 160), {"weights_backbone": None}),
    "fcn_resnet50": ("segmentation", (3, 96, 96), {"weights_backbone": None}),
    "r2plus1d_18": ("video", (3, 4, 64, 64), {}),
    "r3d_18": ("video", (3, 4, 64, 64), {}),
    "mc3_18": ("video", (3, 4, 64, 64), {}),
}


def image_of(model, s):
    """The side of an image: the model's own where it is fixed, fewer pixels where any will do."""
    pretrained = model.pretrained_cfg
    side = pretrained.get("input_size", (3, 224, 224))[-1]
    return side if pretrained.get("fixed_input_size") or side != 224 else 32 + s.image


def first_argument(model):
    return next(iter(inspect.signature(model.forward).parameters))


def add_timm(name):
    @family(f"timm_{name}", "vision")
    def build(s):
        model = importlib.import_module("timm").create_model(name)
        side = image_of(model, s)
        large = side >= 299 or sum(p.numel() for p in model.parameters()) > 40e6
        return model, {first_argument(model): torch.randn(1 if large else 2, 3, side, side)}


def add_torchvision(name, module, shape, settings):
    @family(f"torchvision_{name}", "video" if module == "video" else "vision")
    def build(s):
        model = getattr(importlib.import_module(f"torchvision.models.{module}"), name)(weights=None, **settings)
        return model, {first_argument(model): torch.randn(2, *shape)}


def steps(batch):
    return torch.randint(0, 1000, (batch,))


def add_diffusers():
    @family("diffusers_unet2d", "diffusion")
    def _(s):
        from diffusers import UNet2DModel

        model = UNet2DModel(sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(64, 128, 128), norm_num_groups=16,
                            down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"))
        return model, {"sample": torch.randn(s.batch, 3, 32, 32), "timestep": steps(s.batch)}

    @family("diffusers_unet2d_condition", "diffusion")
    def _(s):
        from diffusers import UNet2DConditionModel

        model = UNet2DConditionModel(sample_size=32, layers_per_block=1, block_out_channels=(64, 128), norm_num_groups=16, cross_attention_dim=s.width,
                                     attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                     up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
        return model, {"sample": torch.randn(s.batch, 4, 32, 32), "timestep": steps(s.batch), "encoder_hidden_states": torch.randn(s.batch, 20, s.width)}

    @family("diffusers_controlnet", "diffusion")
    def _(s):
        from diffusers import ControlNetModel

        model = ControlNetModel(layers_per_block=1, block_out_channels=(64, 128), norm_num_groups=16, cross_attention_dim=s.width, attention_head_dim=8,
                                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"))
        return model, {"sample": torch.randn(s.batch, 4, 32, 32), "timestep": steps(s.batch), "encoder_hidden_states": torch.randn(s.batch, 20, s.width),
                       "controlnet_cond": torch.randn(s.batch, 3, 256, 256)}

    @family("diffusers_autoencoder_kl", "diffusion")
    def _(s):
        from diffusers import AutoencoderKL

        model = AutoencoderKL(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=16, down_block_types=("DownEncoderBlock2D",) * 2,
                              up_block_types=("UpDecoderBlock2D",) * 2)
        return model, {"sample": torch.randn(s.batch, 3, 64, 64)}

    @family("diffusers_autoencoder_tiny", "diffusion")
    def _(s):
        from diffusers import AutoencoderTiny

        return AutoencoderTiny(), {"sample": torch.rand(s.batch, 3, 64, 64)}

    @family("diffusers_dit", "diffusion")
    def _(s):
        from diffusers import DiTTransformer2DModel

        model = DiTTransformer2DModel(num_attention_heads=s.heads, attention_head_dim=s.width // s.heads, in_channels=4, out_channels=8,
                                      num_layers=s.layers, sample_size=16, patch_size=2)
        return model, {"hidden_states": torch.randn(s.batch, 4, 16, 16), "timestep": steps(s.batch), "class_labels": torch.randint(0, 1000, (s.batch,))}

    @family("diffusers_pixart", "diffusion")
    def _(s):
        from diffusers import PixArtTransformer2DModel

        model = PixArtTransformer2DModel(num_attention_heads=s.heads, attention_head_dim=s.width // s.heads, in_channels=4, out_channels=8,
                                         num_layers=s.layers, sample_size=16, patch_size=2, cross_attention_dim=s.width, caption_channels=s.width)
        return model, {"hidden_states": torch.randn(s.batch, 4, 16, 16), "encoder_hidden_states": torch.randn(s.batch, 20, s.width),
                       "timestep": steps(s.batch)}

    @family("diffusers_sd3", "diffusion")
    def _(s):
        from diffusers import SD3Transformer2DModel

        model = SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=s.layers, attention_head_dim=64, num_attention_heads=s.heads,
                                      joint_attention_dim=s.width, caption_projection_dim=64 * s.heads, pooled_projection_dim=64, out_channels=4)
        return model, {"hidden_states": torch.randn(s.batch, 4, 16, 16), "encoder_hidden_states": torch.randn(s.batch, 20, s.width),
                       "pooled_projections": torch.randn(s.batch, 64), "timestep": steps(s.batch)}

    @family("diffusers_flux", "diffusion")
    def _(s):
        from diffusers import FluxTransformer2DModel

        model = FluxTransformer2DModel(patch_size=1, in_channels=16, num_layers=s.layers // 2, num_single_layers=s.layers, attention_head_dim=32,
                                       num_attention_heads=s.heads, joint_attention_dim=s.width, pooled_projection_dim=64, axes_dims_rope=(8, 12, 12))
        return model, {"hidden_states": torch.randn(s.batch, 64, 16), "encoder_hidden_states": torch.randn(s.batch, 20, s.width),
                       "pooled_projections": torch.randn(s.batch, 64), "timestep": torch.rand(s.batch), "img_ids": torch.randint(0, 8, (64, 3)).float(),
                       "txt_ids": torch.zeros(20, 3)}

    @family("diffusers_prior", "diffusion")
    def _(s):
        from diffusers import PriorTransformer

        model = PriorTransformer(num_attention_heads=s.heads, attention_head_dim=s.width // s.heads, num_layers=s.layers, embedding_dim=s.width,
                                 num_embeddings=20)
        return model, {"hidden_states": torch.randn(s.batch, s.width), "timestep": steps(s.batch), "proj_embedding": torch.randn(s.batch, s.width),
                       "encoder_hidden_states": torch.randn(s.batch, 20, s.width)}

    @family("diffusers_unet1d", "diffusion")
    def _(s):
        from diffusers import UNet1DModel

        model = UNet1DModel(sample_size=2048, in_channels=2, out_channels=2, block_out_channels=(32, 32, 64), extra_in_channels=16)
        return model, {"sample": torch.randn(s.batch, 2, 2048), "timestep": steps(s.batch)}

    @family("diffusers_unet3d", "diffusion")
    def _(s):
        from diffusers import UNet3DConditionModel

        model = UNet3DConditionModel(block_out_channels=(32, 64), norm_num_groups=16, layers_per_block=1, cross_attention_dim=s.width, attention_head_dim=8,
                                     down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"))
        return model, {"sample": torch.randn(1, 4, 4, 32, 32), "timestep": steps(1), "encoder_hidden_states": torch.randn(1, 20, s.width)}


def installed(package):
    return importlib.util.find_spec(package) is not None


if installed("timm"):
    for _name in TIMM:
        add_timm(_name)
if installed("torchvision"):
    for _name, _settings in TORCHVISION.items():
        add_torchvision(_name, *_settings)
if installed("diffusers"):
    add_diffusers()
