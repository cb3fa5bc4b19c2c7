"""The development set and the generator of fresh texts."""

import random
import re
import shutil
import statistics
import sys
from collections import Counter
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import texts
from fixtures.texts import KINDS, Text, TextGenerator, development, draw, fresh, normalised, spoken_words

SHORT = {"plain": 1.0, "numbers": 1.0, "names": 1.0, "questions": 1.0}
EVERY_KIND = (*SHORT, "long")
SEEDS = st.integers(0, 2**256 - 1)
TREE = Path(texts.__file__).parent.parent


def assert_well_formed(text: Text) -> None:
    assert text.text.isascii(), text
    assert re.fullmatch(r"[A-Z0-9][A-Za-z0-9 ,.?!']*[.?!]", text.text), text
    assert "  " not in text.text, text
    assert text.text.endswith("?") == (text.kind == "questions") or text.kind == "long", text
    low, high = (14, 30) if text.kind == "long" else (5, 14)
    assert low <= spoken_words(text.text) <= high, text


def total_words(drawn: list[Text]) -> int:
    return sum(spoken_words(text.text) for text in drawn)


def test_development_set_has_every_kind_in_its_size() -> None:
    sizes = Counter(text.kind for text in development())
    assert sizes == {"plain": 120, "numbers": 60, "names": 60, "questions": 60, "long": 30}
    assert tuple(dict.fromkeys(text.kind for text in development())) == KINDS


def test_development_texts_are_unique_and_well_formed() -> None:
    seen = Counter(normalised(text.text) for text in development())
    assert [text for text, times in seen.items() if times > 1] == []
    for text in development():
        assert_well_formed(text)


@pytest.mark.slow
def test_fresh_texts_never_repeat_and_are_never_development_texts() -> None:
    known = {normalised(text.text) for text in development()}
    for seed in (0, 1, 2**64 + 5, 2**256 - 1):
        drawn = [normalised(text.text) for text in fresh(seed, 5000)]
        assert len(set(drawn)) == 5000
        assert known.isdisjoint(drawn)


def test_a_development_text_the_grammar_can_make_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    unwanted = fresh(7, 20)
    known = (*development(), *unwanted)
    monkeypatch.setattr(texts, "_development", lambda language: known)
    assert {text.text.upper() for text in unwanted}.isdisjoint(text.text.upper() for text in fresh(7, 20))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_each_kind_has_ten_million_texts(kind: str) -> None:
    # Two samples of n from N equally likely texts share n * n / N; unequal ones share more.
    size = 2500
    one, other = ({normalised(text.text) for text in fresh(seed, size, [kind])} for seed in (11, 12))
    assert len(one & other) <= size * size / 1e7 * 5


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_same_seed_same_texts(seed: int) -> None:
    drawn = fresh(seed, 12, EVERY_KIND)
    assert drawn == fresh(seed, 12, EVERY_KIND)
    for text in drawn:
        assert_well_formed(text)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, bit=st.integers(0, 255))
def test_one_other_bit_of_the_seed_gives_other_texts(seed: int, bit: int) -> None:
    one, other = ({text.text for text in fresh(s, 16)} for s in (seed, seed ^ 1 << bit))
    assert len(one & other) <= 1


def test_texts_do_not_change_between_versions() -> None:
    # A ledger keeps seeds, not texts: a change of grammar or generator that moves these must be meant.
    assert fresh(2**200 + 1, 4) == FROZEN


@pytest.mark.parametrize("source", ["development", "fresh"])
def test_draw_has_the_default_mix(source: str) -> None:
    drawn = draw(3, 100, source)  # type: ignore[arg-type]
    assert Counter(text.kind for text in drawn) == {"plain": 50, "numbers": 15, "names": 15, "questions": 20}
    assert len({normalised(text.text) for text in drawn}) == 100


@given(
    seed=SEEDS, count=st.integers(0, 60), weights=st.dictionaries(st.sampled_from(KINDS), st.integers(1, 9), min_size=1)
)
@settings(max_examples=25, deadline=None)
def test_shares_are_within_one_of_the_weights(seed: int, count: int, weights: dict[str, float]) -> None:
    count = min(count, 30)
    drawn = draw(seed, count, kinds=weights)
    sizes = Counter(text.kind for text in drawn)
    assert len(drawn) == count
    assert all(abs(sizes[kind] - count * w / sum(weights.values())) < 1 for kind, w in weights.items())


@settings(max_examples=25, deadline=None)
@given(one=SEEDS, other=SEEDS)
def test_fresh_draws_have_equal_lengths(one: int, other: int) -> None:
    first, second = (
        Counter((text.kind, spoken_words(text.text)) for text in draw(seed, 8, "fresh")) for seed in (one, other)
    )
    assert first == second


@settings(max_examples=50, deadline=None)
@given(one=SEEDS, other=SEEDS)
def test_development_draws_have_similar_lengths(one: int, other: int) -> None:
    assert abs(total_words(draw(one, 8)) - total_words(draw(other, 8))) <= 8


