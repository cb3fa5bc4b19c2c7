"""VITS inference (Kim et al. 2021) as functions of named weights; tensors are [1, channels, time]."""

import math

import torch
from torch.nn import functional as F

HIDDEN = 192
HEADS = 2
WINDOW = 4
SPLINE_BINS = 10
SPLINE_TAIL = 5.0
UPSAMPLE = ((16, 8), (16, 8), (8, 4))
RESBLOCKS = ((3, (1, 2)), (5, (2, 6)), (7, (3, 12)))


class Vits:
    def __init__(self, weights):
        self.weights = weights

    def conv(self, name, x, dilation=1, groups=1):
        weight = self.weights[f"{name}.weight"]
        padding = (weight.shape[2] - 1) * dilation // 2
        return F.conv1d(x, weight, self.weights.get(f"{name}.bias"), padding=padding, dilation=dilation, groups=groups)

    def norm(self, name, x):
        gamma, beta = self.weights[f"{name}.gamma"], self.weights[f"{name}.beta"]
        return F.layer_norm(x.transpose(1, 2), (x.shape[1],), gamma, beta, 1e-5).transpose(1, 2)

    # Text encoder

    def encode(self, ids):
        """Return (hidden, mean, log scale) for phoneme ids, int64 [1, n]."""
        x = F.embedding(ids, self.weights["enc_p.emb.weight"]).transpose(1, 2) * math.sqrt(HIDDEN)
        for layer in range(6):
            x = self.norm(f"enc_p.encoder.norm_layers_1.{layer}", x + self.attend(layer, x))
            y = torch.relu(self.conv(f"enc_p.encoder.ffn_layers.{layer}.conv_1", x))
            y = self.conv(f"enc_p.encoder.ffn_layers.{layer}.conv_2", y)
            x = self.norm(f"enc_p.encoder.norm_layers_2.{layer}", x + y)
        mean, log_scale = self.conv("enc_p.proj", x).chunk(2, dim=1)
        return x, mean, log_scale

    def attend(self, layer, x):
        name = f"enc_p.encoder.attn_layers.{layer}"
        time = x.shape[2]
        query, key, value = (
            self.conv(f"{name}.conv_{part}", x).view(HEADS, HIDDEN // HEADS, time).transpose(1, 2) for part in "qkv"
        )
        query = query / math.sqrt(HIDDEN // HEADS)
        offsets = torch.arange(time, device=x.device)
        offsets = offsets[None, :] - offsets[:, None]
        near = (offsets.abs() <= WINDOW).to(x.dtype)
        index = offsets.clamp(-WINDOW, WINDOW) + WINDOW
        relative = query @ self.weights[f"{name}.emb_rel_k"][0].T
        scores = query @ key.transpose(1, 2) + relative.gather(2, index.expand(HEADS, -1, -1)) * near
        weights = torch.softmax(scores, dim=-1)
        by_offset = torch.zeros(HEADS, time, 2 * WINDOW + 1, device=x.device)
        by_offset.scatter_add_(2, index.expand(HEADS, -1, -1), weights * near)
        mixed = weights @ value + by_offset @ self.weights[f"{name}.emb_rel_v"][0]
        return self.conv(f"{name}.conv_o", mixed.transpose(1, 2).reshape(1, HIDDEN, time))

    # Stochastic duration predictor, run backwards

    def log_durations(self, hidden, noise):
        """Return log durations in frames, [1, 1, n], for noise [1, 2, n]."""
        x = self.conv("dp.proj", self.separable("dp.convs", self.conv("dp.pre", hidden)))
        z = noise
        for flow in (7, 5, 3):
            z = self.spline_flow(f"dp.flows.{flow}", z.flip(1), x)
        z = z.flip(1)
        return ((z - self.weights["dp.flows.0.m"]) * self.weights["dp.flows.0.scale"])[:, :1]

    def separable(self, name, x):
        for layer in range(3):
            y = self.conv(f"{name}.convs_sep.{layer}", x, dilation=3**layer, groups=x.shape[1])
            y = F.gelu(self.norm(f"{name}.norms_1.{layer}", y))
            y = F.gelu(self.norm(f"{name}.norms_2.{layer}", self.conv(f"{name}.convs_1x1.{layer}", y)))
            x = x + y
        return x

    def spline_flow(self, name, z, condition):
        kept, moved = z.chunk(2, dim=1)
        h = self.separable(f"{name}.convs", self.conv(f"{name}.pre", kept) + condition)
        h = self.conv(f"{name}.proj", h)[0].T
        widths, heights, slopes = h.split((SPLINE_BINS, SPLINE_BINS, SPLINE_BINS - 1), dim=1)
        moved = inverse_spline(moved[0, 0], widths / math.sqrt(HIDDEN), heights / math.sqrt(HIDDEN), slopes)
        return torch.cat((kept, moved[None, None]), dim=1)

    # Flow, run backwards

    def flow(self, z):
        """Return the decoder's latent for a sample of the prior, both [1, 192, frames]."""
        for flow in (6, 4, 2, 0):
            kept, moved = z.flip(1).chunk(2, dim=1)
            h = self.wavenet(f"flow.flows.{flow}.enc", self.conv(f"flow.flows.{flow}.pre", kept))
            z = torch.cat((kept, moved - self.conv(f"flow.flows.{flow}.post", h)), dim=1)
        return z

    def wavenet(self, name, x):
        skipped = torch.zeros_like(x)
        for layer in range(4):
            gated, gate = self.conv(f"{name}.in_layers.{layer}", x).chunk(2, dim=1)
            y = self.conv(f"{name}.res_skip_layers.{layer}", torch.tanh(gated) * torch.sigmoid(gate))
            if layer < 3:
                residual, skip = y.chunk(2, dim=1)
                x = x + residual
                skipped = skipped + skip
            else:
                skipped = skipped + y
        return skipped

    # Decoder

    def decode(self, z):
        """Return samples [1, 1, 256 * frames] for a latent [1, 192, frames]."""
        x = self.conv("dec.conv_pre", z)
        for stage, (kernel, stride) in enumerate(UPSAMPLE):
            x = F.conv_transpose1d(
                F.leaky_relu(x, 0.1),
                self.weights[f"dec.ups.{stage}.weight"],
                self.weights[f"dec.ups.{stage}.bias"],
                stride=stride,
                padding=(kernel - stride) // 2,
            )
            x = (
                sum(self.resblock(3 * stage + block, x, dilations) for block, (_, dilations) in enumerate(RESBLOCKS))
                / 3
            )
        return torch.tanh(self.conv("dec.conv_post", F.leaky_relu(x, 0.01)))

    def resblock(self, block, x, dilations):
        for index, dilation in enumerate(dilations):
            x = x + self.conv(f"dec.resblocks.{block}.convs.{index}", F.leaky_relu(x, 0.1), dilation)
        return x


def inverse_spline(y, widths, heights, slopes):
    """Invert a monotone rational-quadratic spline with linear tails (Durkan et al. 2019); y [n], the rest [n, bins]."""
    inside = (y >= -SPLINE_TAIL) & (y <= SPLINE_TAIL)
    edge = math.log(math.exp(1 - 1e-3) - 1)
    slopes = 1e-3 + F.softplus(F.pad(slopes, (1, 1), value=edge))
    x_knots, y_knots = knots(widths), knots(heights)
    target = y.clamp(-SPLINE_TAIL, SPLINE_TAIL)[:, None]
    index = ((target >= y_knots).sum(dim=1, keepdim=True) - 1).clamp(0, SPLINE_BINS - 1)
    x_low, width = x_knots.gather(1, index), (x_knots[:, 1:] - x_knots[:, :-1]).gather(1, index)
    y_low, height = y_knots.gather(1, index), (y_knots[:, 1:] - y_knots[:, :-1]).gather(1, index)
    slope, low, high = height / width, slopes.gather(1, index), slopes.gather(1, index + 1)
    excess = target - y_low
    bend = low + high - 2 * slope
    a = excess * bend + height * (slope - low)
    b = height * low - excess * bend
    c = -slope * excess
    root = 2 * c / (-b - torch.sqrt(b * b - 4 * a * c))
    return torch.where(inside, (root * width + x_low)[:, 0], y)


def knots(logits):
    shares = 1e-3 + (1 - 1e-3 * SPLINE_BINS) * torch.softmax(logits, dim=1)
    inner = F.pad(torch.cumsum(shares, dim=1), (1, 0)) * 2 * SPLINE_TAIL - SPLINE_TAIL
    inner[:, 0], inner[:, -1] = -SPLINE_TAIL, SPLINE_TAIL
    return inner
