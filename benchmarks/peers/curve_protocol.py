"""The protocol of peers that decide how long a training runs: one JSON object in each line.

First ``{"space": [parameter…], "seed": 0, "steps": 52}``, answered with ``{"version": …}``; parameters are those of
`benchmarks.peers.protocol`. Then ``{"ask": true}``, answered with ``{"id": 0, "point": [cell…], "until": 3}``: train
this configuration up to the end of epoch 3, and ``{"values": [1.0…]}``, the values of its new epochs, answered with
``{}``. An id that was asked before goes on from where it stopped, so a peer is never charged for an epoch twice.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Protocol

from benchmarks.peers.protocol import Parameter, Point, say


class CurvePeer(Protocol):
    """The interface of each module here; values are minimised."""

    def ask(self) -> tuple[int, Point, int]: ...
    def tell(self, values: list[float]) -> None: ...


def serve(make: Callable[[list[Parameter], int, int], CurvePeer], version: str) -> None:
    """Answer until the harness closes the connection. What the library prints goes to standard error."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    hello = json.loads(sys.stdin.readline())
    peer = make(hello["space"], hello["seed"], hello["steps"])
    say(answers, {"version": version})
    for line in sys.stdin:
        message = json.loads(line)
        if "ask" in message:
            number, point, until = peer.ask()
            say(answers, {"id": number, "point": point, "until": until})
        else:
            peer.tell(message["values"])
            say(answers, {})
