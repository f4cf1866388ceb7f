from oneshot_fl.reporting.printed import class_lines


def _row(name, recall, images=10):
    return {"class": name, "images": images, "recall": recall, "auroc": recall}


def test_every_class_is_told_where_there_are_few_and_what_has_no_image_is_named():
    fitted = {"temperature": 1.25, "ece": 0.0625}
    server = {
        "macro_auroc": 0.75,
        "ece": 0.125,
        "calibration": fitted,
        "by_class": [_row("a", 0.5), _row("b", None, 0), _row("c", 1.0)],
    }
    assert class_lines(server) == [
        "server, last round: macro AUROC 0.7500, calibration error (ECE) 12.50%, 6.25% at temperature 1.25",
        "recall by class: a 50.0%, c 100.0%",
        "no test image, so in no figure: b",
    ]


def test_of_many_classes_the_worst_are_told():
    server = {
        "macro_auroc": None,
        "ece": 0.0,
        "calibration": None,
        "by_class": [_row(str(j), j / 20) for j in reversed(range(20))],
    }
    lines = class_lines(server)
    assert lines[0].startswith("server, last round: macro AUROC undefined")
    assert lines[1].startswith("recall of the 12 worst of 20 classes: 0 0.0%, 1 5.0%")
    assert len(lines) == 2
