"""The built-in prompts, and files in the shapes that public sets come in."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.proof.before import prompt_findings
from proxy.proof.prompts import Prompt, PromptFileError, built_in, freshened, per_kind, read_file, shares, warm_ups


def test_the_built_in_set_is_large_and_mixed() -> None:
    prompts = built_in()
    kinds = Counter(prompt.kind for prompt in prompts)
    assert len(prompts) >= 160
    assert len(kinds) >= 8
    assert min(kinds.values()) >= 20
    assert {"en", "vi", "zh"} <= {prompt.language for prompt in prompts}
    assert len({prompt.id for prompt in prompts}) == len(prompts)


def test_no_two_built_in_prompts_are_alike_and_none_warms_up() -> None:
    prompts = [*built_in(), *warm_ups()]
    diversity, findings = prompt_findings(prompts)
    assert findings == []
    assert diversity.containment < 0.001
    assert len({prompt.text for prompt in prompts}) == len(prompts)


def test_a_memory_probe_is_new_in_every_run() -> None:
    kept = warm_ups()[-3:]
    one, other = freshened(kept, random.Random(1)), freshened(kept, random.Random(2))
    assert all(prompt.text.endswith(plain.text) for prompt, plain in zip(one, kept, strict=True))
    assert not {prompt.text for prompt in one} & {prompt.text for prompt in other}


def test_long_kinds_are_long_and_edits_carry_their_file() -> None:
    prompts = built_in(["summary", "code-edit"])
    assert min(len(p.text) for p in prompts if p.kind == "summary" and p.language != "zh") > 1200
    assert all(p.text.count("```") == 2 for p in prompts if p.kind == "code-edit")


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ({"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}, "writing", "Write."),
        ({"prompt": "Add.", "kind": "maths"}, "maths", "Add."),
        ({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}, "set", "Hi"),
        ({"instruction": "Sort.", "task": "code"}, "code", "Sort."),
    ],
)
def test_public_shapes_are_read(tmp_path: Path, line: dict[str, object], kind: str, text: str) -> None:
    (tmp_path / "set.jsonl").write_text(json.dumps(line) + "\n\n", encoding="utf-8")
    (prompt,) = read_file(tmp_path / "set.jsonl")
    assert (prompt.kind, prompt.text) == (kind, text)


def test_a_text_file_has_a_prompt_per_line(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("One?\n\nTwo?\n", encoding="utf-8")
    assert [prompt.text for prompt in read_file(tmp_path / "mine.txt")] == ["One?", "Two?"]


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "no prompts"), ("{", ":1: not JSON"), ('{"a": 1}', ":1: no prompt text"), ("7", ":1: no")],
)
def test_a_wrong_file_says_where(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "bad.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(PromptFileError, match=said):
        read_file(tmp_path / "bad.jsonl")


def test_a_missing_file_and_an_unknown_kind_are_told(tmp_path: Path) -> None:
    with pytest.raises(PromptFileError, match="nowhere"):
        read_file(tmp_path / "nowhere.jsonl")
    with pytest.raises(PromptFileError, match="poetry; there are chat, code"):
        built_in(["poetry"])


PROMPTS = st.lists(st.sampled_from("abc"), max_size=40).map(
    lambda kinds: [Prompt(str(number), kind, f"text {number}") for number, kind in enumerate(kinds)]
)


@given(PROMPTS, st.integers(1, 5))
def test_shares_are_disjoint_and_hold_every_kind_evenly(prompts: list[Prompt], loads: int) -> None:
    dealt = shares(prompts, loads)
    assert sorted(prompt.id for share in dealt for prompt in share) == sorted(prompt.id for prompt in prompts)
    for kind in "abc":
        sizes = [sum(prompt.kind == kind for prompt in share) for share in dealt]
        assert max(sizes) - min(sizes) <= 1


@given(PROMPTS, st.one_of(st.none(), st.integers(1, 5)), st.integers(0, 9))
def test_drawing_keeps_the_limit_and_repeats_with_the_seed(prompts: list[Prompt], limit: int | None, seed: int) -> None:
    drawn = per_kind(prompts, limit, seed)
    assert drawn == per_kind(prompts, limit, seed)
    assert len(set(drawn)) == len(drawn)
    for kind, count in Counter(prompt.kind for prompt in prompts).items():
        assert sum(prompt.kind == kind for prompt in drawn) == min(count, limit or count)
