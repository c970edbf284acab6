"""Uploads: the model is found in the form, and not one byte beside it changes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BadRequest
from proxy.surfaces.audio import SPEECH, TRANSCRIPTIONS
from proxy.surfaces.base import Asked

FILE = bytes(range(256)) * 20
FORM = 'multipart/form-data; boundary="B o+x"'


def form(*parts: tuple[str, bytes], boundary: str = "B o+x", before: str = "") -> bytes:
    body = before.encode()
    for header, value in parts:
        body += f"--{boundary}\r\nContent-Disposition: form-data; {header}\r\n\r\n".encode() + value + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


UPLOAD = ('name="file"; filename="naïve name=model.wav"', FILE)


@pytest.mark.parametrize(
    "body",
    [
        form(('name="model"', b"whisper"), UPLOAD),
        form(UPLOAD, ('name="model"', b"whisper")),
        form(UPLOAD, ("name=model", b"whisper"), ('name="language"', b"en")),
        form(("name=x", b""), ('name="model"\r\nContent-Type: text/plain', b" whisper "), UPLOAD),
        form(('name="model"', b"whisper"), UPLOAD, before="a preamble\r\n"),
    ],
)
def test_the_model_is_found_wherever_it_stands(body: bytes) -> None:
    asked = TRANSCRIPTIONS.read(body, FORM)
    assert (asked.model, asked.prompt_bytes, asked.media) == ("whisper", len(body), 1)


def test_a_form_without_a_model_is_passed_on() -> None:
    assert TRANSCRIPTIONS.read(form(UPLOAD), FORM).model is None


def test_an_unquoted_boundary() -> None:
    body = form(('name="model"', b"w"), boundary="----x7")
    assert TRANSCRIPTIONS.read(body, "Multipart/Form-Data; charset=x; Boundary=----x7").model == "w"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"not-multipart", "multipart/form-data; boundary=nope"),
        (b"", "multipart/form-data; boundary=nope"),
        (b"--nope\r\nno end", "multipart/form-data; boundary=nope"),
        (b"--nope\r\n\r\nno end", "multipart/form-data; boundary=nope"),
        (form(UPLOAD), "multipart/form-data"),
    ],
)
def test_a_broken_form_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(BadRequest, match="multipart"):
        TRANSCRIPTIONS.read(body, content_type)


@given(st.binary(max_size=60), st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=9))
def test_only_the_model_is_replaced(content: bytes, name: str) -> None:
    before, after = form(("name=a", content)), (('name="file"', content),)
    body = form(("name=a", content), ('name="model"', b"old"), *after)
    asked = TRANSCRIPTIONS.read(body, FORM)
    assert asked.model == "old"
    new = TRANSCRIPTIONS.splice(body, asked, name, True)
    assert new == form(("name=a", content), ('name="model"', name.encode()), *after)
    assert TRANSCRIPTIONS.splice(body, asked, None, False) is body
    assert TRANSCRIPTIONS.splice(before, Asked(), name, False) == before


@given(st.binary(max_size=80))
def test_no_bytes_make_it_fail_otherwise(body: bytes) -> None:
    for candidate in (body, b"--B o+x" + body, b"--B o+x\r\n\r\n" + body + b"\r\n--B o+x--"):
        with suppress(BadRequest):
            assert TRANSCRIPTIONS.read(candidate, FORM).media == 1


def test_speech_is_asked_for_in_json() -> None:
    assert SPEECH.read(b'{"model":"tts","input":"hi"}', "application/json").model == "tts"
