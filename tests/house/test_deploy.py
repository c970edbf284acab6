"""What is in deploy/ fits the gateway it is for: files load, names agree, metrics exist, nothing is cut at shutdown."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from deploy.build_hook import WISH, Compiled
from proxy.config import Config, load
from proxy.metrics import METRICS
from proxy.version import VERSION

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
TOML_FILES = sorted(DEPLOY.rglob("*.toml"))
YAML_FILES = sorted(DEPLOY.rglob("*.yaml"))


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def objects(kind: str) -> Iterator[tuple[Path, Any]]:
    """Kubernetes objects of a kind, with the file they are in."""
    for path in sorted(KUBERNETES.glob("*.yaml")):
        yield from ((path, found) for found in documents(path) if found["kind"] == kind)


def in_config_maps(folder: Path) -> Iterator[Config]:
    """The configurations inside ConfigMaps."""
    for path, found in objects("ConfigMap"):
        file = folder / f"{path.stem}.toml"
        file.write_text(found["data"]["draftlane.toml"])
        yield load(file, to_serve=False)


@pytest.mark.parametrize("path", TOML_FILES, ids=lambda path: path.name)
def test_every_configuration_loads_and_fits_the_schema(path: Path) -> None:
    assert load(path, to_serve=False).backends
    schema = json.loads((DEPLOY / "draftlane.schema.json").read_text())
    jsonschema.validate(tomllib.loads(path.read_text()), schema)


def test_the_full_example_shows_every_table() -> None:
    shown = set(tomllib.loads((DEPLOY / "examples/full.toml").read_text()))
    assert shown == set(Config.model_fields)


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_every_yaml_file_parses(path: Path) -> None:
    assert all(isinstance(document, dict) for document in documents(path))


def test_kustomize_lists_files_that_exist() -> None:
    (listed,) = documents(KUBERNETES / "kustomization.yaml")
    assert [name for name in listed["resources"] if not (KUBERNETES / name).exists()] == []


def test_kubernetes_waits_until_running_answers_are_done(tmp_path: Path) -> None:
    ((_, deployment),) = (
        (path, found) for path, found in objects("Deployment") if found["metadata"]["name"] == "draftlane"
    )
    pod = deployment["spec"]["template"]["spec"]
    before = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    configurations = list(in_config_maps(tmp_path))
    assert len(configurations) == 2
    for config in configurations:
        assert pod["terminationGracePeriodSeconds"] >= before + config.server.grace_seconds + 5


def test_kubernetes_names_agree(tmp_path: Path) -> None:
    """Backends are Services of these files, volumes are mounted where the configuration looks, the image is ours."""
    services = {found["metadata"]["name"] for _, found in objects("Service")}
    services |= {found["metadata"]["name"] for _, found in objects("InferenceService")}
    ((_, deployment),) = (
        (path, found) for path, found in objects("Deployment") if found["metadata"]["name"] == "draftlane"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    mounts = tuple(mount["mountPath"] for mount in container["volumeMounts"])
    assert container["image"] == f"draftlane:{VERSION}"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    environment = {variable["name"] for variable in container["env"]}
    for config in in_config_maps(tmp_path):
        assert (ports["http"], ports["admin"]) == (config.server.port, config.server.admin_port)
        for backend in config.backends:
            assert (urlsplit(backend.url).hostname or "").split(".")[-1] in services
            assert backend.api_key_env is None or backend.api_key_env in environment
        for file in (config.server.admin_key_file, config.keys.file, config.journal.path):
            assert str(file).startswith(mounts)


def test_compose_agrees_with_its_configuration() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    config = load(DEPLOY / "compose.toml", to_serve=False)
    gateway = compose["services"]["gateway"]
    assert float(gateway["stop_grace_period"].removesuffix("s")) > config.server.grace_seconds + 5
    hosts = {urlsplit(backend.url).hostname for backend in config.backends} | {urlsplit(str(config.redis_url)).hostname}
    assert hosts <= set(compose["services"])
    assert config.server.host == "0.0.0.0"
    assert str(config.server.admin_key_file) == f"/run/secrets/{gateway['secrets'][0]}"


def test_compose_mounts_files_that_exist() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    mounts = [mount.split(":")[0] for service in compose["services"].values() for mount in service.get("volumes", ())]
    named = set(compose["volumes"])
    assert [mount for mount in mounts if mount not in named and not (DEPLOY / mount).exists()] == []


def expressions() -> Iterator[tuple[str, str]]:
    """(place, PromQL) of every rule and panel."""
    (rules,) = documents(DEPLOY / "prometheus/rules.yaml")
    for group in rules["groups"]:
        yield from ((rule.get("alert") or rule["record"], rule["expr"]) for rule in group["rules"])
    for panel in json.loads((DEPLOY / "grafana/dashboard.json").read_text())["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))


def test_rules_and_panels_ask_for_metrics_and_labels_that_exist() -> None:
    rows = {row.name: row for row in METRICS}
    for row in METRICS:
        if row.bounds:
            rows |= {
                f"{row.name}_{part}": row._replace(labels=(*row.labels, "le")) for part in ("bucket", "sum", "count")
            }
    from_scraping = {"job", "instance"}
    for place, expression in expressions():
        names = set(re.findall(r"\b(?:draftlane|gen_ai)_\w+", expression))
        assert names <= set(rows), place
        known = {label for name in names for label in rows[name].labels} | from_scraping
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
        asked |= {label for by in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", by)}
        assert asked <= known, place


def test_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana/dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_image_copies_what_exists_and_runs_as_nobody() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [words for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for words in line.split()[:-1]]
    kept_out = (ROOT / ".dockerignore").read_text()
    assert copied
    assert all((ROOT / name).exists() and f"!{name}\n" in kept_out for name in copied)
    assert "USER 65534:65534" in text
    assert "PYTHONPATH=/app" in text
    assert (ROOT / "proxy/__main__.py").exists()


def test_the_builder_has_the_types_of_all_that_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a build of its own nothing else is installed, and mypyc refuses to translate what imports a stranger."""
    metadata: Any = ProjectMetadata(str(ROOT), PluginManager())
    builder: Any = Compiled(str(ROOT), {}, None, metadata, "", "wheel")
    assert builder.dependencies() == []
    monkeypatch.setenv(WISH, "1")
    assert set(metadata.core.dependencies) < set(builder.dependencies())
