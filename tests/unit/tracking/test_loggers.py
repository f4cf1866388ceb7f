import pytest

from oneshot_fl.tracking.loggers import CsvLogger, RunLog


class _Sink:
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


def test_metrics_are_on_disk_before_the_run_ends_and_keep_full_precision(tmp_path):
    logger = CsvLogger(tmp_path)
    logger.log({"distill/accuracy": 0.1 + 0.2}, 7)
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1] == f"distill/accuracy,7,{0.1 + 0.2!r}"
    logger.close(failed=False)


def test_wandb_runs_are_one_a_job_with_name_group_and_own_axes(tmp_path, monkeypatch):
    from oneshot_fl.tracking.loggers import WandbLogger

    names = []
    for name in ("first", "second"):
        logger = WandbLogger(
            tmp_path, project="p", entity=None, study="s", run_name=name, mode="offline", config={"seed": 1}
        )
        logger.log({"distill/accuracy": 0.5}, 1)
        logger.log({"clients/00/loss": 0.5}, 4)
        names.append((logger._run.name, logger._run.group, logger._run.id))
        assert logger._axes == {"distill/step", "clients/00/step"}
        logger.close(failed=False)
    assert [name for name, _, _ in names] == ["first", "second"]
    assert {group for _, group, _ in names} == {"s"}
    assert len({run_id for _, _, run_id in names}) == 2
