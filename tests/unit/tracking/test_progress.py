import io

from rich.console import Console

from oneshot_fl.tracking.progress import Progress


def test_without_a_terminal_every_phase_leaves_one_line():
    text = io.StringIO()
    with Progress(Console(file=text)) as progress:
        task = progress.task("local training", 10, "client epochs")
        task.advance("client 1 of 2")
        task.reach(5)
        assert task.completed == 5
        task.finish()
    assert text.getvalue().startswith("local training: 10 client epochs in ")
    assert text.getvalue().count("\n") == 1


def test_on_a_terminal_the_bar_shows_what_is_done():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with Progress(console) as progress:
        task = progress.task("distillation", 4, "rounds")
        task.reach(3, "accuracy 0.500")
    assert "distillation" in text.getvalue()
    assert "3/4" in text.getvalue()
    assert "accuracy 0.500" in text.getvalue()
