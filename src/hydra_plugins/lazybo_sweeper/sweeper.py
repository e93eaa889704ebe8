"""A Hydra sweeper: every job is a trial of `lazybo.optimize`.

Jobs are launched one by one, by as many threads as there are jobs at a time. So with a parallel launcher the next trial
starts as soon as a job ends. A job that reports intermediate values finds its driver by a file that only its user can
read; its name is in the environment variable that `lazybo.hydra` looks up.
"""

import logging
import os
import signal
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import TrialState

import lazybo
from lazybo.hydra import VARIABLE
from lazybo.run import Trial

# Launchers that run a job in this process, or elsewhere on this machine.
HERE, LOCAL = ("BasicLauncher",), ("BasicLauncher", "JoblibLauncher", "LocalLauncher")
# What submitit raises for a job that ended without a result.
LOST = "UncompletedJobError"
RESULTS = "optimization_results.yaml"
SETTINGS = "multirun.yaml"
# The exit status of a program that Ctrl-C ended.
INTERRUPTED = 130

_logger = logging.getLogger("lazybo")


@dataclass
class LazySweeperConf:
    """The settings of the sweeper. ``params`` has the space, as overrides; others on the command line replace them."""

    _target_: str = "hydra_plugins.lazybo_sweeper.sweeper.LazySweeper"
    n_trials: int = 20
    n_jobs: int = 1
    direction: Any = "minimize"
    storage: str | None = None
    study_name: str | None = None
    seed: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)
    beliefs: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="lazybo", node=LazySweeperConf, provider="lazybo")


@dataclass(frozen=True)
class _Space:
    """What is swept, by the names of the parameters, and the overrides that are the same for all jobs."""

    distributions: Mapping[str, BaseDistribution]
    keys: Mapping[str, str]  # how an override writes the name
    fixed: Sequence[str]

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        return [*self.fixed, *(f"{self.keys[name]}={value}" for name, value in params.items())]

    def examples(self) -> Iterator[dict[str, Any]]:
        """Parameters of a few jobs. Each choice is in one of them."""
        first = {name: each.to_external_repr(_low_of(each)) for name, each in self.distributions.items()}
        yield first
        for name, each in self.distributions.items():
            if isinstance(each, CategoricalDistribution):
                yield from ({**first, name: choice} for choice in each.choices[1:])


