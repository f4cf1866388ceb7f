"""Mistakes end before training with one line that names the key and what would be right."""

import re

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.checks import check
from oneshot_fl.config.clients import client_models, client_nodes, kinds, server_models, server_name
from oneshot_fl.config.compose import architecture, composed, reading_also
from oneshot_fl.config.explain import explain
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config


def _complaint(*overrides: str) -> str:
    try:
        check(compose_config(*overrides))
    except OneshotError as error:
        return str(error)
    except (HydraException, OmegaConfBaseException) as error:
        return explain(error)
    raise AssertionError(f"{overrides} was accepted")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("partition.alhpa=1", ["partition.alhpa", "partition.alpha"]),
        ("clients.epohcs=1", ["clients.epohcs", "clients.epochs"]),
        ("sede=1", ["sede", "seed"]),
        ("partition=iid partition.alpha=1", ["partition.alpha", "the chosen partition has no such key"]),
        ("+seeds=1", ["seeds", "seed"]),
        ("+clients.epoch=1", ["clients.epoch", "clients.epochs"]),
        ("+method.of.roundz=3", ["method.of.roundz: nothing looks that up, did you mean rounds?", "global_lr, "]),
        ("budget=fedmho +budget.of.epochs=3", ["budget.of.epochs", "looked up in budget.of are global_epochs, "]),
        ("cvae.of.svhn=[]", ["cvae.of.svhn=[]: must be a text that is not empty"]),
        ("logger.csv.flush_logs_every_n_steps=0", ["logger.csv.flush_logs_every_n_steps=0", "at least 1"]),
        ("method=dense method.source=null", ["method.source: is null", "Fresh", "method/init=average"]),
        ("+method.ensembl=uniform", ["method.ensembl", "method.ensemble"]),
        ("method=fedhidra", ["method=fedhidra", "fedhydra", "dense", "fedavg"]),
        ("method/ensemble=unifrom", ["method/ensemble=unifrom", "uniform"]),
        ("method.ensemble=uniform", ["method/ensemble=uniform"]),
        ("method.pool=growing", ["method/pool=growing"]),
        ("method.objective.adv=0", ["method.objective.adv.weight=0"]),
        ("method.objective.adv.weight=-1", ["method.objective.adv.weight=-1", "at least 0"]),
        ("method.student.kl.temperature=0", ["method.student.kl.temperature=0", "above 0"]),
        ("method.source.keep=worst", ["method.source.keep=worst", "last, best"]),
        ("data=image_folder data.root=x data.size=0", ["data.size=0", "between 8 and 1024, or null"]),
        ("data=image_folder data.root=x data.channels=2", ["data.channels=2", "1 (grey) or 3 (colour)"]),
        ("data=pacs data.root=x data.domains=photo", ["data.domains=photo", "a list of at least 2 different names"]),
        ("data=pacs data.root=x data.domains=[photo,photo]", ["data.domains", "a list of at least 2 different names"]),
        ("data=pacs", ["data.root", "data.root=..."]),
        ("partition=leave_one_domain_out partition.held_out=photo", ["partition.held_out=photo", "data.held_out"]),
        ("partition.alpha=0", ["partition.alpha=0", "above 0"]),
        ("partition.alpha=ten", ["partition.alpha=ten", "number"]),
        ("partition.alpha=.nan", ["partition.alpha", "number"]),
        ("partition.clients=0", ["partition.clients=0", "at least 1"]),
        ("partition.clients=2.5", ["partition.clients=2.5", "whole number"]),
        ("cvae=fedcvae cvae.latent=0", ["cvae.latent=0", "at least 1"]),
        ("cvae=cvae_mlp cvae.hidden=0", ["cvae.hidden=0", "at least 1"]),
        ("cvae=cvae_conv2 cvae.channels=[8,0]", ["cvae.channels=[8, 0]", "each entry a whole number of at least 1"]),
        ("cvae=cvae_conv2 cvae.channels=[]", ["cvae.channels=[]", "a list with at least one entry"]),
        ("cvae=cvae_conv2 cvae.label_in_encoder=1", ["cvae.label_in_encoder=1", "true or false"]),
        ("clients.epochs=-1", ["clients.epochs=-1", "at least 0"]),
        ("clients.epochs=true", ["clients.epochs=True", "whole number"]),
        ("clients.sam=0", ["clients.sam=0", "above 0, or null"]),
        ("clients=sam trainer.precision=16-mixed", ["clients.sam=0.05", "trainer.precision=bf16-mixed"]),
        ("+clients.communication_rounds=3", ["clients.communication_rounds", "communication_rounds"]),
        ("clients=dp trainer.precision=16-mixed", ["clients.epsilon=8", "trainer.precision=bf16-mixed"]),
        ("clients.lr_of={cvae_large:0}", ["clients.lr_of", "above 0", "or null"]),
        ("clients.lr_of=0.1", ["clients.lr_of=0.1", "a dictionary {name: value}, or null"]),
        ("clients.lr_of={cvae_larg:0.1}", ["clients.lr_of=cvae_larg", "did you mean cvae_large?"]),
        (
            "model=torchvision model.architecture=densenet121 clients.lr_of={torchvision:500}",
            ["clients.lr_of=torchvision", "the clients here have densenet121"],
        ),
        ("clients.lr_of={mixed:0.1}", ["clients.lr_of=mixed", "the clients here have cnn2"]),
        (
            "method=fedcvae_ens clients=all_cvae clients.sam=0.05",
            ["clients.sam=0.05", "no client trains one (clients.kinds)", "leave it at null"],
        ),
        (
            "method=fedcvae_ens clients=all_cvae clients.augmentation=flip",
            ["clients.augmentation=flip", "only classifiers", "leave it at none"],
        ),
        ("clients.optimizer=adam", ["clients/optimizer=adam"]),
        (
            "method=fedavg ++method.source.reset=true",
            ["method.source.reset=True: method=fedavg has no source", "in a sweep of theirs"],
        ),
        ("++attack.clients=2", ["attack.clients=2: no attack is chosen (no attack._target_)", "in a sweep of theirs"]),
        ("++hearing.x=2", ["hearing.x=2: no hearing is chosen"]),
        ("method=feddf +proxy.data=mnist +proxy.root=.", ["proxy.data: proxy=noise is", "choose proxy=dataset"]),
        ("method=fedchorus method.source.recitals=null", ["to leave it out write ~method.source.recitals"]),
        ("evaluate.ensembles.uniform=null", ["to leave it out write ~evaluate.ensembles.uniform"]),
        ("logger=csv logger.csv=null", ["to leave it out write ~logger.csv"]),
        ("method=fedavg method/init=fresh", ["choose method/init=average, or a method that makes images"]),
        (
            "method=fedavg ++method.objective.adv.weight=0",
            ["method.objective.adv: there is no such term here (none)"],
        ),
        (
            "method=dense ++method.objective.tv.weight=1",
            ["method.objective.tv: there is no such term here (ce, bn, adv)"],
        ),
        (
            "method=dense method.objective.tv.weight=1",
            ["the chosen method has no such key", "write ++method.objective.tv"],
        ),
        ("clients.initial_weights=mine", ["clients.initial_weights=mine", "shared, own"]),
        (
            "method=dense method/init=as_clients_began clients.initial_weights=own",
            ["clients.initial_weights=own", "method/init=as_clients_began", "method/init=fresh"],
        ),
        ("clients.augmentation=mirror", ["clients.augmentation=mirror", "none, flip, crop, crop_flip"]),
        ("distill.rounds=-1", ["distill.rounds=-1"]),
        ("distill.generator_steps=0", ["distill.generator_steps=0"]),
        ("distill.images=0", ["distill.images=0", "at least 1"]),
        ("distill.bank=fast", ["distill.bank=fast", "auto, loop, stacked"]),
        ("stratify.classes_at_once=none", ["stratify.classes_at_once=none", "auto"]),
        ("evaluate.fidelity=true", ["evaluate.fidelity=True", "evaluate=fidelity"]),
        ("evaluate=fidelity evaluate.fidelity.samples=3", ["evaluate.fidelity.samples=3", "at least 4"]),
        ("evaluate=fidelity evaluate.fidelity.epochs=-1", ["evaluate.fidelity.epochs=-1", "at least 0"]),
        ("evaluate=fidelity evaluate.fidelity.optimizer.lr=0", ["evaluate.fidelity.optimizer.lr=0", "above 0"]),
        ("evaluate=fidelity +evaluate.fidelity.sample=3", ["evaluate.fidelity.sample", "evaluate.fidelity.samples"]),
        ("data.mean=7", ["data.mean=7: must be a number between 0 and 1, or a list"]),
        ("data.std=0", ["data.std=0: must be a number between 0.001 and 10, or a list"]),
        ("data.mean=[0.5,0.5]", ["data.mean=[0.5, 0.5]: must be one number, or one for each of the 1 channels"]),
        ("evaluate=fidelty", ["evaluate=fidelty", "did you mean fidelity?"]),
        ("evaluate.fidelity.samples=9", ["evaluate.fidelity.samples", "another one has"]),
        ("trainer.matmul_precision=tf32", ["trainer.matmul_precision=tf32", "highest, high, medium"]),
        ("seed=-1", ["seed=-1"]),
        ("plots.format=gif", ["plots.format=gif", "one of png, svg, pdf"]),
        ("communication_rounds=0", ["communication_rounds=0", "at least 1"]),
        ("communication_rounds=2 server_model=lenet5", ["communication_rounds=2", "one architecture"]),
        ("+protocol.x=1", ["protocol: has no keys", "protocol=NAME"]),
        ("+local.x=1", ["local: has no keys"]),
        ("+experiment.x=1", ["experiment: has no keys", "experiment=NAME"]),
        ("server_model=resnet19", ["resnet19", "resnet18"]),
        ("server_model=mixed method=dense", ["mixed", "several architectures"]),
        ("server_model=fedhydra_mixed method=dense", ["fedhydra_mixed", "several architectures"]),
        ("model=fedhydra data=cifar100", ["model=fedhydra", "data=cifar100", "svhn, cifar10;", "+model.of.cifar100="]),
        ("experiment=fedhydra/table99", ["experiment=fedhydra/table99", "did you mean", "fedhydra/table18"]),
        ("experiment=co_boosting", ["experiment=co_boosting", "co_boosting/table1,"]),
        (
            "experiment=digits",
            ["experiment=digits", "digits_dirichlet", "co_boosting/..., evidence/..., fedchorus/..., fedhydra/..."],
        ),
        ("data=image_folder", ["data.root", "data.root=..."]),
        ("model=mixed", ["model.names", "5"]),
        ("model=mixed model.names=[]", ["model.names=[]", "at least one entry"]),
        ("model=mixed model.names=[cnn2] partition.clients=0", ["partition.clients=0"]),
        ("model=fedhydra_mixed partition.clients=4 method=dense", ["model.names", "4"]),
        ("model=torchvision", ["model.architecture", "model.architecture=..."]),
        ("model=mixed model.names=[cnn2,cnn2,cnn2,cnn2,cnnn]", ["cnnn", "cnn2"]),
        (
            "method=fedavg model=mixed model.names=[cnn2,cnn2,cnn2,cnn2,lenet5] server_model=cnn2",
            ["method=fedavg", "cnn2, lenet5", "server_model=null, which averages each architecture"],
        ),
        ("method=ot model=mixed model.names=[cnn2,lenet5]", ["method=ot", "cnn2, lenet5", "server_model=null) or"]),
        ("method=fedavg server_model=lenet5", ["method=fedavg", "one architecture"]),
        ("method=co_boosting method.ensemble.per=epoch", ["method.ensemble.per=epoch", "batch, round"]),
        ("model=mixed model.names=[cnn2,lenet5] method=dense distill.bank=stacked", ["distill.bank=stacked", "loop"]),
        ("method=ot server_model=lenet5", ["method=ot", "one architecture"]),
        ("method=ot model=resnet18", ["method=ot", "ResNet", "model=cnn2"]),
        ("clients.epochs=[1,2", ["clients.epochs=[1,2"]),
        (
            "method=dense method.ensemble=null",
            ["method.ensemble=null", "method.objective.ce asks", "instance method/ensemble=uniform"],
        ),
        (
            "method=fedcvae_ens clients=half_cvae "
            "+method.student.kl={_target_:oneshot_fl.parts.terms.Distillation,weight:1,temperature:1}",
            ["method.student.kl asks", "instance +method/ensemble=uniform"],
        ),
        (
            "method=fedmho clients=half_cvae +method/perturb=hard",
            ["method.ensemble=null", "method.perturb asks", "~method.perturb"],
        ),
        (
            "method=dfdg method.ensemble=null ~method.objective.ce ~method.objective.transfer ~method.student.kl "
            "+method.objective.bn={_target_:oneshot_fl.parts.terms.BatchNormStatistics,weight:1} "
            "+method.student.ce={_target_:oneshot_fl.parts.terms.LabelCrossEntropy,weight:1}",
            ["method.ensemble=null", "method.source asks"],
        ),
        ("method=dense ~method.ensemble.name", ["method.ensemble.name: is missing", "method.ensemble.name=NAME"]),
        ("method=dense method.ensemble.name=''", ["method.ensemble.name=''", "must be"]),
        (
            "method=dense method.ensemble.name=probability",
            ["method.ensemble.name=probability", "evaluate.ensembles.probability is another ensemble"],
        ),
        (
            "method=fedchorus model=torchvision model.architecture=squeezenet1_1",
            ["method.ensemble", "squeezenet1_1 has none", "method/ensemble=entropy"],
        ),
        (
            "method=f_dafl model=torchvision model.architecture=squeezenet1_0",
            ["method.objective.activation", "squeezenet1_0 has none", "leave it out (~method.objective.activation)"],
        ),
    ],
)
def test_one_plain_line(override, parts):
    line = _complaint(*override.split(" "))
    assert "\n" not in line
    assert "https://" not in line
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    "overrides",
    [
        ["partition=lognormal", "partition.alpha=null"],
        ["model=mixed", "model.names=[cnn2,cnn2,cnn2,cnn2,cnn2]", "method=fedavg"],
        ["model=mixed", "model.names=[cnn2,lenet5]", "method=fedavg"],
        ["method=dense", "server_model=lenet5"],
        ["clients.lr_of={cnn3: 0.1, densenet121: 0.1}"],  # other jobs of a sweep have them
        ["method=fedmho", "clients=half_cvae", "clients.augmentation=flip", "clients.sam=0.1"],
        ["method=fedcvae_ens", "clients=all_cvae", "clients.epochs=3"],  # other jobs of a sweep have classifiers
        ["method.pool.rounds=1"],
        ["distill.rounds=0"],
        ["trainer.matmul_precision=high"],
        ["data=pacs", "data.root=x", "data.held_out=photo", "partition=leave_one_domain_out"],
        ["data=pacs", "data.root=x", "data.held_out=photo", "data.domains=[photo,sketch]"],
        ["method/ensemble=uniform"],
        ["method.objective.adv.weight=0"],
        ["method=fedhydra", "method.ensemble.scale=10"],  # in the place of the row of its name, which has 1
        ["method=dense", "method.ensemble.name=server"],
        ["data.mean=0.5", "data.std=1"],
        ["data=image_folder", "data.root=.", "data.mean=0", "data.std=0.25"],
        ["method=fedmho_md", "clients=half_cvae", "method.ensemble=null", "method.student.kl.weight=0"],
        ["method=fedcvae_ens", "clients=half_cvae", "+method/perturb=moved"],  # the student is told what it was
        ["method=f_dafl", "model=torchvision", "model.architecture=squeezenet1_0", "~method.objective.activation"],
    ],
)
def test_sound_settings_pass(overrides):
    check(compose_config(*overrides))


