"""Every method runs end to end on real digits and leaves the promised files."""

import csv
import json
import math

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from oneshot_fl import pipeline
from oneshot_fl.config import experiment_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.parts.uploads import Server
from oneshot_fl.phases.clients.train import train_clients
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.prepare import prepare
from oneshot_fl.pipeline import received
from oneshot_fl.recipe import described
from oneshot_fl.session import arithmetic
from oneshot_fl.store import open_store
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress
from tests.composing import CLIENTS, TINY, clients_of, compose_config, composed, few_images
from tests.composing import run_config as run
from tests.contract.choices import OURS as METHODS

MEASURED = {"seconds", "cost", "peak_memory_bytes"}


@pytest.fixture
def tiny(shared_store):
    """A function from overrides to a tiny configuration on the digits."""
    return lambda *overrides: compose_config(*TINY, f"store={shared_store}", *overrides)


def comparable(summary: dict) -> dict:
    """A summary without what is measured, at the top or of a client."""
    clients = [{key: value for key, value in client.items() if key not in MEASURED} for client in summary["clients"]]
    return {key: value for key, value in summary.items() if key not in MEASURED} | {"clients": clients}


@pytest.mark.draws
@pytest.mark.parametrize(
    ("method", "partition", "dealt"),
    [*((method, "dirichlet", ()) for method in METHODS), ("fedhydra", "classes_per_client", ("partition.classes=3",))],
)
def test_a_run_leaves_summary_weights_config_metrics_and_pictures(tiny, tmp_path, method, partition, dealt):
    own = (f"partition={partition}", *dealt, "plots.format=png")
    cfg = tiny(f"method={method}", *own, *clients_of(method), *few_images(method))
    loops = cfg.method.source is not None
    summary = run(cfg, tmp_path / "run")
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["schema"], summary["method"], summary["data"], summary["seed"]) == (1, method, "digits", 0)
    assert len(summary["data_sha256"]) == 64
    assert summary["threads"] == torch.get_num_threads()
    assert len(summary["code"]["digest"]) >= 20
    assert summary["overrides"] == []  # nobody wrote a command line
    assert summary["partition"]["name"] == partition
    assert summary["partition"]["disjoint"] is True
    assert sum(summary["partition"]["sizes"]) == 1437
    assert [sum(counts) for counts in summary["partition"]["class_counts"]] == summary["partition"]["sizes"]
    assert len(summary["partition"]["sha256"]) == 64
    assert len(summary["clients"]) == CLIENTS
    keys = {"kind", "accuracy", "balanced_accuracy", "quarantined", "model", "samples", "epsilon", "delta", "hostile"}
    assert all(set(client) == keys | {"upload_bytes", "macs", "seconds"} for client in summary["clients"])
    assert all(client["quarantined"] is client["epsilon"] is client["delta"] is None for client in summary["clients"])
    assert not any(client["hostile"] for client in summary["clients"])
    seconds = [client["seconds"] for client in summary["clients"]]
    assert seconds == [summary["seconds"][f"client_{k:02d}"] for k in range(CLIENTS)]
    assert min(seconds) > 0
    assert sum(seconds) == summary["seconds"]["clients"]
    assert all((client["kind"] == "cvae") is (client["accuracy"] is None) for client in summary["clients"])
    voices = [client["accuracy"] for client in summary["clients"] if client["kind"] == "classifier"]
    own = [summary["ensemble"]["accuracy"]] if voices else []
    accuracies = [*voices, *own, *summary["ensemble"]["rows"].values(), summary["server"]["accuracy_last"]]
    assert all(0 <= accuracy <= 1 for accuracy in accuracies)
    assert summary["server"]["model"] == "cnn2"
    assert all(client["macs"] > 1000 for client in summary["clients"])
    assert summary["server"]["accuracy_best"] >= summary["server"]["accuracy_last"]
    assert len(summary["rounds"]) == (3 if loops else 0)
    if summary["rounds"]:
        assert summary["rounds"][-1]["accuracy"] == summary["server"]["accuracy_last"]
    assert summary["uploads"] == {"label_counts": method in ("fedchorus", "fedchorus_quick", "dfdg")}
    assert ("stratified" in summary["ensemble"]["rows"]) is (method == "fedhydra")
    assert ("boosted" in summary["ensemble"]["rows"]) is (method == "co_boosting")
    assert all(seconds >= 0 for seconds in summary["seconds"].values())
    assert summary["peak_memory_bytes"] > 1e6
    server = load_file(tmp_path / "run" / "server.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in server.values())
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"summary.json", "config.yaml", "metrics.csv", "partition.png", "server.safetensors"} <= names
    assert ({"accuracy.png", "synthetic.png"} <= names) is loops
    assert ("guidance.png" in names) is (method == "fedhydra")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        metrics = set(csv.DictReader(file).fieldnames)
    assert {"clients/00/loss", "evaluate/server_last"} <= metrics


