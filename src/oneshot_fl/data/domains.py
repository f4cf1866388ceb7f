"""Data of several domains: `<root>/<domain>/<class>/*`; one domain is held out for testing."""

from dataclasses import replace
from pathlib import Path

import torch

from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.decode import Byte, Decoding, Tones
from oneshot_fl.data.images import Tree, labelled, read_images, subfolders, tree_by_class, unread
from oneshot_fl.errors import OneshotError
from oneshot_fl.values import Channels, Label, Names, PathText, PixelDeviation, PixelMean, Positive, Side


def image_domains(
    *,
    root: PathText,
    domains: Names | None,
    held_out: Label | None,
    cache: PathText,
    size: Side | None,
    channels: Channels,
    max_value: Positive | None,
    background: Byte,
    mean: PixelMean,
    std: PixelDeviation,
) -> Dataset:
    """The training set is every domain but `held_out`, the test set is the whole of that one.

    Domains are the folders named by `domains`, or with None all folders of `root` that hold class folders with images.
    Classes are the sorted names of the class folders of the training domains.

    Raises:
        OneshotError: a domain is missing or has no images, there are fewer than two domains or two classes, `held_out`
            is none of the domains, lacks a class or has one that no training domain has; and as `read_images`.
    """
    folder = Path(root).absolute()
    trees = _find_domains(folder, domains)
    training = _all_but(held_out, list(trees))
    classes = sorted({name for domain in training for name in trees[domain]})
    if len(classes) < 2:
        raise OneshotError(f"data.root: the domains {', '.join(training)} in {folder} have fewer than 2 class folders")
    files = {
        domain: labelled(folder / domain, found, classes, complete=domain not in training)
        for domain, found in trees.items()
    }
    # All domains are kept together, so that another held-out domain decodes nothing.
    tones = Tones(max_value, background)
    parts = read_images(files, cache=cache, how=Decoding(size, channels, tones))
    images, labels = (torch.cat(tensors) for tensors in zip(*(parts[domain] for domain in training), strict=True))
    data = make_dataset(
        name=folder.name,
        train=(images, labels),
        test=parts[str(held_out)],
        class_names=tuple(classes),
        mean=mean,
        std=std,
        tones=tones,
    )
    sizes = torch.tensor([len(files[domain]) for domain in training])
    return replace(
        data,
        train_domains=torch.arange(len(training)).repeat_interleave(sizes),
        domain_names=tuple(training),
        notes=unread([folder / domain for domain in files], files),
    )


def _find_domains(folder: Path, domains: Names | None) -> dict[str, Tree]:
    """The images of every domain, by its classes."""
    wanted = [name for name in subfolders(folder) if domains is None or name in map(str, domains)]
    trees = {name: tree_by_class(folder / name) for name in wanted}
    there = [name for name, found in trees.items() if any(found.values())]
    names = there if domains is None else list(map(str, domains))
    if missing := [name for name in names if name not in there]:
        raise OneshotError(
            f"data.root: {folder} lacks {', '.join(missing)}; it needs <domain>/<class>/* images of the domains "
            f"{', '.join(names)} (data.domains)"
        )
    if len(names) < 2:
        raise OneshotError(
            f"data.root: {folder} holds {len(names)} domains, at least 2 are needed: "
            "set data.root to a folder with <domain>/<class>/* images"
        )
    return {name: trees[name] for name in names}


def _all_but(held_out: Label | None, names: list[str]) -> list[str]:
    if str(held_out) not in names:
        given = "has no value" if held_out is None else f"there is no domain {held_out}"
        raise OneshotError(f"data.held_out: {given}; set it to the domain to test on, one of {', '.join(names)}")
    return [name for name in names if name != str(held_out)]
