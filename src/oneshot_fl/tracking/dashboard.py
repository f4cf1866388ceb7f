"""The project's dashboard in Weights & Biases as code: one specification, as a report and as a workspace.

It shows what `tracking.wandb_run` logs. Nothing is asked of W&B until it is saved.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneshot_fl.disk import make_folder, require_own, write_atomically
from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.tracking.wandb_run import LOSSES

if TYPE_CHECKING:
    from wandb_workspaces.reports.v2 import Report
    from wandb_workspaces.workspaces import Workspace

TITLE = "One-shot federated learning"
ACCURACY = "server/accuracy_last"
SPREAD = ("data.name", "comparison.partition", "comparison.protocol")
"""By which runs are told apart before methods are compared."""
ROW = "comparison.row"
"""What runs share that differ in their seed alone, in one text: W&B groups a panel by a single key."""
PHASES = ("clients", "stratify", "recite", "distill")
TABLES = ("guidance/matrix", "evaluate/by_class", "evaluate/clients", LOSSES)
FAILED = ["failed", "crashed", "killed"]
BEGINNING = '{\n "report": {'
"""Of what `write` writes, by which it is known."""


@dataclass(frozen=True)
class Part:
    """One heading with its panels."""

    title: str
    text: str
    panels: list[Any]
    groups: tuple[str, ...] = ()
    """Keys of the configuration that its runs are grouped by."""
    states: list[str] = field(default_factory=list)
    """Only runs that ended so; all, where none is named."""


def parts() -> list[Part]:
    """What the dashboard shows, in its order.

    Raises:
        OneshotError: `wandb-workspaces` is missing.
    """
    wr = _reports()
    over_seeds = {"groupby": wr.Config(ROW), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    costs = [f"cost/{phase}/seconds" for phase in PHASES]
    return [
        Part(
            "Which method wins",
            "Mean accuracy of the server's model over seeds. A bar names method, data set and partition, and ends in "
            "the digits of its protocol: only bars of the same digits may be compared.",
            [wr.BarPlot(title="server accuracy", metrics=[wr.SummaryMetric(ACCURACY)], **over_seeds)],
            groups=(*SPREAD, ROW),
        ),
        Part(
            "Accuracy over rounds",
            "Mean and standard deviation over seeds, of every protocol apart.",
            [wr.LinePlot(title="accuracy", x="distill/step", y=["distill/accuracy"], **over_seeds)],
            groups=(*SPREAD, ROW),
        ),
        Part(
            "Guidance",
            "How well each client guides a generator to each class, and what the server recognises.",
            [wr.WeavePanelSummaryTable(table_name=name) for name in TABLES],
        ),
        Part("Images", "Synthetic images over rounds.", [wr.MediaBrowser(media_keys=["distill/images"])]),
        Part(
            "Cost",
            "What accuracy costs, mean over seeds: seconds that each phase took when it was made, and bytes that "
            "clients sent.",
            [
                _against("cost/distill/seconds"),
                _against("cost/clients/upload_bytes"),
                wr.BarPlot(title="seconds by phase", metrics=[wr.SummaryMetric(name) for name in costs], **over_seeds),
            ],
            groups=(*SPREAD, ROW),
        ),
        Part("Failures", "Runs that did not end well.", [wr.RunComparer(diff_only="split")], states=FAILED),
    ]


def _against(cost: str) -> Any:
    """Accuracy against one cost, a point a group of runs."""
    wr = _reports()
    axes = {"x": wr.SummaryMetric(cost), "y": wr.SummaryMetric(ACCURACY)}
    return wr.ScatterPlot(title=f"accuracy against {cost}", log_x=True, **axes)


def report(project: str, entity: str) -> "Report":
    """The dashboard as a report: every part with runs of its own grouping."""
    wr = _reports()
    from wandb_workspaces import expr

    blocks: list[Any] = [wr.TableOfContents()]
    for part in parts():
        filters = [expr.Metric("State").isin(part.states)] if part.states else []
        groups = [f"config.{key}" for key in part.groups]
        runs = wr.Runset(name=part.title, groupby=groups, filters=filters)
        blocks += [wr.H2(part.title), wr.P(part.text), wr.PanelGrid(runsets=[runs], panels=part.panels)]
    return wr.Report(project=project, entity=entity, title=TITLE, width="fluid", blocks=blocks)


def workspace(project: str, entity: str) -> "Workspace":
    """The dashboard as a workspace: one list of runs, a section a part."""
    _reports()
    from wandb_workspaces import workspaces as ws

    sections = [ws.Section(name=part.title, panels=part.panels, is_open=True) for part in parts()]
    grouped = ws.RunsetSettings(groupby=[ws.Config(key) for key in (*SPREAD, ROW)])
    return ws.Workspace(entity=entity, project=project, name=TITLE, sections=sections, runset_settings=grouped)


def specification(project: str, entity: str) -> dict[str, Any]:
    """What would be sent, as built-in types; needs no network and no account."""
    views: dict[str, Any] = {"report": report(project, entity), "workspace": workspace(project, entity)}
    return {name: _plain(view) for name, view in views.items()}


def _plain(view: Any) -> dict[str, Any]:
    """As it is sent; the package offers no public way to look at it before."""
    plain: dict[str, Any] = json.loads(view._to_model().spec.model_dump_json(by_alias=True, exclude_none=True))
    return plain


def write(project: str, entity: str, out: Path) -> Path:
    """Write the specification to `out`.

    Raises:
        OneshotError: it cannot be written, or something else lies there.
    """
    make_folder(out.parent)
    require_own(out, lambda text: not text or text.startswith(BEGINNING), "specification of a dashboard")
    write_atomically(out, json.dumps(specification(project, entity), indent=1))
    return out


def save(project: str, entity: str | None) -> list[str]:
    """Write report and workspace into a W&B project, and return their addresses.

    Raises:
        OneshotError: what it needs is not installed, nobody is logged in, or W&B refuses.
    """
    _reports()
    import wandb

    try:
        owner = entity or wandb.Api().default_entity or ""
        return [report(project, owner).save().url, workspace(project, owner).save().url]
    except Exception as error:  # wandb-workspaces raises bare exceptions over whatever W&B answers
        raise OneshotError(
            f"dashboard: Weights & Biases did not take it ({one_line(error)}); log in with `wandb login`, or write it "
            "to a file with --out"
        ) from error


def _reports() -> Any:
    try:
        from wandb_workspaces.reports import v2
    except ModuleNotFoundError as error:
        raise OneshotError(f"dashboard: {error.name} is missing; pip install 'oneshot-fl[dashboard]'") from error
    return v2
