"""Where arrays live, and the train step compiled for it.

`Layout` alone knows the mesh: everything else asks it where a state or a batch belongs.
A mesh has three axes. Along ``data`` each device holds the whole state and its share of
a batch's rows (Dean et al. 2012); along ``fsdp`` it holds a share of both, and the
compiler gathers each weight where it is used (Rajbhandari et al. 2020, stage 3); along
``tensor`` it holds its heads, hidden units and tokens of the same rows (Shoeybi et al.
2019).
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled

from attnjax.config import ParallelConfig
from attnjax.partitioning import ROW_AXES
from attnjax.training.state import TrainState
from attnjax.training.step import Gathered, TrainStep
from attnjax.types import Metrics, PyTree

logger = logging.getLogger(__name__)

MESH_AXES = (*ROW_AXES, "tensor")
RULES = {  # names of parameters' axes to axes of the mesh
    "model": "fsdp",
    "heads": "tensor",
    "feed_forward": "tensor",
    "vocabulary": "tensor",
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of state and batch on a mesh.

    Attributes:
        mesh: of the axes `MESH_AXES`, over the devices of all processes.
    """

    mesh: Mesh

    @staticmethod
    def over(
        devices: Sequence[jax.Device] | None = None,
        parallel: ParallelConfig | None = None,
    ) -> Layout:
        """A layout over all devices there are, or the given ones.

        Args:
            devices: of all processes; None means `jax.devices()`.
            parallel: the sizes of the mesh; None puts all devices along ``data``.

        Returns:
            The layout.

        Raises:
            ValueError: if the sizes do not make up the number of devices, or the
                devices of one row of a batch belong to several processes.
        """
        devices = jax.devices() if devices is None else devices
        sizes = (parallel or ParallelConfig()).sizes(len(devices))
        axis_types = (AxisType.Auto,) * len(sizes)
        mesh = jax.make_mesh(sizes, MESH_AXES, axis_types=axis_types, devices=devices)
        for group in mesh.devices.reshape(-1, sizes[-1]):
            owners = {device.process_index for device in group}
            if len(owners) > 1:
                raise ValueError(
                    "training.parallel.tensor must divide the devices of each process, "
                    f"got {sizes[-1]}, whose devices belong to {len(owners)} processes."
                )
        return Layout(mesh)

    @property
    def num_row_shards(self) -> int:
        """How many parts the rows of a batch are split into."""
        return math.prod(self.mesh.shape[axis] for axis in ROW_AXES)

    @property
    def replicated(self) -> NamedSharding:
        """A whole copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def split_rows(self) -> NamedSharding:
        """Equal shares of the leading axis."""
        return NamedSharding(self.mesh, PartitionSpec(ROW_AXES))

    def of_state(self, state: PyTree) -> PyTree:
        """The sharding of every leaf of a state, or of a part of one.

        Args:
            state: arrays or their abstract shapes. Those that carry the names of their
                axes (`attnjax.training.state.abstract_state`) are split by `RULES`
                where the sizes divide; others are replicated.

        Returns:
            A tree of the same structure, without names.
        """
        return jax.tree.map(self._place_of, state, is_leaf=_is_named)

    def placed(self, abstract: PyTree) -> PyTree:
        """Abstract arrays that say where they belong, such as a checkpoint's target.

        Args:
            abstract: as `of_state` takes them.

        Returns:
            The same tree without names, each leaf with its sharding.
        """
        return jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=place
            ),
            nn.meta.unbox(abstract),
            self.of_state(abstract),
        )

    def _place_of(self, leaf: Any) -> NamedSharding:
        # A factored moment keeps the names of its parameter, but not all of its axes.
        if not _is_named(leaf) or len(leaf.names) != np.ndim(leaf.value):
            return self.replicated
        axes = [
            axis if axis and size % self.mesh.shape[axis] == 0 else None
            for axis, size in zip(
                map(RULES.get, leaf.names), leaf.value.shape, strict=True
            )
        ]
        return NamedSharding(self.mesh, PartitionSpec(*axes))

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
            ValueError: if the rows do not divide by the number of their local parts.
        """
        if not self.mesh.is_multi_process:
            return self.place_shared_batch(batch)
        self._require_rows(batch, self.num_row_shards // jax.process_count())
        place = jax.make_array_from_process_local_data
        return jax.tree.map(lambda rows: place(self.split_rows, rows), batch)

    def place_shared_batch(self, batch: PyTree) -> PyTree:
        """Puts a batch that every process holds whole on the devices, each its rows.

        Args:
            batch: numpy arrays, the same in every process.

        Returns:
            Global arrays of the same shapes.

        Raises:
            ValueError: if the rows do not divide by `num_row_shards`.
        """
        self._require_rows(batch, self.num_row_shards)
        if self.mesh.is_multi_process:
            return jax.tree.map(self._share_of, batch)
        return jax.device_put(batch, self.split_rows)  # all leaves in one go: faster

    def _share_of(self, rows: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(
            rows.shape, self.split_rows, rows.__getitem__
        )

    def _require_rows(self, batch: PyTree, num_parts: int) -> None:
        for rows in jax.tree.leaves(batch):
            if np.ndim(rows) == 0 or rows.shape[0] % num_parts:
                raise ValueError(
                    f"every array of a batch leads with rows that divide by the "
                    f"{num_parts} parts they are split into here, got shape "
                    f"{np.shape(rows)}; set data.rows_multiple to a multiple of "
                    f"{self.num_row_shards}, the parts in all processes."
                )


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

    def gradient_program(self, state: TrainState, batch: PyTree) -> Compiled:
        """The program of loss and gradient for the shape of a batch.

        Args:
            state: placed by the layout; abstract arrays do.
            batch: numpy arrays of this process.

        Returns:
            What the compiler made, to be asked for its text and its memory.
        """
        placed, number = self._placed(batch, 0)
        return self._compile("gather", (state, state.model_state, placed, number))

    def _gather(
        self, state: TrainState, model_state: PyTree, batch: PyTree, index: int
    ) -> Gathered:
        placed, number = self._placed(batch, index)
        return self._run("gather", placed, state, model_state, placed, number)

    def _placed(self, batch: PyTree, index: int) -> tuple[PyTree, jax.Array]:
        layout = self._layout
        return layout.place_batch(batch), layout.place_state(np.int32(index))

    def _run(self, part: str, batch: PyTree, *arguments: PyTree) -> Any:
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(batch))
        key = (part, jax.tree.structure(batch), shapes)
        if key not in self._programs:
            self._programs[key] = self._compile(part, arguments)
        return self._programs[key](*arguments)

    def _compile(self, part: str, arguments: tuple[PyTree, ...]) -> Compiled:
        begin = time.perf_counter()
        jitted = jax.jit(
            getattr(self._step, part),
            out_shardings=self._places_of_results(part, arguments),
            donate_argnums=() if part == "gather" else 0,
        )
        with jax.set_mesh(self._layout.mesh):
            program = jitted.lower(*arguments).compile()
        seconds = time.perf_counter() - begin
        self.compilations += 1
        self.compile_seconds += seconds
        logger.info("compiled %s in %.1f s", _in_words(part, arguments), seconds)
        return program

    def _places_of_results(self, part: str, arguments: tuple[PyTree, ...]) -> PyTree:
        replicated: Any = self._layout.replicated
        match part:
            case "gather":
                state, model_state, *_ = arguments
                return Gathered(
                    gradients=_places(state.params),
                    metrics=replicated,
                    model_state=_places(model_state),
                )
            case "add":
                return _places(arguments[0])
            case _:  # apply
                return _places(arguments[0]), replicated


def jit_train_step(step: TrainStep, layout: Layout) -> CompiledStep:
    """Compiles a train step for a layout, program by program as shapes appear.

    Args:
        step: the pure step.
        layout: where state and batch live.

    Returns:
        The step on placed states and numpy batches, with donated state.
    """
    return CompiledStep(step, layout)


def _is_named(leaf: Any) -> bool:
    return isinstance(leaf, nn.LogicallyPartitioned)


def _in_words(part: str, arguments: tuple[PyTree, ...]) -> str:
    if part == "add":
        return "the sum over micro-batches"
    if part == "apply":
        return "the update of the weights"
    leaves = jax.tree.leaves(arguments[2])
    shapes = dict.fromkeys(" x ".join(map(str, leaf.shape)) for leaf in leaves)
    return f"loss and gradient for batches of {' and '.join(shapes)} (each shape once)"


def _places(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.sharding, tree)
