"""A model laid out: its layers and tensors with the devices that they are on."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.gguf.header import Header
from llamaherd.memory import ik
from llamaherd.memory.layers import Layer, layers
from llamaherd.memory.placement import Placement
from llamaherd.memory.weights import LayerPlaces, Placed, placed_tensors


@dataclass(frozen=True)
class Laid:
    """What the parts of an estimate are computed from. `trunk` are the layers that every token passes."""

    header: Header
    placement: Placement
    places: LayerPlaces
    trunk: tuple[Layer, ...]
    heads: tuple[Layer, ...]
    tensors: tuple[Placed, ...]


def lay_out(header: Header, placement: Placement) -> Laid:
    """The model as the engine lays it out. Raises KeyError as `placed` does."""
    places = places_of(header, placement)
    every = layers(header)
    return Laid(
        header,
        placement,
        places,
        trunk=tuple(layer for layer in every if not layer.head),
        heads=tuple(layer for layer in every if layer.head),
        tensors=tuple(placed_tensors(header, placement, places)),
    )


def places_of(header: Header, placement: Placement) -> LayerPlaces:
    """The device of every layer, the output layer being the last."""
    if placement.does.cuts_by_bytes:
        return ik.layer_devices(header, placement)
    return placement.layer_devices(header.layers)
