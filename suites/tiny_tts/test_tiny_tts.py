"""tiny_tts: what its server must keep while it gets faster."""

import pytest

from suites.speech import TextToSpeech


@pytest.mark.rsi_task("tiny_tts")
@pytest.mark.complete
@pytest.mark.parity
@pytest.mark.seams
@pytest.mark.streamed
@pytest.mark.band
@pytest.mark.level
@pytest.mark.duration(worse_by=0.015)
@pytest.mark.tail
@pytest.mark.wer(max=0.25, worse_by=0.02, requests=16)
@pytest.mark.latency("ttfa", p95=3.0, worse_by=0.25)
@pytest.mark.latency("stalled_s", p95=1.0, worse_by=0.25)
@pytest.mark.contract("seed")
class TestTinyTts(TextToSpeech):
    """Piper VITS, voice en_US joe, one process on a CPU."""
