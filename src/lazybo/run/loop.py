"""The loop of `optimize()`: propose -> record -> submit -> record -> tell, on any engine; and its progress bar.

A trial is proposed for the number it will get, written to the study (`TrialSource`), and submitted as one task, or as
one for each fold (`OpenTrials`). When a trial ends, it is recorded in the study, then the callbacks are called, then
the optimiser is told. Ends are handled one by one in their order: a run with several workers depends on that order, on
what running trials had reported at each proposal, and on its seed.
"""

import logging
import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial

from optuna.trial import TrialState
from tqdm import tqdm

from lazybo.core import texts
from lazybo.run.channel import Reporter, listening
from lazybo.run.checkpoints import tidy
from lazybo.run.engines import Engine
from lazybo.run.goals import Tally
from lazybo.run.limits import STOPPED_KEY, Budget, GainLimit, InvalidValue, Stopping, StopReason, how_to_resume, or_inf
from lazybo.run.next_trial import EVALUATES_HERE, RECORDS_ALL, Bracket, Orphans, SharedStudy, TrialSource, bracket_for
from lazybo.run.open_trials import OpenTrials, RunOptions
from lazybo.run.presence import present
from lazybo.run.reports import OpenTrial
from lazybo.run.worker import Outcome
from lazybo.study import LazyPruner, Result, Session, TrialView

_logger = logging.getLogger("lazybo")
_failures = logging.getLogger("lazybo.failures")  # the command has lines of its own for failed trials

# Seconds between two reads of the study while only other processes run evaluations; they double from the first on.
FIRST_WAIT, LAST_WAIT = 0.02, 1.0
# After this many equal results a hint says that there is nothing to learn.
EQUAL_RESULTS = 10
# At most this many dropped metrics are named, so that a loop over names does not fill the log.
MAX_NAMED_METRICS = 50