@pytest.mark.parametrize("key", ["server_model", "model.names", "evaluate.fidelity.model", "evaluate.privacy.model"])
@pytest.mark.parametrize(
    ("name", "says"),
    [("nameless", r"model\.name=None"), ("mixed", "several architectures"), ("none_such", "choose from")],
)
def test_an_architecture_that_is_only_named_is_checked_under_its_own_key(key, name, says, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "nameless.yaml").write_text("_target_: oneshot_fl.models.classifiers.lenet5\n")
    (group, given) = {
        "server_model": ("method=dense", name),
        "model.names": ("model=mixed", f"[cnn2,{name}]"),
        "evaluate.fidelity.model": ("evaluate=fidelity", name),
        "evaluate.privacy.model": ("evaluate=privacy", name),
    }[key]
    with reading_also(tmp_path), pytest.raises(OneshotError, match=rf"^{re.escape(key)}={name}: .*{says}"):
        check(compose_config(group, f"{key}={given}"))


@pytest.mark.parametrize("chosen", [["cvae=flat"], ["cvae=flat", "clients=all_cvae", "method=fedcvae_ens"]])
def test_what_is_to_train_as_a_conditional_vae_and_is_none_is_told_before_anybody_trains(chosen, tmp_path):
    (tmp_path / "cvae").mkdir()
    (tmp_path / "cvae" / "flat.yaml").write_text("name: flat\n_target_: oneshot_fl.models.classifiers.lenet5\n")
    half = ["clients=half_cvae", "method=fedmho", *chosen]
    line = r"^cvae=flat: makes a Sequential, which is no conditional VAE \(no decoder, latent, loss\); make an "
    with reading_also(tmp_path), pytest.raises(OneshotError, match=line):
        check(composed(*half))
    with reading_also(tmp_path):
        check(composed("method=dense", "cvae=flat"))  # nobody trains it


