from .cache import FeatureCache
from .class_masks import ClassMasks, read_class_mask
from .classes import Classes
from .confusion import Confusion
from .features import DescribedImage, ImageFeatures, describe_edges
from .labels import fill_unknown, labels_from_boxes, labels_from_mask
from .mask_files import read_mask
from .masks import Masks
from .quality import Quality, cross_validate
from .reading import ImageError, MaskWarning, SkippedImageWarning, read_image
from .segmenter import Segmentation, Segmenter, segmentation_predictor
from .storing import store_images
from .superpixels import Superpixels, paint, segment
from .training_set import TrainingSet
from .vocabulary import Vocabulary

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