SHARING = {
    "default": [method for method in METHODS if not clients_of(method)],
    "half_cvae": ["fedavg", "fedmho", "fedmho_sd"],
}
"""Methods by the clients that all of them can have."""


@pytest.mark.parametrize(
    ("clients", "runs"),
    [
        *((clients, 2) for clients in SHARING),
        *(pytest.param(clients, len(methods), marks=pytest.mark.slow) for clients, methods in SHARING.items()),
    ],
)
def test_a_method_does_not_change_partition_or_clients(tiny, tmp_path, clients, runs):
    methods = SHARING[clients]
    of = {method: tiny(f"method={method}", f"clients={clients}", "distill.rounds=0") for method in methods}
    plans = [(found.partition, found.clients) for found in map(experiment_of, of.values())]
    assert all(described(plan) == described(plans[0]) for plan in plans)
    summaries = [run(of[method], tmp_path / method) for method in methods[:runs]]
    for key in ("partition", "clients"):
        assert all(summary[key] == summaries[0][key] for summary in summaries)
    assert len({summary["seconds"]["clients"] for summary in summaries}) == 1  # trained once, loaded afterwards


@pytest.mark.draws
def test_the_same_seed_gives_the_same_summary_and_weights_bit_for_bit(tiny, tmp_path):
    runs = []
    for figures in ("png", "none"):
        own = (f"store={tmp_path / figures / 'store'}", f"plots.format={figures}")
        summary = run(tiny("partition.clients=3", *own), tmp_path / figures)
        runs.append((comparable(summary), (tmp_path / figures / "server.safetensors").read_bytes()))
        assert bool(list((tmp_path / figures).glob("*.png"))) is (figures == "png")
    assert runs[0] == runs[1]


def test_another_seed_changes_partition_and_clients(tiny, tmp_path):
    first, second = (run(tiny("method=fedavg", f"seed={seed}"), tmp_path / str(seed)) for seed in (0, 1))
    assert first["partition"]["sha256"] != second["partition"]["sha256"]
    assert comparable(first)["clients"] != comparable(second)["clients"]


def test_server_seeds_share_clients(tiny, tmp_path):
    first, second = (run(tiny("method=dense", f"distill.seed={seed}"), tmp_path / str(seed)) for seed in (0, 1))
    assert first["seconds"]["clients"] == second["seconds"]["clients"]
    assert first["rounds"] != second["rounds"]


def test_a_folder_that_held_another_run_keeps_none_of_its_figures_and_tells_of_its_export(tiny, tmp_path, capsys):
    folder = tmp_path / "run"
    (folder / "export").mkdir(parents=True)
    (folder / "export" / "model.onnx").touch()
    for name in ("synthetic.png", "guidance.pdf", "my own.png"):
        (folder / name).touch()
    run(tiny("method=fedavg"), folder)
    assert {path.name for path in folder.iterdir() if path.suffix in (".png", ".pdf")} == {"my own.png"}
    assert f"{folder}/export: is of the model before this one; export it anew" in capsys.readouterr().err


def test_mixed_architectures_and_another_server(tiny, tmp_path):
    names = ["cnn2", "lenet5", "cnn3", "cnn2_plain", "cnn2"]
    mixed = (f"partition.clients={len(names)}", "model=mixed", f"model.names=[{','.join(names)}]")
    cfg = tiny(*mixed, "server_model=lenet5", "distill.rounds=1")
    summary = run(cfg, tmp_path / "run")
    assert [client["model"] for client in summary["clients"]] == names
    assert summary["server"]["model"] == "lenet5"


