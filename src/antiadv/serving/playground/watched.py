"""An engine that shows every query, and the control that pauses and stops an attack.

    control.step()  go_on()  stop()               from the threads of the server
    control.check()                               in the attack's thread: raises Stopped
    control.wait()                                in the attack's thread: returns when the attack may go on

The oracle asks an engine for all answers, and calls its watch after each. So the attack is run as it is: nothing in it
knows that it is watched.
"""

from __future__ import annotations

import threading

from torch import Tensor, nn

from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.losses import Loss


class Stopped(Exception):
    """The attack was asked to stop."""


class Control:
    """See the head of this file."""

    def __init__(self, paused: bool = False) -> None:
        self._changed = threading.Condition()
        self._paused, self._stopped, self._steps = paused, False, 0

    @property
    def paused(self) -> bool:
        return self._paused

    def step(self) -> None:
        """Go on for one more query, then pause."""
        self._set(paused=True, steps=1)

    def go_on(self) -> None:
        self._set(paused=False, steps=0)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def check(self) -> None:
        if self._stopped:
            raise Stopped

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._paused or self._steps > 0)
            self._steps = 0
        self.check()

    def _set(self, paused: bool, steps: int) -> None:
        with self._changed:
            self._paused, self._steps = paused, steps
            self._changed.notify_all()


class Watched:
    """The plain engine. `last` are the images and the scores of the last request. The judge is not watched."""

    def __init__(self, control: Control) -> None:
        self._control, self._plain = control, Eager()
        self.last: tuple[Tensor, Tensor] | None = None

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        self._control.check()
        s = self._plain.scores(model, z, draws=draws)
        self.last = z.detach(), s
        return s

    def gradient(
        self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor]:
        self._control.check()
        s, g = self._plain.gradient(model, z, loss, *targets, draws=draws)
        self.last = z.detach(), s
        return s, g

    def jacobian(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        self._control.check()
        s, j = self._plain.jacobian(model, z, draws=draws)
        self.last = z.detach(), s
        return s, j

    def judge(self, model: nn.Module) -> Eager:
        return self._plain
