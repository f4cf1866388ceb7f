"""The console script `oneshot-fl`: its own commands and `--version`; any other first word is Hydra's.

What takes long to import is imported by the command that needs it, so that a command's `--help` answers at once. That
of the script itself is Hydra's, and stands in `conf/config.yaml`.
"""

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from oneshot_fl.__main__ import names_a_command
from oneshot_fl.errors import OneshotError
from oneshot_fl.mistakes import mistakes_told
from oneshot_fl.process import keep_freed_memory, print_whatever_it_is, say, share_the_cores, stoppable

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
store = typer.Typer(help="What the store holds, and making room in it.", no_args_is_help=True)
app.add_typer(store, name="store")

OWN = ("tables", "report", "status", "store", "pack", "aggregate", "predict", "export", "dashboard")
"""First words that are ours and not Hydra's."""
StoreOption = Annotated[Path | None, typer.Option("--store", metavar="DIR", help="default: the configuration's")]
ModelArgument = Annotated[Path, typer.Argument(metavar="DIR", help="a run's folder, or a model file")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="NAME", help="a function or class, not ours, that may build the model"),
]


def _white(value: float | None) -> float | None:
    from oneshot_fl.fits import problem
    from oneshot_fl.values import Positive

    if value is not None and (wanted := problem(value, Positive)):
        raise OneshotError(f"--max-value={value:g}: must be {wanted}")
    return value


WhiteOption = Annotated[
    float | None,
    typer.Option("--max-value", metavar="WHITE", callback=_white, help="what is white in images of more than 8 bits"),
]
BackgroundOption = Annotated[
    int | None, typer.Option("--background", min=0, max=255, metavar="GREY", help="what is behind transparent pixels")
]


def main() -> None:
    """The console script; exit code 2 and one line for a mistake, 130 and 143 when stopped."""
    words = sys.argv[1:]
    own = bool(words) and words[0] in OWN
    with stoppable(resumes=not own or words[0] == "aggregate"):
        if own:
            print_whatever_it_is()
            with mistakes_told():
                app(prog_name="oneshot-fl")
        elif names_a_command(words):
            with mistakes_told():
                raise OneshotError(_no_such_command(words[0]))
        else:
            from oneshot_fl.__main__ import main as hydra_main

            _find_own_code()
            hydra_main()


def _no_such_command(word: str) -> str:
    from oneshot_fl.errors import did_you_mean

    near = did_you_mean(word, OWN) or ";"
    return f"{word}: there is no such command{near} choose from {', '.join(OWN)}, or set KEY=VALUE to run an experiment"


def _find_own_code(*, apart_from: Path | None = None, first: bool = False) -> None:
    """Search the current folder for modules too, where `python -m` does it by itself and a console script does not.

    Last, so that no file there takes the place of a package, or `first`, as with `python -m`; and not in `apart_from`,
    which others have filled.
    """
    if sys.flags.safe_path or "" in sys.path:
        return
    here = Path.cwd()
    if apart_from is None or not here.is_relative_to(os.path.realpath(apart_from)):
        sys.path.insert(0 if first else len(sys.path), str(here))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def tables(context: typer.Context) -> None:
    """Tables over many runs, ours beside the papers'; `oneshot-fl tables --help` lists what it takes."""
    from oneshot_fl.reporting.tables.__main__ import main as print_tables
    from oneshot_fl.sweeps.state import jobs_to_do

    print_tables(context.args, to_do=jobs_to_do)


