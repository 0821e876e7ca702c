"""The states of users of one model, from bytes to bytes.

A model that reads time keeps the newest event open, so a recommendation runs one step from the
state, for all users of a batch at once. Any other has the same hidden vector whenever it is
requested: that is stored beside the state, and a recommendation reads nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from linrec.backbones import Backbone
from linrec.backbones.backbone import UserState
from linrec.data.dataset.gaps import read_events
from linrec.serving.past import Past, sequences_of
from linrec.serving.snapshot import StateCodec

Rows = list[bytes]


class States(ABC):
    """start: the state of a user without a past."""

    def __init__(self, model: Backbone, start: object) -> None:
        self._model, self._codec = model, StateCodec(start)
        self.start = self._codec.write(start)[0]

    @property
    def bytes(self) -> int:
        """Of each state."""
        return self._codec.bytes

    @abstractmethod
    def advance(self, states: Rows, events: Sequence[Past]) -> Rows:
        """After some more events of each user, at least one."""

    @abstractmethod
    def hidden(self, states: Rows, at: Sequence[float]) -> Tensor:
        """What each user is encoded as in a request at these times: [rows, width]."""


class TimelessStates(States):
    """The hidden vector after the newest event, and the state after it."""

    def __init__(self, model: Backbone) -> None:
        super().__init__(model, (torch.zeros(1, model.config.width), model.start_closed(1)))

    def advance(self, states: Rows, events: Sequence[Past]) -> Rows:
        _, closed = self._codec.read(states)
        sequences = sequences_of(events).without_times()
        hidden, after = self._model.forward_with_state(read_events(sequences), closed)
        last = torch.from_numpy(sequences.lengths - 1)
        return self._codec.write((hidden[torch.arange(len(states)), last].float(), after))

    def hidden(self, states: Rows, at: Sequence[float]) -> Tensor:
        del at
        return self._codec.first(states)


class OpenStates(States):
    """The state after all closed events, and the open event."""

    def __init__(self, model: Backbone) -> None:
        super().__init__(model, model.start(1))

    def advance(self, states: Rows, events: Sequence[Past]) -> Rows:
        sequences = sequences_of(events)
        times = sequences.padded_times()
        assert times is not None
        items = torch.from_numpy(sequences.padded())
        return self._codec.write(
            self._model.advance(items, self._read(states), torch.from_numpy(times))
        )

    def hidden(self, states: Rows, at: Sequence[float]) -> Tensor:
        moments = torch.tensor(list(at), dtype=torch.float64)
        return self._model.request(self._read(states), moments).float()

    def _read(self, states: Rows) -> UserState:
        state = self._codec.read(states)
        assert isinstance(state, UserState)
        return state


def states_of(model: Backbone) -> States:
    return OpenStates(model) if model.config.time_gaps else TimelessStates(model)