def test_two_architectures_of_one_name_are_told_apart_before_all_clients_train_the_last(tmp_path):
    (tmp_path / "model").mkdir()
    copy, mixed = tmp_path / "model" / "copy.yaml", ("model=mixed", "model.names=[cnn2,copy]", "method=dense")
    copy.write_text("name: cnn2\n_target_: oneshot_fl.models.classifiers.cnn2\nnorm: false\n")
    line = r"^model\.names: cnn2 and copy are both called cnn2 and differ; give each file a `name:` of its own$"
    with reading_also(tmp_path), pytest.raises(OneshotError, match=line):
        check(compose_config(*mixed))
    copy.write_text(copy.read_text().replace("name: cnn2", "name: copy"))
    with reading_also(tmp_path):
        check(compose_config(*mixed))


def test_models_of_clients_and_server():
    cfg = compose_config("model=mixed", "model.names=[cnn2,lenet5]", "method=dense")
    assert [node.name for node in client_models(cfg)] == ["cnn2", "lenet5", "cnn2", "lenet5", "cnn2"]
    assert server_name(cfg) == "cnn2"
    cfg.server_model = "lenet5"
    assert server_name(cfg) == "lenet5"
    with pytest.raises(OneshotError, match="several architectures"):
        architecture("co_boosting")
    assert architecture("cnn3").norm is True


