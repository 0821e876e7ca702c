"""The workers of one attempt: started together, and all ended when one of them is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from linrec.distributed.worker import Failed, Finished, Job, TrainingWorker, environment_of

ROOM_SECONDS = 600.0  # to wait for as many free CPUs or GPUs as there are workers
LOOK_SECONDS = 0.2


class LostError(Exception):
    """A process or a machine is gone."""


class NoRoomError(Exception):
    """Nobody has freed what the workers need."""


class Group:
    """Actors in a placement group, which has room for all of them or for none."""

    def __init__(self, ray: Any, workers: int, gpus: bool, look: Callable[[], None]) -> None:
        """look: called while it waits; may raise."""
        self.ray, self.workers, self.gpus, self.look = ray, workers, gpus, look
        self.actors: list[Any] = []
        self.room: Any = None
        self.results: list[Any] = []

    def start(self, job: Job, mailbox: Any, attempt: int) -> None:
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needs = {"CPU": 1.0, **({"GPU": 1.0} if self.gpus else {})}
        self.room = placement_group([needs] * self.workers, strategy="PACK")
        self._wait_for_room()
        make = self.ray.remote(TrainingWorker)
        for place in range(self.workers):
            there = PlacementGroupSchedulingStrategy(self.room, placement_group_bundle_index=place)
            options = {"num_cpus": 1, "num_gpus": int(self.gpus), "scheduling_strategy": there}
            self.actors.append(make.options(**options).remote())
        (address,) = self._results([self.actors[0].address.remote()])
        self.results = [
            actor.train.remote(environment_of(rank, self.workers, address), job, mailbox, attempt)
            for rank, actor in enumerate(self.actors)
        ]

    def wait(self) -> Finished | Failed:
        """What the first worker has made, or why one of them cannot go on."""
        outcomes = self._results(self.results)
        failed = [each for each in outcomes if isinstance(each, Failed)]
        return failed[0] if failed else outcomes[0]

    def end(self) -> None:
        """Leave no worker behind."""
        from ray.util.placement_group import remove_placement_group

        for actor in self.actors:
            self.ray.kill(actor)
        if self.room is not None:
            remove_placement_group(self.room)

    def _wait_for_room(self) -> None:
        until = time.monotonic() + ROOM_SECONDS
        while not self.room.wait(LOOK_SECONDS):
            self.look()
            if time.monotonic() > until:
                raise NoRoomError

    def _results(self, references: list[Any]) -> list[Any]:
        """Of all, or of the first that has failed."""
        waiting, found = list(references), {}
        while waiting:
            done, waiting = self.ray.wait(waiting, timeout=LOOK_SECONDS)
            self.look()
            for reference in done:
                try:
                    result = self.ray.get(reference)
                except self.ray.exceptions.RayTaskError:
                    raise  # a defect, which starting again would not mend
                except self.ray.exceptions.RayError as error:
                    raise LostError(str(error)) from error
                if isinstance(result, Failed):
                    return [result]
                found[reference] = result
        return [found[reference] for reference in references]
