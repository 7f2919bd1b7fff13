"""The first process writes, the others keep quiet."""

import jax

from attnjax.training.observers import default_hooks


def test_only_the_first_process_has_observers(tmp_path, monkeypatch):
    names = [type(hook).__name__ for hook in default_hooks(tmp_path)]
    assert names == ["ProgressBar", "MetricsLog", "TensorBoard"]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    assert default_hooks(tmp_path) == ()
