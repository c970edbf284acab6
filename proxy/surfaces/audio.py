"""``/v1/audio/*``: uploads as multipart forms that go on byte for byte, and speech."""

from proxy.surfaces.base import Asked
from proxy.surfaces.multipart import field_span
from proxy.surfaces.proxied import Proxied


def is_form(content_type: str) -> bool:
    """A multipart form, whatever its boundary."""
    return content_type.lstrip().lower().startswith("multipart/form-data")


class Upload(Proxied):
    """A surface that takes a form; JSON is read too, for the backends that like it."""

    def read(self, body: bytes, content_type: str) -> Asked:
        """See ``Surface``. Raises BadRequest for a form without the parts it announces."""
        if not is_form(content_type):
            return super().read(body, content_type)
        span = field_span(body, content_type, b"model")
        model = body[span[0] : span[1]].decode("utf-8", "replace").strip() if span else None
        return Asked(model=model or None, prompt_bytes=len(body), media=1)

    def splice(self, body: bytes, asked: Asked, model: str | None, inject_usage: bool) -> bytes:
        """See ``Surface``."""
        if not body.startswith(b"--") or model is None:
            return super().splice(body, asked, model, inject_usage)
        # The boundary is the first line; the header that names it is not at hand here.
        boundary = body[2 : body.find(b"\r\n")].decode("latin-1")
        span = field_span(body, f'multipart/form-data; boundary="{boundary}"', b"model")
        return body if span is None else b"".join((body[: span[0]], model.encode(), body[span[1] :]))


TRANSCRIPTIONS = Upload("transcriptions", "/v1/audio/transcriptions", "/audio/transcriptions")
TRANSLATIONS = Upload("translations", "/v1/audio/translations", "/audio/translations")
SPEECH = Proxied("speech", "/v1/audio/speech", "/audio/speech")
