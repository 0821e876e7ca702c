"""The learning rate's course, worked by hand."""

from __future__ import annotations

import pytest

from linrec.training.schedule import Schedule


def course(epochs: int, warmup: int, steps: int) -> list[float]:
    schedule = Schedule(epochs=epochs, warmup=warmup)
    return [schedule.share(epoch, step, steps) for epoch in range(epochs) for step in range(steps)]


def test_up_in_equal_steps_then_down_to_zero() -> None:
    shares = course(epochs=2, warmup=4, steps=10)
    assert shares[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert shares[4:] == pytest.approx([(20 - step) / 16 for step in range(4, 20)])
    assert shares[-1] == pytest.approx(1 / 16)  # zero comes after the last step


def test_without_a_warmup_the_first_step_has_the_full_rate() -> None:
    assert course(epochs=1, warmup=0, steps=4) == pytest.approx([1.0, 0.75, 0.5, 0.25])


@pytest.mark.parametrize(("warmup", "steps"), [(5, 5), (50, 5), (1, 1)])
def test_a_training_shorter_than_its_warmup_stays_between_zero_and_one(warmup, steps) -> None:
    assert all(0 < share <= 1 for share in course(1, warmup, steps))


def test_past_the_plan_nothing_moves() -> None:
    assert Schedule(epochs=2, warmup=1).share(epoch=2, step=3, steps=10) == 0


def test_epochs_may_differ_in_steps() -> None:
    schedule = Schedule(epochs=2, warmup=2)
    assert schedule.share(1, 4, 8) == pytest.approx(schedule.share(1, 6, 12), abs=0.05)


def test_a_warmup_takes_a_quarter_of_a_short_training_at_most() -> None:
    shares = course(epochs=4, warmup=400, steps=10)
    assert shares[9] == max(shares) == 1.0
    assert shares[20] < 1.0
