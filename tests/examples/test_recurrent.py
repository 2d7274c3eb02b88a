"""The program examples/recurrent.py: a sign is remembered with an LSTM and not without."""

from __future__ import annotations

from typing import Any


def test_an_lstm_remembers_what_a_network_without_a_memory_cannot(example: Any) -> None:
    names = example("recurrent")
    settings, train = names["settings"], names["train"]
    assert train(settings(), 10) < 0.5
    assert train(settings(use_lstm=True, lstm_cell_size=32, max_seq_len=8), 60) > 0.95
