"""Model families with random weights: transformers models from configs, and two of our own. FAMILIES: name -> Family.

A family is built at one of two sizes: "full" needs 20 milliseconds and more a call on one core, "small" is for quick tests.
"""

import dataclasses
import importlib
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Size:
    batch: int
    width: int
    heads: int
    layers: int
    length: int
    image: int
    samples: int  # of audio
    vocabulary: int = 1000

    @property
    def inner(self):
        return 4 * self.width


SIZES = {
    "full": Size(batch=4, width=256, heads=4, layers=4, length=64, image=128, samples=16000),
    "small": Size(batch=2, width=128, heads=2, layers=2, length=32, image=96, samples=6400),
}


@dataclasses.dataclass(frozen=True)
class Family:
    kind: str
    build: Callable  # Size -> (module, keyword arguments of a call)


FAMILIES = {}


def family(name, kind):
    def add(build):
        assert name not in FAMILIES, name
        FAMILIES[name] = Family(kind, build)
        return build

    return add


def from_config(name, model, config, **settings):
    """transformers.models.NAME: one module is imported, not all of them."""
    configuration = importlib.import_module(f"transformers.models.{name}.configuration_{name}")
    modeling = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    return getattr(modeling, model)(getattr(configuration, config)(**settings))


for _part in ("text", "decoders", "vision", "audio", "other", "guests"):
    importlib.import_module(f"{__name__}.{_part}")
