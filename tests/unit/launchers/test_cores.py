"""Threads of parallel jobs."""

from oneshot_fl.launchers.cores import threads_each


def test_parallel_jobs_share_the_cores_and_the_users_own_number_wins(monkeypatch):
    monkeypatch.setattr("oneshot_fl.launchers.cores.cpu_count", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    assert threads_each(5) == {"OMP_NUM_THREADS": "3"}
    assert threads_each(64) == {"OMP_NUM_THREADS": "1"}
