"""Where arrays live, and the train step compiled for it.

`Layout` alone knows the mesh: everything else asks it where a state or a batch belongs,
so that further mesh axes change one file.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from attnjax.training.state import TrainState
from attnjax.training.step import Gathered, TrainStep
from attnjax.types import Metrics, PyTree

logger = logging.getLogger(__name__)

DATA_AXIS = "data"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of state and batch on a mesh: state replicated, batch rows split.

    Attributes:
        mesh: of the axis ``data``, over the devices of all processes.
    """

    mesh: Mesh

    @staticmethod
    def over(devices: Sequence[jax.Device] | None = None) -> Layout:
        """A layout over all devices there are, or the given ones.

        Args:
            devices: of all processes; None means `jax.devices()`.

        Returns:
            The layout.
        """
        devices = jax.devices() if devices is None else devices
        mesh = jax.make_mesh(
            (len(devices),), (DATA_AXIS,), axis_types=(AxisType.Auto,), devices=devices
        )
        return Layout(mesh)

    @property
    def replicated(self) -> NamedSharding:
        """A whole copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def split_rows(self) -> NamedSharding:
        """Equal shares of the leading axis on the devices."""
        return NamedSharding(self.mesh, PartitionSpec(DATA_AXIS))

    def of_state(self, state: PyTree) -> PyTree:
        """The sharding of every leaf of a state, or of a part of one.

        Args:
            state: arrays or their abstract shapes.

        Returns:
            A tree of the same structure.
        """
        return jax.tree.map(lambda _: self.replicated, state)

    def place_state(self, state: PyTree) -> PyTree:
        """Puts a state (the same in every process) on the devices.

        Args:
            state: arrays on the host or anywhere.

        Returns:
            The same tree as sharded arrays.
        """
        return jax.device_put(state, self.of_state(state))

    def place_batch(self, batch: PyTree) -> PyTree:
        """Puts this process's rows of a batch on its devices.

        Args:
            batch: numpy arrays; the leading axis counts the rows of this process.

        Returns:
            Global arrays whose leading axis counts the rows of all processes.

        Raises:
            ValueError: if the rows do not divide by the number of local devices.
        """
        num_local = self.mesh.local_mesh.size
        for rows in jax.tree.leaves(batch):
            if np.ndim(rows) == 0 or rows.shape[0] % num_local:
                raise ValueError(
                    f"every array of a batch leads with rows that divide by the "
                    f"{num_local} devices of this process, got shape "
                    f"{np.shape(rows)}; set data.rows_multiple to a multiple of "
                    f"{self.mesh.size}, the number of all devices."
                )
        if self.mesh.is_multi_process:
            place = jax.make_array_from_process_local_data
            return jax.tree.map(lambda rows: place(self.split_rows, rows), batch)
        return jax.device_put(batch, self.split_rows)  # all leaves in one go: faster


class CompiledStep:
    """A train step compiled ahead for a layout, its parts apart.

    Only the gradient depends on the shape of a batch, so n shapes need n gradient
    programs and one for the update, which is a third of the compilation of both. A
    compiled program refuses arguments of another shape or place, so nothing is ever
    recompiled in silence. The state handed in is donated: do not use it afterwards.

    Attributes:
        compilations: programs compiled so far.
        compile_seconds: time spent on them.
    """

    def __init__(self, step: TrainStep, layout: Layout) -> None:
        self._step = step
        self._layout = layout
        self._programs: dict[object, Callable] = {}
        self.compilations = 0
        self.compile_seconds = 0.0

    def __call__(self, state: TrainState, batch: PyTree) -> tuple[TrainState, Metrics]:
        """One update.

        Args:
            state: placed by the layout; donated.
            batch: numpy arrays of this process, or a sequence of such batches if the
                step accumulates.

        Returns:
            The state after the update, and its metrics, both still being computed.
        """
        first, *others = self._step.micro_batches(batch)
        gathered = self._gather(state, state.model_state, first, 0)
        for index, micro_batch in enumerate(others, start=1):
            new = self._gather(state, gathered.model_state, micro_batch, index)
            gathered = self._run("add", None, gathered, new)
        return self._run("apply", None, state, gathered)

    def _gather(
        self, state: TrainState, model_state: PyTree, batch: PyTree, index: int
    ) -> Gathered:
        placed = self._layout.place_batch(batch)
        number = self._layout.place_state(np.int32(index))
        return self._run("gather", placed, state, model_state, placed, number)

    def _run(self, part: str, batch: PyTree, *arguments: PyTree) -> Any:
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(batch))
        key = (part, jax.tree.structure(batch), shapes)
        if key not in self._programs:
            self._programs[key] = self._compile(part, arguments)
        return self._programs[key](*arguments)

    def _compile(self, part: str, arguments: tuple[PyTree, ...]) -> Callable:
        begin = time.perf_counter()
        jitted = jax.jit(
            getattr(self._step, part),
            out_shardings=self._places_of_results(part, arguments),
            donate_argnums=() if part == "gather" else 0,
        )
        program = jitted.lower(*arguments).compile()
        seconds = time.perf_counter() - begin
        self.compilations += 1
        self.compile_seconds += seconds
        logger.info("compiled %r, program %d, %.1f s", part, self.compilations, seconds)
        return program

    def _places_of_results(self, part: str, arguments: tuple[PyTree, ...]) -> PyTree:
        layout = self._layout
        replicated: Any = layout.replicated
        match part:
            case "gather":
                state, model_state, *_ = arguments
                return Gathered(
                    gradients=layout.of_state(state.params),
                    metrics=replicated,
                    model_state=layout.of_state(model_state),
                )
            case "add":
                return layout.of_state(arguments[0])
            case _:  # apply
                return layout.of_state(arguments[0]), replicated


def jit_train_step(step: TrainStep, layout: Layout) -> CompiledStep:
    """Compiles a train step for a layout, program by program as shapes appear.

    Args:
        step: the pure step.
        layout: where state and batch live.

    Returns:
        The step on placed states and numpy batches, with donated state.
    """
    return CompiledStep(step, layout)
