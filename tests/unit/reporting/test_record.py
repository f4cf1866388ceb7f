import json

from oneshot_fl.reporting.record import facts
from tests.conftest import compose_config


def test_facts_tell_what_was_changed_in_the_method(tmp_path):
    told = facts(compose_config("method=fedhydra", "method.objective.adv.weight=0.5", "generator.width=8"))
    assert told["changed"] == {"objective.adv.weight": 0.5}
    assert told["settings"]["generator"]["width"] == 8
    assert facts(compose_config("method=co_boosting", "method.perturb=null"))["changed"]["perturb"] is None


def test_facts_name_no_place_on_the_machine():
    text = json.dumps(facts(compose_config("data=mnist", "data.root=/some/where", "store=/else/where")))
    assert "/some" not in text
    assert "/else" not in text
