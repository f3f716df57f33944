"""Images to classify: readers of folders, lists, benchmarks and data sets, decoding, and augmented views."""

from dota_clip.data.augmix import AugMixViews, SingleView
from dota_clip.data.image_stream import ImageItem, ImageStream
from dota_clip.data.images import UnreadableImage, load_image
from dota_clip.data.opening import open_dataset

__all__ = ["AugMixViews", "ImageItem", "ImageStream", "SingleView", "UnreadableImage", "load_image", "open_dataset"]
