"""The command `shiftnp export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from shiftnp.cli.settings import UsageError


@dataclass(frozen=True)
class Export:
    """Writes a model as an ONNX file, for programs without torch.

    For instance: shiftnp export 1d --out model.onnx. The file takes any number of tasks, context points and targets;
    onnxruntime's predictions are compared with torch's before it is written.
    """

    model: Positional[Annotated[str, arg(metavar="RUN|1d|2d|3d")]]
    """Folder of a run or of pretrained weights; or 1d, 2d, 3d: the pretrained weights in the package for so many
    inputs."""
    out: Annotated[Path, arg(metavar="FILE")] = Path("model.onnx")
    """File to write."""
    cells: int = 1024
    """Size of a ConvCNP's lattice along each input, which is fixed in a file: it must cover the data and a margin."""

    def run(self) -> None:
        """Runs the command."""
        if self.out.suffix != ".onnx":
            raise UsageError(f"--out must end in .onnx, got {self.out}.")
        from shiftnp.onnx_file import open_model, write_onnx

        model, notes = open_model(self.model)
        difference = write_onnx(model, self.out, self.cells, notes)
        size = self.out.stat().st_size / 1e6
        print(f"{self.out}: {size:.1f} MB; predictions of onnxruntime and torch agree to {difference:.1g}.")
