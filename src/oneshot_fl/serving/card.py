"""A model card in Markdown (Mitchell et al., "Model Cards for Model Reporting", 2019): what a model is, and is not."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from oneshot_fl.config.record import is_of_development
from oneshot_fl.errors import printable
from oneshot_fl.serving.model import ServedModel, Source

MADE = "An image classifier made by oneshot_fl: "
"""How every card begins below its title, by which it is known as one."""
MARKUP = re.compile(r"[\\`*\[\](){}<>&|~!#$:]|(?<!\w)[_+-]|[_+-](?!\w)|(?<!\d)\.|\.(?!\d)")
"""Letters that Markdown or HTML may take for more than themselves; `T-shirt`, `digit_3` and `1.5` have none."""
TESTED = """Figures above hold for images like
  the test set; other cameras, sites and populations have to be tested anew, and so has every group of people that it
  will be used on."""
UNTESTED = """It has no figures here:
  it has to be tested on images of the cameras, sites and populations, and of every group of people, that it will be
  used on."""
INPUT = """An image becomes `pixels` as `oneshot-fl predict` reads it: turned as its EXIF orientation says, laid on the
grey {background} where it is transparent, converted to `{mode}` by Pillow, squashed to {size}x{size} whatever its shape
by Pillow's antialiased bilinear filter, and divided by 255. {deep}.

```python
import numpy as np
from PIL import Image, ImageOps

picture = Image.open("image.png")
tiff = getattr(picture, "tag_v2", {{}})
if picture.mode[0] in "IF" or max(tiff.get(258, (8,))) > 8 or any(deep in str(picture.tile) for deep in (";16", "ppm")):
    raise ValueError("more than 8 bits, which these lines would cut off, or a range of its own")
if getattr(picture, "n_frames", 1) > 1 and picture.format != "MPO":
    raise ValueError("more than one frame, of which these lines would take one")
if "transparency" in picture.info and any(few in str(picture.tile) for few in ("L;2", "L;4")):
    raise ValueError("2 or 4 bits and a transparent grey, which Pillow would not find among the 8 bits that it makes")
picture = ImageOps.exif_transpose(picture).convert("RGBA")
picture = Image.alpha_composite(Image.new("RGBA", picture.size, ({background},) * 3), picture).convert("{mode}")
picture = picture.resize(({size}, {size}), Image.Resampling.BILINEAR)
pixels = np.asarray(picture, np.float32).reshape(1, {size}, {size}, {channels}).transpose(0, 3, 1, 2) / 255
```"""
LIMITS = """## Intended use and limits

- It names one of the classes above for **every** image, also for one that shows none of them. Its probabilities say
  how sure it is among these classes, not whether the image belongs to any.
- It was made in one exchange from models of clients whose data nobody saw together. {tested}
- It is no medical device and decides nothing by itself. Where mistakes matter, let it abstain below a threshold that
  you chose on images of your own, and have a person look at what is left.
- Sharing a model is sharing something of its training data; `evaluate=privacy` measures how much can be inferred."""


def model_card(served: ServedModel, summary: Mapping[str, Any] | None, files: Sequence[str]) -> str:
    """The card of a model that was exported to `files`; with the figures of `summary`, where a run left one.

    Args:
        summary: of a run, or of an aggregation, which has figures where it was given a test set.
    """
    told = summary if summary is not None and "by_class" in summary["server"] else None
    figures = [_figures(told)] if told else []
    tested = summary is not None and summary["server"]["accuracy_last"] is not None
    limits = LIMITS.format(tested=TESTED if tested else UNTESTED)
    parts = [_title(summary), _what(served, summary), _usage(served, files), _classes(served, told), *figures, limits]
    return "\n\n".join(parts) + "\n"


def is_of_aggregation(summary: Mapping[str, Any]) -> bool:
    """Whether a summary is of an aggregation of uploads, with all that a card tells of one."""
    told = {"method", "accepted", "versions", "server"} <= summary.keys()
    return told and summary.get("kind") == "aggregation" and {"model", "accuracy_last"} <= summary["server"].keys()


def _title(summary: Mapping[str, Any] | None) -> str:
    if summary is None:
        return "# Image classifier"
    of = f"of {len(summary['accepted'])} uploads" if is_of_aggregation(summary) else f"on {_text(summary['data'])}"
    return f"# {_text(summary['method'])} {of}"


def is_card(text: str) -> bool:
    """Whether a text is a card of ours."""
    return text.partition("\n\n")[2].startswith(MADE)


def _what(served: ServedModel, summary: Mapping[str, Any] | None) -> str:
    spec, parameters = served.spec, sum(each.numel() for each in served.model.parameters())
    facts = {
        "images": f"{'grey' if spec.grey else 'RGB'}, {spec.size}x{spec.size} pixels",
        "parameters": f"{parameters:,}",
        "temperature": f"{served.temperature:g}",
        **({"white": f"{white:g}, where there are more than 8 bits"} if (white := served.tones.max_value) else {}),
        **(_file(served.source) if served.source else {}),
        **(_origin(summary) if summary else {}),
    }
    return "\n".join(
        [
            f"{MADE}clients trained on data of their own, uploaded their models once,",
            "and a server made one model of them.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items()),
        ]
    )


def _file(source: Source) -> dict[str, str]:
    return {"model file": f"{_text(printable(source.name))} (SHA-256 {source.sha256})"}


def _origin(summary: Mapping[str, Any]) -> dict[str, str]:
    of_uploads = is_of_aggregation(summary)
    model = summary["server"]["model"] if of_uploads else summary["models"]["server"]
    return {
        "method": _text(summary["method"]),
        "architecture": _text(model),
        **(_of_uploads(summary) if of_uploads else _of_clients(summary)),
        "made with": _text(", ".join(f"{name} {version}" for name, version in summary["versions"].items())),
    }


def _of_uploads(summary: Mapping[str, Any]) -> dict[str, str]:
    accuracy = summary["server"]["accuracy_last"]
    tested = {} if accuracy is None else {"accuracy on its test set": _percent(accuracy)}
    return {"uploads": f"{len(summary['accepted'])}", **tested}


def _of_clients(summary: Mapping[str, Any]) -> dict[str, str]:
    partition = summary["partition"]
    return {
        "data": f"{_text(summary['data'])} (SHA-256 {_text(summary['data_sha256'][:16])})",
        "clients": f"{len(partition['sizes'])}, {_text(partition['name'])}, {sum(partition['sizes'])} images",
        **_privacy(summary.get("clients") or []),
        **_attack(summary),
    }


def _privacy(clients: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the clients' training guarantees: the largest epsilon is what holds for everybody."""
    private = [client for client in clients if client.get("epsilon") is not None]
    if not private:
        return {}
    delta = private[0].get("delta")  # one for all; summaries of earlier versions do not tell it
    spent = f"epsilon {max(client['epsilon'] for client in private):g}" + (f", delta {delta:g}" if delta else "")
    return {"differential privacy": f"{len(private)} of {len(clients)} clients, {spent}, for one image more or less"}


