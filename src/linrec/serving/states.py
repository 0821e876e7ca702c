"""The states of users of one model, from bytes to bytes.

Where the model has a compiled form (`backbones.compiled`), that is what advances them; the torch
form is its fallback and its oracle.

A model that reads time keeps the newest event open, so a recommendation runs one step from the
state, for all users of a batch at once. Any other has the same hidden vector whenever it is
requested: that is stored beside the state, and a recommendation reads nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linrec.backbones import Backbone
from linrec.backbones.backbone import UserState
from linrec.backbones.compiled import step_model
from linrec.data.dataset.gaps import read_events
from linrec.serving.past import Past, sequences_of
from linrec.serving.snapshot import StateCodec

Rows = list[bytes]


def obey_thread_limit() -> None:
    """Make torch's number of threads hold in the calling thread too.

    `torch.set_num_threads` reaches the matrix products of another thread only once that thread has
    asked for the number; until then they use all cores, and their idle workers spin.
    """
    torch.get_num_threads()


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

    @torch.inference_mode()
    def advance(self, states: Rows, events: Sequence[Past]) -> Rows:
        obey_thread_limit()
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

    @torch.inference_mode()
    def advance(self, states: Rows, events: Sequence[Past]) -> Rows:
        obey_thread_limit()
        sequences = sequences_of(events)
        times = sequences.padded_times()
        assert times is not None
        items, codes = torch.from_numpy(sequences.padded()), sequences.padded_context()
        context = None if codes is None else torch.from_numpy(codes)
        return self._codec.write(
            self._model.advance(items, self._read(states), torch.from_numpy(times), context)
        )

    @torch.inference_mode()
    def hidden(self, states: Rows, at: Sequence[float]) -> Tensor:
        obey_thread_limit()
        moments = torch.tensor(list(at), dtype=torch.float64)
        return self._model.request(self._read(states), moments).float()

    def _read(self, states: Rows) -> UserState:
        state = self._codec.read(states)
        assert isinstance(state, UserState)
        return state


class CompiledStates(States):
    """The same bytes, advanced by compiled code."""

    def __init__(self, torch_form: States, step: Any, width: int) -> None:
        self._codec, self._step, self._width = torch_form._codec, step, width
        self.start = torch_form.start
        assert step.state_bytes == self.bytes

    def advance(self, states: Rows, events: Sequence[Past]) -> Rows:
        if len(events) == 1:
            (past,) = events
            items, times, lengths = past.items, past.times, np.array([len(past)])
        else:
            items = np.concatenate([past.items for past in events])
            times = np.concatenate([past.times for past in events])
            lengths = np.array([len(past) for past in events])
        after: Rows = self._step.advance(states, items, times, lengths)
        return after

    def hidden(self, states: Rows, at: Sequence[float]) -> Tensor:
        out = np.empty((len(states), self._width), np.float32)
        self._step.hidden(states, np.array(at, np.float64), out)
        return torch.from_numpy(out)


def states_of(model: Backbone, *, compiled: bool = True) -> States:
    torch_form = OpenStates(model) if model.config.time_gaps else TimelessStates(model)
    step = step_model(model) if compiled else None
    return torch_form if step is None else CompiledStates(torch_form, step, model.config.width)
