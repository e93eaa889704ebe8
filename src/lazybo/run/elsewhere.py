"""A trial in a program that is no worker of ours: a job that another tool has launched."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lazybo.run.channel import RemoteReporter, listening
from lazybo.run.trial import Trial


@dataclass(frozen=True)
class RemoteTrial:
    """What a program that we didn't start as a worker needs to be the trial of an evaluation: to report, and to ask."""

    address: tuple[str, int]
    secret: bytes = field(repr=False)
    number: int
    params: Mapping[str, Any]

    @classmethod
    @contextmanager
    def of(cls, trial: Trial, host: str) -> Iterator["RemoteTrial"]:
        """The same for a trial of this process, which is reached under ``host`` inside this block."""
        assert trial._reporter is not None, "an evaluation reports to its driver"
        with listening(trial._reporter, host) as remote:
            yield cls(remote.address, remote.secret, trial.number, trial.params)

    def to_json(self) -> str:
        """A text that must stay secret."""
        return json.dumps({**vars(self), "secret": self.secret.hex()})

    @classmethod
    def from_json(cls, text: str) -> "RemoteTrial":
        """The inverse of `to_json`."""
        plain = json.loads(text)
        host, port = plain["address"]
        return cls((host, port), bytes.fromhex(plain["secret"]), plain["number"], plain["params"])

    def trial(self) -> Trial:
        """The trial; it connects with its first report."""
        return Trial(self.number, self.params, RemoteReporter(self.address, self.secret))
