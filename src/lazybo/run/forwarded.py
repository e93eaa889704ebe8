"""The storage of a study as workers see it: it asks the driver, since workers may be unable to reach the real one."""

from collections.abc import Callable, Mapping
from typing import Any

from optuna.storages import BaseStorage

# What workers may ask the storage of the study. Trials begin and end by the ledger, and report by the reporter.
READS = tuple(sorted(name for name in vars(BaseStorage) if name.startswith("get_")))
WRITES = ("set_trial_user_attr", "set_trial_system_attr", "set_study_user_attr", "set_study_system_attr")
REFUSED = tuple(sorted({*BaseStorage.__abstractmethods__} - {*READS, *WRITES}))


def make_forwarded(ask: Callable[[str, tuple[Any, ...], Mapping[str, Any]], Any]) -> BaseStorage:
    """A storage that asks the driver. It reads everything, and writes attributes."""

    def forwarded(name: str) -> Callable[..., Any]:
        return lambda _self, *arguments, **named: ask(name, arguments, named)

    def refused(name: str) -> Callable[..., Any]:
        def method(_self: object, *_arguments: Any, **_named: Any) -> Any:
            raise RuntimeError(
                f"a worker cannot call {name}: the driver begins and ends trials; use trial.report for intermediate "
                "values, and return the result"
            )

        return method

    methods = {name: forwarded(name) for name in (*READS, *WRITES)} | {name: refused(name) for name in REFUSED}
    storage: BaseStorage = type("ForwardedStorage", (BaseStorage,), methods)()
    return storage


def callers(error: Exception) -> Exception | None:
    """An error of the caller as it can be sent to a worker; None for others."""
    if type(error) not in (KeyError, TypeError, ValueError):
        return None
    return type(error)(str(error.args[0] if error.args else error)[:1000])


def cannot_stop() -> None:
    """What ``study.stop`` does in a worker."""
    raise RuntimeError("a worker cannot stop the run; call study.stop() in one of the callbacks of optimize()")
