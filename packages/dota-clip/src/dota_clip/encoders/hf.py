"""transformers models as encoders: CLIP, SigLIP, and others with the same two methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dota_clip.encoders.contract import ClipEncoder, pair
from dota_clip.load_errors import load_failure, one_line
from nips_common.runtime import require, resolve_device, resolve_dtype

if TYPE_CHECKING:
    from PIL import Image


class HFImageTransform:
    """One image through a transformers image processor; holds no model, so that it can go to other processes.

    Args:
        image_processor: `processor.image_processor`.
    """

    def __init__(self, image_processor: Any) -> None:
        self.image_processor = image_processor

    def __call__(self, image: Image.Image) -> Tensor:
        """Normalised pixels `(3, height, width)`, float32."""
        pixels: Tensor = self.image_processor(images=image, return_tensors="pt")["pixel_values"][0]
        return pixels


class HFClipEncoder(ClipEncoder):
    """A transformers model with its processor, as `ClipEncoder` describes it.

    Works for `CLIPModel`, `SiglipModel` (SigLIP, and SigLIP 2 at a fixed resolution) and models of the same shape.
    SigLIP adds a bias to all logits; it is the same for every class, so it drops out of the softmax over scaled logits
    that DOTA uses (the paper does not treat SigLIP), and is left out here.

    Args:
        model: a model with `get_image_features`, `get_text_features` and `logit_scale`.
        processor: the processor that belongs to it (an image processor and a tokenizer).

    Raises:
        ValueError: a model without these methods, or one that reads images at varying resolution (SigLIP 2 NaFlex).
    """

    def __init__(self, model: nn.Module, processor: Any) -> None:
        needed = ("get_image_features", "get_text_features", "logit_scale", "config")
        missing = [name for name in needed if not hasattr(model, name)]
        if missing:
            raise ValueError(f"{type(model).__name__} is not an image-text encoder: it has no {', '.join(missing)}")
        config: Any = model.config
        if config.model_type == "siglip2":
            raise ValueError(
                "SigLIP 2 NaFlex reads varying resolutions; use a fixed-resolution checkpoint (SiglipModel)"
            )
        super().__init__(model)
        for part in ("image_processor", "tokenizer"):
            if not hasattr(processor, part):
                raise ValueError(
                    f"{type(processor).__name__} has no {part}: give the model's processor (AutoProcessor)"
                )
        self.processor = processor
        image_processor = processor.image_processor
        self.preprocess = HFImageTransform(image_processor)
        self.image_size = pair(config.vision_config.image_size)
        normalises = bool(getattr(image_processor, "do_normalize", True))
        self.mean = tuple(map(float, image_processor.image_mean)) if normalises else (0.0,) * 3
        self.std = tuple(map(float, image_processor.image_std)) if normalises else (1.0,) * 3
        self._is_siglip = config.model_type.startswith("siglip")
        self._context_length = int(config.text_config.max_position_embeddings)
        self.embedding_dim = int(self.encode_text(["a"]).shape[-1])

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, pretrained: str | Path | None = None, device: str = "auto", dtype: str = "auto"
    ) -> HFClipEncoder:
        """Load a transformers model and its processor.

        Args:
            name: a folder with config.json, or a model of the hub, `org/name`.
            pretrained: not used by transformers models; giving it is an error.
            device: "auto", "cpu", "cuda", "cuda:n" or "mps".
            dtype: "auto" (bfloat16 on CUDA, else float32), "float32", "bfloat16", "float16" or "float64".

        Raises:
            ImportError: transformers, or a tokenizer library that the model needs, is not installed.
            ValueError: not an image-text model, weights that do not fit, an unknown device or dtype.
            OSError: no such folder, or the hub cannot be reached.
        """
        if pretrained is not None:
            raise ValueError(f"{name}: `pretrained` belongs to open_clip architectures; this is a transformers model")
        require("transformers", "dota-clip[transformers]")
        import transformers

        torch_device = resolve_device(device)
        torch_dtype = resolve_dtype(dtype, torch_device)
        name = str(name)
        try:
            # Read in float32 and cast below: bfloat16 would round the stored logit scale, 100 becoming 98.9.
            model, report = transformers.AutoModel.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
            processor = transformers.AutoProcessor.from_pretrained(name)
        except ImportError as error:  # a tokenizer may need one more library
            raise ImportError(f"{name}: {one_line(error)}") from error
        except Exception as error:  # transformers, safetensors and the hub each have their own kinds
            raise load_failure(name, None if Path(name).is_dir() else name, error) from error
        unfit = sorted(
            {str(key) for key in report["missing_keys"]} | {str(key[0]) for key in report["mismatched_keys"]}
        )
        if unfit:
            raise ValueError(
                f"{name}: weights missing or of another shape for {', '.join(unfit[:5])} ({len(unfit)} in all)"
            )
        encoder = cls(model.requires_grad_(False), processor)
        encoder.model.to(torch_device, torch_dtype)
        encoder.dtype = torch_dtype
        return encoder

    def _text_features(self, texts: list[str]) -> Tensor:
        tokenizer = self.processor.tokenizer
        tokens = tokenizer(
            texts,
            # SigLIP was trained on text padded to its full length, attending to the padding: no attention mask either.
            padding="max_length" if self._is_siglip else True,
            truncation=True,
            max_length=min(self._context_length, int(tokenizer.model_max_length)),
            return_tensors="pt",
        )
        names = ("input_ids",) if self._is_siglip else ("input_ids", "attention_mask")
        model: Any = self.model
        return _projected(model.get_text_features(**{key: tokens[key].to(self.device) for key in names}))

    def _image_features(self, pixels: Tensor) -> Tensor:
        model: Any = self.model
        return _projected(model.get_image_features(pixel_values=pixels))


def _projected(output: Any) -> Tensor:
    """The projected features: a tensor in early releases of transformers 5, in later ones a field of the output."""
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return features
