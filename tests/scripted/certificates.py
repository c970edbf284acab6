"""Certificates for the tests, made on the spot by the openssl command; none is ever stored in the tree."""

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """A self-signed certificate for localhost, which is its own authority."""

    cert: Path
    key: Path

    def for_server(self) -> ssl.SSLContext:
        """To listen with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.cert, self.key)
        return context

    def for_client(self) -> ssl.SSLContext:
        """To trust it."""
        return ssl.create_default_context(cafile=self.cert)


def certificate(folder: Path) -> Certificate:
    """Make one."""
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made
