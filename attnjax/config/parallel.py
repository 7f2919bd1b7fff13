"""How the devices of a run share its work."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from attnjax.fields import Section, Within, require

Devices = Annotated[int, Within(least=-1, most=1 << 20)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelConfig(Section):
    """The mesh: how many devices along each of its axes; one may be -1 and fills up."""

    data: Devices = -1  # each holds the whole state, and its share of a batch's rows
    fsdp: Devices = 1  # each holds its share of the state, and of a batch's rows
    tensor: Devices = 1  # each holds its share of heads, hidden units and vocabulary

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = dataclasses.asdict(self)
        for name, size in sizes.items():
            require(
                size == -1 or size > 0,
                f"{name} must be greater than 0, or -1 for what is left, got {size}.",
            )
        require(
            list(sizes.values()).count(-1) <= 1,
            f"only one axis of the mesh can be -1, got {sizes}.",
        )

    def sizes(self, num_devices: int) -> tuple[int, int, int]:
        """The mesh over so many devices.

        Args:
            num_devices: of all processes.

        Returns:
            Devices along ``data``, ``fsdp`` and ``tensor``.

        Raises:
            ValueError: if the axes do not make up that number.
        """
        asked = dataclasses.asdict(self)
        known = 1
        for size in asked.values():
            known *= max(size, 1)
        sizes = {
            name: num_devices // known if size == -1 else size
            for name, size in asked.items()
        }
        data, fsdp, tensor = sizes.values()
        require(
            data * fsdp * tensor == num_devices,
            f"the mesh of training.parallel ({asked}) must have as many devices as "
            f"there are, got {known} for {num_devices}; --training.parallel.data -1 "
            "takes what the other axes leave.",
        )
        return data, fsdp, tensor
