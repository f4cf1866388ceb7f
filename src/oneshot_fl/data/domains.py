"""Data of several domains: `<root>/<domain>/<class>/*`; one domain is held out for testing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from oneshot_fl.data.class_names import class_name
from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.decode import Byte, Decoding, Tones
from oneshot_fl.data.images import Tree, folders_by_name, labelled, read_images, tree_by_class, unread
from oneshot_fl.data.sound import trained_on
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
    places = folders_by_name(folder, "domain")
    trees = _find_domains(folder, places, domains)
    tested = _one_of(list(trees), held_out)
    training = [name for name in trees if name != tested]
    classes = sorted({name for domain in training for name in trees[domain]})
    if len(classes) < 2:
        raise OneshotError(f"data.root: the domains {', '.join(training)} in {folder} have fewer than 2 class folders")
    files = {
        domain: labelled(places[domain], found, classes, complete=domain not in training)
        for domain, found in trees.items()
    }
    # All domains are kept together, so that another held-out domain decodes nothing.
    tones = Tones(max_value, background)
    parts = read_images(files, cache=cache, how=Decoding(size, channels, tones))
    images, labels = (torch.cat(tensors) for tensors in zip(*(parts[domain] for domain in training), strict=True))
    data = make_dataset(
        name=folder.name,
        train=(images, labels),
        test=parts[tested],
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
        notes=unread([places[domain] for domain in files], files) + trained_on(images, data.test_images, "data.root"),
    )


def _find_domains(folder: Path, places: dict[str, Path], domains: Names | None) -> dict[str, Tree]:
    """The images of every domain, by its classes."""
    named = None if domains is None else list(map(_name, domains))
    trees = {name: tree_by_class(place) for name, place in places.items() if named is None or name in named}
    there = [name for name, found in trees.items() if any(found.values())]
    names = there if named is None else named
    if missing := [name for name in names if name not in there]:
        raise OneshotError(
            f"data.root: {folder} lacks {', '.join(missing)}; it needs <domain>/<class>/* images of the domains "
            f"{', '.join(names)} (data.domains){_read_as_numbers('data.domains', domains or ())}"
        )
    if len(names) < 2:
        raise OneshotError(
            f"data.root: {folder} holds {len(names)} domains, at least 2 are needed: "
            "set data.root to a folder with <domain>/<class>/* images"
        )
    return {name: trees[name] for name in names}


def _one_of(names: Sequence[str], held_out: Label | None) -> str:
    """The domain to test on, among those that there are."""
    if held_out is not None and _name(held_out) in names:
        return _name(held_out)
    given = "has no value" if held_out is None else f"there is no domain {held_out}"
    remedy = (
        f"set it to the domain to test on, one of {', '.join(names)}{_read_as_numbers('data.held_out', [held_out])}"
    )
    raise OneshotError(f"data.held_out: {given}; {remedy}")


def _name(domain: Label) -> str:
    """As folders' names are spelt here, whatever the disk or the command line made of it."""
    return class_name(str(domain))


def _read_as_numbers(key: str, wanted: Iterable[Label | None]) -> str:
    """What to do about names of which a command line makes numbers: 2023_01 is 202301 there."""
    numbers = any(isinstance(each, int) for each in wanted)
    example = f'{key}="2023_01"' if key == "data.held_out" else f'{key}=["2023_01",...]'
    return f"; a name that reads as a number stands in two kinds of quotes, '{example}'" * numbers
