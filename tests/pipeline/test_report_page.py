"""The report in a real browser, offline: what it draws, that its filters work, and that it stays quiet."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from benchmarks.report import synthetic_sweep
from oneshot_fl.methods.fedhydra import normalised_columns, normalised_rows
from oneshot_fl.reporting.page import build
from oneshot_fl.reporting.page.build import Choices, write_report
from oneshot_fl.reporting.tables.measures import measure_of
from oneshot_fl.reporting.tables.runs import read_runs

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytest.importorskip("vl_convert", reason="holds Vega-Lite")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here (apt-get install chromium)"),
]
EVIL = "<img src=x onerror=document.title='broken'>"
METHODS, SEEDS = ("fedavg", "dense", "fedhydra"), 3
VARIANTS = tuple(f"fedchorus (ensemble.name=entropy, ensemble=EntropyWeighted, sharpness={n}.0)" for n in range(6))
CHARTS = ("heat", "curves", "costs", "gap")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """Two settings of three methods and three seeds, a failed run, and a class with a hostile name."""
    folder = tmp_path_factory.mktemp("sweep")
    synthetic_sweep(folder, methods=METHODS, alphas=(0.1, 0.5), seeds=SEEDS, class_names=(EVIL, "b", "c"))
    trace = {"status": "failed", "error": "it broke", "overrides": ["seed=9"], "method": "dense", "data": "mnist"}
    (folder / "failed").mkdir()
    (folder / "failed" / "run.json").write_text(json.dumps(trace))
    measure = measure_of("accuracy", which="last")
    return write_report(read_runs([folder]), folder / "r.html", Choices(measure))


@pytest.fixture(scope="module")
def crowded(tmp_path_factory) -> Path:
    """Six settings of one method, whose names are the same for longer than a chart has room."""
    folder = tmp_path_factory.mktemp("crowded")
    synthetic_sweep(folder, methods=VARIANTS, alphas=(0.1,), seeds=1, class_names="abc")
    return write_report(read_runs([folder]), folder / "r.html", Choices(measure_of("accuracy", which="last")))


@pytest.fixture(scope="module")
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module", params=[(1200, 900), (390, 844)], ids=["wide", "phone"])
def page(request, browser, report) -> Iterator["sync_api.Page"]:
    width, height = request.param
    with _opened(browser, report, {"width": width, "height": height}) as opened:
        yield opened


@contextmanager
def _opened(browser, report, viewport, *, before=""):
    """The drawn page in a window of its own, without a network; `said` collects its words and its requests.

    `before` is a script that the browser runs first.
    """
    context = browser.new_context(viewport=viewport, offline=True)
    context.set_default_timeout(120_000)
    opened = context.new_page()
    opened.add_init_script(before)
    opened.said = []
    opened.on("console", lambda message: opened.said.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: opened.said.append(f"error: {error}"))
    opened.on("request", lambda asked: opened.said.append(f"asked: {asked.url}") if "r.html" not in asked.url else None)
    opened.goto(report.as_uri())
    opened.wait_for_selector("body[data-drawn='1']", state="attached")
    yield opened
    context.close()


def _altered(report, folder, **changes):
    """A copy of the page with other data: by name what is made of the payload's entry."""
    before, payload, after = re.split(r'(?<=id="payload">)(.*?)(?=</script>)', report.read_text(), maxsplit=1)
    data = json.loads(payload)
    data |= {name: change(data[name]) for name, change in changes.items()}
    (folder / "r.html").write_text(before + json.dumps(data).replace("<", "\\u003c") + after)
    return folder / "r.html"


def _columns(page):
    """Of the legend of the curves."""
    labels = page.locator("#curves .role-legend-label text").all()
    return len({round(label.bounding_box()["x"]) for label in labels})


def _drawn(page):
    """The parts that show something."""
    return [name for name in (*CHARTS, "one") if page.locator(f"#{name} svg").count()]


def _shows_cells(page, count):
    """The heat map comes to that many; its legend is drawn with a rectangle too, which plays another role."""
    sync_api.expect(page.locator("#heat svg .mark-rect.role-mark path")).to_have_count(count)


def _of_script(name, given, told):
    """A function of the browser that tells what a script, which the page keeps to itself, makes of what it is given."""
    script = (Path(build.__file__).parent / "assets" / f"{name}.js").read_text()
    return f"{given} => {{ {script}\nreturn {told}; }}"


@contextmanager
def _redrawn(page):
    """What is done inside has the page drawn once more."""
    before = int(page.get_attribute("body", "data-drawn"))
    yield
    page.wait_for_selector(f"body[data-drawn='{before + 1}']", state="attached")