@app.command()
def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="folders of runs or sweeps, files of --collect")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="the page")] = Path("report.html"),
    which: Annotated[Literal["last", "best"], typer.Option(help="round of the server")] = "last",
    metric: Annotated[str, typer.Option(help="accuracy, balanced_accuracy, macro_auroc or ece")] = "accuracy",
    against: Annotated[str, typer.Option(metavar="METHOD", help="base of the tables' paired differences")] = "fedavg",
    pictures: Annotated[float, typer.Option(min=0, metavar="MB", help="most room that runs' pictures take")] = 8,
    title: Annotated[str | None, typer.Option(help="default: the first folder's name")] = None,
    where: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="only runs with this setting")] = None,
    across: Annotated[list[str] | None, typer.Option(metavar="KEY", help="compare runs that differ in it, too")] = None,
) -> None:
    """Write one page over many runs, also half-finished ones, that needs no network."""
    from oneshot_fl.reporting.page.build import Choices, write_report
    from oneshot_fl.reporting.tables.measures import measure_of
    from oneshot_fl.reporting.tables.runs import read_runs
    from oneshot_fl.sweeps.state import jobs_to_do

    first = paths[0].absolute()
    measure, name = measure_of(metric, which=which), title or (first.name if first.is_dir() else first.stem)
    to_do = 0 if where else jobs_to_do(paths)  # what has not begun has no settings to choose by
    choices = Choices(measure, which, against, pictures, name, to_do=to_do)
    print(write_report(read_runs(paths, where=where or (), pooled=across or ()), out, choices))


@app.command()
def status(
    sweep: Annotated[Path, typer.Argument(metavar="DIR", help="a sweep's folder (hydra.sweep.dir)")],
    rerun: Annotated[
        str | None, typer.Option(metavar="failed", help="run exactly the jobs again that failed or were killed")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only print the command that --rerun would run")] = False,
) -> None:
    """How the jobs of a sweep stand: done, running, failed, to do, and how long it still takes."""
    from oneshot_fl.sweeps.lines import status_lines
    from oneshot_fl.sweeps.manifest import read_manifest
    from oneshot_fl.sweeps.rerun import command_of_failed, go_to
    from oneshot_fl.sweeps.state import NOT_DONE, jobs_of

    folder = sweep.absolute()
    manifest = read_manifest(folder)
    jobs = jobs_of(folder, manifest)
    if rerun not in (None, "failed"):
        raise OneshotError(f"--rerun {rerun}: must be failed; the sweep's own command runs whatever is not done")
    if rerun is None or not any(job.status in NOT_DONE for job in jobs):
        print(*status_lines(folder, jobs, time.time()), *(["nothing failed"] if rerun else []), sep="\n")
        return
    words = command_of_failed(folder, manifest)
    print(shlex.join(["python", "-m", "oneshot_fl", *words]), flush=True)
    if not dry_run:
        from oneshot_fl.__main__ import main as hydra_main

        go_to(manifest)
        sys.argv[1:] = words
        _find_own_code(first=True)
        hydra_main()


@app.command()
def pack(
    model: Annotated[Path, typer.Argument(help="what torch.save wrote: a state dict or a whole module")],
    target: Annotated[
        str, typer.Option("--model", metavar="NAME", help="of conf/model, or of a class: torchvision.models.resnet18")
    ],
    channels: Annotated[int, typer.Option(help="1 grey, 3 colour")],
    size: Annotated[int, typer.Option(help="side of the images in pixels")],
    mean: Annotated[str, typer.Option(help="what images are normalised by, of pixels in [0, 1]")],
    std: Annotated[str, typer.Option(help="likewise")],
    classes: Annotated[
        str, typer.Option(metavar="A,B,...", help="names, those with a comma in double quotes, as the model answers")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="the upload, ending in .safetensors")],
    counts: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="samples of each class, if they may be told")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="samples in all, if told")] = None,
    max_value: WhiteOption = None,
    background: BackgroundOption = None,
    kind: Annotated[str, typer.Option(help="classifier, or decoder (of a VAE of ours)")] = "classifier",
    arg: Annotated[
        list[str] | None, typer.Option("--arg", metavar="KEY=JSON", help="an argument of the class: width=8")
    ] = None,
) -> None:
    """Make an upload of a client's model, on the client's own machine."""
    from oneshot_fl.aggregation.pack import pack as write
    from oneshot_fl.aggregation.typed import argument, class_names, numbers

    _find_own_code()
    tones = {"max_value": max_value, "background": background}
    images = {"channels": channels, "size": size, "mean": numbers("--mean", mean), "std": numbers("--std", std)}
    told = {
        "kind": kind,
        "data": images | {name: value for name, value in tones.items() if value is not None},
        "class_names": class_names("--classes", classes),
        "samples": samples,
        "label_counts": None if counts is None else numbers("--counts", counts),
    }
    arguments = dict(argument(each) for each in arg or ())
    sha256 = write(model, told, target=target, arguments=arguments, out=out)
    allow = f"; the server needs --allow {target}" if "." in target and not target.startswith("oneshot_fl.") else ""
    print(f"{out}: SHA-256 {sha256}{allow}")


