"""Conversion of checkpoints of the authors' own code (cambridge-mlg/tnp and /tetnp) to our models.

Where their layers differ from ours, the difference is linear and is absorbed into the weights:

- Their flag is 1 for missing values, ours (one per channel) for observed ones: `w (1 - o) + b` is `-w o + (w + b)`.
- The inputs of their `rho` are `(x_q - x_k, scores)`, those of ours `(scores, x_q - x_k)`; its last bias cancels in the
  softmax.
- Their `phi` has one output, ours one per head, which are summed: the others are zero.
- With a single head of full size they have no `to_out`: ours is then the identity.
- Entries of their state dict that their forward pass does not use are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftnp.models import PTTNP, TEPTTNP, TETNP, TNP, NeuralProcess

STACKS = {
    # their model: {their layers: ours}
    "tnp": {"mhsa_layers": "context", "mhca_layers": "target"},
    "ist": {
        "mhca_ctoq_layers": "pseudo_from_context",
        "mhca_qtoc_layers": "context_from_pseudo",
        "mhca_qtot_layers": "target",
    },
    "perceiver": {
        "mhca_ctoq_layers": "pseudo_from_context",
        "mhsa_layers": "pseudo_self",
        "mhca_qtot_layers": "target",
    },
}
NAMES = ("tnp", "pt_tnp_ist", "pt_tnp_perceiver", "te_tnp", "te_pt_tnp_ist", "te_pt_tnp_perceiver")


def load_official(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> NeuralProcess:
    """Converts one of the authors' models to ours, in the dtype of its weights.

    Args:
        config: `model` (one of `tnp`, `pt_tnp_ist`, `pt_tnp_perceiver` and these three with `te_` before them),
            `dx`, `dy`, `embed_dim`, `num_heads`, `head_dim`, `num_layers`; for pseudo-token models `num_pseudo`; for
            TE models `location_update` and `attention_init` (False if missing).
        weights: the state dict of their model.
    """
    name = config.get("model")
    if name not in NAMES:
        raise ValueError(f"config['model'] must be one of {', '.join(NAMES)}, got {name!r}.")
    missing = [k for k in ("dx", "dy", "embed_dim", "num_heads", "head_dim", "num_layers") if k not in config]
    if "pt" in name and "num_pseudo" not in config:
        missing.append("num_pseudo")
    if missing:
        raise ValueError(f"config lacks {', '.join(missing)}.")
    model = _build(name, config)
    read = _Reader({k.removeprefix("model."): torch.as_tensor(v) for k, v in weights.items()})
    state = _convert(name, read, {k: v.shape for k, v in model.state_dict().items()})
    for key, ours in model.state_dict().items():
        if state[key].shape != ours.shape:
            raise ValueError(
                f"weights do not fit the config: {key} needs shape {tuple(ours.shape)}, got {tuple(state[key].shape)}."
            )
    if unread := read.unread(config["num_layers"]):
        raise ValueError(f"weights hold {unread[0]!r} and {len(unread) - 1} more that the config has no place for.")
    model = model.to(next(iter(state.values())).dtype)
    model.load_state_dict(state)
    return model


def _build(name: str, config: Mapping[str, Any]) -> NeuralProcess:
    sizes: dict[str, Any] = {
        "dx": config["dx"],
        "dy": config["dy"],
        "dz": config["embed_dim"],
        "heads": config["num_heads"],
        "head_dim": config["head_dim"],
        "layers": config["num_layers"],
        "ff_layers": 1,
        "variance_floor": 0.0,
    }
    relative: dict[str, Any] = {
        "location_update": bool(config.get("location_update", False)),
        "target_token": "encoded",
    }
    initialiser = "attention" if config.get("attention_init", False) else "mean"
    style = name.rsplit("_", 1)[-1]
    if name == "tnp":
        return TNP(**sizes)
    if name == "te_tnp":
        return TETNP(**sizes, **relative)
    if name.startswith("pt_tnp"):
        return PTTNP(**sizes, style=style, pseudo=config["num_pseudo"])
    return TEPTTNP(**sizes, **relative, style=style, pseudo=config["num_pseudo"], initialiser=initialiser)


class _Reader:
    """The authors' weights by name, with an error for a missing one and a record of those that were read."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights
        self.seen: set[str] = set()

    def __call__(self, key: str) -> Tensor:
        theirs = self.get(key)
        if theirs is None:
            raise ValueError(f"weights lack {key!r}: does the config fit this checkpoint?")
        return theirs

    def get(self, key: str) -> Tensor | None:
        self.seen.add(key)
        return self.weights.get(key)

    def unread(self, layers: int) -> list[str]:
        """Names of weights that were not read, except those that have no effect in their code either."""
        last = layers - 1
        unused = re.compile(
            rf".*\.mhca_qtoc_layers\.{last}\..*"  # the last pseudo-to-context layer
            rf"|.*\.(mhca_layers|mhca_qtot_layers)\.{last}\.attn\.phi\..*"  # the last location update of the targets
            r"|.*\.attn\.kernel\.net\.4\.bias"  # cancels in the softmax
            r"|.*\.pseudo_token_initialiser\.(to_out\..*|raw_head_weights)"  # the latter with one head
        )
        return [key for key in self.weights if key not in self.seen and not unused.fullmatch(key)]


