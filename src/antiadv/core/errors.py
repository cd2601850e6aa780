"""The exceptions. Everything raised on purpose derives from `AntiadvError`.

A message has three parts: what was asked, what was found, what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class AntiadvError(Exception):
    """Base of all errors raised on purpose; the command line prints its text in one line and exits with 2."""


class BadInput(AntiadvError, ValueError):
    """An argument or a file cannot be used, such as images outside [0, 1] or probabilities instead of logits."""


class BadSpec(AntiadvError, ValueError):
    """A text such as `pgd:steps=20` names something unknown or cannot be read."""


class AccessDenied(AntiadvError, PermissionError):
    """The attack asked for more than its threat model grants."""


class BudgetSpent(AntiadvError):
    """The attack sent more queries than its threat model grants."""


class StoreMismatch(AntiadvError):
    """A stored file is not what its name and header say, or its network has changed."""


class StoreUnwritable(AntiadvError, OSError):
    """The store could not be written, for example to a full disk; its earlier files are complete."""


class MissingExtra(AntiadvError, ImportError):
    """An optional package is needed for this."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which must be installed first: pip install 'antiadv[{extra}]'")


class Unfinished(AntiadvError):
    """Some shards of an evaluation could not be done. The message names them; all others are stored."""


class EndpointFailed(AntiadvError):
    """A classifier behind an address (`antiadv.Remote`) refused, did not answer, or gave an answer of no use."""


class Interrupted(AntiadvError):
    """The classifier, or the attack, failed in the middle of `antiadv.attack`; its own error is the `__cause__`.

    `images` are the best so far, the clean ones where nothing was found. `outcome` is an `Outcome` of the samples that
    these images break, according to the judge; None if the classifier failed for the judge too. `unknown` holds the
    numbers of all other samples: their search did not end, so they count neither as broken nor as robust.
    """

    def __init__(self, sentence: str, images: Tensor, outcome: Any, unknown: list[int]) -> None:
        super().__init__(sentence)
        self.images, self.outcome, self.unknown = images, outcome, unknown


class Suspicious(UserWarning):
    """Images, labels and network seem not to belong together."""


def first_line(error: BaseException) -> str:
    """An error of other code, in one line.

    >>> first_line(KeyError("mine")), first_line(RuntimeError("one\\ntwo"))
    ("KeyError: 'mine'", 'RuntimeError: one')
    """
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0].rstrip('.')}"


def reason(error: BaseException) -> str:
    """The message of an error, short enough for a sentence.

    >>> reason(ValueError("no header\\nat byte 3")), reason(EOFError())
    ('no header', 'EOFError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:300]
