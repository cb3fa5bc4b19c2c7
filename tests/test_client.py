"""The client against a real server that misbehaves."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_rsi.client import SpeechClient
from pytest_rsi.metrics import Failure, measure
from pytest_rsi.recording import Exchange, SpeechRequest
from tests.wire_server import running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

T = TypeVar("T")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as address:
        yield address


def ask(url: str, what: str, *, total_s: float = 5.0, quiet_s: float = 2.0, sse: bool = False) -> Exchange:
    request = SpeechRequest("r", what, stream=True, response_format="pcm", stream_format="sse" if sse else "audio")

    async def once() -> Exchange:
        async with SpeechClient(url, total_s=total_s, quiet_s=quiet_s) as client:
            return await client.speak(request)

    return asyncio.run(once())


def with_client(url: str, what: Callable[[SpeechClient], Awaitable[T]]) -> T:
    async def run() -> T:
        async with SpeechClient(url) as client:
            return await what(client)

    return asyncio.run(run())


def test_a_fine_answer_is_kept_byte_by_byte(url: str) -> None:
    exchange = ask(url, "fine")
    assert (exchange.status, exchange.error) == (200, None)
    assert exchange.body == b"\1\2" * 400
    assert exchange.headers["x-sample-rate"] == "8000"
    assert exchange.scheduled_s == exchange.sent_s <= exchange.chunks[0].time_s <= exchange.finished_s


def test_chunks_are_stamped_as_they_come_even_inside_a_sample(url: str) -> None:
    exchange = ask(url, "odd splits")
    assert [chunk.data for chunk in exchange.chunks] == [b"\1", b"\2\1\2", b"\1\2\1", b"\2"]
    times = [chunk.time_s for chunk in exchange.chunks]
    assert times == sorted(times)
    assert times[-1] - times[0] > 0.15  # sent over 0.3 s
    assert not isinstance(measure(exchange), Failure)


@pytest.mark.parametrize("what", ["bytewise", "unframed"])
def test_every_way_to_frame_a_body_is_taken(url: str, what: str) -> None:
    exchange = ask(url, what)
    assert exchange.error is None
    assert exchange.body == b"\1\2" * (len(exchange.body) // 2) != b""


def test_events_with_comments_and_split_line_ends_are_taken(url: str) -> None:
    exchange = ask(url, "events", sse=True)
    seen = measure(exchange)
    assert not isinstance(seen, Failure), seen
    assert seen.audio_s == pytest.approx(400 / 8000)
    # The third piece ends inside the line end that completes the audio's event; these samples are too soft to be heard.
    assert seen.gaps_s == ()
    assert seen.ttfa_s == float("inf")


def test_the_first_byte_of_the_body_counts_not_the_headers(url: str) -> None:
    seen = measure(ask(url, "late"))
    assert not isinstance(seen, Failure)
    assert seen.ttfb_s >= 0.49


def test_nothing_in_a_request_tells_that_it_is_measured(url: str) -> None:
    head = ask(url, "headers").body.decode().lower()
    assert not [word for word in ("rsi", "pytest", "bench", "aiohttp", "judge", "\r\nx-") if word in head]
    names = {line.split(":")[0] for line in head.strip().split("\r\n")[1:]}
    assert names == {"host", "accept-encoding", "user-agent", "content-type", "content-length", "connection"}
    assert "accept-encoding: identity" in head


def test_no_cookie_comes_back(url: str) -> None:
    async def twice(client: SpeechClient) -> Exchange:
        assert "set-cookie" in (await client.speak(SpeechRequest("a", "cookie"))).headers
        return await client.speak(SpeechRequest("b", "headers"))

    assert b"cookie" not in with_client(url.replace("127.0.0.1", "localhost"), twice).body.lower()


def test_a_reference_clip_of_megabytes_is_sent(url: str) -> None:
    request = SpeechRequest("r", "headers", extra={"ref_audio": "data:audio/wav;base64," + "A" * 3_000_000})
    exchange = with_client(url, lambda client: client.speak(request))
    assert exchange.error is None
    assert b"Content-Length: 3000" in exchange.body


@pytest.mark.parametrize(
    ("what", "status", "complaint"),
    [
        ("dies", 200, "Payload"),
        ("reset", None, ""),
        ("short", 200, "Payload"),
        ("garbage", None, ""),
        ("bad chunk", 200, "timed out: nothing more for 0.5 s"),
        ("escapes", None, ""),
        ("huge header", None, ""),
        ("endless headers", None, ""),
        ("endless interim", None, "timed out"),
        ("drip", 200, "timed out: not complete after 1 s"),
        ("endless", 200, ""),
        ("silent", None, "timed out: nothing more for 0.5 s"),
        ("zipped", 200, "'gzip' was not asked for"),
    ],
)
def test_whatever_a_server_does_is_an_exchange_with_an_error(
    url: str, what: str, status: int | None, complaint: str
) -> None:
    began = time.monotonic()
    exchange = ask(url, what, total_s=1.0, quiet_s=0.5)
    assert exchange.status == status
    assert exchange.error is not None
    assert complaint in exchange.error
    assert exchange.error.isprintable()
    assert len(exchange.error) < 300
    assert exchange.sent_s <= exchange.finished_s <= time.monotonic()
    assert isinstance(measure(exchange), Failure)
    assert time.monotonic() - began < 10


def test_a_bomb_is_kept_packed(url: str) -> None:
    assert len(ask(url, "zipped").body) < 2**20


def test_the_cap_on_bytes_is_the_clients(url: str) -> None:
    async def once() -> Exchange:
        async with SpeechClient(url, max_body_bytes=2**20) as client:
            return await client.speak(SpeechRequest("r", "endless"))

    exchange = asyncio.run(once())
    assert exchange.error == "more than 1048576 bytes"
    assert len(exchange.body) <= 2**20


@pytest.mark.parametrize(("what", "status"), [("error", 500), ("busy", 503), ("redirect", 302), ("empty", 200)])
def test_an_answer_that_is_no_audio_is_no_client_error(url: str, what: str, status: int) -> None:
    exchange = ask(url, what)
    assert (exchange.status, exchange.error) == (status, None)
    assert isinstance(measure(exchange), Failure)


def test_a_server_that_is_not_there() -> None:
    exchange = ask("http://127.0.0.1:9", "fine")
    assert exchange.status is None
    assert exchange.error is not None
    assert with_client("http://127.0.0.1:9", lambda client: client.get_json("/health")) is None
    assert with_client("http://127.0.0.1:9", lambda client: client.is_ready()) is False


def test_readiness_and_json(url: str) -> None:
    async def several(client: SpeechClient) -> list[object]:
        return [
            await client.is_ready(),
            await client.get_json("/health"),
            await client.get_json("/list"),
            await client.get_json("/text"),
            await client.get_json("/nested"),
            await client.get_json("/missing"),
        ]

    assert with_client(url + "/", several) == [True, {"status": "healthy"}, [1, 2], None, None, None]


def test_a_cancelled_request_hangs_up_and_leaves_the_client_usable(url: str) -> None:
    async def cancel(client: SpeechClient) -> tuple[object, object, Exchange]:
        before = await client.get_json("/dropped")
        speaking = [asyncio.create_task(client.speak(SpeechRequest("r", "drip"))) for _ in range(3)]
        await asyncio.sleep(0.2)
        for task in speaking:
            task.cancel()
        ended = await asyncio.gather(*speaking, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        for _ in range(100):
            after = await client.get_json("/dropped")
            if after == before + 3:  # type: ignore[operator]
                break
            await asyncio.sleep(0.02)
        return before, after, await client.speak(SpeechRequest("s", "fine"))

    before, after, exchange = with_client(url, cancel)
    assert after == before + 3  # type: ignore[operator]
    assert exchange.error is None


def test_a_client_outside_its_context_says_so() -> None:
    with pytest.raises(RuntimeError, match="async context manager"):
        asyncio.run(SpeechClient("http://127.0.0.1:9").speak(SpeechRequest("r", "x")))
