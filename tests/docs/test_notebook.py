"""The example notebook runs from top to bottom."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.composing import TINY

SIZES = '"seed=0",'
NOTEBOOK = Path(__file__).parents[2] / "examples" / "digits.ipynb"


def test_the_notebook_runs_and_shows_both_methods(tmp_path, monkeypatch):
    monkeypatch.setenv("ONESHOT_FL_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    (sizes,) = [cell for cell in notebook.cells if SIZES in cell.source]
    sizes.source = sizes.source.replace(SIZES, f"{SIZES} *{TINY!r},")
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert all(row in printed for row in ("fedavg", "fedhydra", "ensemble: probability", "answers"))
