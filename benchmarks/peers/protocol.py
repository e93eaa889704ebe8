"""The protocol between the harness and a peer in another environment: one JSON object in each line.

First ``{"space": [parameter…], "seed": 0, "budget": 200}``, answered with ``{"version": …}``. Then, in any order,
``{"ask": true}``, answered with ``{"point": [cell…]}``, and ``{"tell": [point…], "values": [1.0…]}``, answered with
``{}``. A parameter is ``["float", low, high, log]``, ``["int", low, high, log]`` or ``["choice", count]``. Choices are
sent as indices.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

Parameter = Sequence[Any]
Point = list[Any]
Message = dict[str, Any]


class Peer(Protocol):
    """The interface of each module here; values are minimised."""

    def ask(self) -> Point: ...
    def tell(self, points: list[Point], values: list[float]) -> None: ...


def names(space: Sequence[Parameter]) -> list[str]:
    """Parameter names that keep their order when they are sorted as text."""
    return [f"p{j:03}" for j in range(len(space))]


def serve(make: Callable[[list[Parameter], int, int], Peer], version: str) -> None:
    """Answer until the harness closes the connection."""

    def begin(hello: Message) -> Callable[[Message], Message]:
        return partial(respond, make(hello["space"], hello["seed"], hello["budget"]))

    converse(begin, version)


def respond(peer: Peer, message: Message) -> Message:
    """The answer to "ask" or "tell"."""
    if "ask" in message:
        return {"point": peer.ask()}
    peer.tell(message["tell"], message["values"])
    return {}


def converse(begin: Callable[[Message], Callable[[Message], Message]], version: str) -> None:
    """Answer each message; ``begin`` makes of the first one what answers the others.

    What the library prints goes to standard error.
    """
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = begin(json.loads(sys.stdin.readline()))
    _say(answers, {"version": version})
    for line in sys.stdin:
        _say(answers, answer(json.loads(line)))


def _say(answers: Any, message: Message) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()
