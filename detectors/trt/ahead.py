"""Engines for cards that are elsewhere, built without a GPU or driver."""

from __future__ import annotations

from collections.abc import Sequence

from detectors.port import Options, cache_folder
from detectors.trt.builder import builder
from detectors.trt.cards import joined
from detectors.trt.engine import EngineStore
from detectors.trt.library import Library
from detectors.trt.model_file import ModelFile
from detectors.trt.recipe import Target


def build_ahead(library: Library, options: Options, architectures: Sequence[str]) -> str:
    """Build a model's engine unless it is in the store; returns its key.

    Raises:
        DetectorError: the model cannot be used, or not in this precision on these cards.
    """
    recipe = ModelFile(options).recipe(options, Target(library.builder, "", joined(architectures)))
    store = EngineStore(cache_folder(options.cache) / "engines")
    store.get_or_build(options.path, recipe, builder(store.folder, options.device), bytes)  # it is loaded elsewhere
    return recipe.key
