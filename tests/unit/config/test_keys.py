"""The keys that there are, also those in files of the user's own."""

import pytest

from oneshot_fl.config.compose import reading_also
from oneshot_fl.config.keys import all_keys, groups, looked_up


@pytest.mark.parametrize("content", [b"a: 1\na: 2\n", b"a:\n\tb: 1\n", "name: Zoë\n".encode("latin-1"), b"a: ${\n"])
def test_a_broken_file_that_nobody_chose_is_no_obstacle(content, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "broken.yaml").write_bytes(content)
    (tmp_path / "model" / "sound.yaml").write_text("of_my_own: 1\n")
    with reading_also(tmp_path):
        assert "model.of_my_own" in all_keys()


def test_groups_are_paths():
    assert {"data", "method", "method/ensemble"} <= set(groups())


def test_what_a_file_of_ones_own_looks_up_counts(tmp_path):
    assert "passes" not in (looked_up("method") or ())
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "own.yaml").write_text("passes: ${oc.select:method.of.passes,3}\n")
    with reading_also(tmp_path):
        assert "passes" in (looked_up("method") or ())


def test_a_table_by_data_set_may_have_any_name():
    assert looked_up("model") is None
