"""Pseudo-spectral solver of the forced two-dimensional Navier-Stokes equations on a periodic square, in torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from shiftnp.tasks.base import generator_for


@dataclass(frozen=True)
class NavierStokes:
    """Incompressible flow on `[0, 2 pi]^2` in terms of its vorticity `w = dv/dx - du/dy`,

        dw/dt + u . grad w = viscosity lap w - drag w - forcing q cos(q y),

    the curl of a momentum equation with force `forcing sin(q y)` along x. Fields are `[b, x, y]` on `n x n` points. The
    state is the Fourier coefficients of `w`, with `|k| <= (n - 1) // 3` so that products have no aliases (the 2/3 rule,
    with a circular cut-off); columns of larger `ky` are not stored. The mean velocity is zero.

    Viscosity and drag are integrated exactly by an integrating factor, the rest by the classical Runge-Kutta scheme of
    fourth order (RK4). It is stable up to `h k_max max |u| = 2.83` with 4 evaluations: the same step per evaluation as
    third-order Adams-Bashforth, with a far smaller error. An evaluation takes four real transforms:

        u . grad w = d^2/dxdy (v^2 - u^2) + (d^2/dx^2 - d^2/dy^2) (u v).

    Args:
        n: grid points along each side.
        wavenumber: `q` of the force.
        courant: Courant number `h k_max max |u|`, which determines the time step. Fields of one batch share it.
    """

    n: int = 256
    viscosity: float = 1e-3
    drag: float = 0.1
    forcing: float = 1.0
    wavenumber: int = 4
    courant: float = 2.0
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not 0 < self.courant < 2.8:
            raise ValueError(f"`courant` is {self.courant}, but steps are stable only between 0 and 2.8.")
        if self.forcing and self.wavenumber > self.k_max:
            raise ValueError(f"A grid of {self.n} points cannot carry a force of wavenumber {self.wavenumber}.")

    @property
    def k_max(self) -> int:
        """The largest wavenumber kept."""
        return (self.n - 1) // 3

    @cached_property
    def k(self) -> tuple[Float[Tensor, "n 1"], Float[Tensor, "1 m"]]:
        """Wavenumbers along x and y."""
        kx = torch.fft.fftfreq(self.n, 1 / self.n, dtype=torch.float64, device=self.device)
        ky = torch.arange(self.k_max + 1, dtype=torch.float64, device=self.device)
        return kx[:, None], ky[None, :]

    @cached_property
    def kept(self) -> Float[Tensor, "n m"]:
        """One where a wavenumber is kept, zero at the mean and beyond `k_max`."""
        k2 = self.k[0] ** 2 + self.k[1] ** 2
        return ((k2 > 0) & (k2 <= self.k_max**2)).double()

    @cached_property
    def damping(self) -> Float[Tensor, "n m"]:
        """`viscosity k^2 + drag`, the decay rate of a coefficient due to viscosity and drag."""
        return (self.viscosity * (self.k[0] ** 2 + self.k[1] ** 2) + self.drag).to(self.dtype)

    @cached_property
    def biot_savart(self) -> Complex[Tensor, "2 n m"]:
        """Coefficients of the velocity from those of the vorticity: `(i ky, -i kx) / k^2`."""
        kx, ky = self.k
        k2 = (kx**2 + ky**2).clamp(min=1)
        return self._complex(1j * torch.stack([ky / k2 * self.kept, -kx / k2 * self.kept]))

    @cached_property
    def advection(self) -> Complex[Tensor, "2 n m"]:
        """Coefficients of `-u . grad w` from those of `v^2 - u^2` and `u v`: `(kx ky, kx^2 - ky^2)`."""
        kx, ky = self.k
        return self._complex(torch.stack([kx * ky * self.kept, (kx**2 - ky**2) * self.kept]))

    @cached_property
    def force(self) -> Complex[Tensor, "n m"]:
        """Coefficients of `-forcing q cos(q y)`."""
        out = torch.zeros_like(self.kept)
        if self.forcing:
            out[0, self.wavenumber] = -self.forcing * self.wavenumber / 2
        return self._complex(out)

    def _complex(self, x: Tensor) -> Tensor:
        return x.to(torch.complex64 if self.dtype == torch.float32 else torch.complex128)

    def coefficients(self, field: Float[Tensor, "*b n n"]) -> Complex[Tensor, "*b n m"]:
        """Fourier coefficients of a field, without its mean and wavenumbers beyond `k_max`."""
        return self._complex(torch.fft.rfft2(field, norm="forward")[..., : self.k_max + 1] * self.kept)

    def field(self, coefficients: Complex[Tensor, "*b n m"]) -> Float[Tensor, "*b n n"]:
        """Values on the grid."""
        # Along x first, where only the columns that are kept need a transform.
        return torch.fft.irfft(torch.fft.ifft(coefficients, dim=-2, norm="forward"), n=self.n, norm="forward")

    def velocity(self, w: Complex[Tensor, "b n m"]) -> Float[Tensor, "b 2 n n"]:
        """Velocity `(u, v)` on the grid."""
        return self.field(w[:, None] * self.biot_savart)

    def vorticity(self, u: Float[Tensor, "b 2 n n"]) -> Complex[Tensor, "b n m"]:
        """The state with velocity `u`, projected to zero divergence."""
        kx, ky = self.k
        u_hat, v_hat = self.coefficients(u.to(self.device)).unbind(1)
        return self._complex(1j * (kx * v_hat - ky * u_hat))

    def tendency(self, w: Complex[Tensor, "b n m"]) -> tuple[Complex[Tensor, "b n m"], Float[Tensor, "b 2 n n"]]:
        """`-u . grad w + force`, the time derivative without viscosity and drag, and the velocity."""
        velocity = self.velocity(w)
        u, v = velocity.unbind(1)
        products = torch.fft.rfft2(torch.stack([(v - u) * (v + u), u * v], 1), norm="forward")[..., : self.k_max + 1]
        out = torch.addcmul(self.force, products[:, 0], self.advection[0])
        return out.addcmul_(products[:, 1], self.advection[1]), velocity

    def step(self, w: Complex[Tensor, "b n m"], longest: float) -> tuple[Complex[Tensor, "b n m"], float]:
        """The state one step later, and the time step: the largest fraction `longest / i` that `courant` allows."""
        k1, velocity = self.tendency(w)
        speed = math.sqrt(float(velocity.square().sum(1).amax()))
        if not math.isfinite(speed):
            raise FloatingPointError("The flow blew up: lower `courant`, or take a finer grid or a higher viscosity.")
        h = longest / max(1, math.ceil(longest * self.k_max * speed / self.courant))
        half = torch.exp(self.damping * (-h / 2))
        half_w = half * w
        k2, _ = self.tendency(torch.addcmul(half_w, half, k1, value=h / 2))
        k3, _ = self.tendency(half_w.add(k2, alpha=h / 2))
        full_w = half * half_w
        k4, _ = self.tendency(torch.addcmul(full_w, half, k3, value=h))
        decayed = half * (half * k1 + 2 * (k2 + k3))
        return full_w.add_(decayed.add_(k4), alpha=h / 6), h

    def advance(self, w: Complex[Tensor, "b n m"], time: float) -> Complex[Tensor, "b n m"]:
        """The state after `time`."""
        while time > 0:
            w, h = self.step(w, time)
            time = 0.0 if h == time else time - h
        return w

    def snapshots(self, w: Complex[Tensor, "b n m"], count: int, interval: float) -> Iterator[Complex[Tensor, "b n m"]]:
        """The states after `interval, 2 interval, ..., count interval`."""
        for _ in range(count):
            w = self.advance(w, interval)
            yield w

    def random(
        self, batch_size: int, generator: torch.Generator, peak: float, speed: float
    ) -> Complex[Tensor, "b n m"]:
        """Random states whose velocity is strongest near wavenumber `peak` and nowhere faster than `speed`.

        As jax-cfd's `filtered_velocity_field`: white noise in both components of the velocity, multiplied at wavenumber
        `k` by the density of a log-normal variable (mode `peak`, variance 1/4 of its logarithm) over `k`, made free of
        divergence, and scaled to the maximum speed. Of such noise, incompressibility leaves the component across `k`:
        one white field, so that the vorticity, `k` times it, is white noise times the log-normal density.
        """
        noise = torch.randn(batch_size, self.n, self.n, generator=generator, dtype=torch.float64).to(self.device)
        k = (self.k[0] ** 2 + self.k[1] ** 2).sqrt().clamp(min=1)
        density = torch.exp(-((k.log() - math.log(peak) - 0.25) ** 2) / (2 * 0.25)) / k
        w = self.coefficients(noise) * density
        fastest = self.velocity(self._complex(w)).square().sum(1).amax((1, 2)).sqrt()
        return self._complex(w * (speed / fastest[:, None, None]))


@dataclass(frozen=True)
class Simulation:
    """Settings of a simulation of Kolmogorov flow. The defaults are those of the paper's data.

    Args:
        seed: random seed; trajectory `i` depends on `(seed, i)` only.
        n, coarse: grid points along each side of the solver, and of the stored fields (means of square cells).
        peak, speed: peak wavenumber and maximum speed of the initial velocity.
        snapshots, kept, interval: number of states, `interval` apart, of which the last `kept` are stored.
        precision: floating-point precision of the solver. The flow is chaotic: with another precision or CPU,
            trajectories diverge after a while; their statistics are the same.
    """

    seed: int = 0
    n: int = 256
    coarse: int = 64
    viscosity: float = 1e-3
    drag: float = 0.1
    forcing: float = 1.0
    wavenumber: int = 4
    peak: float = 4
    speed: float = 3
    snapshots: int = 128
    kept: int = 64
    interval: float = 0.2
    courant: float = 2.0
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("n", "coarse", "wavenumber", "peak", "speed", "interval"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` is {getattr(self, name)}, but must be positive.")
        for name in ("viscosity", "drag"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` is {getattr(self, name)}, but must not be negative.")
        if self.n % self.coarse:
            raise ValueError(f"`coarse` is {self.coarse}, but cells must divide the grid of {self.n} points evenly.")
        if not 0 < self.kept <= self.snapshots:
            raise ValueError(f"`kept` is {self.kept}, but must lie between 1 and the {self.snapshots} `snapshots`.")
        if self.precision not in ("float32", "float64"):
            raise ValueError(f"`precision` is {self.precision!r}, but must be 'float32' or 'float64'.")

    def solver(self) -> NavierStokes:
        """The solver with these settings."""
        return NavierStokes(
            self.n,
            self.viscosity,
            self.drag,
            self.forcing,
            self.wavenumber,
            self.courant,
            getattr(torch, self.precision),
        )

    def trajectory(self, index: int) -> Float[Tensor, "kept 2 coarse coarse"]:
        """Velocities of trajectory `index`: time, component, x, y; in float32."""
        solver = self.solver()
        w = solver.random(1, generator_for(self.seed, index), self.peak, self.speed)
        fields = []
        for i, state in enumerate(solver.snapshots(w, self.snapshots, self.interval)):
            if i >= self.snapshots - self.kept:
                fields.append(torch.nn.functional.avg_pool2d(solver.velocity(state), self.n // self.coarse))
        return torch.cat(fields).float()
