"""Convolutional models in a line: small ones of 5 x 5, and VGG."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from fuaudit.errors import UsageError
from fuaudit.models.sizes import require_positive

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Cnn:
    """The small CNN for 28 x 28 images: 5 x 5 convolutions with 10 and 20 channels, 50 hidden units.

    The FATS paper says "CNN" without printing layers. On MNIST this one has 21,840 parameters.

    Attributes:
        channels: channels of each convolution.
        hidden: units of the hidden layer.
    """

    channels: tuple[int, ...] = (10, 20)
    hidden: int = 50

    def __post_init__(self) -> None:
        require_positive("cnn", *self.channels, self.hidden)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        from torch import nn

        layers, size = _fives(shape, self.channels)
        return nn.Sequential(*layers, nn.Flatten(), *_head(size, (self.hidden,), classes))


@dataclass(frozen=True)
class LeNet5:
    """LeNet-5 as it is used today: ReLU, max-pooling, full connections. 61,706 parameters for ten classes of MNIST.

    LeCun, Bottou, Bengio, Haffner (Proc. IEEE 1998) have 32 x 32 images, squashed activations and a sparse second
    convolution; smaller images are padded with zeros to 32 x 32 here. For the stability-fairness paper (7.1).
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        from torch import nn

        padding = max(0, (32 - images(shape)[1] + 1) // 2)
        layers, size = _fives(shape, (6, 16), padding)
        return nn.Sequential(*layers, nn.Flatten(), *_head(size, (120, 84), classes))


@dataclass(frozen=True)
class MimicCnn:
    """The CNN of the MimiC paper (7.1): two 5 x 5 convolutions with 2 x 2 max-pooling, two hidden layers.

    That paper prints no widths and cites Li et al. (arXiv 2102.02079), who have 6 and 16 channels, 120 and 84
    units. 44,426 parameters for ten classes of 28 x 28.

    Attributes:
        channels: channels of each convolution.
        hidden: units of each hidden layer.
    """

    channels: tuple[int, ...] = (6, 16)
    hidden: tuple[int, ...] = (120, 84)

    def __post_init__(self) -> None:
        require_positive("mimic-cnn", *self.channels, *self.hidden)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        from torch import nn

        layers, size = _fives(shape, self.channels)
        return nn.Sequential(*layers, nn.Flatten(), *_head(size, self.hidden, classes))


def images(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width. UsageError for inputs that are no images."""
    if len(shape) != 3:
        raise UsageError(f"a CNN reads images (channels, height, width), not inputs of shape {shape}")
    return shape[0], shape[1], shape[2]


def normalisation(groups: int, channels: int) -> list[nn.Module]:
    """Group normalisation in ``groups`` groups; nothing for 0. UsageError if they do not divide the channels."""
    from torch import nn

    if groups == 0:
        return []
    if groups < 0 or channels % groups:
        raise UsageError(f"{channels} channels cannot be normalised in {groups} groups", "Choose a divisor, or 0.")
    return [nn.GroupNorm(groups, channels)]


def _fives(shape: tuple[int, ...], widths: tuple[int, ...], padding: int = 0) -> tuple[list[nn.Module], int]:
    """Convolutions of 5 x 5, each with ReLU and max-pooling (the first padded), and how many numbers they leave."""
    from torch import nn

    layers: list[nn.Module] = []
    channels, height, width = images(shape)
    height, width = height + 2 * padding, width + 2 * padding
    for at, wide in enumerate(widths):
        layers += [nn.Conv2d(channels, wide, 5, padding=0 if at else padding), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wide, (height - 4) // 2, (width - 4) // 2
    if min(height, width) < 1:
        raise UsageError(f"images of shape {shape} are too small for {len(widths)} convolutions of 5 x 5")
    return layers, channels * height * width


def _head(size: int, hidden: tuple[int, ...], classes: int) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    from torch import nn

    layers: list[nn.Module] = []
    for wide, narrow in pairwise((size, *hidden)):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return [*layers, nn.Linear((size, *hidden)[-1], classes)]


@dataclass(frozen=True)
class _Vgg:
    """Blocks of 3 x 3 convolutions, each block followed by 2 x 2 max-pooling, then linear layers.

    Simonyan and Zisserman (arXiv 1409.1556), in the form for 32 x 32 images: five poolings leave one pixel, and
    one linear layer reads it (``hidden`` puts more before it; the paper has two of 4,096 for 224 x 224 images).
    Their nets have no normalisation (``groups = 0``); they were trained from weights of shallower nets, and under
    this project's initial law the signal dies out in them, so groups of channels are normalised by default.

    Attributes:
        width: channels of the first block.
        groups: how many groups of channels are normalised, each by itself; a divisor; 0 for none.
        hidden: units of each hidden layer.
    """

    width: int = 64
    groups: int = 32
    hidden: tuple[int, ...] = ()
    blocks: ClassVar[tuple[tuple[int, ...], ...]]

    def __post_init__(self) -> None:
        require_positive("a VGG net", self.width, *self.hidden)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        from torch import nn

        channels, height, width = images(shape)
        if min(height, width) < 32:
            raise UsageError(f"images of shape {shape} are too small for five poolings", "VGG needs 32 x 32 or more.")
        layers: list[nn.Module] = []
        for block in self.blocks:
            for times in block:
                wide = times * self.width
                layers += [nn.Conv2d(channels, wide, 3, padding=1), *normalisation(self.groups, wide), nn.ReLU()]
                channels = wide
            layers.append(nn.MaxPool2d(2))
        size = channels * (height // 32) * (width // 32)
        return nn.Sequential(*layers, nn.Flatten(), *_head(size, self.hidden, classes))


@dataclass(frozen=True)
class Vgg11(_Vgg):
    """VGG-11 (configuration A) for the MimiC paper's CIFAR-10: 9,231,114 parameters for ten classes. See _Vgg."""

    blocks: ClassVar[tuple[tuple[int, ...], ...]] = ((1,), (2,), (4, 4), (8, 8), (8, 8))


@dataclass(frozen=True)
class Vgg16(_Vgg):
    """VGG-16 (configuration D) for the FATS paper's CIFAR: 14,728,266 parameters for ten classes. See _Vgg.

    The FATS paper starts from weights trained on ImageNet; here it starts from the plan's own draws.
    """

    blocks: ClassVar[tuple[tuple[int, ...], ...]] = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))