def test_a_method_with_prototypes_has_a_server_model_for_every_architecture_of_its_classifiers():
    names = "model.names=[cnn2,lenet5,cnn2,vgg9]"
    mixed = ["model=mixed", names, "partition.clients=4", "method=fedavg"]
    assert server_name(compose_config(*mixed)) == "cnn2+lenet5+vgg9"
    assert server_name(compose_config(*mixed, "clients=half_cvae")) == "cnn2+lenet5"
    assert server_name(compose_config(*mixed, "server_model=cnn2")) == "cnn2"
    assert server_name(compose_config(*mixed, "method=feddf", "method.per_architecture=false")) == "cnn2"
    assert server_name(compose_config("method=fedavg", "clients=all_cvae")) == "cnn2"


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ("[1,1]", ["cnn2", "cnn2", "lenet5", "lenet5", "lenet5"]),  # 2.5 rounds to 2, as for kinds
        ("[3,2]", ["cnn2"] * 3 + ["lenet5"] * 2),
        ("[0,0.5]", ["lenet5"] * 5),
        ("null", ["cnn2", "lenet5", "cnn2", "lenet5", "cnn2"]),
    ],
)
def test_architectures_are_dealt_in_turn_or_by_shares_in_blocks(shares, expected):
    cfg = compose_config("model=mixed", "model.names=[cnn2,lenet5]", f"model.shares={shares}", "method=dense")
    check(cfg)
    assert [node.name for node in client_models(cfg)] == expected


