import pytest
import torch
from omegaconf import OmegaConf

from oneshot_fl.config.bind import load_data, make_fidelity_reference, make_optimizer, make_store, make_trainings
from oneshot_fl.data.datasets import digits
from oneshot_fl.errors import OneshotError
from tests.conftest import compose_config


def test_one_client_a_training_domain(digit_domains):
    cfg = compose_config(*digit_domains, "partition=leave_one_domain_out")
    given = load_data(cfg)
    assert given.data.train_images.shape == (18, 3, 32, 32)
    assert [index.tolist() for index in given.partition.indices] == [list(range(k, k + 6)) for k in (0, 6, 12)]
    assert cfg.partition.held_out == "svhn"


@pytest.mark.parametrize("name", ["iid", "dirichlet"])
def test_other_partitions_split_domain_data_too(digit_domains, name):
    more = ["partition.min_samples=0"] if name == "dirichlet" else []
    given = load_data(compose_config(*digit_domains, f"partition={name}", "partition.clients=2", *more))
    assert sum(given.partition.sizes) == 18


def test_held_out_images_leave_before_the_partition_and_take_their_domains_along(digit_domains):
    given = load_data(compose_config(*digit_domains, "partition=leave_one_domain_out", "proxy=holdout"))
    assert (sum(given.partition.sizes), len(given.proxy.images)) == (14, 4)  # a fifth of 18
    assert len(given.data.train_domains) == 14


def test_another_data_set_lends_its_images(digit_domains):
    given = load_data(
        compose_config("proxy=dataset", "proxy.data=digits", "proxy.samples=7", *digit_domains, "partition=iid")
    )
    assert given.proxy.images.shape == (7, 3, 32, 32)


def test_data_without_domains_are_refused():
    with pytest.raises(OneshotError, match=r"^partition=leave_one_domain_out: data=digits has no domains; .*data=pacs"):
        load_data(compose_config("partition=leave_one_domain_out"))


@pytest.mark.parametrize("group", ["data", "partition"])
def test_a_key_that_a_part_does_not_take_is_named(group):
    with pytest.raises(OneshotError, match=r"oneshot_fl\.data\..*unexpected keyword argument 'colour'"):
        load_data(compose_config(f"+{group}.colour=3"))


@pytest.mark.parametrize(
    ("settings", "fused"),
    [
        ({"_target_": "torch.optim.SGD"}, True),
        ({"_target_": "torch.optim.Adam"}, True),
        ({"_target_": "torch.optim.Adam", "fused": False}, False),
        ({"_target_": "torch.optim.RMSprop"}, None),
    ],
)
def test_an_optimiser_steps_in_one_kernel_where_it_can_and_nobody_minds(settings, fused):
    factory = make_optimizer(OmegaConf.create({**settings, "_partial_": True, "lr": 0.1}))
    optimizer = factory([torch.nn.Parameter(torch.ones(2))])
    assert optimizer.defaults.get("fused") is fused


def test_an_architecture_may_have_a_learning_rate_of_its_own():
    own = make_trainings(compose_config("clients.lr_of={cnn2: 0.02, lenet5: 0.1}"))
    same = make_trainings(compose_config("clients.optimizer.lr=0.02"))
    assert set(own) == {"classifier", "cvae", "cnn2"}  # no client has lenet5
    assert own["cnn2"].settings == same["classifier"].settings  # and so the same key in the store
    assert own["cnn2"].optimizer([torch.nn.Parameter(torch.ones(2))]).defaults["lr"] == 0.02
    assert own["classifier"].settings["optimizer"]["lr"] == 0.01


def test_fedmhos_large_vae_does_not_learn_at_the_small_ones_rate():
    papers = ("data=mnist", "method=fedcvae_ens", "clients=fedmho", "cvae=fedmho")
    trainings = make_trainings(compose_config(*papers))
    rates = {name: training.settings["optimizer"]["lr"] for name, training in trainings.items()}
    assert rates == {"classifier": 0.005, "cvae": 0.05, "cvae_large": 0.001}
    assert set(trainings["cvae"].settings) == {"epochs", "batch_size", "optimizer", "seed"}
    assert set(trainings["classifier"].settings) == {"epochs", "batch_size", "optimizer", "augmentation", "sam", "seed"}


def test_a_data_set_is_hashed_once_however_it_moves():
    given = load_data(compose_config("trainer=cpu"))
    assert vars(given.data)["fingerprint"] == given.fingerprint


@pytest.fixture(scope="module")
def small_digits():
    return digits(mean=[0.5], std=[0.5])


@pytest.mark.parametrize("overrides", [["evaluate=default"], ["evaluate=fidelity", "method=fedavg"]])
def test_nothing_is_measured_unless_asked_for_or_without_synthetic_images(overrides, small_digits):
    assert make_fidelity_reference(compose_config(*overrides), small_digits) is None


@pytest.mark.parametrize(
    ("override", "name"), [("server_model=lenet5", "lenet5"), ("++evaluate.fidelity.model=cnn3", "cnn3")]
)
def test_images_are_measured_by_the_servers_architecture_or_a_named_one(override, name, small_digits):
    fidelity_reference = make_fidelity_reference(compose_config("evaluate=fidelity", override), small_digits)
    assert fidelity_reference.plan.name == name
    assert set(fidelity_reference.training.settings) == {"epochs", "batch_size", "optimizer", "seed"}


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["evaluate.fidelity.samples=1001"], r"^evaluate\.fidelity\.samples=1001: .*\(distill\.images=1000\)"),
        (["evaluate.fidelity.samples=719"], r"^evaluate\.fidelity\.samples=719: .*1437 .*set it to 718 or less"),
        (["evaluate.fidelity.model=cnn22"], r"^model: there is no choice 'cnn22', did you mean cnn2\?"),
        (
            ["model=torchvision", "model.architecture=squeezenet1_1"],
            r"^evaluate\.fidelity\.model=squeezenet1_1: has no linear layer",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_training(overrides, line, small_digits):
    with pytest.raises(OneshotError, match=line):
        make_fidelity_reference(compose_config("evaluate=fidelity", *overrides), small_digits)


def test_results_depend_on_the_precision_of_matrix_products_where_it_is_not_the_highest(tmp_path):
    settings = ["trainer=cpu", f"store={tmp_path}"]
    faster = make_store(compose_config(*settings, "trainer.matmul_precision=high")).context
    plain = make_store(compose_config(*settings)).context
    assert "matmul_precision" not in plain
    assert faster == {**plain, "matmul_precision": "high"}
