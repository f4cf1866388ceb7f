"""Parts that are fine one by one and do not fit each other end before training with one line."""

import pytest

from oneshot_fl.config.checks import check
from oneshot_fl.config.images import least_share
from oneshot_fl.errors import OneshotError
from oneshot_fl.values import whole_part
from tests.composing import compose_config

COLOUR = ("data=cifar10", "data.root=.")
DRAWN = (
    "recite.generator._target_=oneshot_fl.models.generators.ConvGenerator",
    *("~recite.generator.count", "~recite.generator.bounded", "+recite.generator.noise=8", "+recite.generator.width=4"),
)
CVAES = ("clients=half_cvae", "partition.clients=4")
STARTS = "oneshot_fl.methods.fedmho.SelfDistillation"


def _weightless(key: str, *terms: str) -> list[str]:
    return [f"{key}.{name}.weight=0" for name in terms]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["method=fedhydra", *_weightless("method.objective", "ce", "bn", "adv")], "method.objective: every term"),
        (["method=dense", *_weightless("method.student", "kl")], "method.student: every term"),
        (["method=fedchorus", *_weightless("recite.objective", "ce", "bn", "tv")], "recite.objective: every term"),
        (["method=dense", "~method.student.kl"], "method.student: no term is there, .*leave one in"),
        (["method=dense", *(f"~method.objective.{name}" for name in ("ce", "bn", "adv"))], "method.objective: no term"),
        (["method=fedisca", *(f"~method.objective.{name}" for name in ("ce", "tv", "bn"))], "method.objective: "),
        (["method=fedchorus", *(f"~recite.objective.{name}" for name in ("ce", "bn", "tv"))], "recite.objective: no t"),
        (["method=fedmho", *CVAES, "method.warm_up.student.kl.weight=0"], "method.warm_up.student: every term"),
        (["method=f_adi", "method.source.batch_size=16"], "method.source.batch_size=16: .* of 128 images"),
        (["method=fedchorus", "recite.generator.count=4"], "recite.batch_size=256: .* of 4 images"),
        (["method=fedchorus", *DRAWN], "recite.start=drawings: ConvGenerator .*recite.start=noise"),
        (["method=fedchorus", *COLOUR, "~method.source.recitals"], "method.source.variations: .*~method.source.v"),
        (
            ["method=fedchorus", *(f"~method.source.{name}" for name in ("recitals", "dead_leaves", "strokes"))],
            "method.source.mixtures: is drawn of images",
        ),
        (
            ["method=dense", f"+method.objective.own={{_target_: {STARTS}, weight: 1, per_class: false}}"],
            "method.objective.own: .*method.student",
        ),
        (
            [
                *("method=fedmho", "clients=half_cvae"),
                f"+method.warm_up.student.own={{_target_: {STARTS}, weight: 1, per_class: true}}",
            ],
            "method.warm_up.student.own: .*method.student",
        ),
        (["method=co_boosting", "method.pool.rounds=1"], "method.pool.rounds=1: .*=boosted .*include_newest=true"),
        (["method=co_boosting", "method/pool=fixed"], "method.pool.rounds=1 method.pool.refill=false: .*=boosted"),
        (["method=co_boosting_pp", "method.pool.rounds=1"], "method.pool.rounds=1: .*=gated .* two rounds or more$"),
        (
            ["method=fedisca", "+method/perturb=hard"],
            "method.perturb: .* Perturbation .*=noise_adapted answers for images",
        ),
        (
            ["method=dense", "distill.held_out=0.05", "distill.batch_size=16"],
            r"distill.held_out=0.05: .*\(method.source.batch_size=16\) .*set it to 0.0625 or more",
        ),
        (
            [
                "method=fedcvae_ens",
                "clients=all_cvae",
                "cvae=fedcvae",
                "distill.held_out=0.01",
                "method.source.samples=99",
            ],
            r"distill.held_out=0.01: .*\(method.source.samples=99\) .*set it to 0.010102 or more",
        ),
        (["method=fedisca", "distill.held_out=0.1"], "distill.held_out=0.1: method.pool.shuffle=false .*held_out=0$"),
        (
            ["method=fedisca", "+method.pool.nearest=0.8"],
            "method.pool.nearest=0.8: method.pool.shuffle=false .*nearest=1$",
        ),
        (
            ["method=fedchorus", "+method.pool.shuffle=false"],
            "method.source.variations: method.pool.shuffle=false .* several sources",
        ),
        (
            ["method=fedisca", "method.source.batch_size=96"],
            "method.source.batch_size=96: method.pool.shuffle=false .*distill.batch_size=128",
        ),
        *(
            ([f"+method/ensemble@evaluate.ensembles.mine={name}"], "evaluate.ensembles.mine: is fitted to the images")
            for name in ("evidence", "boosted", "gated", "intactofl", "noise_adapted")
        ),
    ],
)
def test_what_does_not_fit_is_told_before_training(overrides, says):
    with pytest.raises(OneshotError, match=f"^{says}"):
        check(compose_config(*overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["method=fedchorus", *DRAWN, "recite.start=noise"],
        ["method=fedisca", "+method/perturb=moved"],
        ["method=fedchorus", "~method.source.recitals"],  # grey: there are no variations
        ["method=fedchorus", *COLOUR, "~method.source.recitals", "~method.source.variations"],
        ["method=fedhydra", *_weightless("method.objective", "ce", "bn")],
        ["method=f_adi", "method.source.batch_size=16", "method.source.generator.count=16"],
        ["method=co_boosting", "method.pool.rounds=2"],
        ["method=co_boosting", "method.pool.rounds=1", "method.ensemble.include_newest=true"],
        ["method=intactofl", "method.pool.rounds=1"],  # its gate learns from the newest round as well
        ["method=dfdg", "+method/ensemble@evaluate.ensembles.mine=label_shares"],
    ],
)
def test_one_ingredient_less_is_no_mistake(overrides):
    check(compose_config(*overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["method=dense", "distill.held_out=0.0625"],
        ["method=dense", "distill.held_out=0"],
        ["method=dfdg", "distill.held_out=0.05"],  # two batches: only the run tells
        ["method=fedavg", "distill.held_out=0.05"],  # makes none
    ],
)
def test_a_share_that_holds_an_image_out_or_may_do_so_is_fine(overrides):
    check(compose_config("distill.batch_size=16", *overrides))


@pytest.mark.parametrize(
    ("share", "count", "whole"), [(0.29, 100, 29), (0.57, 100, 57), (0.8, 5, 4), (0.3, 9, 2), (0.0, 7, 0), (1.0, 7, 7)]
)
def test_a_share_of_images_is_rounded_down_but_not_for_what_a_float_lacks(share, count, whole):
    assert whole_part(share, count) == whole


def test_the_least_share_gives_one_whole_image_of_any_number():
    shares = {images: least_share(images) for images in (*range(2, 3000), 10**6, 10**7)}
    assert all(int(images * share) >= 1 > share for images, share in shares.items())
    assert (shares[16], shares[10]) == (0.0625, 0.1)
