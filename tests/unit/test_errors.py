from oneshot_fl.errors import printable


def test_what_is_printable_is_one_line():
    assert printable("a b\u3000c\r\nd\te") == "a b c  d e"
    assert printable("\x1b[2K\u202e\udce9\0é") == "?[2K???é"
