"""Between Hydra and the engines."""

import inspect
import json
import os
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf, open_dict

from oneshot_fl.config.compose import config_dir, search_path
from oneshot_fl.errors import OneshotError
from oneshot_fl.launchers import hydra_side
from oneshot_fl.launchers.engine import Outcome, Task
from oneshot_fl.launchers.hydra_side import ENGINES, JobFailedError, Launch, as_outcome, as_return, died, engine_of
from oneshot_fl.sweeps.alone import alone_in
from oneshot_fl.sweeps.manifest import Manifest
from oneshot_fl.sweeps.state import read_trace


def test_every_launcher_has_its_file_and_its_extra():
    files = {path.stem for path in (config_dir() / "hydra" / "launcher").glob("*.yaml")}
    assert files == set(ENGINES)
    assert len(files) >= 5


@pytest.mark.parametrize("name", [*sorted(ENGINES.keys() - {"ray"}), pytest.param("ray", marks=pytest.mark.slow)])
def test_every_file_holds_what_its_engine_takes(name):
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        cfg = compose("config", [f"hydra/launcher={name}", "hydra.sweep.dir=x"], return_hydra_config=True)
    settings = OmegaConf.to_container(cfg.hydra.launcher, resolve=True)
    assert (settings.pop("_target_"), settings.pop("engine")) == ("hydra_plugins.oneshot_fl.SweepLauncher", name)
    assert settings.pop("only") is None
    module, kind, extra = ENGINES[name]
    taken = inspect.signature(getattr(pytest.importorskip(module, reason=extra), kind)).parameters
    open_to_others = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    assert open_to_others or set(settings) == taken.keys() - {"jobs_per_gpu"}


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("clouds", {}, r"hydra\.launcher\.engine=clouds: .*choose from local, joblib"),
        ("local", {"at_once": 3}, r"hydra\.launcher: .*conf/hydra/launcher/local\.yaml"),
    ],
)
def test_what_is_no_engine_is_one_line(name, options, line):
    with pytest.raises(OneshotError, match=line):
        engine_of(name, options, 1)


@pytest.mark.parametrize("jobs", [-1, "abc"])
def test_a_wrong_number_of_jobs_of_a_gpu_is_one_line(jobs):
    with pytest.raises(OneshotError, match=rf"trainer\.jobs_per_gpu={jobs}: must be a number of jobs, at least 1$"):
        engine_of("joblib", {}, jobs)


def test_an_engine_without_its_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(ENGINES, "ray", ("oneshot_fl.launchers.not_there", "Rays", "ray"))
    with pytest.raises(OneshotError, match=r"hydra/launcher=ray: .*pip install 'oneshot-fl\[ray\]'"):
        engine_of("ray", {}, 1)


@pytest.mark.parametrize(
    ("error", "text", "mistake", "code"),
    [
        (OneshotError("seed=-1: must be more"), "seed=-1: must be more", True, 2),
        (ValueError("bad"), "ValueError: bad", False, 1),
    ],
)
def test_a_failure_goes_through_an_engine_and_back(error, text, mistake, code):
    returned = JobReturn(status=JobStatus.FAILED)
    returned.return_value = error
    outcome = as_outcome(returned)
    assert outcome == Outcome("failed", error=text, mistake=mistake)
    back = as_return(["seed=-1"], outcome)
    assert (back.status, back.overrides) == (JobStatus.FAILED, ["seed=-1"])
    with pytest.raises(JobFailedError) as caught:
        _ = back.return_value
    assert caught.value.exit_code == code


def test_a_result_goes_through_an_engine_and_back():
    returned = JobReturn(status=JobStatus.COMPLETED)
    returned.return_value = 0.75
    assert as_return([], as_outcome(returned)).return_value == 0.75


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """The configuration of a search's job that was done before, in a folder of its own."""
    done = tmp_path / "done"
    done.mkdir()
    (done / "summary.json").write_text(json.dumps({"validation": None, "clients": [{"accuracy": 0.8}]}))
    (done / "run.json").write_text("{}")
    place = SimpleNamespace(find=lambda _: done)
    monkeypatch.setattr(hydra_side, "remembered", lambda _: place)
    words = ["hydra.sweeper._target_=a.Search", "hydra.sweep.dir=x", "hydra.job.num=0"]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose("config", words, return_hydra_config=True)


def test_a_job_elsewhere_gets_the_store_of_the_sweep(monkeypatch):
    monkeypatch.setenv("ONESHOT_FL_STORE", "/shared/store")
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config, missing = (
            hydra_side._anywhere(compose("config", ["hydra.job.num=0", *words], return_hydra_config=True))
            for words in ([], ["store=???"])
        )
    monkeypatch.delenv("ONESHOT_FL_STORE")
    assert (config.store, OmegaConf.is_missing(missing, "store")) == ("/shared/store", True)


