import optuna

from lazybo.run.limits import DESCRIPTIONS, Limits, Stopping, StopReason, describe_stop


def test_the_first_reason_and_the_first_error_are_kept() -> None:
    stopping, first, second = Stopping(optuna.create_study(), Limits(), "minimize"), KeyError("1"), KeyError("2")
    stopping.stop(StopReason.TARGET)
    stopping.stop(StopReason.CALLBACK_FAILED, first)
    stopping.stop(StopReason.INTERRUPTED, second)
    assert stopping.reason == StopReason.TARGET
    assert stopping.error is first


def test_the_codes_that_studies_keep_stay_and_have_words() -> None:
    codes = "target_reached timeout_reached no_improvement too_many_failures invalid_value no_first_value "
    codes += "callback_failed stop_called interrupted small_gain confirmed objective_has_bug"
    assert [str(reason) for reason in StopReason] == codes.split()
    assert [describe_stop(code) for code in codes.split()] == list(DESCRIPTIONS.values())
    assert describe_stop("what an earlier version wrote") == "what an earlier version wrote"


def test_a_reason_that_was_edited_is_shown_as_it_is() -> None:
    assert describe_stop(["x"]) == "['x']"  # type: ignore[arg-type]
