"""The report as a page: everything that strangers wrote is escaped."""

from oneshot_fl.aggregation.report import as_html

REPORT = {
    "accepted": [
        {"name": "<script>a</script>", "model": "cnn2", "samples": None, "says_most_often": "<b>", "how_often": 1.0}
    ],
    "quarantined": [{"name": "b", "reason": "tensor <img src=x> is missing"}],
    "classes_of_nobody": ["<i>"],
    "images_asked": 4,
    "test_images": 20,
    "notes": ["<u>"],
}


def test_what_uploads_say_is_escaped():
    page = as_html(REPORT)
    for bad in ("<script>", "<img", "<b>", "<i>", "<u>"):
        assert bad not in page
    assert "&lt;script&gt;a&lt;/script&gt;" in page
    assert "1 uploads used, 1 in quarantine" in page
