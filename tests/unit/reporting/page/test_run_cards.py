from dataclasses import replace

from oneshot_fl.reporting.page.run_cards import href, run_card


def test_links_are_relative_to_the_page_and_quoted(tmp_path):
    assert href(tmp_path / "a b" / "0-x=1,y#", tmp_path / "out" / "r.html") == "./../a%20b/0-x%3D1%2Cy%23/"


def test_a_folder_whose_name_is_no_utf8_is_linked_byte_by_byte(tmp_path):
    assert href(tmp_path / "caf\udce9", tmp_path / "r.html") == "./caf%E9/"


def test_a_done_run_tells_its_clients_and_how_to_run_it(make_run, tmp_path):
    run = replace(make_run(0.5, seed=3), folder=tmp_path, overrides=("method=fedhydra", "study=a b"))
    card = run_card(run, (2, "fedhydra"), tmp_path / "r.html")
    assert (card["s"], card["m"], card["seed"], card["last"]) == (2, "fedhydra", 3, 0.5)
    assert card["command"] == "python -m oneshot_fl method=fedhydra 'study=a b'"
    assert card["href"] == "././"
    assert [client["accuracy"] for client in card["clients"]] == [0.2, 0.4, 0.2, 0.4, 0.3]
    assert "counts" not in card


def test_private_and_hostile_clients_are_told_of_where_there_are_some(make_run, tmp_path):
    run = make_run(0.5)
    first, second = run.summary["clients"][:2]
    first |= {"epsilon": 7.5, "delta": 0.001, "hostile": False}
    second |= {"epsilon": None, "delta": None, "hostile": True}
    run.summary["attack"] = {"name": "label_flip", "clients": 1}
    card = run_card(run, (None, "fedhydra"), tmp_path / "r.html")
    assert card["attack"] == "label_flip"
    assert card["clients"][:2] == [
        {"accuracy": 0.2, "epsilon": 7.5, "delta": 0.001},
        {"accuracy": 0.4, "hostile": True},
    ]
    assert "attack" not in run_card(make_run(0.5), (None, "fedhydra"), tmp_path / "r.html")


def test_a_failed_run_tells_why(make_run, tmp_path):
    card = run_card(replace(make_run(None), error="it broke"), (None, "fedhydra"), tmp_path / "r.html")
    assert (card["status"], card["error"]) == ("failed", "it broke")
    assert "clients" not in card
    assert "href" not in card
