"""The names of a sweep's folders."""

from oneshot_fl.config.sweep import folder_name


def test_a_folder_is_named_by_what_was_chosen():
    assert folder_name("method=dense,seed=1") == "method=dense,seed=1"
    assert folder_name("model.names=[cnn2,lenet5],x='a/b c'") == "model.names=_cnn2,lenet5_,x=_a_b_c_"
    long = [folder_name("a" * 300 + end) for end in "bc"]
    assert max(map(len, long)) <= 160
    assert long[0] != long[1]
