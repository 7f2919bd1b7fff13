"""What the fields of a config must fulfil, in one sentence each."""

from __future__ import annotations


def require(condition: bool, message: str) -> None:
    """Raises ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def require_positive(config: object, *names: str) -> None:
    """Raises unless all named fields are greater than 0."""
    for name in names:
        value = getattr(config, name)
        require(
            value > 0,
            f"{type(config).__name__}.{name} must be greater than 0, got {value}.",
        )


def require_rate(config: object, *names: str) -> None:
    """Raises unless all named fields are in [0, 1)."""
    for name in names:
        value = getattr(config, name)
        require(
            0.0 <= value < 1.0,
            f"{type(config).__name__}.{name} must be in [0, 1), got {value}.",
        )


def require_at_most(config: object, most: int, *names: str) -> None:
    """Raises unless no named field is greater than the bound."""
    for name in names:
        value = getattr(config, name)
        require(
            value <= most,
            f"{type(config).__name__}.{name} must be at most {most:,}, got {value:,}.",
        )