def _one_method_per_init() -> list[str]:
    """Of the methods with the same kind of clients; how a student begins depends on nothing else."""
    configurations = {method: composed(f"method={method}").method for method in METHODS}
    return list({(str(cfg.init), clients_of(method)): method for method, cfg in configurations.items()}.values())


@pytest.mark.parametrize("method", _one_method_per_init())
def test_no_rounds_leave_the_student_as_it_began(tiny, tmp_path, method):
    """As the method's own init makes it of the clients' uploads and a student of the server's seed."""
    cfg = tiny(f"method={method}", "distill.rounds=0", *clients_of(method))
    summary = run(cfg, tmp_path / "run")
    assert summary["rounds"] == []
    assert not (tmp_path / "run" / "synthetic.png").exists()
    server, began = load_file(tmp_path / "run" / "server.safetensors"), _as_it_began(cfg)
    assert server.keys() == began.keys()
    assert all(torch.equal(server[name], began[name]) for name in began)


def _as_it_began(cfg) -> dict[str, torch.Tensor]:
    experiment = experiment_of(cfg)
    given = prepare(experiment.data, experiment.partition, experiment.proxy, device=torch.device("cpu"))
    quiet = Progress(Console(quiet=True))
    context = Context(
        open_store(experiment.store, arithmetic(experiment.trainer)), experiment.trainer, quiet, RunLog([])
    )
    uploads = received(train_clients(given.data, given.indices, experiment.clients, context=context))
    seed, method = experiment.distillation.seed, experiment.method
    as_clients = "clients_start" in method.needs
    student = experiment.student.build(given.data.spec, seed=seed, as_clients_began=as_clients)
    return method.init(Server(given.data.spec, uploads, None, given.proxy))(student).state_dict()


def test_communication_rounds_begin_at_the_last_server(tiny, tmp_path):
    once = run(tiny("method=fedavg"), tmp_path / "once")
    twice = run(tiny("method=fedavg", "communication_rounds=2"), tmp_path / "twice")
    first, second = twice["communication"]
    assert first["accuracy_last"] == once["server"]["accuracy_last"]
    assert second["accuracy_last"] == twice["server"]["accuracy_last"]
    assert second["clients"] == [client["accuracy"] for client in twice["clients"]]
    assert second["clients"] != first["clients"]
    for k, client in enumerate(twice["clients"]):
        assert twice["seconds"][f"client_{k:02d}"] > client["seconds"]  # of the second exchange
    with (tmp_path / "twice" / "metrics.csv").open() as file:
        metrics = set(csv.DictReader(file).fieldnames)
    assert {"communication_1/clients/00/loss", "communication_2/clients/00/loss"} <= metrics


def test_each_communication_round_names_the_clients_that_it_used(tiny, tmp_path, monkeypatch):
    """The first one turns client 1 away, the second one client 0."""
    late, real = ["client 1", "client 0"], pipeline.received
    monkeypatch.setattr(pipeline, "received", lambda clients: real(clients).without({late.pop(0): "late"}))
    summary = run(tiny("method=fedavg", "communication_rounds=2"), tmp_path / "run")
    everyone = {f"client {k}" for k in range(CLIENTS)}
    first, second = (each["used"] for each in summary["communication"])
    assert (everyone - set(first), everyone - set(second)) == ({"client 1"}, {"client 0"})
    assert [len(each["clients"]) for each in summary["communication"]] == [len(first), len(second)]


def test_without_local_training_the_second_rounds_clients_are_the_first_rounds_server(tiny, tmp_path):
    summary = run(tiny("method=dense", "clients.epochs=0", "communication_rounds=2"), tmp_path / "run")
    first, second = summary["communication"]
    assert set(second["clients"]) == {first["accuracy_last"]}


