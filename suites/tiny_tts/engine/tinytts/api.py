"""The OpenAI-style HTTP side."""

import asyncio
import base64
import json
import threading
import uuid
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tinytts.audio import file_bytes, pcm
from tinytts.config import MAX_INPUT_CHARS, SAMPLE_RATE, VOICES
from tinytts.pipeline import END, Job, Pipeline, QueueFullError

MODEL = "tinytts-joe-medium"
FORMATS = ("wav", "pcm", "flac")
STREAM_FORMATS = ("audio", "sse")
MEDIA_TYPES = {"wav": "audio/wav", "pcm": "audio/pcm", "flac": "audio/flac"}
PCM_HEADERS = {"X-Sample-Rate": str(SAMPLE_RATE), "X-Channels": "1", "X-Bit-Depth": "16"}


class BadRequestError(Exception):
    """A field is missing or wrong: ``param`` names it."""

    def __init__(self, param, message):
        super().__init__(message)
        self.param = param


class Speech:
    """A validated request."""

    def __init__(self, body):
        if not isinstance(body, dict):
            raise BadRequestError(None, "the body must be a JSON object")
        self.input = self.text(body)
        self.voice = self.choice(body, "voice", "default", tuple(VOICES))
        self.format = self.choice(body, "response_format", "wav", FORMATS)
        self.stream_format = self.choice(body, "stream_format", "audio", STREAM_FORMATS)
        self.choice(body, "language", "en", ("en", "en-us", "en-US", "auto"))
        self.stream = body.get("stream", False)
        if not isinstance(self.stream, bool):
            raise BadRequestError("stream", "stream must be true or false")
        if self.stream and self.format != "pcm":
            raise BadRequestError("response_format", "streaming needs response_format 'pcm'")
        self.speed = body.get("speed", 1.0)
        if isinstance(self.speed, bool) or not isinstance(self.speed, int | float) or not 0.25 <= self.speed <= 4:
            raise BadRequestError("speed", "speed must be a number from 0.25 to 4")
        self.seed = body.get("seed")
        if self.seed is not None and (type(self.seed) is not int or not 0 <= self.seed < 2**63 - MAX_INPUT_CHARS):
            raise BadRequestError("seed", "seed must be a whole number from 0 to 2**63 - 2001")

    def text(self, body):
        text = body.get("input")
        if not isinstance(text, str) or not text.strip():
            raise BadRequestError("input", "input must be a text that is not empty")
        if len(text) > MAX_INPUT_CHARS:
            raise BadRequestError("input", f"input has {len(text)} characters, at most {MAX_INPUT_CHARS} are taken")
        return text

    def choice(self, body, param, default, choices):
        value = body.get(param, default)
        if value is None:
            return default
        if value not in choices:
            raise BadRequestError(param, f"{param} must be one of {', '.join(choices)}")
        return value


def error(status, message, param=None, kind="invalid_request_error"):
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": None}}, status)


class Server:
    def __init__(self, device):
        self.device = device
        self.pipeline = None
        self.failure = None

    def load(self):
        try:
            pipeline = Pipeline(self.device)
            pipeline.start()
            self.pipeline = pipeline
        except Exception as caught:
            self.failure = str(caught)
            raise

    async def health(self, request):
        if self.pipeline is None:
            return JSONResponse({"status": "unhealthy" if self.failure else "starting"}, 503)
        return JSONResponse({"status": "healthy", "model": MODEL})

    async def models(self, request):
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "tinytts"}]})

    async def speech(self, request):
        if self.pipeline is None:
            return error(503, "the model is not loaded yet", kind="server_error")
        try:
            speech = Speech(json.loads(await request.body()))
        except (ValueError, UnicodeDecodeError):
            return error(400, "the body is not JSON")
        except BadRequestError as bad:
            return error(400, str(bad), bad.param)
        loop, parts = asyncio.get_running_loop(), asyncio.Queue()
        job = Job(
            speech.input,
            speech.voice,
            speech.speed,
            speech.seed,
            lambda part: loop.call_soon_threadsafe(parts.put_nowait, part),
        )
        try:
            self.pipeline.submit(job)
        except QueueFullError:
            return error(503, "too many requests wait; try again later", kind="server_error")
        headers = {"X-Request-Id": uuid.uuid4().hex}
        if speech.stream:
            return await self.stream(speech, job, parts, headers)
        return await self.whole(speech, parts, headers)

    async def whole(self, speech, parts, headers):
        data = b""
        while (part := await receive(parts)) is not END:
            if isinstance(part, Exception):
                return error(500, "synthesis failed", kind="server_error")
            data += pcm(part)
        if not data:
            return error(400, "input has nothing that can be spoken", "input")
        headers["X-Finish-Reason"] = "stop"
        if speech.format == "pcm":
            return Response(data, headers=headers | PCM_HEADERS, media_type=MEDIA_TYPES["pcm"])
        return Response(file_bytes(data, speech.format), headers=headers, media_type=MEDIA_TYPES[speech.format])

    async def stream(self, speech, job, parts, headers):
        # The status line waits for the first samples, so that a request that cannot be spoken gets its error.
        first = await receive(parts)
        if first is END:
            return error(400, "input has nothing that can be spoken", "input")
        if isinstance(first, Exception):
            return error(500, "synthesis failed", kind="server_error")

        async def body():
            part, count = first, 0
            try:
                while part is not END and not isinstance(part, Exception):
                    data = pcm(part)
                    count += len(data) // 2
                    yield data if speech.stream_format == "audio" else delta(data)
                    part = await receive(parts)
                if speech.stream_format == "sse":
                    yield failed() if isinstance(part, Exception) else done(count)
            finally:
                job.cancelled = True

        kind = "text/event-stream" if speech.stream_format == "sse" else MEDIA_TYPES["pcm"]
        return StreamingResponse(body(), headers=headers | PCM_HEADERS, media_type=kind)


async def receive(parts):
    """Return the next part of an answer."""
    while parts.empty():
        await asyncio.sleep(0.0002)
    return parts.get_nowait()


def event(body):
    return f"data: {json.dumps(body)}\n\n".encode()


def delta(data):
    return event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})


def done(samples):
    return event({"type": "speech.audio.done", "usage": {"output_samples": samples}, "finish_reason": "stop"})


def failed():
    return event({"type": "error", "error": {"message": "synthesis failed", "type": "server_error"}})


def create_app(device="cpu"):
    server = Server(device)

    @asynccontextmanager
    async def lifespan(app):
        threading.Thread(target=server.load, name="load", daemon=True).start()
        yield

    return Starlette(
        routes=[
            Route("/health", server.health),
            Route("/v1/models", server.models),
            Route("/v1/audio/speech", server.speech, methods=["POST"]),
        ],
        lifespan=lifespan,
    )