def test_a_job_is_looked_up_and_handed_over_with_the_variables_that_hydra_sets_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ONESHOT_FL_STORE", "/ours")
    monkeypatch.setenv("COPIED", "7")
    monkeypatch.delenv("CHOSEN", raising=False)
    asked = []
    for name in ("remembered", "source_code_of"):
        monkeypatch.setattr(hydra_side, name, lambda config: asked.append((config["study"], config["seed"])))
    words = (
        *("+hydra.job.env_set.CHOSEN=own", "study=${oc.env:CHOSEN,ours}"),
        *("hydra.job.env_copy=[COPIED]", "seed=${oc.env:COPIED}"),
        *("+hydra.job.env_set.ONESHOT_FL_STORE=/own", "hydra.sweep.dir=x", "hydra.job.num=0"),
    )
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config = compose("config", list(words), return_hydra_config=True)
    monkeypatch.delenv("COPIED")
    hydra_side._done_before(config, tmp_path / "job", any_machine=False)
    hydra_side._sources(config)
    assert asked == [("own", "7"), ("own", "7")]
    assert hydra_side._anywhere(config).store == "/own"
    assert (os.environ["ONESHOT_FL_STORE"], os.environ.keys() & {"CHOSEN", "COPIED"}) == ("/ours", set())


def test_an_engine_gets_lists_and_dictionaries(monkeypatch):
    monkeypatch.setitem(ENGINES, "kept", (__name__, "Kept", ""))
    options = OmegaConf.create({"setup": ["module load cuda"], "additional_parameters": {"gres": "gpu:1"}})
    assert engine_of("kept", dict(options), 1).options == {**OmegaConf.to_container(options), "jobs_per_gpu": 1}


class Kept:
    """An engine that keeps its options."""

    def __init__(self, **options) -> None:
        self.options = options


def test_a_trial_that_was_done_before_without_a_value_fails_alone(trial, tmp_path):
    outcome = hydra_side._done_before(trial, tmp_path / "done", any_machine=False)
    assert (outcome.status, outcome.mistake) == ("failed", True)
    assert outcome.error.startswith("distill.held_out: ")


def test_a_job_that_cannot_be_taken_over_is_left_to_run_and_to_fail_alone(trial, tmp_path):
    (tmp_path / "own" / "summary.json").mkdir(parents=True)
    assert hydra_side._done_before(trial, tmp_path / "own", any_machine=False) is None
    assert read_trace(tmp_path / "own")["status"] == "failed"
    (tmp_path / "done" / "run.json").unlink()  # moved since it was found
    assert hydra_side._done_before(trial, tmp_path / "other", any_machine=False) is None


def test_a_job_whose_folder_another_process_works_in_is_left_to_wait_for_it(trial, tmp_path):
    with alone_in(tmp_path / "own"):
        assert hydra_side._done_before(trial, tmp_path / "own", any_machine=False) is None
    assert not read_trace(tmp_path / "own")


def _seen_by_the_launcher(tmp_path, *words):
    """What `_done_before` gives of a job, asked as a launcher does: Hydra is there, and no job runs."""
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        words = (f"store={tmp_path}", "hydra.sweep.dir=x", "hydra.job.num=0", *words)
        config = compose("config", list(words), return_hydra_config=True)
        done = hydra_side._done_before(config, tmp_path / "job", any_machine=False)
    assert not HydraConfig.initialized()
    return done


def test_a_data_set_that_lends_its_images_is_looked_up_before_any_job_runs(tmp_path):
    words = ("method=feddf", "proxy=dataset", "proxy.data=mnist", f"proxy.root={tmp_path}")
    assert _seen_by_the_launcher(tmp_path, *words) is None


def test_whether_a_job_is_done_is_asked_with_the_folders_that_it_reads(tmp_path, monkeypatch):
    searched = []
    monkeypatch.setattr(hydra_side, "remembered", lambda _: searched.extend(search_path()))
    _seen_by_the_launcher(tmp_path, f"hydra.searchpath=[file://{tmp_path}]")
    assert str(tmp_path) in searched


def _launch(folder, *words, only=None):
    """What hands a sweep's jobs to the engine that runs them here."""
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config = compose("config", [f"hydra.sweep.dir={folder}", *words], return_hydra_config=True)
        context = SimpleNamespace(config_loader=GlobalHydra.instance().config_loader())
    return Launch(context, None, config, engine_of("local", {}, 0), only)


