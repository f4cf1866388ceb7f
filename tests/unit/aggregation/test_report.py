"""The report as a page: everything that strangers wrote is escaped."""

from oneshot_fl.aggregation.report import as_html

REPORT = {
    "accepted": [
        {
            "name": "<script>a</script>",
            "model": "cnn2",
            "samples": None,
            "says_most_often": "<b>",
            "how_often": 1.0,
            "accuracy": 0.125,
        }
    ],
    "quarantined": [{"name": "b", "reason": "tensor <img src=x> is missing"}],
    "classes_of_nobody": ["<i>"],
    "images_asked": 4,
    "test_images": 20,
    "tested": {
        "accuracy": 0.75,
        "balanced_accuracy": 0.5,
        "by_class": [
            {"class": "<s>", "images": 20, "recall": 0.25, "auroc": 0.875},
            {"class": "b", "images": 0, "recall": None, "auroc": None},
        ],
    },
    "notes": ["<u>"],
}


def test_what_uploads_say_is_escaped():
    page = as_html(REPORT)
    for bad in ("<script>", "<img", "<b>", "<i>", "<u>", "<s>"):
        assert bad not in page
    assert "&lt;script&gt;a&lt;/script&gt;" in page
    assert "1 uploads used, 1 in quarantine" in page


def test_the_page_tells_what_the_model_does_class_by_class_and_the_uploads_alone():
    page = as_html(REPORT)
    for told in ("Right on 75.0% of 20 images, 50.0%", "<td>25.0%</td><td>87.5%</td>", "<td>–</td>", "<td>12.5%</td>"):
        assert told in page
    assert "Tested" not in as_html(REPORT | {"test_images": None, "tested": None})
