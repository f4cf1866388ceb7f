"""A finished run on the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from oneshot_fl.config.record import is_of_development
from oneshot_fl.reporting.summary import distances_of, privacy_metrics

LISTED = 12
"""Classes up to this many are all told; of more, those with the lowest recall."""


def print_summary(console: Console, summary: Mapping[str, Any], files: list[Path]) -> None:
    """A table of clients, ensembles and server, the server class by class, and where the files are."""
    console.print(_table(summary))
    for line in class_lines(summary["server"]):
        console.print(line, soft_wrap=True, highlight=False)
    if found := privacy_metrics(summary["privacy"]):
        figures = ", ".join(f"{_plain(name)} {value:.3f}" for name, value in found.items())
        console.print(f"privacy (an AUC of 0.5 and a TPR of 0.01 are chance): {figures}", highlight=False)
    if distances := distances_of(summary):
        told = ", ".join(f"{who} {found['fid']:.4g} / {found['kid']:.4g}" for who, found in distances.items())
        extractor = summary["synthetic"]["extractor"]["model"]
        console.print(f"FID / KID to training images on features of our {extractor}, not Inception's: {told}")
    for file in files:
        console.print(str(file), soft_wrap=True)


def _plain(metric: str) -> str:
    return metric.removeprefix("privacy/").replace("_", " ")


def _table(summary: Mapping[str, Any]) -> Table:
    title = f"{summary['method']} on {summary['data']}, {summary['partition']['name']}, seed {summary['seed']}"
    accuracy = "accuracy in development" if is_of_development(summary) else "test accuracy"
    header = ("who", "model", "samples", accuracy, "balanced")
    table = Table(*header, title=f"{title} (budget {summary['budget']})")
    for k, client in enumerate(summary["clients"]):
        told = _pair(client) if client["accuracy"] is not None else (_untested(client), "")
        table.add_row(f"client {k}", client["model"], str(client["samples"]), *told)
    table.add_section()
    voices = sum(client["accuracy"] is not None for client in summary["clients"])
    for name, value in summary["ensemble"]["rows"].items():
        balanced = summary["ensemble"]["balanced"][name]
        table.add_row(f"ensemble: {name}", f"{voices} models", "", f"{value:.2%}", f"{balanced:.2%}")
    table.add_section()
    server = summary["server"]
    last = _pair({**server, "accuracy": server["accuracy_last"]})
    table.add_row("server, last round", server["model"], "", *last, style="bold")
    table.add_row("server, best round", server["model"], "", f"{server['accuracy_best']:.2%}")
    return table


def _untested(client: Mapping[str, Any]) -> str:
    return "decoder only" if client["quarantined"] is None else "quarantined"


def _pair(figures: Mapping[str, Any]) -> tuple[str, str]:
    return f"{figures['accuracy']:.2%}", f"{figures['balanced_accuracy']:.2%}"


def _calibrated(server: Mapping[str, Any]) -> str:
    fitted = server["calibration"]
    return f", {fitted['ece']:.2%} at temperature {fitted['temperature']:g}" if fitted else ""


def class_lines(server: Mapping[str, Any]) -> list[str]:
    """The server's macro figures and recalls, and the classes that the test set tells nothing of."""
    auroc = "undefined" if server["macro_auroc"] is None else f"{server['macro_auroc']:.4f}"
    lines = [
        f"server, last round: macro AUROC {auroc}, calibration error (ECE) {server['ece']:.2%}{_calibrated(server)}"
    ]
    rows = [row for row in server["by_class"] if row["recall"] is not None]
    shown = rows if len(rows) <= LISTED else sorted(rows, key=lambda row: row["recall"])[:LISTED]
    which = "by class" if len(rows) <= LISTED else f"of the {LISTED} worst of {len(rows)} classes"
    lines.append(f"recall {which}: " + ", ".join(f"{row['class']} {row['recall']:.1%}" for row in shown))
    if absent := [row["class"] for row in server["by_class"] if not row["images"]]:
        lines.append(f"no test image, so in no figure: {', '.join(absent)}")
    return lines
