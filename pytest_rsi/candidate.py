"""A candidate: a unified diff against the current baseline, with author, rationale and overhead class."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

OVERHEAD_CLASSES = ("idle-spin", "tensor-roundtrip", "unused-compute", "small-launches", "stage-overlap", "other")

_HEADER = re.compile(r"^(Title|Class|Rationale|Author|Expect|Reason):[ \t]*(.*)$", re.MULTILINE)
_CONTINUED = re.compile(r"\n[ \t]+(?=\S)")


class CandidateError(ValueError):
    """A candidate cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A patch and what its author says of it.

    ``name`` labels its test items. ``expect`` and ``reasons`` are the known answer, for patches that carry one:
    ``accepted`` or ``rejected``, and the reason codes of which one must be given.
    """

    name: str
    diff: str
    title: str = ""
    overhead_class: str = "other"
    rationale: str = ""
    author: str = ""
    expect: str | None = None
    reasons: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Identity of the change: the digest of the diff without what its author says about it."""
        return hashlib.sha256(self.patch).hexdigest()

    @property
    def patch(self) -> bytes:
        """The diff as git takes it: bytes that are no UTF-8 came in escaped and go out as they were."""
        return self.diff.encode("utf-8", errors="surrogateescape")

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Candidate:
        """Return the candidate that ``dataclasses.asdict`` and JSON made ``body`` of; other keys are left alone."""
        fields = {field.name: body[field.name] for field in dataclasses.fields(cls)}
        return cls(**fields | {"reasons": tuple(fields["reasons"])})


def parse_candidate(name: str, text: str) -> Candidate:
    """Return the candidate in the text of a patch file: header lines, then the diff.

    Raises:
        CandidateError: there is no diff, or a header names an unknown class or expectation.
    """
    start = re.search(r"^(diff --git |--- )", text, re.MULTILINE)
    if start is None:
        raise CandidateError(f"candidate {name!r} has no diff, expected lines from 'diff --git a/FILE b/FILE' on")
    head = _CONTINUED.sub(" ", text[: start.start()])
    header = {key.lower(): value.strip() for key, value in _HEADER.findall(head)}
    overhead_class, expect = header.get("class", "other"), header.get("expect")
    if overhead_class not in OVERHEAD_CLASSES:
        raise CandidateError(f"candidate {name!r}: Class {overhead_class!r}, expected {', '.join(OVERHEAD_CLASSES)}")
    if expect not in (None, "accepted", "rejected"):
        raise CandidateError(f"candidate {name!r}: Expect {expect!r}, expected accepted or rejected")
    return Candidate(
        name=name,
        diff=text[start.start() :],
        title=header.get("title", "") or name,
        overhead_class=overhead_class,
        rationale=header.get("rationale", ""),
        author=header.get("author", ""),
        expect=expect,
        reasons=tuple(reason.strip() for reason in header.get("reason", "").split(",") if reason.strip()),
    )


def read_candidates(path: Path) -> list[Candidate]:
    """Return the candidate of a patch file, or those of a folder's ``*.patch`` and ``*.diff`` files in name order.

    Raises:
        CandidateError: nothing there, not text, or not a patch.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".patch", ".diff") and file.is_file())
        if not files:
            raise CandidateError(f"no *.patch or *.diff file in folder {path}")
    elif path.is_file():
        files = [path]
    else:
        raise CandidateError(f"candidate {str(path)!r} is no file, folder or revision range of the target")
    return [_read_file(file) for file in files]


def _read_file(file: Path) -> Candidate:
    try:
        # Newlines are part of a patch: text mode would turn CRLF context lines into something that does not apply.
        text = file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CandidateError(f"candidate {file}: {error}") from None
    return parse_candidate(file.stem, text)
