"""Where Reef's time goes: looks every few milliseconds which of Reef's functions is at work, and what it called."""

from __future__ import annotations

import signal
from collections import Counter
from types import FrameType

from benchmarks.peers.protocol import answer, arguments, measure
from benchmarks.peers.reef import configuration, training

PERIOD_S = 0.004


def place(frame: FrameType | None) -> str:
    """Return "reef.module:function" of the innermost function of Reef, with what it called in another library."""
    called = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("reef."):
            return f"{module}:{frame.f_code.co_name}{called}"
        called = f" > {module.split('.')[0]} {frame.f_code.co_name}"
        frame = frame.f_back
    return "other"


if __name__ == "__main__":
    ARGS = arguments()
    SEEN: Counter[str] = Counter()
    with configuration(ARGS).build() as ALGORITHM:
        ITERATION = training(ALGORITHM)
        ITERATION()
        signal.signal(signal.SIGALRM, lambda _, frame: SEEN.update([place(frame)]))
        signal.setitimer(signal.ITIMER_REAL, PERIOD_S, PERIOD_S)
        RESULT = measure(ITERATION, ARGS["measure_s"])
        signal.setitimer(signal.ITIMER_REAL, 0)
    TOTAL = SEEN.total()
    SHARES = {name: count / TOTAL for name, count in SEEN.most_common(20)}
    answer({**RESULT, "shares": SHARES}, "reef", "torch")
