import json
from html.parser import HTMLParser

import pytest

from oneshot_fl.reporting.page.markup import Html, element, escaped, script_code, script_data, table

EVIL = "</script><img src=x onerror=alert(1)>\"'&<!--"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags, self.text, self.attributes = [], "", {}

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data):
        self.text += data


def _read(markup):
    reader = _Tags()
    reader.feed(markup)
    reader.close()
    return reader


def test_text_stays_text_in_cells_and_attributes():
    read = _read(table(["a"], [[EVIL]], of_rows=[{"title": EVIL}]))
    assert set(read.tags) == {"div", "table", "thead", "tr", "th", "tbody", "td"}
    assert read.text == f"a{EVIL}"
    assert read.attributes["title"] == EVIL


def test_markup_is_escaped_once():
    inside = element("b", "a<b")
    assert element("p", inside, class_="x", data_s=3) == '<p class="x" data-s="3"><b>a&lt;b</b></p>'
    assert escaped(Html("<b>")) == "<b>"


def test_data_cannot_leave_its_script():
    written = script_data({"name": EVIL})
    assert "<" not in written
    assert json.loads(written) == {"name": EVIL}


def test_data_that_json_cannot_tell_are_refused():
    with pytest.raises(ValueError, match="Out of range"):
        script_data([float("nan")])


def test_code_cannot_end_its_script():
    assert script_code('x = "</script><!--"') == 'x = "<\\/script><\\!--"'


def test_cells_carry_their_column_where_a_row_becomes_a_card():
    assert 'data-name="a"' in table(["a"], [["1"]], named=True)
    assert "data-name" not in table(["a"], [["1"]])
