import pytest

from oneshot_fl.errors import NothingLeftError, OneshotError
from oneshot_fl.mistakes import mistakes_told


@pytest.mark.parametrize(("error", "code"), [(OneshotError, 2), (NothingLeftError, 3)])
def test_a_mistake_is_one_line_and_an_exit_code(error, code, capsys):
    with pytest.raises(SystemExit) as end, mistakes_told():
        raise error("seed=x: must be a number")
    assert end.value.code == code
    assert capsys.readouterr().err == "oneshot_fl: seed=x: must be a number\n"


def test_any_other_error_goes_on():
    with pytest.raises(ValueError, match="ours"), mistakes_told():
        raise ValueError("ours")
