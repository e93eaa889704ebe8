"""The protocol of peers that decide how long a training runs: one JSON object in each line.

First ``{"space": [parameter…], "seed": 0, "steps": 52}``, answered with ``{"version": …}``; parameters are those of
`benchmarks.peers.protocol`. Then ``{"ask": true}``, answered with ``{"id": 0, "point": [cell…], "until": 3}``: train
this configuration up to the end of epoch 3, and ``{"values": [1.0…]}``, the values of its new epochs, answered with
``{}``. An id that was asked before goes on from where it stopped, so a peer is never charged for an epoch twice.
"""

from collections.abc import Callable
from typing import Protocol

from benchmarks.peers.protocol import Message, Parameter, Point, converse


class CurvePeer(Protocol):
    """The interface of each module here; values are minimised."""

    def ask(self) -> tuple[int, Point, int]: ...
    def tell(self, values: list[float]) -> None: ...


def serve(make: Callable[[list[Parameter], int, int], CurvePeer], version: str) -> None:
    """Answer until the harness closes the connection."""

    def begin(hello: Message) -> Callable[[Message], Message]:
        peer = make(hello["space"], hello["seed"], hello["steps"])

        def answer(message: Message) -> Message:
            if "ask" in message:
                return dict(zip(("id", "point", "until"), peer.ask(), strict=True))
            peer.tell(message["values"])
            return {}

        return answer

    converse(begin, version)
