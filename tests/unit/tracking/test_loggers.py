import csv
import errno
import re
import threading
import time

import pytest
import torch
from lightning.pytorch.loggers import Logger

from oneshot_fl.config.compose import recipe
from oneshot_fl.errors import OneshotError
from oneshot_fl.process import Interrupted
from oneshot_fl.tracking.loggers import Dispensable, RunLog, opened
from oneshot_fl.tracking.told import About
from tests.composing import compose_config


class _Sink:
    shows_images = False

    def images(self, name, images, step):
        self.logged.append((name, step))

    def outcome(self, outcome):
        self.logged.append(outcome)

    def __init__(self):
        self.logged, self.closed = [], None

    def log(self, metrics, step):
        self.logged.append((dict(metrics), step))

    def figures(self, paths):
        self.logged.append(dict(paths))

    def close(self, failed):
        self.closed = failed


def test_all_sinks_get_everything_and_are_closed():
    loggers = [_Sink(), _Sink()]
    with RunLog(loggers) as log:
        log.log({"a/b": 1.0}, 3)
    assert all(logger.logged == [({"a/b": 1.0}, 3)] for logger in loggers)
    assert [logger.closed for logger in loggers] == [False, False]


def test_sinks_are_closed_as_failed_on_an_error():
    logger = _Sink()
    with pytest.raises(RuntimeError), RunLog([logger]):
        raise RuntimeError
    assert logger.closed is True


def test_a_sink_that_cannot_close_does_not_keep_the_others_open():
    class Stuck(_Sink):
        def close(self, failed):
            raise OSError("disk full")

    loggers = [_Sink(), Stuck(), _Sink()]
    with pytest.raises(OSError, match="disk full"), RunLog(loggers):
        pass
    assert [loggers[0].closed, loggers[2].closed] == [False, False]


def _about(folder):
    return About(folder, "id", "name", "group", "clients", (), {})


def _csv(folder):
    node = compose_config("logger=csv").logger.csv
    return opened(recipe(node).make, node, _about(folder))