@pytest.mark.parametrize("group", ["model", "cvae"])
@pytest.mark.parametrize("shares", ["[1]", "[1,1,1]", "[0,0]", "[1,-1]", "[1,many]", "2", "many"])
def test_other_shares_are_refused(group, shares):
    cfg = compose_config(
        "cvae=fedmho", "model=fedmho", "clients=half_cvae", "method=fedmho", f"{group}.shares={shares}"
    )
    with pytest.raises(OneshotError, match=rf"^{group}\.shares=.*one for each of {group}\.names=\["):
        check(cfg)


def test_fedmhos_clients_follow_from_its_method():
    def names(method: str, clients: int = 6) -> list[str]:
        papers = ("model=fedmho", "cvae=fedmho", "clients=fedmho", "data=emnist")
        return [
            node.name
            for node in client_nodes(compose_config(f"method={method}", f"partition.clients={clients}", *papers))
        ]

    assert names("dense") == ["vgg9"] * 3 + ["fedmho_cnn"] * 3
    assert names("fedcvae_ens") == ["cvae_large"] * 3 + ["cvae_conv2"] * 3
    assert {tuple(names(method)) for method in ("fedmho", "fedmho_md", "fedmho_sd")} == {
        ("vgg9",) * 3 + ("cvae_conv2",) * 3
    }


