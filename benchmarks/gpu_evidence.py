"""`python -m benchmarks.gpu_evidence`: what only a GPU can tell, most informative first, in pieces of some minutes.

Each call goes on where the last one ended: pieces that are done are skipped, runs resume from the store. A piece is
done when the same command of the same code has ended well; `done.json` tells of both.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import benchmarks
import oneshot_fl
from benchmarks.cases import ON_ACCELERATOR
from benchmarks.options import Parser
from oneshot_fl.code import digest
from oneshot_fl.disk import write_atomically
from oneshot_fl.errors import OneshotError
from oneshot_fl.launchers.workers import PATIENCE
from oneshot_fl.mistakes import mistakes_told
from oneshot_fl.process import stoppable

GRACE = PATIENCE + 10.0
"""Seconds that a piece has to leave its checkpoints when its time is over: a sweep waits for its own workers."""
ENDINGS = {0: "done", None: "goes on in the next call"}
TINY = ("budget=demo", "clients.epochs=1", "distill.rounds=1", "stratify.steps=1", "generator.width=4", "trainer=cpu")
"""Overrides that let a CPU try all pieces."""
OF_GPUS = ("tests/pipeline/test_gpu.py", "tests/pipeline/test_launchers.py")
"""Where tests that need one are; other modules of that folder need packages that a machine with one may lack."""
SPEED = dict(zip(("speed_grey", "speed_colour"), ON_ACCELERATOR, strict=True))
"""Tables of `benchmarks` by the names of their pieces."""
TWO_CLASSES = ("partition=classes_per_client", "partition.classes=2")
"""What the experiment of that name sets, for those who try it without one."""
ALPHAS = "partition.alpha=0.1,0.5"
CLIENTS = ("method=fedavg", "workers=5")
"""All clients of a partition side by side, before the methods that wait for them."""
SERVERS = ("hydra/launcher=joblib", "trainer.jobs_per_gpu=10")
"""All methods side by side; one alone leaves most of a card idle (docs/results/speed.md)."""
FOLDERS = {
    "--data": "torchvision's root folder with CIFAR-10 (make gpu-evidence DATA=folder), or a folder of images with "
    "data=image_folder data.name=cifar10 besides",
    "--mnist": "torchvision's root folder with MNIST",
}
"""What the folder of an option has to be."""
WEAK = ("experiment=fedmho/table4", "data=mnist", "partition.alpha=0.1")
TINY_WEAK = ("data=digits", "clients=half_cvae", "clients.cvae.epochs=1", "method=fedavg,fedmho", *TINY)


def pieces(
    data: str, out: Path, *, tiny: bool, seed: int = 0, mnist: str | None = None, overrides: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Commands by their names, in order.

    Args:
        data: the folder of the data.
        out: for all that the pieces leave.
        tiny: runs of seconds instead, on a CPU.
        seed: of the runs.
        mnist: torchvision's folder with MNIST, for FedMHO's Table 4; None: that is left out.
        overrides: of the runs on CIFAR-10, for data in another form than torchvision's: `data=image_folder
            data.name=cifar10`.
    """
    python = [sys.executable, "-m"]
    chosen = () if any(word.startswith("data=") for word in overrides) else ("data=cifar10",)
    whole = [*chosen, f"data.root={data}", "trainer.precision=bf16-mixed"]
    given = [*(["data=digits", *TINY] if tiny else whole), *overrides]
    runs = [*python, "oneshot_fl", "-m", f"seed={seed}", f"store={out / 'store'}"]
    tables = {"speed_grey": "Start-up"} if tiny else SPEED
    measured = [*python, "benchmarks", "--repeats", "1" if tiny else "5", "--out", str(out / "speed.json"), "--only"]
    tests = ["tests/unit/test_devices.py"] if tiny else ["-m", "gpu", *OF_GPUS]

    def columns(name: str, *split: str) -> dict[str, list[str]]:
        experiment = () if tiny else (f"experiment=evidence/cifar10_{name}",)
        servers = ("method=fedavg,fedhydra",) if tiny else SERVERS
        parts = {f"{name}_clients": CLIENTS, name: servers}
        asked = {part: [*runs, *experiment, *words, *given, *split] for part, words in parts.items()}
        return {part: [*words, _sweep(out, part, seed)] for part, words in asked.items()}

    weak = TINY_WEAK if tiny else (*WEAK, f"data.root={mnist}", "trainer.precision=bf16-mixed", *SERVERS)
    return {
        "tests": [*python, "pytest", "-q", "-p", "benchmarks.some_passed", *tests],
        **{name: [*measured, table] for name, table in tables.items()},
        **columns("dirichlet", ALPHAS),
        **columns("two_classes", *(TWO_CLASSES if tiny else ())),
        **({"weak": [*runs, *weak, _sweep(out, "weak", seed)]} if mnist else {}),
    }


