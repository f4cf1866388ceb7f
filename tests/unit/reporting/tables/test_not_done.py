import shlex
from dataclasses import replace
from pathlib import Path

from oneshot_fl.reporting.tables.not_done import not_done_sheet


def test_every_run_without_a_result_with_reason_folder_and_command(make_run):
    overrides = ("method=dense", "model.names=[cnn2,lenet5]", "data.root=a b")
    failed = replace(
        make_run(None, error="no memory"),
        folder=Path("multirun/3"),
        overrides=overrides,
        searched=("hydra.searchpath=['file:///my conf']",),
    )
    stopped = replace(make_run(None, seed=1, status="interrupted"), folder=Path("multirun/4"))
    sheet = not_done_sheet([make_run(), failed, stopped])
    assert [row[:4] for row in sheet.rows] == [
        ["fedhydra, mnist, seed 0", "failed", "no memory", "multirun/3"],
        ["fedhydra, mnist, seed 1", "interrupted", "", "multirun/4"],
    ]
    assert shlex.split(sheet.rows[0][4]) == [
        "python",
        "-m",
        "oneshot_fl",
        "hydra.searchpath=['file:///my conf']",
        *overrides,
        'hydra.run.dir="multirun/3"',
    ]
    assert sheet.records[0]["status"] == "failed"


def test_nothing_to_list_is_said(make_run):
    sheet = not_done_sheet([make_run()])
    assert (sheet.title, sheet.rows) == ("All runs are done", [])
