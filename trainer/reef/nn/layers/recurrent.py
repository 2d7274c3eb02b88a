"""An LSTM or a GRU over sequences that may contain several episodes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

CELLS: dict[str, tuple[type[nn.LSTM | nn.GRU], tuple[str, ...]]] = {
    "lstm": (nn.LSTM, ("h", "c")),
    "gru": (nn.GRU, ("h",)),
}

# cuDNN wants a cell's weights first in a storage of their own, and copies them at each call; FlatParameters keeps all
# parameters of a network in one storage, which every other use of them needs.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")


class RecurrentCell(nn.Module):
    """Features of sequences [S, L, in] -> [S, L, size]; the state has one part [S, size] for each of its `names`.

    LSTM: Hochreiter and Schmidhuber 1997, with a forget gate; GRU: Cho et al. 2014.
    """

    def __init__(self, kind: str, in_features: int, size: int) -> None:
        """`kind`: one of CELLS. Weights are orthogonal, biases 0."""
        super().__init__()
        make, self.names = CELLS[kind]
        self.cell = make(in_features, size, batch_first=True)
        self.out_features = size
        self.state_shapes = dict.fromkeys(self.names, (size,))
        for name, parameter in self.cell.named_parameters():
            nn.init.orthogonal_(parameter) if name.startswith("weight") else nn.init.zeros_(parameter)

    def forward(
        self,
        x: Tensor,  # [S, L, in]
        begins: Tensor | None,  # [S, L] bool: an episode starts with this step; None: nowhere
        state: Mapping[str, Tensor],  # before the first step
        *,
        acting: bool,  # no effect: the memory is the same in training
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the features, and the state after the last step.

        Between two steps at which an episode starts, all sequences run in one call.
        """
        parts = [state[name].unsqueeze(0) for name in self.names]
        starts = [] if begins is None else begins.any(0).nonzero().flatten().tolist()
        outputs = []
        for start, stop in itertools.pairwise(sorted({0, *starts, x.shape[1]})):
            if begins is not None and start in starts:
                goes_on = ~begins[:, start].unsqueeze(-1)
                parts = [part * goes_on for part in parts]
            hidden = tuple(parts) if len(parts) > 1 else parts[0]
            output, hidden = self.cell(x[:, start:stop], hidden)
            parts = list(hidden) if len(parts) > 1 else [hidden]
            outputs.append(output)
        found = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
        return found, {name: part.squeeze(0) for name, part in zip(self.names, parts, strict=True)}
