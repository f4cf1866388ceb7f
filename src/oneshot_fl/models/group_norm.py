"""Our convolutional classifiers with group instead of batch normalisation: no sample's answer depends on another's.

That is what differentially private training asks for, because it bounds what one sample can change.
"""

from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.classifiers import cnn2, cnn3

GROUPS = 32
"""How many groups of channels that are normalised together there are, at most (Wu and He, "Group Normalization", 2018).

A layer of 32 channels or fewer has a group for each: that is instance normalisation.
"""


def cnn2_group(spec: DataSpec) -> nn.Module:
    """`cnn2` with group normalisation of single channels (it has 16 and 32): instance normalisation."""
    return group_normalised(cnn2(spec, norm=True))


def cnn3_group(spec: DataSpec) -> nn.Module:
    """`cnn3` with group normalisation, four of 128 channels together."""
    return group_normalised(cnn3(spec, norm=True))


def group_normalised(model: nn.Module) -> nn.Module:
    """The same model with every `BatchNorm2d` replaced in place."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, nn.GroupNorm(min(GROUPS, child.num_features), child.num_features))
    return model
