"""One visitor of the playground: an image, and at most one attack, which runs in a thread of its own.

    sessions.open() → Session        at most MOST at once: the one that was idle longest makes room
    session.upload(bytes)            keep an image of the visitor
    session.start(asked)             attack; refused while an attack runs
    session.step()  go_on()  stop()
    session.story                    what happened so far

After the attack that was picked, `transfer` is run on the same image: an attacker who has f and needs no query of g.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.core.attack import Attack, never_ran
from antiadv.core.defence import base_of
from antiadv.core.errors import AntiadvError, first_line
from antiadv.core.ledger import Ledger
from antiadv.core.losses import margin
from antiadv.core.threat import Threat
from antiadv.data.pictures import data_uri, png
from antiadv.defences import BARE
from antiadv.evaluation.cell import Record
from antiadv.evaluation.judge import idle
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.shard import attack_and_judge
from antiadv.serving.limits import Refused
from antiadv.serving.playground.choices import LAYER, Asked, Choices
from antiadv.serving.playground.pictures import uploaded
from antiadv.serving.playground.story import GOING, Story, Track, make_frame
from antiadv.serving.playground.watched import Control, Stopped, Watched

MOST = 4  # sessions
ABANDONED = 30.0  # seconds without a request after which an attack that runs may be ended for a new session
FRAME = 0.1  # seconds between two frames: each costs passes of f and g, and the eye sees no more
ADAPTIVE = "transfer"
_DECODING = threading.Lock()  # one picture at a time: a small file may have many pixels


class Session:
    """See the head of this file."""

    def __init__(self, choices: Choices, device: str | None) -> None:
        self.name, self.seen = secrets.token_urlsafe(16), time.monotonic()
        self.story = Story()
        self._choices, self._resources = choices, Resources(device, compiled=False)
        self._image: Tensor | None = None
        self._control = Control()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        return self.story.status in GOING

    def upload(self, content: bytes) -> str:
        """Keep this picture, and return it as the network will see it."""
        with _DECODING:
            self._image = uploaded(content, self._choices.shape)
        return data_uri(png(self._image[0]))

    def start(self, asked: Asked) -> None:
        with self._lock:
            if self.running:
                raise Refused(409, "an attack runs already; stop it first.")
            if asked.sample is None and self._image is None:
                raise Refused(400, "there is no image of yours; drop one, or pick a sample.")
            x, y = self._image, None
            if asked.sample is not None:
                x, y = self._choices.images.images([asked.sample]), self._choices.images.labels([asked.sample])
            assert x is not None
            self.story, self._control = Story(self._choices.images.classes, _title(asked)), Control(asked.paused)
            self.story.set("loading")
            play = _Play(asked, x, y, self._resources, self.story, self._control)
            self._thread = threading.Thread(target=play.run, name="playground", daemon=True)
            self._thread.start()

    def step(self) -> None:
        self._control.step()

    def go_on(self) -> None:
        self._control.go_on()

    def stop(self) -> None:
        self._control.stop()

    def close(self) -> None:
        """Stop the attack, and wait for its thread."""
        self.stop()
        if self._thread is not None:
            self._thread.join()


class Sessions:
    """See the head of this file."""

    def __init__(self, choices: Choices | None = None, device: str | None = None) -> None:
        self.choices, self._device = Choices() if choices is None else choices, device
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def open(self) -> Session:
        with self._lock:
            if len(self._open) >= MOST:
                self._make_room()
            session = Session(self.choices, self._device)
            self._open[session.name] = session
            return session

    def find(self, name: str) -> Session:
        session = self._open.get(name)
        if session is None:
            raise Refused(404, "this session has ended; reload the page.")
        session.seen = time.monotonic()
        return session

    def close(self) -> None:
        with self._lock:
            for session in self._open.values():
                session.close()
            self._open.clear()

    def _make_room(self) -> None:
        late = time.monotonic() - ABANDONED
        spare = [s for s in self._open.values() if not s.running or s.seen < late]
        if not spare:
            raise Refused(503, f"{MOST} attacks run already; stop one of them, or wait.")
        oldest = min(spare, key=lambda s: s.seen)
        oldest.stop()
        del self._open[oldest.name]


def _title(asked: Asked) -> str:
    gate = f"gate {asked.gate:g}" if asked.gate < 1 else "no gate"
    how = f" (α = {asked.alpha:g}, K = {asked.steps}, {gate})" if asked.defence == LAYER else ""
    behind = "" if asked.defence == BARE else f" with {asked.defence}{how}"
    return f"{asked.attack} on {asked.network}{behind}, radius {asked.radius:g}/255"


@dataclass
class _Play:
    """One attack, and the adaptive one after it. `y` is None for an upload: its label is what g says."""

    asked: Asked
    x: Tensor
    y: Tensor | None
    resources: Resources
    story: Story
    control: Control

    def run(self) -> None:
        """The body of the thread. Every failure becomes a sentence on the page."""
        try:
            self._run()
        except Stopped:
            self.story.set("stopped", "Stopped. The judge did not see these images.")
        except AntiadvError as error:
            self.story.set("failed", str(error))
        except Exception as error:  # a network may raise anything
            self.story.set("failed", f"The attack failed: {first_line(error)}.")

    def _run(self) -> None:
        asked, story = self.asked, self.story
        with torch.inference_mode(False):
            g = self.resources.defended(asked.network, asked.defence_text)
            f, x = base_of(g), self.x.to(self.resources.device)
            self.control.check()
            clean = make_frame(f, g, x, x)
            label = max(range(len(clean.g)), key=clean.g.__getitem__) if self.y is None else int(self.y)
            with story.lock:
                story.clean, story.label = clean, label
            names = [asked.attack] + [ADAPTIVE] * (asked.attack != ADAPTIVE)
            for name in names:
                track = Track(name, "f" if name == ADAPTIVE else "g")
                with story.lock:
                    story.tracks.append(track)
                _Search(self, f, g, x, label, track).run()
        story.set("ended", " ".join(track.sentence for track in story.tracks))


class _Search:
    """One attack on the image."""

    def __init__(self, play: _Play, f: nn.Module, g: nn.Module, x: Tensor, label: int, track: Track) -> None:
        self.play, self.f, self.g, self.x, self.track = play, f, g, x, track
        self.y = torch.tensor([label], device=x.device)
        self.engine = Watched(play.control)
        self.drawn = 0.0  # when the last frame was made

    def run(self) -> None:
        asked = self.play.asked
        attack = attacks.parse(self.track.attack)
        threat = Threat(asked.ball, attack.access, asked.queries)
        self.play.story.set("running")
        ids = torch.tensor([asked.sample or 0])
        z, (record,), _ = attack_and_judge(
            self.g, attack, threat, self.x, self.y, ids, 0, self.engine, self._watch, looks=1
        )
        frame = make_frame(self.f, self.g, self.x, z, record.queries)
        fooled = record.attacked != record.label and record.distance <= threat.ball.reach
        with self.play.story.lock:
            self.track.frame, self.track.fooled = frame, fooled
            self.track.sentence = self._sentence(record, attack, threat)

    def _watch(self, ledger: Ledger) -> None:
        assert self.engine.last is not None
        z, s = self.engine.last
        m = margin(s, self.y.expand(len(s)))
        best, track, story, control = int(m.argmin()), self.track, self.play.story, self.play.control
        lowest, queries = float(m[best]), int(ledger.queries.sum())
        now = time.monotonic()
        frame = None
        if control.paused or now - self.drawn > FRAME:
            frame = make_frame(self.f, self.g, self.x, z[best : best + 1], queries)
            self.drawn = now
        with story.lock:
            track.sent += len(z)
            if lowest == lowest and abs(lowest) != float("inf"):  # the shard refuses NaN and infinity at the end
                track.points.append((track.sent, round(lowest, 4)))
            track.frame = frame or track.frame
            story.status = "paused" if control.paused else "running"
        control.wait()
        story.status = "running"

    def _sentence(self, record: Record, attack: Attack, threat: Threat) -> str:
        before, after = map(self.play.story.called, (record.clean, record.attacked))
        name = self.track.attack
        if record.clean != record.label:
            return f"g says {before} without an attack, and that is wrong already: pick another image."
        if idle([record], attack, threat)[0]:
            return f"{name} did not run: {never_ran(attack, threat)}."
        cost = "without a query of g" if name == ADAPTIVE else f"after {record.queries} queries"
        if record.attacked == record.label:
            return f"{name} did not fool g: it still says {before} {cost}."
        if record.distance > threat.ball.reach:
            far = f"{255 * record.distance:.3g}/255"
            return f"{name} fooled g only outside the radius: the nearest {after} it found is {far} away, {cost}."
        return f"{name} fooled g: {before} became {after} {cost}."
