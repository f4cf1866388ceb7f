import pytest

from oneshot_fl.assemble import load_data
from oneshot_fl.errors import OneshotError
from tests.conftest import compose_config


def test_one_client_a_training_domain(digit_domains):
    cfg = compose_config(*digit_domains, "partition=leave_one_domain_out")
    data, partition = load_data(cfg)
    assert data.train_images.shape == (18, 3, 32, 32)
    assert [index.tolist() for index in partition.indices] == [list(range(k, k + 6)) for k in (0, 6, 12)]
    assert cfg.partition.held_out == "svhn"


@pytest.mark.parametrize("name", ["iid", "dirichlet"])
def test_other_partitions_split_domain_data_too(digit_domains, name):
    more = ["partition.min_samples=0"] if name == "dirichlet" else []
    _, partition = load_data(compose_config(*digit_domains, f"partition={name}", "partition.clients=2", *more))
    assert sum(partition.sizes) == 18


def test_data_without_domains_are_refused():
    with pytest.raises(OneshotError, match=r"^partition=leave_one_domain_out: data=digits has no domains; .*data=pacs"):
        load_data(compose_config("partition=leave_one_domain_out"))


@pytest.mark.parametrize("group", ["data", "partition"])
def test_a_key_that_a_part_does_not_take_is_named(group):
    with pytest.raises(OneshotError, match=r"oneshot_fl\.data\..*unexpected keyword argument 'colour'"):
        load_data(compose_config(f"+{group}.colour=3"))
