"""The building blocks of the configuration: one strict, frozen base and the value types with their units."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from proxy.engines import ENGINES


class Section(BaseModel):
    """A table of the file: read-only, no unknown keys, no silent conversions, documented by its attribute docstrings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


def beside_the_file(path: Path, info: ValidationInfo) -> Path:
    """A relative path counts from the folder of the configuration file, wherever the command was started."""
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(folder) / path


def backend_url(url: str) -> str:
    """``http(s)://host[:port][/prefix]`` or ``unix:/path``, without a trailing slash or ``/v1``.

    Raises ValueError; its text never quotes the URL, which may hold a password.
    """
    if url.startswith("unix:"):
        return _unix_url(url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("a backend URL starts with http://, https:// or unix:/")
    if not parts.hostname:
        raise ValueError("the URL names no host")
    if parts.username or parts.password:
        raise ValueError("credentials do not belong in the URL, use api_key_env or api_key_file")
    if parts.query or parts.fragment:
        raise ValueError("a base URL has no ?query or #fragment")
    _ = parts.port  # raises ValueError by itself when it is no port
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _unix_url(url: str) -> str:
    path = url.removeprefix("unix:").removeprefix("//")
    if not path.startswith("/"):
        raise ValueError("a Unix socket needs an absolute path, as in unix:/run/vllm.sock")
    return f"unix:{path}"


def known_engine(name: str) -> str:
    """Raises ValueError for an engine that has no entry in ``ENGINES``."""
    if name not in ENGINES:
        raise ValueError(f"{name!r} is no engine known here ({', '.join(ENGINES)})")
    return name


Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65535)]
ConfiguredPath = Annotated[Path, AfterValidator(beside_the_file)]
BackendUrl = Annotated[str, AfterValidator(backend_url)]
EngineName = Annotated[str, AfterValidator(known_engine), Field(json_schema_extra={"enum": list(ENGINES)})]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,62}$")]
"""Names become metric labels, header values and journal fields, hence the plain alphabet and the length."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RequestPath = Annotated[str, Field(pattern=r"^/[!-~]*$")]
