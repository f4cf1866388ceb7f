"""A plugin of pytest: tests that were all skipped are as good as none, and end with the exit code for that (5)."""

import pytest


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Change what would be a success."""
    told = session.config.pluginmanager.get_plugin("terminalreporter")
    if told and exitstatus == pytest.ExitCode.OK and not told.stats.get("passed"):  # a worker of xdist has none
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