@pytest.mark.parametrize(
    ("model", "data", "name"),
    [
        ("fedhydra", "mnist", "cnn2"),
        ("fedhydra", "svhn", "cnn3"),
        ("co_boosting", "mnist", "lenet5"),
        ("co_boosting", "cifar100", "cnn5"),
    ],
)
def test_a_papers_model_follows_the_data_set_and_is_one_architecture(model, data, name):
    cfg = compose_config(f"model={model}", f"data={data}", "method=fedavg")
    check(cfg)
    assert {node.name for node in [*client_models(cfg), *server_models(cfg)]} == {name}
    cfg.server_model = name
    check(cfg)


def test_a_papers_model_takes_another_data_set():
    cfg = compose_config("model=fedhydra", "+model.of.digits=cnn2_plain")
    check(cfg)
    assert client_models(cfg)[4].name == "cnn2_plain"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("clients=default", ["classifier"] * 5),
        ("clients=half_cvae", ["classifier", "classifier", "cvae", "cvae", "cvae"]),  # 2.5 rounds to 2
        ("clients.kinds={classifier: 3, cvae: 2}", ["classifier"] * 3 + ["cvae"] * 2),
        ("clients.kinds=[cvae,classifier]", ["cvae", "classifier", "cvae", "classifier", "cvae"]),
    ],
)
def test_kinds_are_shares_in_blocks_or_a_list_dealt_in_turn(override, expected):
    assert kinds(compose_config(override)) == expected


@pytest.mark.parametrize("given", ["[]", "[tree]", "{classifier: 0}", "{tree: 1}", "{cvae: -1, classifier: 2}", "cvae"])
def test_other_kinds_are_refused(given):
    with pytest.raises(OneshotError, match=r"^clients\.kinds=.*must be a list of classifier and cvae"):
        kinds(compose_config(f"clients.kinds={given}"))


def test_what_several_choices_share_is_not_offered():
    assert "mnist" in _complaint("data=minst")
    assert "_torchvision" not in _complaint("data=minst")
