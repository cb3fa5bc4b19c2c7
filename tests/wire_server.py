"""A real HTTP server on loopback that misbehaves on request: what it does is the text it is asked to speak."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OK = b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nX-Sample-Rate: 8000\r\nConnection: close\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@contextmanager
def running() -> Iterator[str]:
    """Start the server as a process of its own, so that its work does not disturb the client's clock; yield its URL."""
    with subprocess.Popen([sys.executable, str(Path(__file__))], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.terminate()


async def behave(what: str, writer: asyncio.StreamWriter, request: bytes) -> None:
    match what:
        case "fine":
            writer.write(CHUNKED + chunk(b"\1\2" * 400) + chunk(b""))
        case "headers":
            writer.write(OK + b"\r\n" + request)
        case "odd splits":
            writer.write(CHUNKED)
            for part in (b"\1", b"\2\1\2", b"\1\2\1", b"\2"):
                writer.write(chunk(part))
                await writer.drain()
                await asyncio.sleep(0.1)
            writer.write(chunk(b""))
        case "stamped":
            # Sends the time at which each chunk was handed to the socket, on the clock of the whole machine.
            writer.write(CHUNKED)
            for _ in range(40):
                await asyncio.sleep(0.01)
                writer.write(chunk(f"{time.monotonic():.9f} ".encode()))
                await writer.drain()
            writer.write(chunk(b""))
        case "dies":
            writer.write(CHUNKED + chunk(b"\1\2" * 100))
            await writer.drain()
            writer.transport.abort()
        case "reset":
            writer.transport.abort()
        case "empty":
            writer.write(OK + b"Content-Length: 0\r\n\r\n")
        case "short":
            writer.write(OK + b"Content-Length: 5000\r\n\r\n" + b"\1\2" * 10)
        case "error":
            body = b'{"error": {"message": "no"}}'
            writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        case "busy":
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        case "redirect":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n")
        case "garbage":
            writer.write(b"\0\1\2 this is no HTTP\r\n\r\n")
        case "drip":
            writer.write(CHUNKED)
            while not writer.is_closing():
                writer.write(chunk(b"\0\0"))
                await writer.drain()
                await asyncio.sleep(0.05)
        case "endless":
            writer.write(CHUNKED)
            while not writer.is_closing():
                writer.write(chunk(b"\0" * 2**20))
                await writer.drain()
        case "bytewise":
            writer.write(CHUNKED)
            for byte in b"\1\2" * 40:
                writer.write(chunk(bytes([byte])))
                await writer.drain()
            writer.write(chunk(b""))
        case "events":
            # Every liberty the format allows: comments, CRLF, an event in two lines, bytes split inside a line end.
            writer.write(CHUNKED.replace(b"audio/pcm", b"text/event-stream"))
            audio = base64.b64encode(b"\1\2" * 400).decode()
            for text in (
                ": keep-alive\r\n\r",
                '\nevent: speech.audio.delta\r\ndata: {"type": "speech.audio.delta",\r\ndata: "audio": "',
                f'{audio}"}}\r\n\r',
                '\n: ping\n\ndata: {"type": "speech.audio.done", "usage": {"seconds": 99}}\n\ndata: [DONE]\n\n',
            ):
                writer.write(chunk(text.encode()))
                await writer.drain()
                await asyncio.sleep(0.02)
            writer.write(chunk(b""))
        case "late":
            await asyncio.sleep(0.3)
            writer.write(CHUNKED)
            await writer.drain()
            await asyncio.sleep(0.2)
            writer.write(chunk(b"\1\2" * 400) + chunk(b""))
        case "silent":
            await asyncio.sleep(60)
        case "zipped":
            bomb = gzip.compress(bytes(8 * 2**20))
            writer.write(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)
        case "bad chunk":
            writer.write(CHUNKED)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(b"zz\r\n\1\2\r\n")
        case "unframed":
            writer.write(OK + b"\r\n" + b"\1\2" * 400)
        case "cookie":
            writer.write(OK + b"Set-Cookie: seen=1; Path=/\r\nContent-Length: 2\r\n\r\n\1\2")
        case "escapes":
            writer.write(b"HTTP/1.1 200\x1b[31m red\r\nBad\x1b[2J Header\r\n\r\n")
        case "huge header":
            writer.write(OK + b"X-Padding: " + b"a" * 2**20 + b"\r\n\r\n")
        case "endless headers":
            writer.write(OK)
            while not writer.is_closing():
                writer.write(b"X-A: b\r\n" * 1000)
                await writer.drain()
        case "endless interim":
            while not writer.is_closing():
                writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)
                await writer.drain()
        case "stall":
            # The whole server stands still, as one does that collects garbage or captures a graph.
            time.sleep(0.5)
            writer.write(OK + b"Content-Length: 800\r\n\r\n" + b"\1\2" * 400)
        case _:  # "wait 0.2"
            await asyncio.sleep(float(what.split()[1]))
            writer.write(OK + b"Content-Length: 800\r\n\r\n" + b"\1\2" * 400)


BODIES = {"/health": b'{"status": "healthy"}', "/list": b"[1, 2]", "/text": b"hello", "/nested": b"[" * 100_000}
DROPPED = 0


def page(path: str) -> bytes:
    """Return the answer to a GET; ``/dropped`` tells how many clients hung up before their answer was complete."""
    body = str(DROPPED).encode() if path == "/dropped" else BODIES.get(path)
    if body is None:
        return b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global DROPPED
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET "):
            writer.write(page(head.split()[1].decode()))
            return
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        body = await reader.readexactly(length)
        await behave(json.loads(body)["input"], writer, head)
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        DROPPED += 1
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