def test_the_server_knows_where_the_clients_of_each_communication_round_began(tiny, tmp_path, monkeypatch):
    seen, real = [], pipeline.distill

    def noted(test, server, *args, **named):
        made = real(test, server, *args, **named)
        seen.append((server.start, made))
        return made

    monkeypatch.setattr(pipeline, "distill", noted)
    run(tiny("method=dense", "method/init=as_clients_began", "distill.rounds=1", "communication_rounds=2"), tmp_path)
    (first, made), (second, _) = seen
    assert first is None
    assert (second.key, second.model) == (made.key, made.model)


def test_a_loss_without_anything_to_compare_is_mentioned(tiny, tmp_path, capsys):
    run(tiny("model=cnn2_plain", "method=dense", "distill.rounds=1"), tmp_path / "plain")
    assert "note: no client has batch normalisation, so method.objective.bn is 0" in capsys.readouterr().out
    run(tiny("model=cnn2", "method=dense", "distill.rounds=1"), tmp_path / "norm")
    assert "note:" not in capsys.readouterr().out


def test_mixed_precision_and_bytes_in_the_pool(tiny, tmp_path):
    plain = run(tiny("method=dense"), tmp_path / "plain")
    lean = tiny("method=dense", "method.pool.uint8=true", "trainer.precision=bf16-mixed")
    first, again = (run(lean, tmp_path / name) for name in ("lean", "again"))
    assert comparable(first) == comparable(again)
    assert plain["server"]["pool_bytes"] == 3 * 32 * (
        64 * 4 + 8 + 10 * 4 + 4
    )  # rounds, images, pixels, label, logits, trust
    assert first["server"]["pool_bytes"] == 3 * 32 * (64 + 8 + 10 * 4 + 4)


def test_a_second_run_computes_nothing_again(tiny, tmp_path, monkeypatch):
    first = run(tiny(), tmp_path / "first")
    monkeypatch.setattr("lightning.pytorch.Trainer.fit", None)
    second = run(tiny(), tmp_path / "second")
    assert comparable(first) == comparable(second)


def test_a_proxy_is_told_where_it_is_used_and_held_out_for_every_method(tiny, tmp_path):
    plain, noisy = (run(tiny(f"method={name}", "proxy.samples=64"), tmp_path / name) for name in ("fedavg", "feddf"))
    assert plain["proxy"] is None
    assert (noisy["proxy"]["name"], noisy["proxy"]["samples"]) == ("noise", 64)
    assert noisy["partition"] == plain["partition"]
    held = [run(tiny(f"method={name}", "proxy=holdout"), tmp_path / f"{name}-held") for name in ("fedavg", "feddf")]
    assert held[0]["partition"] == held[1]["partition"]
    assert sum(held[0]["partition"]["sizes"]) == 1437 - 287  # 20% of the digits' training set
    assert held[1]["proxy"]["samples"] == 287
    assert held[0]["settings"]["proxy"] == held[1]["settings"]["proxy"] != plain["settings"]["proxy"]
    assert len({summary["data_sha256"] for summary in (plain, noisy, *held)}) == 1  # before anything was held out


def test_a_student_that_nobody_taught_is_validated_by_the_plain_average_whatever_rows_are_tested(tiny, tmp_path):
    own = ("method=fedavg", "evaluate.validation=proxy", "proxy.samples=64")
    plain = run(tiny(*own), tmp_path / "plain")
    fewer = run(tiny(*own, "~evaluate.ensembles.uniform"), tmp_path / "fewer")
    assert "uniform" not in fewer["ensemble"]["rows"]
    assert fewer["validation"] == plain["validation"] is not None


@pytest.mark.parametrize(("init", "alike"), [("fresh", False), ("as_clients_began", True)])
def test_where_a_student_begins(tiny, tmp_path, init, alike):
    own = f"store={tmp_path / 'store'}"
    cfg = tiny("method=dense", f"method/init={init}", "distill.rounds=0", "clients.epochs=0", own)
    summary = run(cfg, tmp_path / "run")
    server = load_file(tmp_path / "run" / "server.safetensors")
    client = next((tmp_path / "store" / "clients").glob("*/tensors.safetensors"))
    assert torch.equal(load_file(client)["0.weight"], server["0.weight"]) is alike
    assert summary["server"]["accuracy_last"] == summary["server"]["accuracy_best"]