def _attack(summary: Mapping[str, Any]) -> dict[str, str]:
    """That clients of the run were made hostile, which a model for use should not have had."""
    attack = summary.get("attack") or {}
    if not attack.get("clients"):
        return {}
    return {"attack": f"{_text(attack['name'])} by {attack['clients']} of {len(summary['partition']['sizes'])} clients"}


def _usage(served: ServedModel, files: Sequence[str]) -> str:
    spec, named = served.spec, ", ".join(f"`{name}`" for name in files)
    calibrated = "both calibrated" if served.temperature != 1 else "not calibrated"
    return (
        f"Files: {named}. Input `pixels`: float32 `[b, {spec.channels}, {spec.size}, {spec.size}]` in [0, 1], not\n"
        f"normalised. Outputs `logits` and `probabilities`: `[b, {spec.classes}]`, {calibrated}.\n"
        "Compared with the model: nothing differs by more than 1e-4 of the largest logit (of 1, if that is smaller).\n"
        f"\n{_input(served)}"
    )


def _input(served: ServedModel) -> str:
    """As `data.decode` does it, which whoever has the card need not have."""
    spec, white = served.spec, served.tones.max_value
    deep = (
        "Greys and colours of more than 8 bits are refused"
        if white is None
        else f"Greys of more than 8 bits are multiplied by 255 / {white:g}\n"
        "and rounded before that, and these lines refuse them"
    )
    return INPUT.format(
        size=spec.size,
        channels=spec.channels,
        mode="L" if spec.grey else "RGB",
        background=served.tones.background,
        deep=deep,
    )


def _classes(served: ServedModel, summary: Mapping[str, Any] | None) -> str:
    """In the order of the outputs, with what the test set tells of each."""
    if summary is None:
        return "\n".join(["## Classes", "", *(f"{j}. {_text(name)}" for j, name in enumerate(served.class_names))])
    header = ["| output | class | test images | recall | AUROC |", "|---|---|---|---|---|"]
    rows = [
        f"| {j} | {_text(row['class'])} | {row['images']} | {_percent(row['recall'])} | {_figure(row['auroc'])} |"
        for j, row in enumerate(summary["server"]["by_class"])
    ]
    return "\n".join(["## Classes", "", *header, *rows])


def _figures(summary: Mapping[str, Any]) -> str:
    on = "training images held back (`development=true`)" if is_of_development(summary) else "the test set"
    server = summary["server"]
    fitted = server["calibration"]
    after = f", {_percent(fitted['ece'])} with the temperature" if fitted else ""
    accuracy, balanced = _percent(server["accuracy_last"]), _percent(server["balanced_accuracy"])
    return "\n".join(
        [
            f"## On {on}",
            "",
            f"Accuracy {accuracy}, balanced {balanced}, macro AUROC {_figure(server['macro_auroc'])};",
            f"calibration error (ECE) {_percent(server['ece'])}{after}.",
            "",
            "| images answered, the surest first | accuracy |",
            "|---|---|",
            *(f"| {_percent(row['coverage'])} | {_percent(row['server'])} |" for row in server["abstention"]),
        ]
    )


def _text(told: object) -> str:
    """What files say, as nothing but text: names of classes come from uploads.

    A character reference is no markup in any renderer; a backslash keeps HTML back in some of them only.
    """
    return MARKUP.sub(lambda found: f"&#{ord(found[0])};", str(told))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
