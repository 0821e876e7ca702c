from __future__ import annotations

from linrec.types import InputError, argument


def flag(name: str, value: str | None) -> str:
    return f"--{name}" if value is None else f"--{name} {value}"


def test_an_argument_is_named_in_the_callers_language() -> None:
    error = InputError(f"8 heads do not divide {argument('width', 12)}; try {argument('heads', 4)}")
    assert str(error) == "8 heads do not divide width=12; try heads=4"
    assert error.render(flag) == "8 heads do not divide --width 12; try --heads 4"
    assert error.field == "width"


def test_an_argument_without_a_value() -> None:
    error = InputError(f"give {argument('user')} or {argument('history')}")
    assert str(error) == "give user= or history="
    assert error.render(flag) == "give --user or --history"


def test_a_sentence_without_arguments() -> None:
    assert InputError("the file is empty").field is None
    assert str(InputError("the file is empty")) == "the file is empty"