def test_a_held_out_domain_is_the_test_set_and_on_record(tiny, digit_domains, tmp_path):
    cfg = tiny(*digit_domains, "partition=leave_one_domain_out", "partition.clients=3", "method=fedavg", "clients=sam")
    summary = run(cfg, tmp_path / "run")
    assert summary["partition"]["settings"] == {"clients": 3, "held_out": "svhn"}
    assert summary["partition"]["sizes"] == [6, 6, 6]
    assert summary["server"]["accuracy_last"] in [round(right / 6, 6) for right in range(7)]


@pytest.mark.parametrize(("name", "line"), [("vit_b_16", "cannot be built for 3x8x8"), ("googlenet", "no classifier")])
def test_a_model_that_does_not_take_images_whose_size_their_files_tell_is_not_trained(
    tiny, digit_domains, tmp_path, name, line
):
    own = ("data.size=null", "partition=iid", "method=fedavg", "model=torchvision", f"model.architecture={name}")
    with pytest.raises(OneshotError, match=f"^{name}: .*{line}"):
        run(tiny(*digit_domains, *own), tmp_path / "run")
    assert not (tmp_path / "s" / "clients").exists()


def test_files_of_a_data_set_that_are_left_out_are_mentioned(tiny, digit_domains, tmp_path, capsys):
    (tmp_path / "digits" / "mnist" / "list.csv").write_text("0,1")
    run(tiny(*digit_domains, "partition=iid", "method=fedavg"), tmp_path / "run")
    assert "note: data.root: files that are not read as images: 1, for instance" in " ".join(
        capsys.readouterr().out.split()
    )


def test_of_a_vae_only_decoder_and_label_counts_leave_the_client(tiny, tmp_path):
    own = f"store={tmp_path / 'store'}"
    chosen = ("method=fedmho_md", "clients=half_cvae", "partition.clients=4", *few_images("fedmho_md"))
    summary = run(tiny(*chosen, own), tmp_path / "run")
    assert [client["kind"] for client in summary["clients"]] == ["classifier"] * 2 + ["cvae"] * 2
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "store" / "clients").glob("*/manifest.json")]
    decoders = [manifest for manifest in manifests if manifest["inputs"].get("kind") == "cvae"]
    assert len(decoders) == 2
    counts = torch.tensor([manifest["facts"]["label_counts"] for manifest in decoders])
    assert sorted(counts.sum(dim=1).tolist()) == sorted(summary["partition"]["sizes"][2:])
    assert all(set(manifest["facts"]) == {"losses", "label_counts"} for manifest in decoders)
    for path in (tmp_path / "store" / "clients").glob("*/manifest.json"):
        if json.loads(path.read_text())["inputs"].get("kind") == "cvae":
            names = load_file(path.with_name("tensors.safetensors")).keys()
            assert names
            assert not any("encoder" in name for name in names)
            assert {name.split(".")[0] for name in names} == {"layers"}  # the decoder's only part with weights


def test_a_run_without_any_classifier(tiny, tmp_path):
    chosen = ("method=fedcvae_ens", "clients=all_cvae", "cvae=fedcvae", *few_images("fedcvae_ens"))
    summary = run(tiny(*chosen), tmp_path / "run")
    assert {client["accuracy"] for client in summary["clients"]} == {None}
    assert summary["ensemble"] == {"name": "uniform", "accuracy": None, "rows": {}, "balanced": {}}
    assert len(summary["rounds"]) == 3


