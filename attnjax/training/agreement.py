"""Processes of one run that stop at the same step, though a signal reaches only one.

A process that left the loop on its own would leave the others waiting in their next
collective for ever. So at each step every process gives the number of the signal it has
received, 0 for none; the largest over all of them is computed on the devices behind the
step itself, and read when that step is, two steps later, so nobody waits for it. As all
processes read it at the same step, they stop at the same step. A single process asks
nobody.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from attnjax.training.interruption import Interruption

T = TypeVar("T")

Largest = Callable[[int], Any]
"""From one number of each process to the largest of them, still being computed."""

_AXIS = "everyone"


class StopVote:
    """Whether a run stops, and for which signal."""

    def __init__(self, interruption: Interruption, largest: Largest | None) -> None:
        """Nobody has voted yet.

        Args:
            interruption: the signals of this process.
            largest: over all processes; None if there is but this one.
        """
        self._interruption = interruption
        self._largest = largest
        self._agreed = 0

    @property
    def decided(self) -> str | None:
        """The name of the signal to stop for, None so far; the same everywhere."""
        if self._largest is None:
            return self._interruption.requested
        return signal.Signals(self._agreed).name if self._agreed else None

    def cast(self) -> Any:
        """Votes, once a step in every process; waits for nothing.

        Returns:
            The ballot, for `count`.
        """
        if self._largest is None:
            return None
        name = self._interruption.requested
        return self._largest(0 if name is None else int(signal.Signals[name]))

    def count(self, ballot: Any) -> None:
        """Reads a ballot, at the same step in every process.

        Args:
            ballot: of `cast`.
        """
        if ballot is not None:
            self._agreed = self._agreed or int(ballot)

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Does long work, such as an evaluation, unless the run stops.

        A signal ends it at once in a single process. Several finish it, because the
        others would wait for the one that did not.

        Args:
            work: changes nothing that its loss would spoil.

        Returns:
            What the work returns, or None if the run stops.
        """
        if self._largest is None:
            return self._interruption.attempt(work)
        return None if self.decided else work()


def largest_over_processes() -> Largest | None:
    """The reduction over all processes of this run, None if it is alone."""
    return None if jax.process_count() == 1 else largest_over(jax.devices())


def largest_over(devices: Sequence[jax.Device]) -> Largest:
    """The reduction over the processes of some devices.

    Args:
        devices: of all processes, in the same order everywhere.

    Returns:
        From an int32 of this process to the largest of all.
    """
    shape, axes = (len(devices),), (_AXIS,)
    mesh = jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,), devices=devices)
    one_each = NamedSharding(mesh, PartitionSpec(_AXIS))
    reduce = jax.jit(jnp.max, out_shardings=NamedSharding(mesh, PartitionSpec()))

    def largest(number: int) -> jax.Array:
        mine = np.full(mesh.local_mesh.size, number, np.int32)
        return reduce(jax.make_array_from_process_local_data(one_each, mine))

    return largest