class LazySweeper(Sweeper):
    """Optimises what the application returns."""

    def __init__(self, n_trials: int, n_jobs: int, direction: Any, params: Mapping[str, Any], **settings: Any) -> None:
        plain = {name: _plain(each) for name, each in settings.items()}
        self._n_trials, self._n_jobs, self._direction = n_trials, n_jobs, _plain(direction)
        self._params, self._settings = _flat(_plain(params) or {}), plain
        self._alone = threading.Lock()  # held by a job that is run again
        self._unwritten: OSError | None = None  # why the folder of the sweep can't be written any more

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Make the launcher."""
        self._context, self._config, self._folder = hydra_context, config, Path(config.hydra.sweep.dir)
        self._launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Study:
        """Run all trials, and write the best to the folder of the sweep."""
        try:
            space = self._space(arguments)
            self._check()
            for params in space.examples():  # Hydra says what is wrong with a name or an option
                self._context.config_loader.load_sweep_config(self._config, space.overrides(params))
            study = self._optimize(space)
            self._write_results(study)
        except (ValueError, TypeError) as error:  # what was given is wrong; Hydra prints its own exception in one line
            raise ConfigCompositionException(f"hydra/sweeper=lazybo: {error}") from None
        except lazybo.RunFailed as error:  # what the jobs raised was printed when they failed
            raise ConfigCompositionException(f"hydra/sweeper=lazybo: {error}") from error
        except KeyboardInterrupt:
            _logger.info("interrupted; with hydra.sweeper.storage the same command continues")
            raise SystemExit(INTERRUPTED) from None
        return study

    # ---------------------------------------------------------------- check

    def _space(self, arguments: Sequence[str]) -> _Space:
        parser = OverridesParser.create(config_loader=self._context.config_loader)
        overrides = parser.parse_overrides([*(f"{name}={text}" for name, text in self._params.items()), *arguments])
        last = {each.key_or_group: each for each in overrides}  # the command line comes last, and wins
        swept = {name: each for name, each in last.items() if each.is_sweep_override()}
        if not swept:
            raise ValueError(
                "there is nothing to sweep: give a parameter as 'lr=tag(log, interval(1e-5, 1))', "
                "'layers=range(1, 5)' or 'optimizer=choice(sgd, adam)'"
            )
        return _Space(
            {name: distribution_of(each) for name, each in swept.items()},
            {name: each.get_key_element() for name, each in swept.items()},
            [_text(each) for name, each in last.items() if name not in swept],
        )

    def _check(self) -> None:
        if self._n_jobs > 1 and type(self._launcher).__name__ in HERE:
            raise ValueError(
                f"hydra.sweeper.n_jobs={self._n_jobs}, but the basic launcher runs one job at a time; use "
                "hydra/launcher=joblib or hydra/launcher=submitit_local"
            )
        if self._n_jobs < 1:
            raise ValueError(f"hydra.sweeper.n_jobs must be at least 1, not {self._n_jobs}")
        there = next(each for each in (self._folder, *self._folder.absolute().parents) if each.exists())
        if not there.is_dir():
            raise ValueError(f"hydra.sweep.dir={self._folder} cannot be a folder, since {there} is a file")
        try:
            with tempfile.TemporaryFile(dir=there) as file:
                file.write(b"enough for what the sweep itself writes" * 100)
        except OSError as error:
            raise ValueError(f"hydra.sweep.dir={self._folder} cannot be written: {error}") from None

    # ------------------------------------------------------------------ run

    def _optimize(self, space: _Space) -> Study:
        settings = dict(self._settings)
        beliefs, limits, sampler = (settings.pop(name) or {} for name in ("beliefs", "limits", "sampler"))
        settings["constraints"] = settings["constraints"] or None
        bounds, begun = lazybo.Limits(**limits), threading.Lock()

        def objective(params: dict[str, Any], trial: Any) -> Any:
            with begun, self._writing():  # nothing is written before the first job
                self._folder.mkdir(parents=True, exist_ok=True)
                if not (self._folder / SETTINGS).exists() or trial.number == 0:
                    OmegaConf.save(self._config, self._folder / SETTINGS)
            return self._result(space.overrides(params), trial, bounds.retries)

        return lazybo.optimize(
            objective,
            lazybo.Space(space.distributions, beliefs=beliefs),
            n_trials=self._n_trials,
            n_parallel=self._n_jobs if self._n_jobs > 1 else None,
            executor="threads" if self._n_jobs > 1 else None,
            direction=self._direction,
            limits=bounds,
            sampler=lazybo.LazySampler(**sampler) if sampler else None,
            callbacks=[self._stop_if_unwritten],
            progress=False,
            **settings,
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A block that writes to the folder of the sweep. If it can't, no other job could either."""
        try:
            yield
        except OSError as error:
            self._unwritten = error
            raise

    def _stop_if_unwritten(self, *_: object) -> None:
        if self._unwritten is not None:
            raise ConfigCompositionException(
                f"hydra/sweeper=lazybo stops, since it cannot write to hydra.sweep.dir={self._folder}: "
                f"{self._unwritten}. With hydra.sweeper.storage the same command continues"
            )

    def _result(self, overrides: Sequence[str], trial: Trial, retries: int) -> Any:
        """What the job of a trial returns. If its process dies, it is launched again.

        Jobs of joblib share their processes: when one is killed, those that run beside it are lost too. So a job that
        was lost is run again, one such job at a time.
        """
        for left in reversed(range(retries + 1)):
            with nullcontext() if left == retries else self._alone:
                try:
                    return self._launched(overrides, trial)
                except Exception as error:
                    if not (isinstance(error, BrokenExecutor) or type(error).__name__ == LOST):
                        raise
                    reason = f"the process of the job died: {str(error).strip().splitlines()[0]}"
                    if left == 0:
                        raise RuntimeError(reason) from None
                    _logger.warning(f"trial {trial.number}: {reason}; it is launched again")
        raise AssertionError("the last attempt returns or raises")

    def _launched(self, overrides: Sequence[str], trial: Trial) -> Any:
        """What one job returns. It finds this process by a file while it runs."""
        # Ctrl-C reaches all processes of a terminal, but only this one decides how to end. Windows has no such masks.
        if self._n_jobs > 1 and hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        host = "127.0.0.1" if type(self._launcher).__name__ in LOCAL else socket.gethostname()
        contact = self._folder.absolute() / f".trial {trial.number}.json"
        with trial.offered(host) as text:
            try:
                with self._writing():
                    contact.unlink(missing_ok=True)
                    with os.fdopen(os.open(contact, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                        file.write(text)
                told = f"++hydra.job.env_set.{VARIABLE}='{contact}'"
                (job,) = self._launcher.launch([[*overrides, told]], initial_job_idx=trial.number)
            finally:
                contact.unlink(missing_ok=True)
        if isinstance(job._return_value, optuna.TrialPruned):
            raise job._return_value
        return _plain(job.return_value)  # raises what the job raised

    # -------------------------------------------------------------- results

    def _write_results(self, study: Study) -> None:
        results, file = _results(study), self._folder / RESULTS
        states = Counter(trial.state.name.lower() for trial in study.trials)
        best = f"best {results['best_value']:.6g} with {results['best_params']}; " if "best_value" in results else ""
        _logger.info(f"{best}{', '.join(f'{count} {state}' for state, count in states.items())}; see {file}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)  # if the study had all its trials, no job has made it
            OmegaConf.save(OmegaConf.create(results), file)
        except OSError as error:
            raise ValueError(f"the results cannot be written: {error}") from None


def _low_of(distribution: BaseDistribution) -> float:
    return 0.0 if isinstance(distribution, CategoricalDistribution) else float(distribution.low)  # type: ignore[attr-defined]


def distribution_of(override: Override) -> BaseDistribution:
    """The distribution of a swept parameter."""
    try:
        return _distribution(override, override.value())
    except ValueError as error:
        raise ValueError(f"cannot use {override.input_line}: {error}") from None


def _distribution(override: Override, sweep: Any) -> BaseDistribution:
    tags = set(getattr(sweep, "tags", ()))
    if tags - {"log"}:
        raise ValueError(f"there is no tag {min(tags - {'log'})!r}; use tag(log, ...) for a logarithmic scale")
    log = "log" in tags
    if isinstance(sweep, IntervalSweep):
        assert sweep.start is not None
        assert sweep.end is not None
        if isinstance(sweep.start, int) and isinstance(sweep.end, int):
            return IntDistribution(sweep.start, sweep.end, log=log)
        return FloatDistribution(float(sweep.start), float(sweep.end), log=log)
    if isinstance(sweep, RangeSweep):
        values = list(sweep.range())
        if not values or sweep.step <= 0:
            raise ValueError("a range must go upwards and have at least one value")
        if all(isinstance(each, int) for each in values):
            return IntDistribution(values[0], values[-1], log=log, step=1 if log else int(sweep.step))
        return FloatDistribution(values[0], values[-1], step=float(sweep.step))
    if isinstance(sweep, ChoiceSweep):
        return CategoricalDistribution(list(override.sweep_string_iterator()))
    raise ValueError(f"only interval, range and choice can be swept, not {sweep}")


def _flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Parameters by dotted names. A space on the command line may become nested dicts."""
    found: dict[str, Any] = {}
    for name, each in params.items():
        found |= _flat(each, f"{prefix}{name}.") if isinstance(each, Mapping) else {f"{prefix}{name}": each}
    return found


def _text(override: Override) -> str:
    return f"{override.get_key_element()}={override.get_value_element_as_str()}"


def _plain(value: Any) -> Any:
    """A setting or a result without OmegaConf's containers."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _results(study: Study) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "lazybo", "study_name": study.study_name}
    if not study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
        return found
    if len(study.directions) == 1:
        return {**found, "best_params": study.best_params, "best_value": study.best_value}
    solutions = [{"params": trial.params, "values": list(trial.values)} for trial in study.best_trials]
    return {**found, "solutions": solutions}
