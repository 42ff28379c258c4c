"""The recipe for MLflow in the documentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import daskclust

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "pipelines.md"


@pytest.mark.filterwarnings("ignore")  # those of MLflow
def test_a_saved_model_is_served(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    recipe = PAGE.read_text().split("## Serve a model with MLflow")[1]
    code = tmp_path / "served_clusters.py"
    code.write_text(recipe.split("```py\n")[1].split("```")[0])
    features = pd.DataFrame(np.random.default_rng(0).random((200, 3)), columns=list("abc"))
    model = daskclust.KMeans(3, random_state=0).fit(features)
    model.save(tmp_path / "model.zarr")
    mlflow.pyfunc.save_model(
        tmp_path / "served",
        python_model=str(code),
        artifacts={"model": str(tmp_path / "model.zarr")},
        pip_requirements=["daskclust"],
    )
    assert not list((tmp_path / "served").rglob("*.pkl"))
    served = mlflow.pyfunc.load_model(str(tmp_path / "served"))
    np.testing.assert_array_equal(served.predict(features), model.predict(features))
