"""The console script `oneshot-fl`: its own commands and `--version`; any other first word is Hydra's.

What takes long to import is imported by the command that needs it, so that `--help` answers at once.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from oneshot_fl.errors import OneshotError
from oneshot_fl.process import stoppable

app = typer.Typer(
    help="Tables, models in use, and the store. Anything else runs an experiment: `oneshot-fl method=fedhydra`.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
store = typer.Typer(help="What the store holds, and making room in it.", no_args_is_help=True)
app.add_typer(store, name="store")

OWN = ("tables", "store", "predict", "export")
"""First words that are ours and not Hydra's."""
StoreOption = Annotated[Path | None, typer.Option("--store", metavar="DIR", help="default: the configuration's")]


ModelArgument = Annotated[Path, typer.Argument(metavar="DIR", help="a run's folder, or a model file")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="NAME", help="a function or class, not ours, that may build the model"),
]


def main() -> None:
    """The console script; exit code 2 and one line for a mistake, 130 and 143 when stopped."""
    with stoppable():
        words = sys.argv[1:]
        if words and words[0] in OWN:
            with _one_line():
                app(prog_name="oneshot-fl")
        else:
            from oneshot_fl.__main__ import main as hydra_main

            hydra_main()


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except OneshotError as error:
        print(f"oneshot_fl: {error}", file=sys.stderr)
        sys.exit(2)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def tables(context: typer.Context) -> None:
    """Tables over many runs, ours beside the papers'; `oneshot-fl tables --help` lists what it takes."""
    from oneshot_fl.reporting.tables.__main__ import main as print_tables

    print_tables(context.args)


@app.command()
def predict(
    model: ModelArgument,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES", help="image files, or folders of them")],
    csv: Annotated[bool, typer.Option("--csv", help="as CSV, with the probability of every class")] = False,
    abstain: Annotated[
        float, typer.Option(min=0, max=1, metavar="P", help="name no class that is less probable than this")
    ] = 0.0,
    max_value: Annotated[
        float | None, typer.Option(metavar="WHITE", help="what is white in images of more than 8 bits")
    ] = None,
    allow: AllowOption = None,
) -> None:
    """Classify images; exit code 2, and a line for each, if some cannot be used."""
    from oneshot_fl.serving.load import load
    from oneshot_fl.serving.table import write_predictions

    served = load(model, allowed=allow or ())
    answers = served.answers(images, abstain=abstain, max_value=max_value)
    if unusable := write_predictions(answers, served.class_names, sys.stdout, as_csv=csv, problem=_complain):
        raise OneshotError(f"{unusable} images could not be used; their lines are above, all others are answered")


def _complain(line: str) -> None:
    print(f"oneshot_fl: {line}", file=sys.stderr)


@app.command()
def export(
    model: ModelArgument,
    onnx: Annotated[bool, typer.Option("--onnx", help="model.onnx, for ONNX Runtime")] = False,
    torch_export: Annotated[bool, typer.Option("--torch-export", help="model.pt2, for torch.export.load")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="default: export, in the run's folder")] = None,
    allow: AllowOption = None,
) -> None:
    """Write the model for other programs, checked against it, with a model card."""
    from oneshot_fl.serving.export import export as write

    formats = [name for name, wanted in (("onnx", onnx), ("torch", torch_export)) if wanted]
    for path in write(model, out, formats, allowed=allow or ()):
        print(path)


@store.command("ls")
def list_store(store: StoreOption = None) -> None:
    """List what the store holds: phase, key, size, age in days, and what it is."""
    from oneshot_fl.inventory import holdings, size

    found = holdings(_folder(store))
    now = time.time()
    for one in found:
        what = one.what if one.kind == "artifact" else f"({one.kind}: {one.what})"
        print(f"{one.phase:<10} {one.key} {size([one]):>9} {one.days(now):>7.1f} d  {what}".rstrip())
    print(f"{len(found)} entries, {size(found)}")


@store.command("gc")
def clean_store(
    store: StoreOption = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="also whole artifacts, and only what is older")
    ] = None,
    phase: Annotated[str | None, typer.Option(help="also whole artifacts, and only of this phase")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only tell what would be removed")] = False,
) -> None:
    """Remove damaged artifacts and what stopped processes left; an interrupted phase then begins anew."""
    from oneshot_fl.inventory import size, sweep

    removed = []
    for one in sweep(_folder(store), phase=phase, older_than=older_than, dry_run=dry_run):
        removed.append(one)
        print(f"{'would remove' if dry_run else 'removed'} {one.path} ({size([one])})")
    print(f"{len(removed)} entries, {size(removed)} {'to be freed' if dry_run else 'freed'}")


def _folder(given: Path | None) -> Path:
    if given is None:
        from oneshot_fl.config.compose import composed

        given = Path(composed().store)
    return given.expanduser().absolute()


if __name__ == "__main__":
    main()
