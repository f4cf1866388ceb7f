import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.sweeps.alone import LOCK, alone_in


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / LOCK).mkdir()
    with pytest.raises(OneshotError, match=rf"^{tmp_path}: cannot be written \(Is a directory\)"), alone_in(tmp_path):
        pass


def test_whoever_comes_second_and_does_not_wait_is_one_line(tmp_path):
    line = rf"^{tmp_path}: another process makes a result there; wait for it to end, or choose another folder$"
    with alone_in(tmp_path), pytest.raises(OneshotError, match=line), alone_in(tmp_path, wait=False):
        pass
    with alone_in(tmp_path, wait=False):
        pass
