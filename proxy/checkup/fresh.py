"""Texts for probes: never the same twice, or n-gram drafters and prefix caches answer from what they saw before."""

from random import Random

REVEALING = {
    "Vietnamese": "Thành phố Hồ Chí Minh đã từng được gọi là Sài Gòn; người ta vẫn nhắc tên ấy mỗi ngày.",
    "Chinese": "推测解码让小模型先写草稿，再由大模型一次核对全部词元。",
    "code": "def f(x: int) -> int:\n\treturn x**2 if x >= 0 else -x  # λ\n\n\nassert f(-3) == 3",
    "emoji": "👩🏽‍💻 ships 🚀🚀 before 🍵, says 🤷‍♀️",
    "numbers": "3.14159 1,000,000 0x7fff 2026-11-29T16:23:02Z 12345678901234567890",
    "whitespace": "a  b   c\t\td\n\n\n    e \r\n f\u00a0g",
    "accents": "Ångström naïve façade – “quoted” … ﬁn",
}
"""Texts on which tokenizers of different families disagree, by name."""
_HEADS, _TAILS = "bdfgklmnprstvz", "aeiou"


def words(draw: Random, count: int) -> list[str]:
    """So many made-up words."""
    return ["".join(draw.choice(_HEADS) + draw.choice(_TAILS) for _ in range(draw.randint(2, 4))) for _ in range(count)]


def question(draw: Random) -> str:
    """Asks for something nobody asked for before."""
    one, two, three = words(draw, 3)
    return f"Write two sentences about a town called {one.title()}, its river {two.title()} and its dish {three}."


def predictable(draw: Random) -> str:
    """Fresh words in a pattern that any drafter can go on with: a list that repeats itself.

    No space at the end: it would be a token of its own, and the end of the text would match nothing before it.
    """
    return ", ".join(words(draw, 6) * 8) + ","
