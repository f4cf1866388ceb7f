"""`python -m benchmarks.gpu_evidence`: what only a GPU can tell, most informative first, in pieces of some minutes.

Each call goes on where the last one ended: pieces that are done are skipped, runs resume from the store.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

GRACE = 20.0
"""Seconds that a piece has to leave its checkpoints when its time is over."""
ENDINGS = {0: "done", None: "goes on in the next call"}
TINY = ("budget=demo", "clients.epochs=1", "distill.rounds=1", "stratify.steps=1", "generator.width=4", "trainer=cpu")
"""Overrides that let a CPU try all pieces."""


def pieces(data: str, out: Path, *, tiny: bool) -> dict[str, list[str]]:
    """Commands by their names, in order."""
    python = [sys.executable, "-m"]
    given = ["data=digits", *TINY] if tiny else ["data=cifar10", f"data.root={data}", "hydra/launcher=joblib"]
    runs = [*python, "oneshot_fl", "-m", "seed=0", f"store={out / 'store'}"]
    speed = ["--only", "Start-up", "--repeats", "1"] if tiny else ["--only", "On an accelerator", "--repeats", "5"]

    def column(name: str, *overrides: str) -> list[str]:
        experiment = () if tiny else (f"experiment=evidence/{name}",)
        methods = ("method=fedavg,fedhydra",) if tiny else ()
        return [*runs, *experiment, *methods, *given, *overrides, f"hydra.sweep.dir={out / name}"]

    return {
        "tests": [*python, "pytest", "-q", "-m", "gpu", "tests/pipeline"],
        "speed": [*python, "benchmarks", *speed, "--out", str(out / "speed.json")],
        "dirichlet": column("cifar10_dirichlet"),
        "two classes": column("cifar10_two_classes"),
    }


def work_off(commands: dict[str, list[str]], out: Path, *, seconds: float) -> list[str]:
    """Run what is not done until the time is over; the names of what is not done then.

    A piece that fails is told and left for the next call, so that it does not keep the others from running.
    """
    out.mkdir(parents=True, exist_ok=True)
    record = out / "done.json"
    done: list[str] = json.loads(record.read_text()) if record.is_file() else []
    end = time.monotonic() + seconds
    for name, command in commands.items():
        if name not in done and end - time.monotonic() > GRACE:
            code = run_until(command, end - GRACE, out / f"{name}.log")
            print(f"{name}: {ENDINGS.get(code, f'failed ({code}), see {name}.log')}")
            if code == 0:
                done.append(name)
                record.write_text(json.dumps(done))
    return [name for name in commands if name not in done]


def run_until(command: Sequence[str], end: float, log: Path) -> int | None:
    """Run a command, with what it prints at the end of a file; its exit code, None where it was stopped at `end`."""
    with log.open("a") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            return process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_evidence", description=__doc__)
    parser.add_argument("--data", default="data", help="torchvision's root folder with CIFAR-10")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu-evidence"), help="results, logs and the store")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this call")
    parser.add_argument("--tiny", action="store_true", help="try the pieces on a CPU, with runs of seconds")
    given = parser.parse_args()
    left = work_off(pieces(given.data, given.out, tiny=given.tiny), given.out, seconds=60 * given.minutes)
    print(f"not done: {', '.join(left)}; the same command goes on" if left else "all done")


if __name__ == "__main__":
    main()
