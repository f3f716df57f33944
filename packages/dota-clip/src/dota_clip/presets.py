"""Released settings per data set (ViT-B/16): facts from the official configuration files.

They were searched per data set on labelled validation images, so results with them are not label-free. Without labels
use ``DotaConfig()``.
"""

from __future__ import annotations

from dota_clip.config import DotaConfig

# sigma^2 = 0.002 everywhere; epsilon is 1e-4 where no other value is given.
PRESETS: dict[str, DotaConfig] = {
    "caltech101": DotaConfig(eta=0.3, rho=0.02, epsilon=2e-3),
    "dtd": DotaConfig(eta=0.3, rho=0.02),
    "eurosat": DotaConfig(eta=3.0, rho=0.05),
    "fgvc": DotaConfig(eta=0.2, rho=0.01),
    "food101": DotaConfig(eta=0.1, rho=0.01, epsilon=4e-5),
    "imagenet": DotaConfig(eta=0.2, rho=0.005),
    "imagenet-a": DotaConfig(eta=0.5, rho=0.02),
    "imagenet-r": DotaConfig(eta=0.3, rho=0.0025),
    "imagenet-s": DotaConfig(eta=0.8, rho=0.03),
    "imagenet-v": DotaConfig(eta=0.1, rho=0.01),
    "oxford_flowers": DotaConfig(eta=0.2, rho=0.02),
    "oxford_pets": DotaConfig(eta=0.3, rho=0.02),
    "stanford_cars": DotaConfig(eta=0.3, rho=0.01),
    "sun397": DotaConfig(eta=0.2, rho=0.01),
    "ucf101": DotaConfig(eta=0.4, rho=0.02),
}
