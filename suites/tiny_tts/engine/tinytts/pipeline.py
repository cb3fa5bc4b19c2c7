"""Jobs and the stages that they pass, each stage on a thread of its own."""

import json
import queue
import secrets
import threading
import time
import traceback

from tinytts.acoustic import Acoustic
from tinytts.config import MAX_QUEUED
from tinytts.frontend import Frontend
from tinytts.vits import Vits
from tinytts.vocoder import Vocoder
from tinytts.weights import load_weights

END = object()
POLLS = 5


class QueueFullError(Exception):
    """More requests wait than the server takes."""


class Job:
    """One request on its way. ``deliver`` takes sample lists, then END or an exception; called from stage threads."""

    def __init__(self, text, voice, speed, seed, deliver):
        self.text = text
        self.voice = voice
        self.speed = speed
        self.seed = secrets.randbits(31) if seed is None else seed
        self.deliver = deliver
        self.cancelled = False
        self.prosody = []
        self.message = None

    def emit(self, samples):
        self.deliver(samples)


class Stage(threading.Thread):
    """Takes jobs from its inbox, works on them when it is its turn, and passes them on."""

    def __init__(self, name, work, forward, turn, inbox=None):
        super().__init__(name=name, daemon=True)
        self.inbox = inbox or queue.Queue()
        self.work = work
        self.forward = forward
        self.turn = turn

    def poll(self):
        """Return the next job, or None after some looks: who looks often finds it sooner."""
        for _ in range(POLLS):
            try:
                return self.inbox.get_nowait()
            except queue.Empty:
                continue
        return None

    def run(self):
        while True:
            job = self.poll()
            if job is None:
                time.sleep(0)
                continue
            try:
                with self.turn:
                    if not job.cancelled:
                        self.work(job)
                self.forward(job)
            except Exception as error:
                traceback.print_exc()
                job.deliver(error)


class Pipeline:
    def __init__(self, device):
        model = Vits(load_weights(device))
        self.frontend = Frontend()
        self.acoustic = Acoustic(model, device)
        self.vocoder = Vocoder(model, device)
        # Torch may use every core for one stage: two at once would be in each other's way.
        turn = threading.Lock()
        self.vocoder_stage = Stage("vocoder", self.vocode, self.finish, turn)
        self.acoustic_stage = Stage("acoustic", self.synthesise, self.vocoder_stage.inbox.put, turn)
        self.frontend_stage = Stage("frontend", self.phonemize, self.acoustic_stage.inbox.put, turn)
        self.stages = [self.frontend_stage, self.acoustic_stage, self.vocoder_stage]

    def start(self):
        for stage in self.stages:
            stage.start()

    def submit(self, job):
        if self.frontend_stage.inbox.qsize() >= MAX_QUEUED:
            raise QueueFullError
        self.frontend_stage.inbox.put(job)

    def phonemize(self, job):
        job.message = json.dumps({"sentences": self.frontend.run(job.text)})

    def synthesise(self, job):
        sentences = json.loads(job.message)["sentences"]
        latents = [
            self.acoustic.run(ids, job.seed + number, job.voice, job.speed) for number, ids in enumerate(sentences)
        ]
        job.message = json.dumps({"latents": latents})

    def vocode(self, job):
        for number, latent in enumerate(json.loads(job.message)["latents"]):
            if number:
                self.vocoder.pause(job)
            self.vocoder.run(latent, job)

    def finish(self, job):
        job.deliver(END)