def _convert(name: str, read: _Reader, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """Our state dict, with every entry computed from theirs."""
    relative = name.startswith("te_")
    encoder = "encoder.y_encoder" if relative else "encoder.xy_encoder"
    layers = STACKS["tnp" if name.endswith("tnp") else name.rsplit("_", 1)[-1]]
    stack = "encoder.transformer_encoder"
    pseudo = {
        "stack.pseudo.u": f"{stack}.latent_tokens" if relative else f"{stack}.latents",
        "stack.pseudo.v0": f"{stack}.latent_inputs",
        "stack.pseudo.psi.head_logits": f"{stack}.pseudo_token_initialiser.raw_head_weights",
        "stack.pseudo.psi.to_q.weight": f"{stack}.pseudo_token_initialiser.to_q.weight",
        "stack.pseudo.psi.to_k.weight": f"{stack}.pseudo_token_initialiser.to_k.weight",
    }
    theirs_of = {ours: theirs for theirs, ours in layers.items()}

    def entry(key: str, shape: torch.Size) -> Tensor:
        if key in pseudo:
            return read(pseudo[key])
        if match := re.fullmatch(r"decoder\.layers\.(\d)\.(\w+)", key):
            return read(f"decoder.z_decoder.net.{2 * int(match[1])}.{match[2]}")
        if match := re.fullmatch(r"tokens\.encoder\.layers\.(\d)\.(\w+)", key):
            return _token_layer(read, encoder, int(match[1]), match[2], shape)
        match = re.fullmatch(r"stack\.(\w+)\.(\d+)\.(.+)", key)
        assert match is not None, key
        return _block_entry(read, f"{stack}.{theirs_of[match[1]]}.{match[2]}", match[3], shape)

    return {key: entry(key, shape) for key, shape in shapes.items()}


def _token_layer(read: _Reader, encoder: str, layer: int, kind: str, shape: torch.Size) -> Tensor:
    theirs = read(f"{encoder}.net.{2 * layer}.{kind}")
    if layer > 0:
        return theirs
    flag = read(f"{encoder}.net.0.weight")[:, -1]  # added by their code if nothing is observed
    if kind == "bias":
        return theirs + flag
    values = theirs[:, :-1]
    channels = shape[1] - values.shape[1]
    return torch.cat([values, -flag[:, None].expand(-1, channels) / channels], 1)


def _block_entry(read: _Reader, block: str, key: str, shape: torch.Size) -> Tensor:
    part, _, kind = key.rpartition(".")
    if part in ("norm_attention", "norm_ff"):
        return read(f"{block}.{'norm1' if part == 'norm_attention' else 'norm2'}.{kind}")
    if match := re.fullmatch(r"ff\.layers\.(\d)", part):
        return read(f"{block}.ff_block.{3 * int(match[1])}.{kind}")
    if match := re.fullmatch(r"attention\.(rho|phi)\.layers\.(\d)", part):
        net, layer = ("kernel" if match[1] == "rho" else "phi"), int(match[2])
        theirs = read(f"{block}.attn.{net}.net.{2 * layer}.{kind}")
        if match[1] == "rho" and layer == 0 and kind == "weight":  # differences first in theirs, scores first in ours
            dims = theirs.shape[1] - read(f"{block}.attn.kernel.net.4.weight").shape[0]
            return torch.cat([theirs[:, dims:], theirs[:, :dims]], 1)
        if match[1] == "phi" and layer == 2:
            return torch.cat([theirs, theirs.new_zeros(shape[0] - len(theirs), *theirs.shape[1:])])
        return theirs
    if part == "attention.heads.to_out":
        theirs_or_none = read.get(f"{block}.attn.to_out.0.{kind}")
        if theirs_or_none is not None:
            return theirs_or_none
        like = read(f"{block}.attn.to_v.weight")
        return torch.eye(shape[0]).to(like) if kind == "weight" else like.new_zeros(shape)
    return read(f"{block}.attn.{part.removeprefix('attention.heads.')}.{kind}")


class _Inert:
    """Placeholder for any other class or function in a pickled checkpoint: it accepts all calls and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __new__(cls, *args: Any, **kwargs: Any) -> _Inert:
        return super().__new__(cls)

    def __call__(self, *args: Any, **kwargs: Any) -> _Inert:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return other is _Inert  # torch calls only what equals one of the classes declared safe; instances are safe, too

    __hash__ = object.__hash__


def _plain_dict(*args: Any) -> dict[Any, Any]:
    """Replaces a defaultdict by a plain dict, the only mapping that torch's unpickler fills."""
    return {}


def read_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """The state dict in one of the authors' Lightning `.ckpt` files, for `load_official`.

    No pickled code is run: the file is read with torch's `weights_only`, and everything that is not a tensor or a plain
    container becomes a placeholder (their files contain the whole model as a hyperparameter).
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"There is no checkpoint at {path}.")
    try:
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        harmless: list[Any] = [(_plain_dict if name == "collections.defaultdict" else _Inert, name) for name in unsafe]
        with torch.serialization.safe_globals(harmless):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} cannot be read safely as a torch checkpoint ({type(error).__name__}).") from error
    state = checkpoint.get("state_dict", checkpoint) if isinstance(checkpoint, dict) else None
    if not isinstance(state, Mapping) or not state or not all(isinstance(v, Tensor) for v in state.values()):
        raise ValueError(f"{path} holds no state_dict: is it a Lightning checkpoint?")
    return {key.removeprefix("model."): value for key, value in state.items()}
