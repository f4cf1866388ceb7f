"""FedChorus where its other runs do not go: many classes, large images, several exchanges, decoders beside models."""

from oneshot_fl.phases import distill
from oneshot_fl.phases.schedule import factor
from tests.composing import TINY, compose_config, few_images, run_config
from tests.unit.data.image_files import write_image

CLASSES = 100


def test_a_hundred_classes_of_64_pixels_in_two_exchanges(tmp_path):
    for number in range(CLASSES):
        for half in ("train", "test"):
            write_image(tmp_path / "images" / half / f"{number:03d}" / "0.png", 2 * number, size=64)
    cfg = compose_config(
        *TINY,
        f"store={tmp_path / 'store'}",
        f"data.root={tmp_path / 'images'}",
        "data=image_folder",
        "data.size=64",
        "model=cnn2",
        "method=fedchorus",
        "communication_rounds=2",
        "partition=iid",
        "partition.clients=2",
        "clients.epochs=1",
        "distill.rounds=1",
        *few_images("fedchorus"),
    )
    summary = run_config(cfg, tmp_path / "run")
    assert summary["data_spec"]["classes"] == CLASSES
    assert [len(each["clients"]) for each in summary["communication"]] == [2, 2]
    assert (
        summary["communication"][0]["clients"] != summary["communication"][1]["clients"]
    )  # the second begins at the server
    assert 0 <= summary["server"]["accuracy_last"] <= 1


def test_decoders_are_one_more_source(tmp_path, shared_store):
    chosen = ("method=fedchorus", "clients=half_cvae", "distill.rounds=1", *few_images("fedchorus"))
    overrides = (*TINY, f"store={shared_store}", *chosen)
    more = ("+method/source@method.source.decoders=decoders", "method.source.decoders.samples=64")
    alone, both = (run_config(compose_config(*overrides, *added), tmp_path / str(len(added))) for added in ((), more))
    assert [client["kind"] for client in both["clients"]].count("cvae") == 2
    assert both["server"]["pool_bytes"] > alone["server"]["pool_bytes"]


def test_the_learning_rate_moves_once_also_image_by_image(tmp_path, shared_store, monkeypatch):
    shares = []

    def told(*args, **place):
        shares.append(place["rounds_done"] + place["within"])
        return factor(*args, **place)

    monkeypatch.setattr(distill, "factor", told)
    chosen = ("method=fedchorus", "distill.rounds=2", "distill.batch_size=1", *few_images("fedchorus"))
    run_config(compose_config(*TINY, f"store={shared_store}", *chosen), tmp_path / "run")
    assert shares == sorted(shares)
    assert 1.9 < shares[-2] < shares[-1] == 2  # of the last step, and where it ends
