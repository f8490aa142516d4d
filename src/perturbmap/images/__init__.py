"""From image files to examples on superpixels, and back; needs ``pip install "perturbmap[images]"``."""

from importlib import import_module

try:
    for name in ("skimage", "PIL", "joblib"):
        import_module(name)
except ImportError as error:
    raise ImportError(f'perturbmap.images needs scikit-image ({error}): pip install "perturbmap[images]".') from error

from perturbmap.images.cache import FeatureCache
from perturbmap.images.class_masks import ClassMasks, read_class_mask
from perturbmap.images.classes import Classes
from perturbmap.images.confusion import Confusion
from perturbmap.images.features import DescribedImage, ImageFeatures, describe_edges
from perturbmap.images.labels import fill_unknown, labels_from_boxes, labels_from_mask
from perturbmap.images.mask_files import read_mask
from perturbmap.images.masks import Masks
from perturbmap.images.quality import Quality, cross_validate
from perturbmap.images.reading import ImageError, MaskWarning, SkippedImageWarning, read_image
from perturbmap.images.segmenter import Segmentation, Segmenter, segmentation_predictor
from perturbmap.images.storing import store_images
from perturbmap.images.superpixels import Superpixels, paint, segment
from perturbmap.images.training_set import TrainingSet
from perturbmap.images.vocabulary import Vocabulary

__all__ = [
    "ClassMasks",
    "Classes",
    "Confusion",
    "DescribedImage",
    "FeatureCache",
    "ImageError",
    "ImageFeatures",
    "MaskWarning",
    "Masks",
    "Quality",
    "Segmentation",
    "Segmenter",
    "SkippedImageWarning",
    "Superpixels",
    "TrainingSet",
    "Vocabulary",
    "cross_validate",
    "describe_edges",
    "fill_unknown",
    "labels_from_boxes",
    "labels_from_mask",
    "paint",
    "read_class_mask",
    "read_image",
    "read_mask",
    "segment",
    "segmentation_predictor",
    "store_images",
]
