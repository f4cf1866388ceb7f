import pytest
import torch

from oneshot_fl.errors import OneshotError
from oneshot_fl.parts.pools import Entry, Pool, joined
from oneshot_fl.seeds import torch_generator
from tests.parts import server_of


def _entry(value: float, count: int = 4) -> Entry:
    return Entry(
        torch.full((count, 1, 2, 2), value),
        torch.full((count,), int(value)),
        torch.full((count, 3), value),
        torch.full((count,), value),
    )


def test_a_growing_pool_replays_everything_and_keeps_rows_together():
    pool = Pool(server_of(), rounds=None)
    for value in range(3):
        pool.add(_entry(float(value)))
    batches = list(pool.batches(5, torch_generator(0)))
    assert sorted(len(batch.y) for batch in batches) == [2, 5, 5]
    labels = torch.cat([batch.y for batch in batches])
    assert labels.bincount().tolist() == [4, 4, 4]
    for x, y, answers, trust in batches:
        assert torch.equal(x[:, 0, 0, 0].long(), y)
        assert torch.equal(answers[:, 0].long(), y)
        assert torch.equal(trust.long(), y)


def test_a_pool_before_its_newest_batch_is_another_pool():
    pool = Pool(server_of(), rounds=None)
    assert pool.before_newest().size == 0
    for value in (1.0, 2.0):
        pool.add(_entry(value))
    (batch,) = pool.before_newest().batches(8, torch_generator(0))
    assert set(batch.y.tolist()) == {1}
    assert pool.size == 8


def test_a_pool_that_is_not_shuffled_keeps_the_order_and_draws_nothing():
    pool = Pool(server_of(), rounds=None, shuffle=False)
    for value in range(3):
        pool.add(_entry(float(value)))
    rng = torch_generator(0)
    batches = list(pool.batches(5, rng))
    assert torch.cat([batch.y for batch in batches]).tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert [len(batch.y) for batch in batches] == [5, 5, 2]
    assert [len(batch.y) for batch in pool.batches(11, rng)] == [12]  # nothing can be normalised by one image
    assert torch.equal(rng.get_state(), torch_generator(0).get_state())


def test_a_bounded_pool_forgets_the_oldest_round():
    pool = Pool(server_of(), rounds=1)
    pool.add(_entry(1.0))
    pool.add(_entry(2.0))
    (batch,) = pool.batches(8, torch_generator(0))
    assert set(batch.y.tolist()) == {2}


def test_a_pool_of_bytes_holds_a_quarter_and_gives_back_what_was_rounded():
    pool = Pool(server_of(), rounds=None, uint8=True)
    x = torch.tensor([-1.0, 0.0, 0.003, 1.0]).view(4, 1, 1, 1)  # at mean and std 0.5: bytes 0, 127.5, 127.9, 255
    packed = pool.pack(x)
    assert packed.dtype == torch.uint8
    assert packed.flatten().tolist() == [0, 128, 128, 255]
    pool.add(Entry(packed, torch.arange(4), torch.zeros(4, 2), torch.ones(4)))
    (batch,) = pool.batches(4, torch_generator(0))
    assert batch.x[batch.y == 2].item() == pytest.approx(2 * 128 / 255 - 1, abs=1e-6)
    assert pool.bytes == 4 * (1 + 8 + 2 * 4 + 4)
    assert Pool(server_of(), rounds=None).pack(x).dtype == torch.float32


def test_a_pool_of_bytes_refuses_what_is_beyond_black_or_white():
    server = server_of()
    light = server.spec.normalise(torch.tensor([0.0, 1.0, 1.002, 1.1]).view(1, 1, 2, 2))
    with pytest.raises(OneshotError, match=r"^method\.pool\.uint8=true: 25% .*set method\.pool\.uint8=false$"):
        Pool(server, rounds=None, uint8=True).pack(light)
    assert torch.equal(Pool(server, rounds=None).pack(light), light)


def test_a_pool_without_refill_is_closed_by_its_first_batch():
    fixed, growing = Pool(server_of(), rounds=1, refill=False), Pool(server_of(), rounds=None)
    assert not fixed.closed
    for pool in (fixed, growing):
        pool.add(_entry(1.0))
    assert fixed.closed
    assert not growing.closed


def test_the_newest_images_are_evenly_over_the_classes_and_all_of_an_entry():
    pool = Pool(server_of(), rounds=None)
    # label: 0 in the oldest round; then 1, 1, 1, 2 and 2, 2, 2, 1; the value tells where an image lies in its round
    for first, labels in ((0, [0, 0]), (10, [1, 1, 1, 2]), (20, [2, 2, 2, 1])):
        values = torch.arange(first, first + len(labels))
        pool.add(
            Entry(
                values.view(-1, 1, 1, 1).float(),
                torch.tensor(labels),
                torch.zeros(len(labels), 1),
                torch.ones(len(labels)),
            )
        )
    x, y, _ = pool.newest(4)  # the newest round alone: one of class 1 and, evenly spaced, what is left of class 2
    assert (x.flatten().tolist(), y.tolist()) == ([23, 20, 21, 22], [1, 2, 2, 2])
    x, y, _ = pool.newest(6)  # both newer rounds: class 1 is 23, 10, 11, 12, class 2 is 20, 21, 22, 13
    assert (x.flatten().tolist(), y.tolist()) == ([23, 10, 11, 20, 21, 22], [1, 1, 1, 2, 2, 2])
    x, y, _ = pool.newest(9)  # all rounds: both of class 0, whose share would be three
    assert y.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert pool.newest(99)[0].flatten().sort().values.tolist() == [0, 1, 10, 11, 12, 13, 20, 21, 22, 23]


