"""A real HTTP server on loopback that misbehaves on request: what it does is the text it is asked to speak."""

from __future__ import annotations

import asyncio
import json
import sys
import time

OK = b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nX-Sample-Rate: 8000\r\nConnection: close\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


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
                await asyncio.sleep(0.02)
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
        case "silent":
            await asyncio.sleep(60)
        case "zipped":
            writer.write(OK + b"Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + b"\x1f\x8b" + b"\0" * 18)
        case _:  # "wait 0.2"
            await asyncio.sleep(float(what.split()[1]))
            writer.write(OK + b"Content-Length: 800\r\n\r\n" + b"\1\2" * 400)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        body = await reader.readexactly(length)
        await behave(json.loads(body)["input"], writer, head)
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
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