@pytest.fixture(autouse=True)
def quiet(page) -> Iterator[None]:
    """Whatever a test does, nothing is complained of and nothing is fetched."""
    yield
    assert [line for line in page.said if not line.startswith("asked: data:")] == []


def test_every_chart_is_there_with_words_for_those_who_do_not_see_it(page):
    for chart in CHARTS:
        drawn = page.locator(f"#{chart}[role=graphics-document], #{chart} [role=graphics-document]").first
        assert "fedhydra" in drawn.get_attribute("aria-label"), chart
    _shows_cells(page, len(METHODS) * 2)
    assert page.locator("#one svg").count() == 2  # partition and recall


def test_the_page_is_not_wider_than_the_screen(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_a_hostile_name_is_drawn_as_text(page):
    assert page.title() != "broken"
    assert page.locator("img[src=x]").count() == 0
    assert EVIL[:9] in page.locator("#one").inner_text()


def test_a_filter_changes_charts_tables_and_counts_and_is_undone(page):
    with _redrawn(page):
        page.select_option("#partition", "dirichlet 0.5")
    _shows_cells(page, len(METHODS))
    assert page.locator("main tr[data-m]:visible").count() == len(METHODS) * SEEDS
    assert page.locator("#setting option").count() == 1
    page.click("#choose summary")
    with _redrawn(page):
        page.uncheck("#methods input[value=dense]")
    _shows_cells(page, len(METHODS) - 1)
    page.click("#choose summary")
    with _redrawn(page):
        page.click("button[type=reset]")
    _shows_cells(page, len(METHODS) * 2)


def test_filters_that_leave_nothing_leave_no_chart_and_no_run(browser, report, page, tmp_path):
    def of_other_data(settings):
        return [settings[0], settings[1] | {"data": "cifar10"}]

    def known(runs):
        return [run for run in runs if run["s"] is not None]

    other = _altered(report, tmp_path, settings=of_other_data, runs=known)
    with _opened(browser, other, page.viewport_size) as opened:
        opened.select_option("#data", "cifar10")
        with _redrawn(opened):
            opened.select_option("#partition", "dirichlet 0.1")
        assert _drawn(opened) == []
        with _redrawn(opened):
            opened.click("button[type=reset]")
        assert _drawn(opened) == [*CHARTS, "one"]
        opened.click("#choose summary")
        for method in METHODS:
            with _redrawn(opened):
                opened.uncheck(f"#methods input[value={method}]")
        assert _drawn(opened) == []


def test_a_browser_that_cannot_group_draws_everything(browser, report, page):
    """Safari before 17.4 and Firefox before 119."""
    with _opened(browser, report, page.viewport_size, before="delete Object.groupBy; delete Map.groupBy") as opened:
        assert _drawn(opened) == [*CHARTS, "one"]
        assert opened.said == []


def test_a_chart_that_fails_says_so_in_its_place_and_takes_no_other(browser, report, page, tmp_path):
    broken = _altered(report, tmp_path, curves=lambda curves: None)
    with _opened(browser, broken, page.viewport_size) as opened:
        assert _drawn(opened) == ["heat", "costs", "gap", "one"]
        assert "This could not be drawn" in opened.inner_text("#curves")
        assert [line.split(":")[0] for line in opened.said] == ["error"]


def test_names_that_do_not_fit_are_whole_in_the_legends_and_told_apart(browser, crowded, page):
    with _opened(browser, crowded, page.viewport_size) as opened:
        for chart in ("curves", "costs"):
            edge = opened.locator(f"#{chart} svg").bounding_box()
            labels = opened.locator(f"#{chart} .role-legend-label text").all()
            ends = [box["x"] + box["width"] for box in (label.bounding_box() for label in labels)]
            assert len(ends) == len(VARIANTS)
            assert max(ends) <= edge["x"] + edge["width"], chart
            plot = opened.locator(f"#{chart} svg .background").first.bounding_box()
            assert plot["width"] > edge["width"] - 80, chart
        for labels in ("#heat .role-axis-label text", "#gap .role-axis-label text", "#costs .role-legend-label text"):
            names = [name for name in opened.locator(labels).all_text_contents() if "fedchorus" in name]
            assert len(set(names)) == len(VARIANTS), labels
        assert opened.locator("#in-full dd").all_text_contents() == list(VARIANTS)
        assert opened.evaluate("document.documentElement.scrollWidth") <= opened.viewport_size["width"]


def test_names_that_fit_have_no_number(page):
    assert page.locator("#in-full").inner_text() == ""
    labels = page.locator("#heat .role-axis-label text").all_text_contents()
    assert set(METHODS) <= set(labels)


def test_settings_that_do_not_fit_a_column_are_told_apart_and_whole_below(browser, report, page, tmp_path):
    def differing_at_the_end(settings):
        return [each | {"name": f"mnist, dirichlet 0.1; clients.optimizer.lr=0.{each['s']}"} for each in settings]

    long = _altered(report, tmp_path, settings=differing_at_the_end)
    with _opened(browser, long, page.viewport_size) as opened:
        heads = [text for text in opened.locator("#heat .role-axis-label text").all_text_contents() if "mnist" in text]
        assert [head[:9] for head in heads] == ["S1: mnist", "S2: mnist"]
        ends = [name[-6:] for name in opened.locator("#in-full dd").all_text_contents()]
        assert ends == ["lr=0.0", "lr=0.1"]
        _shows_cells(opened, 6)


def test_verdicts_say_that_they_are_of_all_methods_where_some_are_not_shown(page):
    assert not page.locator("#of-all").is_visible()
    page.locator("#choose summary").click()
    with _redrawn(page):
        page.uncheck("#methods input[value=dense]")
    assert page.locator("#of-all").is_visible()
    with _redrawn(page):
        page.click("button[type=reset]")
    assert not page.locator("#of-all").is_visible()
    page.locator("#choose summary").click()


def test_names_of_folders_are_not_broken_into_letters(page):
    heights = page.evaluate("[...document.querySelectorAll('td a')].map((link) => link.getClientRects().length)")
    assert heights
    assert set(heights) == {1}


def test_a_turned_phone_draws_the_legends_anew(browser, crowded, page):
    with _opened(browser, crowded, {"width": 844, "height": 390}) as opened:
        assert _columns(opened) > 1
        with _redrawn(opened):
            opened.set_viewport_size({"width": 390, "height": 844})
        assert _columns(opened) == 1


def test_what_sets_the_chosen_setting_apart_is_told_below_the_choice(browser, report, page, tmp_path):
    def of_protocols(settings):
        return [setting | {"apart": f"clients.epochs={setting['s']}"} for setting in settings]

    protocols = _altered(report, tmp_path, settings=of_protocols)
    with _opened(browser, protocols, page.viewport_size) as opened:
        for number, alpha in enumerate((0.1, 0.5)):
            opened.select_option("#setting", str(number))
            assert opened.inner_text("#apart") == f"mnist, dirichlet {alpha}: clients.epochs={number}"
        assert opened.locator("#apart").is_visible()


def test_differences_can_be_shown_to_any_method(page):
    page.select_option("#heat-what", "fedavg")
    _shows_cells(page, (len(METHODS) - 1) * 2)
    sync_api.expect(page.locator("#heat svg")).to_contain_text("+")
    page.select_option("#heat-what", "")
    _shows_cells(page, len(METHODS) * 2)


def test_another_run_is_shown_when_it_is_chosen(page):
    value = page.locator("#run option", has_text="dense, seed 2").first.get_attribute("value")
    page.select_option("#run", value)
    sync_api.expect(page.locator("#one")).to_contain_text("method=dense")
    assert page.locator("#one a").get_attribute("href").endswith("/")


def test_intervals_end_where_accuracies_and_their_differences_do(page):
    entries = [{"mean": 86, "half": 23.4}, {"mean": 26.55, "half": 43.52}, {"mean": 4}]
    ends = page.evaluate(
        _of_script("charts", "given", "given.map((each) => [limits(each), limits(each, true)])"), entries
    )
    assert ends == [[" [62.6, 100.0]", " [+62.6, +100.0]"], [" [0.0, 70.1]", " [-17.0, +70.1]"], ["", ""]]


def test_guidance_is_normalised_as_in_python_also_where_there_is_none(page):
    U = torch.tensor([[0.0, 0.0, 0.0], [1.0, 3.0, 0.0]])
    rows, columns = page.evaluate(_of_script("run", "U", "Object.values(normalised(U))"), U.tolist())
    torch.testing.assert_close(torch.tensor(rows), normalised_rows(U).T)
    torch.testing.assert_close(torch.tensor(columns), normalised_columns(U).T)


def test_failures_are_told_with_the_command(page):
    assert page.locator("text=it broke").count() >= 1
    assert page.locator("text=python -m oneshot_fl seed=9").count() >= 1