def test_the_newest_images_of_a_round_that_is_in_the_order_of_time_are_its_last():
    pool = Pool(server_of(), rounds=1, shuffle=False)
    values = torch.arange(8)
    pool.add(Entry(values.view(-1, 1, 1, 1).float(), values % 2, torch.zeros(8, 1), values / 8))
    x, y, trust = pool.newest(4)
    assert (x.flatten().tolist(), y.tolist()) == ([4, 6, 5, 7], [0, 0, 1, 1])
    assert trust.tolist() == [4 / 8, 6 / 8, 5 / 8, 7 / 8]


def test_the_newest_images_of_a_pool_of_bytes_are_as_models_see_them():
    pool = Pool(server_of(), rounds=1, uint8=True)
    pool.add(
        Entry(
            torch.tensor([255, 0], dtype=torch.uint8).view(2, 1, 1, 1),
            torch.tensor([1, 0]),
            torch.zeros(2, 1),
            torch.ones(2),
        )
    )
    x, y, _ = pool.newest(2)
    assert (x.flatten().tolist(), y.tolist()) == ([-1.0, 1.0], [0, 1])


def test_only_what_is_near_its_classs_mean_enters():
    # class 0: 0, 1, 2, 3, 14 (mean 4): of five the nearest two (2.5 rounded down) are 3 (1 away) and 2
    # class 1: 700, 701, 702, 710 (mean 703.25): the nearest two of four are 702 and 701; class 2: one alone stays
    # class 3: 20 to 25 and 95 (mean 32.9): of seven the nearest three, as 3.5 is rounded down too
    values = torch.tensor([0.0, 1, 2, 3, 14, 700, 701, 702, 710, 7, 20, 21, 22, 23, 24, 25, 95])
    labels = torch.tensor([0] * 5 + [1] * 4 + [2] + [3] * 7)
    pool = Pool(server_of(), rounds=1, refill=False, nearest=0.5)
    pool.add(Entry(values.view(-1, 1, 1, 1), labels, values.view(-1, 1), torch.ones(len(labels))))
    (entry,) = pool.entries
    assert entry.x.flatten().tolist() == [2, 3, 701, 702, 7, 23, 24, 25]
    assert entry.y.tolist() == [0, 0, 1, 1, 2, 3, 3, 3]
    assert torch.equal(entry.answers.flatten(), entry.x.flatten())


def test_what_is_restored_is_as_it_was():
    values = torch.arange(10.0)
    entry = Entry(values.view(-1, 1, 1, 1), torch.zeros(10, dtype=torch.long), values.view(-1, 1), torch.ones(10))
    before, after = (Pool(server_of(), rounds=1, refill=False, nearest=0.5) for _ in range(2))
    before.add(entry)
    after.restore(before.entries, added=before.added)
    assert [len(entry.y) for entry in after.entries] == [5]
    assert torch.equal(after.entries[0].x, before.entries[0].x)
    assert (after.added, after.closed) == (1, True)


def test_the_same_images_can_be_kept_with_other_answers():
    pool = Pool(server_of(), rounds=None, uint8=True)
    for value in (255, 0):
        images = torch.full((3, 1, 1, 1), value, dtype=torch.uint8)
        pool.add(Entry(images, torch.full((3,), value), torch.zeros(3, 1), torch.ones(3)))
    asked: list[int] = []

    def answer(x: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        return x.flatten(1) + 10

    other = pool.with_answers(answer, 2)
    assert asked == [2, 1, 2, 1]  # batch by batch, a round after the other
    assert [entry.answers.flatten().tolist() for entry in other.entries] == [
        [11.0] * 3,
        [9.0] * 3,
    ]  # as models see them
    assert [entry.answers.flatten().tolist() for entry in pool.entries] == [[0.0] * 3] * 2
    assert [torch.equal(one.x, two.x) for one, two in zip(other.entries, pool.entries, strict=True)] == [True, True]


def test_batches_of_several_sources_become_one():
    first, second = (
        Entry(torch.full((n, 1, 2, 2), n), torch.full((n,), n), torch.full((n, 3), n), torch.ones(n)) for n in (1, 2)
    )
    assert joined([first]) is first
    both = joined([first, second])
    assert both.y.tolist() == [1, 2, 2]
    assert (both.x.shape, both.answers.shape) == ((3, 1, 2, 2), (3, 3))