def test_fresh_lengths_follow_the_development_set() -> None:
    generator = TextGenerator(21)
    for kind in SHORT:
        fresh_lengths = [spoken_words(generator.text(kind).text) for _ in range(400)]
        real = [spoken_words(text.text) for text in development() if text.kind == kind]
        assert statistics.mean(fresh_lengths) == pytest.approx(statistics.mean(real), abs=0.25)
        assert set(fresh_lengths) <= set(real)


def test_characters_of_eight_texts_vary_little() -> None:
    sizes = [sum(len(text.text) for text in draw(seed, 8, "fresh")) for seed in range(60)]
    assert statistics.stdev(sizes) / statistics.mean(sizes) < 0.06


def test_draw_takes_a_random_generator_and_moves_it_on() -> None:
    rng = random.Random(4)
    first, second = draw(rng, 8), draw(rng, 8)
    assert first != second
    assert first == draw(random.Random(4), 8)


@pytest.mark.parametrize("source", ["development", "fresh"])
def test_excluded_texts_are_not_drawn(source: str) -> None:
    first = draw(5, 24, source)  # type: ignore[arg-type]
    assert set(first).isdisjoint(draw(5, 24, source, exclude=first))  # type: ignore[arg-type]


def test_a_generator_goes_on_where_it_stopped() -> None:
    generator = TextGenerator(6)
    assert set(generator.draw(20)).isdisjoint(generator.draw(20))


def test_articles_fit_the_next_word() -> None:
    wrong = re.compile(r"\b(a [aeiou]|an [^aeiou])", re.IGNORECASE)
    assert [text for text in fresh(8, 2000, SHORT) if wrong.search(text.text)] == []


def test_no_template_is_left_in_a_text() -> None:
    assert [text for text in fresh(9, 2000, EVERY_KIND) if re.search(r"[{}/_]", text.text)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Twelve eggs.", 2),
        ("It costs 45 dollars.", 5),
        ("On March 14th.", 3),
        ("On March 21st.", 4),
        ("In 1936.", 4),
        ("About 300 people.", 4),
        ("It is 120 pages long.", 7),
        ("He saw 90.", 3),
    ],
)
def test_spoken_words(text: str, words: int) -> None:
    assert spoken_words(text) == words


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: development("xx"), r"no texts in language 'xx'; known: en"),
        (lambda: TextGenerator(1, "../en"), r"no texts in language '\.\./en'; known: en"),
        (
            lambda: fresh(1, 3, ["poems"]),
            r"unknown kind of text 'poems'; known: plain, numbers, names, questions, long",
        ),
        (lambda: TextGenerator(1).text("poems"), r"unknown kind of text 'poems'; known: plain, numbers"),
        (lambda: fresh(-1, 3), r"the seed of the texts must be 0 to 2\*\*256 - 1, got -1"),
        (lambda: fresh(2**256, 3), r"the seed of the texts must be 0 to 2\*\*256 - 1, got one of 257 bits"),
        (
            lambda: draw(1, 3, "held-out"),  # type: ignore[arg-type]
            r"unknown source of texts 'held-out', expected 'development' or 'fresh'",
        ),
        (lambda: draw(1, 40, kinds=["long"]), r"40 long texts wanted, the development set has 30 left; draw 'fresh'"),
        (lambda: draw(1, -1), r"cannot draw -1 texts of kinds .*; expected a count and weights of 0 or more"),
        (lambda: draw(1, 1, kinds=[]), r"cannot draw 1 texts of kinds .*; expected a count and weights of 0 or more"),
        (lambda: TextGenerator(1).text("plain", 90), r"no plain text of 90 spoken words .* have 6 to 10"),
    ],
)
def test_errors_are_one_line_that_says_what_is_known(call: object, message: str) -> None:
    with pytest.raises(pytest.UsageError, match=message) as error:
        call()  # type: ignore[operator]
    assert "\n" not in str(error.value)


def shipped_copy(root: Path) -> ModuleType:
    """Load fixtures/texts.py from a copy of the tree, as the wheel holds it."""
    shutil.copytree(TREE / "audio_refs" / "texts", root / "audio_refs" / "texts")
    (root / "fixtures").mkdir()
    shutil.copy(texts.__file__, root / "fixtures" / "texts.py")
    spec = util.spec_from_file_location("shipped_texts", root / "fixtures" / "texts.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["shipped_texts"] = module
    spec.loader.exec_module(module)
    return module


def test_texts_are_found_beside_the_code(tmp_path: Path) -> None:
    shipped = shipped_copy(tmp_path)
    (tmp_path / "audio_refs" / "texts" / "en" / "long.txt").write_text("Only here.\n", encoding="utf-8")
    assert shipped.development()[-1].text == "Only here."


@pytest.mark.parametrize("content", [None, " \n"])
def test_a_missing_or_empty_file_is_named(tmp_path: Path, content: str | None) -> None:
    shipped = shipped_copy(tmp_path)
    path = tmp_path / "audio_refs" / "texts" / "en" / "names.txt"
    path.unlink()
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(pytest.UsageError, match=r"names\.txt.*reinstall pytest-rsi"):
        shipped.development()


FROZEN = [
    Text("Her grandmother has 64 cheap lamps.", "numbers"),
    Text("Did the happy nurse call the librarian?", "questions"),
    Text("His neighbor served a bowl of Italian soup.", "plain"),
    Text("The busy carpenter bought a cheap teapot.", "plain"),
]