@app.command()
def aggregate(
    uploads: Annotated[Path, typer.Argument(help="a folder or zip of uploads, one .safetensors file a client")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="for the model and the report")],
    overrides: Annotated[list[str] | None, typer.Argument(help="of the server's settings: method=dense seed=1")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FOLDER", help="FOLDER/<class>/* images to test on")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="stop where an upload is turned away")] = False,
    allow: AllowOption = None,
    config_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="also read YAML files of your own")] = None,
) -> None:
    """Make one model of other people's uploads; exit code 3 where none of them can be used."""
    share_the_cores()
    keep_freed_memory()
    from oneshot_fl.aggregation.run import aggregate as run
    from oneshot_fl.aggregation.typed import folder_of_test
    from oneshot_fl.config.compose import reading_also

    if allow or config_dir:
        _find_own_code(apart_from=uploads)
    rest = [each for each in overrides or () if not each.startswith("test=")]
    tested = folder_of_test(test, overrides or ())
    with reading_also(config_dir):
        run(uploads, rest, out=out, test=tested, strict=strict, allow=allow or ())


@app.command()
def predict(
    model: ModelArgument,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES", help="image files, or folders of them")],
    csv: Annotated[bool, typer.Option("--csv", help="as CSV, with the probability of every class")] = False,
    abstain: Annotated[
        float, typer.Option(min=0, max=1, metavar="P", help="name no class that is less probable than this")
    ] = 0.0,
    max_value: WhiteOption = None,
    background: BackgroundOption = None,
    allow: AllowOption = None,
) -> None:
    """Classify images; exit code 2, and a line for each, if some cannot be used."""
    from oneshot_fl.serving.load import load
    from oneshot_fl.serving.pictures import unread_in
    from oneshot_fl.serving.table import write_predictions

    if allow:
        _find_own_code(apart_from=model)
    served = load(model, allow=allow or ())
    for line in unread_in(images):
        say(line)
    answers = served.answers(images, abstain=abstain, max_value=max_value, background=background)
    if unusable := write_predictions(answers, served.class_names, sys.stdout, as_csv=csv, problem=say):
        raise OneshotError(f"{unusable} images could not be used; their lines are above, all others are answered")


@app.command()
def export(
    model: ModelArgument,
    onnx: Annotated[bool, typer.Option("--onnx", help="model.onnx, for ONNX Runtime")] = False,
    torch_export: Annotated[bool, typer.Option("--torch-export", help="model.pt2, for torch.export.load")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="default: export in a run's folder, export/NAME beside a file")
    ] = None,
    allow: AllowOption = None,
) -> None:
    """Write the model for other programs, checked against it, with a model card."""
    from oneshot_fl.serving.export import export as write

    if allow:
        _find_own_code(apart_from=model)
    formats = [name for name, wanted in (("onnx", onnx), ("torch", torch_export)) if wanted]
    for path in write(model, out, formats, allow=allow or ()):
        print(path)


@app.command()
def dashboard(
    project: Annotated[str, typer.Argument(help="of Weights & Biases, logger.wandb.project")] = "oneshot_fl",
    entity: Annotated[str | None, typer.Option(metavar="NAME", help="user or team; default: who is logged in")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="write the specification there, and send nothing")
    ] = None,
) -> None:
    """Write the dashboard of a project into Weights & Biases: a report and a workspace."""
    from oneshot_fl.tracking.dashboard import save, write

    told = save(project, entity) if out is None else [write(project, entity or "", out)]
    print(*told, sep="\n")


@store.command("ls")
def list_store(store: StoreOption = None) -> None:
    """List what the store holds: phase, key, size, age in days, and what it is."""
    from oneshot_fl.inventory import holdings, size

    found = [one for one in holdings(_folder(store)) if not one.is_lock]
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
    """Remove damaged artifacts, what stopped processes left, and what names the folder of a run that is gone.

    An interrupted phase then begins anew. That runs are done is forgotten with --phase runs alone.
    """
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