class Driver:
    """One run of one process on a study, under the driver's name of its session (`lazybo.run.presence`)."""

    def __init__(
        self,
        session: Session,
        engine: Engine,
        options: RunOptions,
        *,
        connect: Callable[[Reporter], Reporter],
    ) -> None:
        study, model, limits = session.study, session.model, options.limits
        self.study, self.model, self.engine = study, model, engine
        self._session, self._options = session, options
        self.stopping = Stopping(study, limits, options.goals)
        self._open = OpenTrials(session, engine, options, connect=connect)
        orphans = Orphans(session, limits.retries, checkpoints=options.steps.checkpoints is not None)
        self._shared = SharedStudy(session, orphans, self._open.trials)
        gain = GainLimit(study, model.optimizer, limits.min_gain)
        self._budget = Budget(limits, options.n_trials, engine.workers)
        self._source = TrialSource(
            session, self._shared, self._open, self.stopping, gain, self._budget, self._bracket()
        )
        # Rounds are repeatable: they do not depend on how far others are. The values of folds are no learning curves.
        model.watches = not options.synchronous and options.folds is None
        self._is_timed = model.optimizer.options.cost is not None
        self._wait = FIRST_WAIT
        self._dropped: set[str] = set()  # metrics that a warning has named
        self._traced: set[str] = set()  # classes of exceptions whose traceback was logged

    def _bracket(self) -> Bracket | None:
        """How the first trials run, if trainings can be paused and our own pruner decides on them."""
        steps, goals = self._options.steps, self._options.goals
        if not steps.pausable or not isinstance(self.study.pruner, LazyPruner):
            return None
        assert steps.max_steps is not None, "pausable trainings have a last step"
        return bracket_for(steps.max_steps, self._options.n_trials, -1.0 if goals.directions[0] == "maximize" else 1.0)

    # ---------------------------------------------------------------------- loop

    def run(self) -> None:
        """Run until the study has all trials, or there is another reason to stop; then wait for running evaluations.

        ``stopping`` then has the reason, and the error that the run ends with.
        """
        earlier = self._session.read().trials
        self.stopping.count_earlier(earlier)
        self._budget.count_earlier(earlier)
        self._shared.sync()
        self.stopping.check()
        self._say_if_done()
        with (
            closing(Progress(self._options.progress, self._options.n_trials, self._begun)) as progress,
            self.stopping.interruptible(partial(self._on_interrupt, progress)),
        ):
            try:
                while self._step():
                    progress.show(self._begun, self.stopping.tally, len(self._open.trials))
            except BaseException:
                self._give_back()
                raise
        self.stopping.end()

    def _say_if_done(self) -> None:
        """Say so if there is nothing to do: otherwise it looks as if the objective had been evaluated."""
        wanted, finished = self._options.n_trials, self._shared.finished
        if wanted is not None and finished >= wanted:
            total = f"n_trials={wanted} is their total number, so nothing is evaluated"
            more = f"for {wanted} more give n_trials={finished + wanted}"
            _logger.warning(f"the study {self.study.study_name!r} has {finished} trials; {total}; {more}")

    def _step(self) -> bool:
        """Submit what can be submitted, wait for one event, and handle it; False when the run is over."""
        self._fill()
        if not self._open.are_running:
            return self._wait_for_others()
        self._wait = FIRST_WAIT
        if not self._options.synchronous and not self._open.has_tasks and self.stopping.reason is None:
            self._source.propose_ahead()
        for trial, outcome in self._open.handle(self._open.wait(self.stopping.deadline)):
            self._end(trial, outcome)
        self.stopping.check()
        return True

    def _fill(self) -> None:
        if self._options.synchronous and self._open.are_running:
            return
        while self._open.free_workers > 0:
            if not self._open.has_tasks and not self._start_trial():
                return
            self._open.submit()

    def _start_trial(self) -> bool:
        """Open the next trial; False if there is none."""
        while (started := self._source.start()) is not None:
            self._open.add(started)
            self.model.announce(started.entry.number, started.entry.params)
            if not started.invalid:
                return True
            self._end(started, Outcome("failed", reason=started.invalid))
            self._shared.sync()
        return False

    def _wait_for_others(self) -> bool:
        """Nothing runs here. The run is over, unless a trial of another process may have to be taken over."""
        needed = self._shared.finished < or_inf(self._options.n_trials)
        if self.stopping.reason is not None or not needed or not self._shared.elsewhere:
            return False
        time.sleep(self._wait)
        self._wait = min(2 * self._wait, LAST_WAIT)
        self._shared.sync()
        self.stopping.check()
        return True

    # ---------------------------------------------------------------- ends of trials

    def _end(self, trial: OpenTrial, outcome: Outcome) -> None:
        """A trial has ended: record it, call the callbacks, give its worker the next one, tell the optimiser."""
        entry = trial.entry
        intermediate = self._open.stop(trial)
        if outcome.state == "paused" and intermediate:
            self._pause(trial, outcome, max(intermediate))
            return
        last = intermediate[max(intermediate)] if intermediate else math.nan
        if outcome.state == "pruned" and math.isfinite(last) and not self._options.goals.several:
            outcome = replace(outcome, value=last)  # as Optuna does
        result = _result(outcome, trial.earlier_seconds if self._is_timed else None)
        recorded = self._session.finish(entry, result)
        del self._open.trials[entry.number]
        if not recorded:
            value = result.values[0] if len(result.values) == 1 else list(result.values) or None
            _logger.warning(f"trial {entry.number} was ended by another process; its value here, {value}, is not used")
            self._shared.sync()
            return
        if self._options.steps.checkpoints is not None:
            tidy(self._options.steps.checkpoints, entry.number)
        self._shared.ended(entry)
        self._log(entry, outcome)
        self._count(entry, outcome, result)
        self._call_back(entry)
        if self._source.has_proposal and not self._open.has_tasks:
            self._fill()  # the worker need not wait until the optimiser has learned
        self.model.settle(result.of(entry, intermediate))

    def _count(self, entry: TrialView, outcome: Outcome, result: Result) -> None:
        if outcome.state == "invalid":
            error = InvalidValue(f"{outcome.reason}\n{how_to_resume(self.study)}")
            self.stopping.stop(StopReason.INVALID_VALUE, error)
        self.stopping.count(outcome, result, repeat=entry.repeat_of is not None)
        if self.stopping.tally.is_constant and self.stopping.tally.completed == EQUAL_RESULTS:
            _logger.warning(f"the first {EQUAL_RESULTS} results are all {_shown(result)}: is this the right metric?")
        self._budget.count(outcome.seconds)

    def _log(self, entry: TrialView, outcome: Outcome) -> None:
        """Log a failed trial, the traceback of the first exception of each class, and metrics that were dropped."""
        if outcome.state in ("failed", "invalid"):
            _failures.warning(f"trial {entry.number} failed with {entry.params}: {outcome.reason}")
            if outcome.raised is not None and outcome.raised.kind not in self._traced:
                self._traced.add(outcome.raised.kind)
                _logger.warning(f"trial {entry.number} failed here:\n{outcome.raised.trace}")
        new = [metric for metric in outcome.dropped if metric not in self._dropped]
        if new and len(self._dropped) < MAX_NAMED_METRICS:
            self._dropped.update(new)
            _logger.warning(f"trial {entry.number}: these metrics were dropped: {', '.join(new)}")

    def _pause(self, trial: OpenTrial, outcome: Outcome, step: int) -> None:
        """A trial is stopped for now: record that, call the callbacks, tell the optimiser what to expect of it."""
        entry = trial.entry
        self._budget.count(outcome.seconds)
        seconds = trial.earlier_seconds + outcome.seconds if self._is_timed else None
        recorded = self._session.pause(entry, step, outcome.metrics, seconds)
        del self._open.trials[entry.number]
        if not recorded:
            _logger.warning(f"trial {entry.number} runs in another process now, so it is not paused here")
            self._shared.sync()
            return
        paused = self._session.store.trial(entry.id)
        self._shared.paused[entry.number] = TrialView(paused)
        self.stopping.count_paused()
        self._call_back(entry)
        self.model.hold(paused)

    def _call_back(self, entry: TrialView) -> None:
        if not self._options.callbacks:
            return
        trial = self._session.store.trial(entry.id)
        self.study._thread_local.in_optimize_loop = True  # so that study.stop() may be called
        try:
            for callback in self._options.callbacks:
                callback(self.study, trial)
        except Exception as error:
            self.stopping.stop(StopReason.CALLBACK_FAILED, error)
        finally:
            self.study._thread_local.in_optimize_loop = False
        if self.study._stop_flag:
            self.study._stop_flag = False
            self.stopping.stop(StopReason.STOP_CALLED)

    def _give_back(self) -> None:
        """Stop at once: queue the trials that run here, so that the next run repeats them."""
        self.engine.shutdown(wait=False, cancel_futures=True)
        # If the storage itself fails, the next run finds these trials, since their driver is gone.
        with suppress(Exception):
            self._open.reporter.flush()
            for trial in self._open.trials.values():
                self._session.put_back(trial.entry, trial.deaths, self._session.driver or "")

    # ------------------------------------------------------------------- messages

    def _on_interrupt(self, progress: "Progress") -> None:
        self._open.wake()
        progress.say(
            f"lazybo: waiting for {len(self._open.trials)} running evaluations, then the study can be resumed; "
            "Ctrl-C again stops them now"
        )

    @property
    def _begun(self) -> int:
        return self._shared.finished + len(self._shared.paused)