def test_two_jobs_in_one_folder_are_refused_before_anything_is_written(tmp_path):
    launch = _launch(tmp_path / "sweep", "hydra.sweep.subdir=${method.name}-${partition.name}")
    line = rf"^hydra\.sweep\.subdir=dense-iid: jobs 1 and 2 would both write into {tmp_path}/sweep/dense-iid; add "
    with pytest.raises(OneshotError, match=line):
        launch([["method=fedavg"], ["method=dense", "partition=iid"], ["method=dense", "partition=iid", "seed=1"]], 0)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("word", "line"),
    [
        (
            "hydra.sweep.dir={}/${{method.name}}",
            r"dir={0}/dense: job 1 would lie outside of the sweep's folder {0}/fedavg;",
        ),
        ("hydra.sweep.subdir=../elsewhere/${{hydra.job.num}}", r"subdir=\.\./elsewhere/0: job 0 would lie outside of "),
        ("hydra.sweep.subdir=/elsewhere/${{hydra.job.num}}", r"subdir=/elsewhere/0: job 0 would lie outside of "),
    ],
)
def test_a_job_outside_of_the_sweeps_folder_is_refused_before_anything_is_written(tmp_path, word, line):
    own = "hydra.sweep.subdir=${hydra.job.num}"
    launch = _launch(tmp_path / "sweep", "method=fedavg", own, word.format(tmp_path))
    with pytest.raises(OneshotError, match=rf"^hydra\.sweep\.{line.format(tmp_path)}"):
        launch([["method=fedavg"], ["method=dense"]], 0)
    assert not list(tmp_path.iterdir())


def test_of_jobs_that_are_numbered_one_is_composed_to_look_at_their_folders(tmp_path):
    assert _launch(tmp_path)._looked_at({0: (), 1: ()}) == [0]
    assert _launch("multirun/${now:%Y}")._looked_at({0: (), 1: ()}) == [0]
    assert _launch("multirun/${method.name}")._looked_at({0: (), 1: ()}) == [0, 1]


def test_a_later_batch_has_no_folder_of_an_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setattr(hydra_side, "run_all", lambda _, tasks, *__: {task.number: Outcome("done") for task in tasks})
    launch = _launch(tmp_path / "sweep", f"store={tmp_path}", "hydra.sweep.subdir=${hydra:job.name}")
    assert launch([["seed=0"]], 0)[0].status == JobStatus.COMPLETED
    with pytest.raises(OneshotError, match="jobs 0 and 1 would both write into"):
        launch([["seed=1"]], 1)


def test_a_sweep_without_a_job_is_no_success(tmp_path):
    launch = _launch(tmp_path / "sweep", "method=dense")
    with open_dict(launch.config):
        launch.config.hydra.overrides.task = ["data=digits", "method=glob(densse*)"]
    with pytest.raises(
        OneshotError, match=r"^method=glob\(densse\*\): matches no choice, so that the sweep has no job"
    ):
        launch([], 0)
    assert not (tmp_path / "sweep").exists()


def test_a_grid_in_batches_is_one_line(tmp_path):
    line = r"^hydra\.sweeper\.max_batch_size=1: must be null, .*hydra\.launcher\.at_once"
    with pytest.raises(OneshotError, match=line):
        _launch(tmp_path, "hydra.sweeper.max_batch_size=1")


def test_a_search_for_the_worst_is_refused_before_it_begins(tmp_path):
    with pytest.raises(OneshotError, match=r"^hydra\.sweeper\.direction=maximize: must be minimize"):
        _launch(tmp_path, "hydra.sweeper._target_=a.Search", "+hydra.sweeper.direction=maximize")


@pytest.mark.parametrize(
    ("only", "line"),
    [("failed", "Search chooses its jobs as it goes; run the single commands"), ("broken", "must be failed, or null")],
)
def test_a_search_begins_no_chosen_trials_again_nor_what_nobody_knows(tmp_path, only, line):
    with pytest.raises(OneshotError, match=rf"^hydra\.launcher\.only={only}: {line}"):
        _launch(tmp_path, "hydra.sweeper._target_=a.Search", only=only)


def test_failed_jobs_alone_run_again_and_one_that_the_command_does_not_make_is_missed(tmp_path):
    manifest = Manifest(jobs := {0: ("seed=0",), 1: ("seed=1",)})
    manifest.write(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "run.json").write_text('{"status": "failed", "job": 1}')
    launch = _launch(tmp_path, only="failed")
    assert launch._chosen(manifest, jobs) == {1: ("seed=1",)}
    with pytest.raises(OneshotError, match=r"does not make all jobs that failed: 1 \(seed=1\)"):
        launch._chosen(manifest, {0: ("seed=0",)})


def test_where_no_sweep_was_begun_none_of_its_jobs_has_failed(tmp_path):
    with pytest.raises(OneshotError, match=r"mistyped: holds no sweep\.json; give the folder of a sweep \(hydra"):
        _launch(tmp_path / "mistyped", only="failed")([["method=fedavg"]], 0)
    assert not (tmp_path / "mistyped").exists()


def test_a_job_whose_process_died_keeps_what_it_told_of_itself(tmp_path):
    (tmp_path / "run.json").write_text('{"method": "dense", "host": "a", "status": "running", "job": 3}')
    died(Task(3, ("seed=1",), tmp_path, lambda: Outcome("done"), "."), "killed")
    trace = read_trace(tmp_path)
    assert (trace["status"], trace["method"], trace["host"], trace["job"]) == ("failed", "dense", "a", 3)
    assert trace["error"].startswith("its process died 2 times (killed)")
