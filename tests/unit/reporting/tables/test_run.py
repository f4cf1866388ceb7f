import pytest


def test_partition_spread_and_proxy_as_tables_name_them(make_run):
    assert make_run().spread == "0.1"
    assert make_run(settings={"partition": {"name": "classes_per_client", "classes": 2}}).spread == "2"
    assert make_run(settings={"partition": {"name": "leave_one_domain_out", "held_out": "photo"}}).spread == "photo"
    assert make_run(settings={"partition": {"name": "iid"}}).spread == ""
    assert (make_run().proxy, make_run().holds_out) == ("", False)
    source = {"source": {"_target_": "oneshot_fl.parts.sources.ProxySource"}}
    assert make_run(settings={"method": source}).proxy == "noise 10000"
    held_out = make_run(settings={"method": source, "proxy": {"name": "holdout", "samples": None, "fraction": 0.2}})
    assert (held_out.proxy, held_out.holds_out) == ("holdout 0.2", True)


@pytest.mark.parametrize(
    ("target", "used"),
    [
        ("oneshot_fl.parts.sources.ProxySource", {"proxy"}),
        ("oneshot_fl.parts.recitals.RecitalSource", {"recite"}),
        ("oneshot_fl.methods.fedhydra.StratifiedAggregation", {"stratify"}),
        ("oneshot_fl.parts.sources.GeneratorSource", set()),
        ("not_installed_here.Part", {"proxy", "recite", "stratify"}),
    ],
)
def test_a_method_has_the_groups_that_its_parts_ask_for(make_run, target, used):
    run = make_run(method="ot", settings={"method": {"source": {"_target_": target}}})
    assert run.used == used
    assert set(run.own) == {"method", *used}


def test_groups_that_only_some_methods_use_are_shared_where_they_change_what_all_are_given(make_run):
    some = {"proxy", "recite", "stratify"}
    held_out, heard = {"proxy": {"name": "holdout"}}, {"hearing": {"_target_": "oneshot_fl.parts.hearing.Hearing"}}
    shared = [some & set(make_run(settings=settings).shared) for settings in ({}, held_out, heard)]
    assert shared == [set(), {"proxy"}, {"recite"}]
