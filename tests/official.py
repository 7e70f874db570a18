"""The authors' models once more, as one function of their state dict: what `shiftnp.compat` is checked against at
sizes for which there is no golden file. Checked itself against the golden files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, softplus

STACK = "encoder.transformer_encoder"


def mlp(w: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    for i in (0, 2, 4):
        x = linear(x, w[f"{name}.net.{i}.weight"], w[f"{name}.net.{i}.bias"])
        x = x.relu() if i < 4 else x
    return x


def block(w, name, cfg, q, k):
    """One pre-norm layer of theirs; `q` and `k` are pairs of tokens and (in TE models) places."""
    (zq, xq), (zk, xk) = q, k
    heads, d = cfg["num_heads"], cfg["head_dim"]
    norm = w[f"{name}.norm1.weight"], w[f"{name}.norm1.bias"]
    nq, nk = (layer_norm(z, z.shape[-1:], *norm) for z in (zq, zk))
    query, key, value = (
        linear(z, w[f"{name}.attn.to_{p}.weight"]).unflatten(-1, (heads, d))
        for z, p in ((nq, "q"), (nk, "k"), (nk, "v"))
    )
    logits = torch.einsum("bqhd,bkhd->bqkh", query, key) / d**0.5
    if xq is not None:
        gap = xq[:, :, None] - xk[:, None]
        logits = mlp(w, f"{name}.attn.kernel", torch.cat([gap, logits], -1))
    alpha = logits.softmax(2)
    out = torch.einsum("bqkh,bkhd->bqhd", alpha, value).flatten(2)
    if f"{name}.attn.to_out.0.weight" in w:
        out = linear(out, w[f"{name}.attn.to_out.0.weight"], w[f"{name}.attn.to_out.0.bias"])
    if f"{name}.attn.phi.net.0.weight" in w:
        xq = xq + (gap * mlp(w, f"{name}.attn.phi", alpha)).mean(2)
    z = zq + out
    h = layer_norm(z, z.shape[-1:], w[f"{name}.norm2.weight"], w[f"{name}.norm2.bias"])
    h = linear(h, w[f"{name}.ff_block.0.weight"], w[f"{name}.ff_block.0.bias"]).relu()
    return z + linear(h, w[f"{name}.ff_block.3.weight"], w[f"{name}.ff_block.3.bias"]), xq


def predict(cfg: Mapping[str, Any], w: Mapping[str, Tensor], xc, yc, xt) -> tuple[Tensor, Tensor]:
    te, layers = cfg["model"].startswith("te_"), range(cfg["num_layers"])
    flag_c, flag_t = yc.new_zeros(*xc.shape[:2], 1), yc.new_ones(*xt.shape[:2], 1)
    zeros = yc.new_zeros(*xt.shape[:2], yc.shape[-1])
    if te:
        c = mlp(w, "encoder.y_encoder", torch.cat([yc, flag_c], -1)), xc
        t = mlp(w, "encoder.y_encoder", torch.cat([zeros, flag_t], -1)), xt
    else:
        c = mlp(w, "encoder.xy_encoder", torch.cat([xc, yc, flag_c], -1)), None
        t = mlp(w, "encoder.xy_encoder", torch.cat([xt, zeros, flag_t], -1)), None

    def run(kind, i, q, k):
        return block(w, f"{STACK}.{kind}.{i}", cfg, q, k)

    if cfg["model"].endswith("tnp"):
        for i in layers:
            c = run("mhsa_layers", i, c, c)
            t = run("mhca_layers", i, t, c)
    else:
        u = start_pseudo(cfg, w, c, te)
        for i in layers:
            u = run("mhca_ctoq_layers", i, u, c)
            if cfg["model"].endswith("perceiver"):
                u = run("mhsa_layers", i, u, u)
            t = run("mhca_qtot_layers", i, t, u)
            if cfg["model"].endswith("ist") and i < len(layers) - 1:
                c = run("mhca_qtoc_layers", i, c, u)
    mean, raw = mlp(w, "decoder.z_decoder", t[0]).chunk(2, -1)
    return mean, softplus(raw).sqrt()


def start_pseudo(cfg, w, c, te):
    b = len(c[0])
    if not te:
        return w[f"{STACK}.latents"].expand(b, -1, -1), None
    u, v = w[f"{STACK}.latent_tokens"].expand(b, -1, -1), w[f"{STACK}.latent_inputs"]
    if not cfg["attention_init"]:
        return u, v + c[1].mean(1, keepdim=True)
    name, heads = f"{STACK}.pseudo_token_initialiser", cfg["num_heads"]
    query, key = (linear(z, w[f"{name}.to_{p}.weight"]).unflatten(-1, (heads, -1)) for z, p in ((u, "q"), (c[0], "k")))
    alpha = (torch.einsum("bmhd,bnhd->bmnh", query, key) / cfg["head_dim"] ** 0.5).softmax(2)
    return u, v + (alpha @ w[f"{name}.raw_head_weights"].softmax(0)) @ c[1]


def random_weights(cfg: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """A state dict of theirs, dead entries included, for any configuration."""
    g = torch.Generator().manual_seed(seed)
    te, dx, dy, e, heads = cfg["model"].startswith("te_"), cfg["dx"], cfg["dy"], cfg["embed_dim"], cfg["num_heads"]
    inner, layers = heads * cfg["head_dim"], cfg["num_layers"]
    w: dict[str, Tensor] = {}

    def put(name, *shape):
        w[name] = torch.randn(shape, generator=g, dtype=torch.float64) / max(1, shape[-1]) ** 0.5

    def put_linear(name, d_in, d_out):
        put(f"{name}.weight", d_out, d_in)
        put(f"{name}.bias", d_out)

    def put_mlp(name, d_in, d_out):
        for i, (a, b) in enumerate(((d_in, e), (e, e), (e, d_out))):
            put_linear(f"{name}.net.{2 * i}", a, b)

    def put_block(name):
        for p in "qkv":
            put(f"{name}.attn.to_{p}.weight", inner, e)
        if not (heads == 1 and cfg["head_dim"] == e):
            put_linear(f"{name}.attn.to_out.0", inner, e)
        if te:
            put_mlp(f"{name}.attn.kernel", dx + heads, heads)
            if cfg["location_update"]:
                put_mlp(f"{name}.attn.phi", heads, 1)
        put_linear(f"{name}.ff_block.0", e, e)
        put_linear(f"{name}.ff_block.3", e, e)
        for norm in ("norm1", "norm2"):
            put(f"{name}.{norm}.weight", e)
            put(f"{name}.{norm}.bias", e)

    kinds = {
        "tnp": ("mhsa_layers", "mhca_layers"),
        "ist": ("mhca_ctoq_layers", "mhca_qtoc_layers", "mhca_qtot_layers"),
        "perceiver": ("mhca_ctoq_layers", "mhsa_layers", "mhca_qtot_layers"),
    }
    for kind in kinds[cfg["model"].rsplit("_", 1)[-1]]:
        for i in range(layers - (kind == "mhca_qtoc_layers" and not te)):
            put_block(f"{STACK}.{kind}.{i}")
    if "pt_" in cfg["model"]:
        put(f"{STACK}.{'latent_tokens' if te else 'latents'}", cfg["num_pseudo"], e)
        if te:
            put(f"{STACK}.latent_inputs", cfg["num_pseudo"], dx)
        if te and cfg["attention_init"]:
            for p in "qk":
                put(f"{STACK}.pseudo_token_initialiser.to_{p}.weight", inner, e)
            put(f"{STACK}.pseudo_token_initialiser.raw_head_weights", heads)
            put_linear(f"{STACK}.pseudo_token_initialiser.to_out.0", inner, e)
    put_mlp("encoder.y_encoder" if te else "encoder.xy_encoder", (0 if te else dx) + dy + 1, e)
    put_mlp("decoder.z_decoder", e, 2 * dy)
    return w