def test_fidelity_of_synthetic_images_changes_nothing_else(tiny, tmp_path):
    """FedMHO, Table 11: far from noise, nearer to real images; here on our own classifier's features."""
    overrides = ["method=fedmho", "clients=half_cvae", "partition.clients=4", "clients.cvae.epochs=10"]
    overrides.append(f"store={tmp_path / 'store'}")
    plain = run(tiny(*overrides), tmp_path / "plain")
    assert plain["synthetic"] is None
    made = set((tmp_path / "store").glob("*/*/manifest.json"))
    measured = run(tiny(*overrides, "evaluate=fidelity", "evaluate.fidelity.epochs=2"), tmp_path / "measured")
    synthetic = measured["synthetic"]
    (extractor,) = set((tmp_path / "store").glob("*/*/manifest.json")) - made  # all else was found again
    assert json.loads(extractor.read_text())["inputs"]["training"]["epochs"] == 2
    assert set(synthetic) == {"fid", "kid", "kid_std", "samples", "extractor", "noise", "real"}
    assert (synthetic["samples"], synthetic["extractor"]["model"], synthetic["extractor"]["epochs"]) == (500, "cnn2", 2)
    numbers = [synthetic["fid"], synthetic["kid"], synthetic["kid_std"], *synthetic["noise"].values()]
    assert all(math.isfinite(number) for number in [*numbers, *synthetic["real"].values()])
    assert synthetic["real"]["fid"] < synthetic["fid"]
    assert synthetic["real"]["fid"] < synthetic["noise"]["fid"]
    assert synthetic["real"]["kid"] < synthetic["noise"]["kid"]
    assert comparable(measured) | {"synthetic": None} == comparable(plain)
    with (tmp_path / "measured" / "metrics.csv").open() as file:
        metrics = set(csv.DictReader(file).fieldnames)
    assert {"fidelity/clients/00/loss", "evaluate/synthetic_fid", "evaluate/noise_fid", "evaluate/real_kid"} <= metrics


@pytest.mark.parametrize("overrides", [["method=fedavg"], ["method=dense", "distill.rounds=0"]])
def test_fidelity_without_synthetic_images_is_nothing_and_said_so(tiny, tmp_path, capsys, overrides):
    assert run(tiny(*overrides, "evaluate=fidelity"), tmp_path)["synthetic"] is None
    assert "evaluate.fidelity: measures nothing" in capsys.readouterr().out


DIVERGED = {
    "client": (
        ["method=fedavg", "model=cnn2_plain"],
        "clients.optimizer.lr",
        r"^client 0 \(cnn2_plain\): training diverged, .*; lower clients\.optimizer\.lr=1000$",
        "clients",
    ),
    "client at a rate of its own": (
        ["method=fedavg", "model=cnn2_plain", "clients.lr_of={cnn2_plain: 0.01}"],
        "clients.lr_of.cnn2_plain",
        r"^client 0 \(cnn2_plain\): training diverged, .*; lower clients\.lr_of\.cnn2_plain=1000$",
        "clients",
    ),
    "decoder": (
        ["method=fedmho", "clients=half_cvae"],
        "clients.cvae.optimizer.lr",
        r"^client \d \(cvae_mlp\): training diverged, .*; lower clients\.cvae\.optimizer\.lr=1000$",
        "clients",
    ),
    "server": (
        ["method=dense", "server_model=lenet5", "distill.rounds=8"],
        "distill.student_optimizer.lr",
        r"^server: diverged in round \d \(.*student 1000.*: distill\.student_optimizer\.lr",
        "distill",
    ),
}
"""Choices, the key of the learning rate, the line that 1000 ends in, and the phase that must not store anything."""


@pytest.mark.parametrize("who", DIVERGED)
def test_what_diverged_is_one_line_that_names_it_and_its_learning_rate_and_is_not_stored(
    tiny, shared_store, tmp_path, who
):
    chosen, key, line, phase = DIVERGED[who]
    choices = ("partition.clients=5", *chosen)  # of whom the first one's loss is no number any more
    for attempt in ("first", "again"):
        with pytest.raises(OneshotError, match=line) as caught:
            run(tiny(*choices, f"{key}=1000"), tmp_path / attempt)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / attempt / "summary.json").exists()
    assert run(tiny(*choices, f"{key}=0.01"), tmp_path / "sane")["seconds"]["run"] > 0
    finished = [path for path in shared_store.glob(f"{phase}/*/manifest.json") if not path.parent.suffix]
    stored = [json.loads(path.read_text())["inputs"] for path in finished]
    assert stored
    assert not [inputs for inputs in stored if '"lr": 1000' in json.dumps(inputs)]
