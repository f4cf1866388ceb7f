"""Who trains what: kinds and architectures of the clients, and the server's."""

import pytest

from oneshot_fl.config.clients import client_models, client_nodes, kinds, nodes_of, server_models, server_name
from oneshot_fl.config.compose import plain
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config


def _names(nodes) -> list[str]:
    return [node.name for node in nodes]


@pytest.mark.parametrize(
    ("given", "clients", "expected"),
    [
        ("null", 3, "ccc"),
        ("[cvae]", 3, "vvv"),
        ("[classifier,cvae]", 5, "cvcvc"),  # round robin
        ("{classifier: 1, cvae: 1}", 4, "ccvv"),  # in blocks
        ("{classifier: 1, cvae: 1}", 5, "ccvvv"),  # the border lies at 2.5, which rounds to 2
        ("{cvae: 1, classifier: 3}", 4, "vccc"),
        ("{classifier: 0, cvae: 2}", 3, "vvv"),
    ],
)
def test_kinds_are_a_list_round_robin_or_shares_in_blocks(given, clients, expected):
    cfg = compose_config(f"clients.kinds={given}", f"partition.clients={clients}")
    assert "".join({"classifier": "c", "cvae": "v"}[kind] for kind in kinds(cfg)) == expected


@pytest.mark.parametrize("given", ["[]", "[classifer]", "{classifier: -1, cvae: 1}", "{cvae: 0}", "3", "cvae"])
def test_other_kinds_are_refused(given):
    with pytest.raises(OneshotError, match=r"^clients\.kinds=.*: must be a list of classifier and cvae"):
        kinds(compose_config(f"clients.kinds={given}"))


def test_shares_in_quotes_are_shown_as_the_text_that_they_are():
    cfg = compose_config()
    cfg.clients.kinds = "{classifier: 3, cvae: 7}"
    with pytest.raises(
        OneshotError, match=r"^clients\.kinds='\{classifier: 3, cvae: 7\}': .* instance \{classifier: 1"
    ):
        kinds(cfg)


def test_several_architectures_are_assigned_round_robin_or_in_blocks_by_their_shares():
    mixed = ("model=mixed", "partition.clients=5")
    assert _names(client_models(compose_config(*mixed, "model.names=[cnn2,lenet5]"))) == [
        *("cnn2", "lenet5", "cnn2", "lenet5", "cnn2")
    ]
    blocks = compose_config(*mixed, "model.names=[cnn2,lenet5]", "++model.shares=[3,2]")
    assert _names(client_models(blocks)) == ["cnn2"] * 3 + ["lenet5"] * 2


def test_every_kind_is_assigned_its_own_architectures():
    cfg = compose_config(
        *("clients.kinds=[classifier,cvae]", "partition.clients=4", "model=mixed", "model.names=[cnn2,lenet5]"),
        "cvae=cvae_mlp",
    )
    assert _names(client_nodes(cfg)) == [
        "cnn2",
        "cvae_mlp",
        "cnn2",
        "cvae_mlp",
    ]  # names count all clients, not a kind's
    assert _names(nodes_of(cfg, "classifier")) == ["cnn2", "cnn2"]
    assert _names(nodes_of(cfg, "cvae")) == ["cvae_mlp", "cvae_mlp"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), "cnn2"),
        (("server_model=lenet5",), "lenet5"),
        (("model=mixed", "model.names=[lenet5,cnn2]"), "lenet5"),  # the first client's
        (("model=mixed", "model.names=[lenet5,cnn2]", "++method.per_architecture=true"), "lenet5+cnn2"),
        (("model=mixed", "model.names=[lenet5,cnn2]", "++method.per_architecture=true", "server_model=cnn3"), "cnn3"),
        (("clients=all_cvae", "++method.per_architecture=true"), "cnn2"),  # nobody has a classifier
    ],
)
def test_the_servers_architecture_is_its_own_the_first_clients_or_each_one_of_them(overrides, expected):
    cfg = compose_config(*overrides)
    assert server_name(cfg) == expected
    assert "+".join(_names(server_models(cfg))) == expected


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (("model=mixed",), r"^model\.names: needs between 1 and 5 names"),
        (("model=mixed", "model.names=[]"), r"^model\.names: needs between 1 and 5 names"),
        (("model=mixed", "model.names=[cnn2,lenet5,cnn3]", "partition.clients=2"), r"between 1 and 2 names"),
        (("model=mixed", "partition.clients=1"), r"for instance 'model\.names=\[cnn2\]'$"),
        (("model=mixed", "model.names=[cnn2,lenet5]", "++model.shares=[1]"), r"^model\.shares=\[1\]: must be a list"),
        (("model=mixed", "model.names=[cnn2,lenet5]", "++model.shares=[0,0]"), r"^model\.shares=\[0, 0\]"),
        (("model=mixed", "model.names=[cnn2,cnn22]"), r"^model: there is no choice 'cnn22', did you mean cnn2\?"),
    ],
)
def test_names_that_do_not_fit_the_clients_are_refused(overrides, line):
    with pytest.raises(OneshotError, match=line):
        client_models(compose_config(*overrides))


def test_an_architecture_that_clients_share_is_written_out_once(monkeypatch):
    asked = []
    monkeypatch.setattr("oneshot_fl.config.clients.plain", lambda node: asked.append(node) or plain(node))
    cfg = compose_config("method=fedavg", "partition.clients=10000")
    assert len(server_models(cfg)) == 1
    assert len(asked) < 10