def drive(session: Session, engine: Engine, run: RunOptions) -> BaseException | None:
    """Run the trials under a name that other processes can see, and record why no more were started.

    Returns the error or interrupt that the run ends with, if any.
    """
    facts = {EVALUATES_HERE: not engine.remote, RECORDS_ALL: run.limits.retries == 0}
    with ExitStack() as stack:

        def connect(reporter: Reporter) -> Reporter:
            return stack.enter_context(listening(reporter, engine.host)) if engine.remote else reporter

        session.driver = stack.enter_context(present(session.study, **facts))
        driver = Driver(session, engine, run, connect=connect)
        driver.run()
        reason = driver.stopping.reason
        # The noise that a final check has learned decides what is recommended.
        learned = session.model.memory.unsaved_attributes() if run.limits.confirm else {}
        learned |= session.model.seen.rest() if learned else {}
        session.store.set_attributes({**learned, STOPPED_KEY: None if reason is None else reason.value})
        if reason != StopReason.INTERRUPTED:
            return driver.stopping.error
        interrupt = KeyboardInterrupt()
        interrupt.__cause__ = driver.stopping.error
        return interrupt


def _result(outcome: Outcome, earlier_seconds: float | None = None) -> Result:
    states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    values = outcome.values or (() if outcome.value is None else (outcome.value,))
    return Result(
        states.get(outcome.state, TrialState.FAIL),
        values,
        outcome.metrics,
        outcome.constraints,
        outcome.reason,
        outcome.reason and (outcome.traceback or outcome.reason),
        outcome.failure or {},
        outcome.variance or None,
        None if earlier_seconds is None else earlier_seconds + outcome.seconds,
    )


