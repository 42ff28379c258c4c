"""The default strength of smoothing on scenes with a truth: it loses next to nothing."""

from __future__ import annotations

import numpy as np
import pytest
from smoothing import LABELS, SCENES, indexes

#: The index that may be lost on the mean of the draws.
LOSS = 0.003


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("labels", LABELS)
def test_the_default_loses_nothing(scene, labels, data_dir):
    if not (data_dir / "data" / f"hsi_{scene}.npz").is_file():
        pytest.skip("the data are not here")
    before, after = np.array(indexes(scene, labels, (0.5,))).T
    assert np.mean(after - before) >= -LOSS
