import csv
import io

from oneshot_fl.reporting.tables.format import FORMATS, Sheet

SHEET = Sheet(
    "a_b, 50%",
    ["", "server"],
    [["fedavg", "20.00 ± 1.00"]],
    ["A note."],
    [{"row": "fedavg", "mean": 0.2}, {"row": "dense", "extra": 1}],
)


def test_markdown():
    assert FORMATS["markdown"]([SHEET]) == (
        "**a_b, 50%**\n\n|  | server |\n| --- | ---: |\n| fedavg | 20.00 ± 1.00 |\n\nA note."
    )


def test_latex_escapes_what_it_must():
    text = FORMATS["latex"]([SHEET])
    assert r"\caption{a\_b, 50\%}" in text
    assert r"fedavg & 20.00 $\pm$ 1.00 \\" in text
    assert text.count(r"\begin{tabular}{lr}") == text.count(r"\end{tabular}") == 1
    assert r"\caption{\textless{}a\textgreater{}}" in FORMATS["latex"]([Sheet("<a>", [""], [])])
    bracket = FORMATS["latex"]([Sheet("a", ["", "b"], [["[1, 2]", "3"]])])
    assert "\\midrule\n{[}1, 2] & 3" in bracket  # a rule takes what is in brackets behind it


def test_the_best_cells_are_bold_where_a_format_has_bold():
    best = Sheet(
        "a", ["", "b", "c"], [["x", "1.00 ± 0.50", "2_0"], ["y", "3|0", "4"]], best=frozenset({(0, 1), (1, 1)})
    )
    markdown, latex = FORMATS["markdown"]([best]), FORMATS["latex"]([best])
    assert "| x | **1.00 ± 0.50** | 2_0 |\n| y | **3\\|0** | 4 |" in markdown
    assert "x & \\textbf{1.00 $\\pm$ 0.50} & 2\\_0 \\\\\ny & \\textbf{3\\textbar{}0} & 4 \\\\" in latex
    assert "*" not in FORMATS["terminal"]([best])


def test_a_minus_is_none_of_latexs_hyphens():
    text = FORMATS["latex"](
        [Sheet("a", ["", "b"], [["-1.50 ± 0.20", "[-3.00, -0.50]"], ["resnet-18, seeds 0-4", "1e-5"]])]
    )
    assert "\n$-$1.50 $\\pm$ 0.20 & {[}$-$3.00, $-$0.50] \\\\\nresnet-18, seeds 0-4 & 1e-5 \\\\\n" in text


def test_every_latex_table_has_a_label_of_its_own():
    titles = ("a_b, alpha=0.5: 50%", "A_b; alpha=0.5", "a_b, alpha=0.5")
    text = FORMATS["latex"]([Sheet(title, [""], []) for title in titles])
    labels = [line for line in text.splitlines() if line.startswith(r"\label")]
    assert labels == [
        r"\label{tab:a-b-alpha-0.5-50}",
        r"\label{tab:a-b-alpha-0.5}",
        r"\label{tab:a-b-alpha-0.5-2}",
    ]
    assert text.index(r"\caption") < text.index(r"\label")  # a label before its caption names the section


ODD = Sheet("[b]", ["", "command"], [["fedavg", "model.names=[cnn2,lenet5] [/x] a|b ~^\\"]], ["[note]"])


def test_nothing_in_brackets_is_lost_on_a_terminal():
    text = FORMATS["terminal"]([ODD])
    assert text.startswith("[b]\n")
    assert "/srv/:100:/x" in FORMATS["terminal"]([Sheet("a", ["/srv/:100:/x"], [])])
    assert "model.names=[cnn2,lenet5] [/x] a|b ~^\\" in text
    assert text.endswith("[note]")


def test_what_would_end_a_cell_is_escaped():
    assert "| fedavg | model.names=[cnn2,lenet5] [/x] a\\|b ~^\\ |" in FORMATS["markdown"]([ODD])
    assert r"a\textbar{}b \textasciitilde{}\textasciicircum{}\textbackslash{} \\" in FORMATS["latex"]([ODD])


def test_csv_has_one_header_over_all_records():
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"]([SHEET, SHEET]))))
    assert len(rows) == 4
    assert rows[0] == {"table": "a_b, 50%", "row": "fedavg", "mean": "0.2", "extra": ""}
    assert rows[3] == {"table": "a_b, 50%", "row": "dense", "mean": "", "extra": "1"}


def test_no_text_in_csv_is_taken_for_a_formula():
    sheet = Sheet("+1", [""], [], records=[{"row": '=HYPERLINK("x")', "mean": -0.5}])
    assert FORMATS["csv"]([sheet]) == """table,row,mean\n'+1,"'=HYPERLINK(""x"")",-0.5"""


def test_a_line_break_within_a_text_of_csv_is_quoted():
    text = FORMATS["csv"]([Sheet("a", [""], [], records=[{"row": "x\ry"}, {"row": "x\ny"}])])
    assert text == 'table,row\na,"x\ry"\na,"x\ny"'


def test_the_terminal_shows_title_rows_and_notes():
    text = FORMATS["terminal"]([SHEET])
    assert text.startswith("a_b, 50%\n")
    assert "│ fedavg │ 20.00 ± 1.00 │" in text
    assert text.endswith("A note.")


def test_nothing_is_cut_on_a_terminal_however_wide_it_is():
    command, numbers = "oneshot-fl " + "x" * 430 + " seed=17", [f"{n}.00 ± 1.00 [+1.00, +2.00]" for n in range(40)]
    lines = FORMATS["terminal"]([Sheet("wide", ["", *map(str, range(40)), "command"], [["a", *numbers, command]])])
    assert "…" not in lines
    assert all(cell in lines for cell in (*numbers, command))
    assert max(map(len, lines.splitlines())) < 2000
