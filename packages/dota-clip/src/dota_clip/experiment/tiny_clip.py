"""A CLIP small enough to train in seconds: a CNN on 8 x 8 digits and a GRU over the letters of prompts, one space."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from dota_clip.experiment.digits import CLASSNAMES, Images

TEMPLATES = ("a photo of the number {}.", "a handwritten {}.", "the digit {}.", "a scan of a {}.", "{} in dark ink.")
DIMENSION = 64
EPOCHS = 20
BATCH_SIZE = 100
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.01
MAX_LOGIT_SCALE = 100.0  # as CLIP clips it


class TinyClip(nn.Module):
    """Image and text towers into one unit sphere, with CLIP's learned logit scale (it starts at 1 / 0.07)."""

    def __init__(self) -> None:
        super().__init__()
        self.image_tower = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.GELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, DIMENSION),
        )
        self.letters = nn.Embedding(128, 32)
        self.reader = nn.GRU(32, 64, batch_first=True)
        self.text_projection = nn.Linear(64, DIMENSION)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    @property
    def logit_scale(self) -> Tensor:
        """The factor of the cosines, 0-d."""
        return self.log_scale.exp().clamp(max=MAX_LOGIT_SCALE)

    def encode_image(self, pixels: Tensor) -> Tensor:
        """(N, 8, 8) in [0, 1] -> (N, D) unit-norm."""
        return functional.normalize(self.image_tower(pixels[:, None] * 2 - 1), dim=1)

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """N texts -> (n, D) unit-norm: the state of the reader behind each text's last letter.

        Raises:
            ValueError: an empty text, or a letter outside ASCII.
        """
        for text in texts:
            if not text or not text.isascii():
                raise ValueError(f"texts must be of ASCII letters and not empty, got {text!r}")
        codes = [torch.tensor(list(text.encode("ascii"))) for text in texts]
        states, _ = self.reader(self.letters(pad_sequence(codes, batch_first=True)))
        last = torch.tensor([len(code) - 1 for code in codes])
        return functional.normalize(self.text_projection(states[torch.arange(len(codes)), last]), dim=1)


def contrastive_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """CLIP's loss in both directions, for a batch that holds several images of one prompt.

    Args:
        logits: (B, K) scaled cosines of images and prompts.
        labels: (B,) the prompt of each image.

    Returns:
        0-d: the mean of image-to-text and text-to-image cross-entropy. A prompt's target is spread evenly over its
        images; prompts without an image in the batch are left out.
    """
    matches = functional.one_hot(labels, logits.shape[1]).to(logits)  # (B, K)
    present = matches.sum(0) > 0
    matches, of_images = matches[:, present], logits[:, present].log_softmax(0)
    text_to_image = -(matches / matches.sum(0) * of_images).sum(0).mean()
    return (functional.cross_entropy(logits, labels) + text_to_image) / 2


def train_tiny_clip(data: Images, seed: int, epochs: int = EPOCHS) -> TinyClip:
    """Trains a model from scratch; the same seed gives the same model, and the global random state is left alone.

    Args:
        data: training images.
        seed: of the initial weights, of the order of the images and of the prompts drawn.
        epochs: passes over the images.

    Returns:
        The model in evaluation mode.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TinyClip()
        optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        batches = math.ceil(len(data.labels) / BATCH_SIZE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
        for _ in range(epochs):
            for batch in torch.randperm(len(data.labels)).split(BATCH_SIZE):
                drawn = torch.randint(len(TEMPLATES), (len(CLASSNAMES),)).tolist()
                prompts = [TEMPLATES[i].replace("{}", name) for i, name in zip(drawn, CLASSNAMES, strict=True)]
                cosines = model.encode_image(data.pixels[batch]) @ model.encode_text(prompts).T
                loss = contrastive_loss(model.logit_scale * cosines, data.labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
    return model.eval()