def _sweep(out: Path, name: str, seed: int) -> str:
    """Where the runs of a piece leave their results: seeds beside one another, for one report of all."""
    return f"hydra.sweep.dir={out / f'{name}_seed_{seed}'}"


def require_data(option: str, folder: str) -> None:
    """Whether there is a folder to look for data in.

    Raises:
        OneshotError: there is none.
    """
    if not folder or not Path(folder).is_dir():
        raise OneshotError(f"{option} {folder}: there is no such folder; must be {FOLDERS[option]}")


def chosen(commands: dict[str, list[str]], only: Sequence[str] | None) -> dict[str, list[str]]:
    """The commands of the named pieces; of all where none is named.

    Raises:
        OneshotError: there is no such piece.
    """
    if unknown := [name for name in only or () if name not in commands]:
        raise OneshotError(f"--only {unknown[0]}: there is no such piece; choose from {', '.join(commands)}")
    return commands if only is None else {name: commands[name] for name in commands if name in only}


def code() -> str:
    """A digest of everything that a piece may run."""
    tests = (".".join(Path(file).with_suffix("").parts) for file in OF_GPUS)
    return digest([*_modules(oneshot_fl), *_modules(benchmarks), *tests])


def _modules(package: Any) -> Iterator[str]:
    (folder,) = package.__path__
    for path in sorted(Path(folder).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join([package.__name__, *(part for part in parts if part != "__init__")])


def work_off(commands: dict[str, list[str]], out: Path, *, seconds: float) -> list[str]:
    """Run what is not done until the time is over; the names of what is not done then.

    A piece that fails is told and left for the next call, so that it does not keep the others from running. So is one
    that was stopped: it comes last in the next call, as it may be one that begins anew and is longer than a call.
    """
    out.mkdir(parents=True, exist_ok=True)
    record, now = out / "done.json", code()
    done, stopped = _noted(record), _noted(out / "stopped.json")
    end = time.monotonic() + seconds
    wanted = {name: {"name": name, "command": command, "code": now} for name, command in commands.items()}
    for name, piece in sorted(wanted.items(), key=lambda each: stopped.count(each[0])):
        if piece not in done and end - time.monotonic() > GRACE:
            ending = run_until(commands[name], end - GRACE, out / f"{name}.log")
            print(f"{name}: {ENDINGS.get(ending, f'failed ({ending}), see {name}.log')}", flush=True)
            if ending == 0:
                done.append(piece)
                write_atomically(record, json.dumps(done, indent=1))
            elif ending is None:
                write_atomically(out / "stopped.json", json.dumps([*stopped, name], indent=1))
    return [name for name, piece in wanted.items() if piece not in done]


def _noted(file: Path) -> list[Any]:
    return json.loads(file.read_text()) if file.is_file() else []


def run_until(command: Sequence[str], end: float, log: Path) -> int | None:
    """Run a command, with what it prints at the end of a file; its exit code, None where it was stopped at `end`.

    Whatever ends this, the command does not outlive it.
    """
    with log.open("a") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            return process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, with some time to leave its checkpoints; nothing where it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """The command line."""
    parser = Parser(prog="python -m benchmarks.gpu_evidence", description=__doc__)
    parser.add_argument("--data", nargs="?", default="data", const="", help="torchvision's root folder with CIFAR-10")
    parser.add_argument("overrides", nargs="*", help="of the runs on CIFAR-10: data=image_folder data.name=cifar10")
    parser.add_argument("--mnist", help="torchvision's root folder with MNIST: runs FedMHO's Table 4 at Dir(0.1) too")
    parser.add_argument("--only", nargs="+", metavar="PIECE", help="these pieces alone, in their order here")
    parser.add_argument("--seed", type=int, default=0, help="of the runs; each seed is asked for by a call of its own")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu-evidence"), help="results, logs and the store")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this call")
    parser.add_argument("--tiny", action="store_true", help="try the pieces on a CPU, with runs of seconds")
    with stoppable(), mistakes_told():
        given = parser.parse_args()
        if not given.tiny:
            require_data("--data", given.data)
            if given.mnist is not None:
                require_data("--mnist", given.mnist)
        commands = pieces(
            given.data, given.out, tiny=given.tiny, seed=given.seed, mnist=given.mnist, overrides=given.overrides
        )
        left = work_off(chosen(commands, given.only), given.out, seconds=60 * given.minutes)
        print(f"not done: {', '.join(left)}; the same command goes on" if left else "all done")


if __name__ == "__main__":
    main()
