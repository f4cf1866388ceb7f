import pytest
import torch
from omegaconf import OmegaConf

from oneshot_fl.assemble import load_data, make_optimizer, make_trainings
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