def _shown(result: Result) -> str:
    return ", ".join(f"{value:.6g}" for value in result.values)


# ----------------------------------------------------------------------- progress


class Progress:
    """A bar of trials with the best value, and how many run and failed.

    In a notebook it is a line of text, not a widget: that needs no other package, and is still there when the notebook
    is opened again. Where no bar can be drawn, the same text is a log record now and then.
    """

    NOTEBOOK_WIDTH = 100  # characters; the width of a notebook is unknown
    INTERVAL = 0.1  # seconds between two updates
    # A line is logged after this share of all trials, and if trials end this many seconds after the last line.
    LINE_SHARE, LINE_INTERVAL = 0.1, 30.0

    def __init__(self, wanted: bool, total: int | None, done: int) -> None:
        has_bar = wanted and texts.shows_bar()
        notebook = has_bar and texts.in_notebook()
        self._logs, self._total, self._logged = wanted and not has_bar, total, done
        self._text, self._logged_at = "", time.monotonic()
        self._bar = tqdm(
            total=total,
            initial=done,
            unit="trial",
            disable=not has_bar,
            # A notebook shows standard error as if something were wrong.
            file=sys.stdout if notebook else sys.stderr,
            ncols=self.NOTEBOOK_WIDTH if notebook else None,
            dynamic_ncols=not notebook,
        )
        self._shown = -self.INTERVAL

    def show(self, done: int, tally: Tally, running: int) -> None:
        """Update the bar, or log a line if it is time for one."""
        if self._bar.disable and not self._logs:
            return
        parts = [
            f"best {tally.best:.6g}" if tally.best is not None else f"front of {tally.front}" if tally.front else "",
            f"{running} running",
            f"{tally.infeasible} infeasible" if tally.infeasible else "",
            f"{tally.failed} failed" if tally.failed else "",
        ]
        shown = ", ".join(filter(None, parts))
        if self._logs:
            self._text = f"{done}{'' if self._total is None else f' of {self._total}'} trials, {shown}"
            late = time.monotonic() >= self._logged_at + self.LINE_INTERVAL
            if done > self._logged and (late or done >= self._logged + self.LINE_SHARE * or_inf(self._total)):
                self._log(done)
            return
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.n = done
        if time.monotonic() >= self._shown + self.INTERVAL:
            self._shown = time.monotonic()
            self._bar.refresh()

    def _log(self, done: int) -> None:
        """Log a line. If nobody has set up logging, which would hide it, print it."""
        self._logged, self._logged_at = done, time.monotonic()
        if _logger.hasHandlers():
            _logger.info(self._text)
        else:
            self.say(f"lazybo: {self._text}")

    def say(self, text: str) -> None:
        """Print a line above the bar, on standard error."""
        tqdm.write(texts.printable(text), file=sys.stderr)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()
