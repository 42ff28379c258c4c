"""Requests have the options of their command, with the same defaults."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields

import pytest

from daskclust.app.cli import COMMANDS, command_parser
from daskclust.app.commands import requests
from daskclust.app.commands.label import fit_request
from daskclust.app.commands.predict import predict
from daskclust.app.commands.requests import LabelRequest, PredictRequest, UsageError


@pytest.mark.parametrize("name", COMMANDS)
def test_a_request_has_the_options_of_its_command(name: str) -> None:
    kind, parser = getattr(requests, f"{name.capitalize()}Request"), command_parser(name)
    options = {action.dest: action for action in parser.actions}
    # How results are printed, and what is done in place of the command.
    assert {each.name for each in fields(kind)} == options.keys() - {"help", "json", "compile"}
    for each in fields(kind):
        if each.default is not MISSING:
            assert (parser.get_default(each.name) or None) == (each.default or None)
    assert not [name for name, action in options.items() if action.help == argparse.SUPPRESS]


def test_save_map_makes_the_fit_of_the_labels() -> None:
    request = fit_request(
        LabelRequest(cube="s.tif", labels="l.geojson", output="s_map.tif", seed=3)
    )
    assert (request.estimator, request.labels, request.seed) == ("label-spreading", "l.geojson", 3)
    assert (request.class_column, request.cube) == ("class", "s.tif")
    assert (request.uncertainty, request.model) == ("s_map_margin.tif", "s_map_model.zarr")


def test_wrong_options_raise_in_python() -> None:
    with pytest.raises(UsageError, match="--model is required"):
        predict(PredictRequest(cube="s.tif", output="map.tif"))