def _rows(folder, count):
    """The rows of `metrics.csv` once there are so many."""
    deadline = time.monotonic() + 60
    while True:
        with (folder / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        if len(rows) == count:
            return rows
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_metrics_are_on_disk_before_the_run_ends_and_keep_full_precision(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.tracking.loggers.KEPT", 0.01)
    sink = _csv(tmp_path)
    sink.log({"distill/accuracy": 0.1 + 0.2}, 7)
    sink.log({"clients/00/loss": 0.5}, 1)
    first, second = _rows(tmp_path, 2)
    assert float(first["distill/accuracy"]) == 0.1 + 0.2
    assert (first["step"], second["step"], second["clients/00/loss"]) == ("7", "1", "0.5")
    sink.close(failed=False)


def test_a_file_of_metrics_is_not_written_again_for_every_client(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.tracking.loggers.KEPT", 3600)
    sink, saved = _csv(tmp_path), []
    save = sink.logger.save
    monkeypatch.setattr(sink.logger, "save", lambda: (saved.append(1), save()))
    for client in range(20):
        for epoch in range(3):
            sink.log({f"clients/{client:02d}/loss": 0.5}, epoch)
    assert len(_rows(tmp_path, 1)) == len(saved) == 1
    sink.close(failed=True)
    assert len(saved) == 2
    rows = _rows(tmp_path, 60)
    assert [row["step"] for row in rows] == ["0", "1", "2"] * 20
    assert rows[-1]["clients/19/loss"] == "0.5"


def test_a_disk_that_is_full_later_ends_the_run_at_the_next_row(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.tracking.loggers.KEPT", 0.01)
    sink, failed = _csv(tmp_path), threading.Event()
    sink.log({"distill/accuracy": 0.5}, 1)

    def full():
        failed.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sink.logger, "save", full)
    sink.log({"distill/accuracy": 0.6}, 2)
    assert failed.wait(60)
    for give in (lambda: sink.log({"distill/accuracy": 0.7}, 3), lambda: sink.close(failed=False)):
        with pytest.raises(OneshotError, match=r"metrics.csv: cannot be written \(No space left on device\)"):
            give()


def test_images_reach_those_who_show_them_under_the_name_of_their_exchange():
    looks, reads = _Sink(), _Sink()
    looks.shows_images = True
    log = RunLog([looks, reads]).within("communication_2/")
    assert log.shows_images
    assert not RunLog([reads]).shows_images
    log.images("distill/images", torch.zeros(1, 1, 2, 2), 3)
    assert [name for name, _ in looks.logged] == ["communication_2/distill/images"]
    assert reads.logged == []


def test_tensorboard_shows_curves_and_images(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    node = compose_config("logger=tensorboard").logger.tensorboard
    sink = opened(recipe(node).make, node, _about(tmp_path))
    sink.log({"distill/accuracy": 0.5}, 1)
    sink.images("distill/images", torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 1)
    sink.close(failed=False)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [each.value for each in events.Scalars("distill/accuracy")] == [0.5]
    assert [each.step for each in events.Images("distill/images")] == [1]


@pytest.mark.parametrize(("name", "extra"), [("a.B", ""), ("a.MLFlowLogger", "; pip install 'oneshot-fl[mlflow]'")])
def test_a_logger_whose_package_is_missing_says_so(tmp_path, name, extra):
    def build(**told):
        raise ModuleNotFoundError("no module named nothing")

    line = f"logger: {name} needs another package (no module named nothing){extra}"
    with pytest.raises(OneshotError, match=f"^{re.escape(line)}$"):
        opened(build, {"_target_": name}, _about(tmp_path))


class _Homeless(Logger):
    """A logger that takes no folder."""

    name, version = "homeless", ""

    def __init__(self, digits=2):
        super().__init__()

    def log_metrics(self, metrics, step=None):
        pass

    def log_hyperparams(self, params):
        pass


def test_a_logger_that_does_not_take_the_runs_folder_says_so(tmp_path):
    with pytest.raises(OneshotError, match=r"^logger: a.B cannot be opened \(TypeError: .*; .*keys and save_dir"):
        opened(_Homeless, {"_target_": "a.B"}, _about(tmp_path))


def test_a_logger_that_fails_to_open_is_refused_at_the_door(tmp_path):
    def build(**told):
        raise ConnectionError("no route\nto host")

    with pytest.raises(OneshotError, match=r"^logger: a.B cannot be opened \(ConnectionError: no route to host\)"):
        opened(build, {"_target_": "a.B"}, _about(tmp_path))


class _Server(Logger):
    """A tracking server that cannot be reached from some moment on."""

    name, version = "server", ""

    def __init__(self, save_dir, fails=("log_metrics", "finalize"), error=None):
        super().__init__()
        self.asked, self.fails, self.error = [], fails, error or ConnectionError("no route\nto host")

    def log_metrics(self, metrics, step=None):
        self._ask("log_metrics")

    def log_hyperparams(self, params):
        pass

    def finalize(self, status):
        self._ask(f"finalize {status}")

    def _ask(self, what):
        self.asked.append(what)
        if what.split()[0] in self.fails:
            raise self.error


def _served(folder, **settings):
    server = _Server("", **settings)
    return server, opened(lambda **told: server, {"_target_": "a.Server"}, _about(folder))


def test_a_logger_that_fails_is_told_of_once_and_the_run_goes_on_without_it(tmp_path, capsys):
    server, sink = _served(tmp_path)
    other = _Sink()
    with RunLog([sink, other]) as log:
        log.log({"distill/accuracy": 0.1}, 1)
        log.within("communication_2/").log({"distill/accuracy": 0.2}, 2)
        log.figures({})
    assert capsys.readouterr().err == (
        "oneshot_fl: logger: a.Server failed (ConnectionError: no route to host) and gets nothing more; "
        "the run goes on\n"
    )
    assert server.asked == ["log_metrics", "finalize success"]
    assert len(other.logged) == 3
    assert other.closed is False


def test_a_logger_that_fails_at_the_very_end_does_not_fail_the_run(tmp_path, capsys):
    server, sink = _served(tmp_path, fails=("finalize",))
    with RunLog([sink]) as log:
        log.log({"distill/accuracy": 0.1}, 1)
    assert capsys.readouterr().err.count("a.Server failed") == 1
    assert server.asked == ["log_metrics", "finalize success"]


def test_a_logger_that_fails_is_shown_no_images_any_more(tmp_path):
    class Shown(_Sink):
        shows_images = True

        def images(self, name, images, step):
            raise RuntimeError("too many")

    sink = Dispensable(Shown(), "a.Server")
    log = RunLog([sink])
    log.images("distill/images", torch.zeros(1, 1, 2, 2), 1)
    assert not log.shows_images


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted(2)])
def test_a_stop_inside_a_logger_stops_the_run(tmp_path, stop):
    _, sink = _served(tmp_path, fails=("log_metrics",), error=stop)
    with pytest.raises(type(stop)):
        sink.log({"distill/accuracy": 0.1}, 1)


def test_what_a_logger_makes_of_a_stop_is_the_stop(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.process._asked", [15])
    _, sink = _served(tmp_path)
    with pytest.raises(Interrupted) as stopped:
        sink.log({"distill/accuracy": 0.1}, 1)
    assert stopped.value.exit_code == 143


def test_a_metrics_file_that_cannot_be_written_ends_the_run_in_one_line(tmp_path):
    (tmp_path / "metrics.csv").mkdir()
    sink = _csv(tmp_path)
    for give in (lambda: sink.log({"distill/accuracy": 0.5}, 1), lambda: sink.close(failed=False)):
        with pytest.raises(OneshotError, match=r"^\S+/metrics.csv: cannot be written \(.*directory.*make room"):
            give()
