"""The content of a support bundle: what explains a fault, without secrets, and by default without names."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import quote

import yaml

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import request
from llamaherd.inventory.schema import LOCAL, Rig
from llamaherd.onhost.doctor import DoctorFacts, Logs, LogsInput
from llamaherd.onhost.document import DocumentError, decode, dump
from llamaherd.onhost.verification import Inspected
from llamaherd.pipeline.doctor import VERB as DOCTOR
from llamaherd.pipeline.doctor import doctor_input
from llamaherd.pipeline.history import release_of
from llamaherd.pipeline.inspection import inspect_input
from llamaherd.plan import Plan
from llamaherd.role.role import Role

LOGS = "llamaherd.doctor.logs"

MOST_FILE = 4 << 20
"""Characters of one file. A lock with the headers of many models is longer, and is cut."""

_MOST_DEPTH = 50
_ORDINARY = ("root", "localhost", "llama", "user", "admin", LOCAL)
"""Names of users and hosts that identify no person and no machine."""
_ENVIRONMENT = "environment"
_PLACES = ("file", "env")
"""Keys of a secret that contain its place."""


def bundle_request(plan: Plan, roles: Sequence[Role]) -> bytes:
    """Return the document of one inspection of a host: its state, what a diagnosis needs, and logs."""
    given = inspect_input(plan, roles)
    units = tuple(each.service for each in plan.of("systemd"))
    containers = tuple(each.service for each in plan.of("compose"))
    more = {DOCTOR: doctor_input(plan), LOGS: LogsInput(units, containers)}
    return request("inspect", replace(given, parts={**given.parts, **more}))


def logs_of(result: object) -> Logs:
    """Return the logs from an inspection; none if the program cannot have returned them."""
    try:
        return decode(Logs, decode(Inspected, result).parts.get(LOGS))
    except DocumentError:
        return Logs("")


def without_logs(result: object) -> str:
    """Return an inspection as JSON. Logs are files of their own."""
    if isinstance(result, dict) and isinstance(result.get("parts"), dict):
        result = {**result, "parts": {name: part for name, part in result["parts"].items() if name != LOGS}}
    return dump(result)


def inventory_text(data: object) -> str:
    """Return the data of an inventory file as YAML, without comments and without values of secrets."""
    return yaml.safe_dump(_masked(data, [], "", 0), sort_keys=False, allow_unicode=True, width=10**6)


def inventory_secrets(data: object) -> tuple[str, ...]:
    """Return the values in an inventory that `inventory_text` leaves out."""
    found: list[str] = []
    _masked(data, found, "", 0)
    return tuple(found)


def _masked(value: object, found: list[str], name: str, depth: int, *, secret: bool = False) -> object:
    """Return a value of an inventory. A secret has its place (`file` or `env`) instead of its value.

    Add each secret to `found`. `name` is the name of the value, or of the list that it is in.
    """
    if depth > _MOST_DEPTH:
        return REDACTED
    if isinstance(value, dict):
        return {
            key: _masked(each, found, str(key), depth + 1, secret=_is_secret(str(key), name, each, within=secret))
            for key, each in value.items()
        }
    if isinstance(value, list):
        flags = ["", *(str(each) for each in value)]
        secrets = [secret or (flag.startswith("--") and "=" not in flag and _names_secret(flag)) for flag in flags]
        return [_masked(each, found, name, depth + 1, secret=one) for one, each in zip(secrets, value, strict=False)]
    variable, assigned, text = str(value).partition("=")
    if name == _ENVIRONMENT and assigned and SECRET_NAME.search(variable):
        found.append(text)
        return f"{variable}={REDACTED}"
    if not secret or value is None or isinstance(value, bool):
        return value
    found.append(str(value))
    return REDACTED


def _is_secret(key: str, parent: str, value: object, *, within: bool) -> bool:
    """Return whether the value of a key is a secret, by its name and by the mapping that it is in."""
    if parent == _ENVIRONMENT:
        return SECRET_NAME.search(key) is not None
    if key == "key":
        return not isinstance(value, str) or "/" not in value
    return _names_secret(key) or (within and key not in _PLACES)


def _names_secret(name: str) -> bool:
    """Return whether a key or a flag is set to a secret, and not to its place."""
    return SECRET_FIELD.search(name) is not None and not name.endswith(("file", "path", "env"))


def secret_places(data: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the places of secrets in an inventory: `file` or `env`, and the path or the name of the variable."""
    if depth > _MOST_DEPTH:
        return
    for each in data if isinstance(data, list) else data.values() if isinstance(data, dict) else ():
        yield from secret_places(each, depth + 1)
    if isinstance(data, dict):
        for name in ("file", "env"):
            if isinstance(data.get(name), str):
                yield name, data[name]
        if isinstance(data.get("key"), str):
            yield "file", data["key"]


def names_of(
    rigs: Iterable[Rig], here: Mapping[str, str], results: Iterable[object], users: Iterable[str]
) -> dict[str, str]:
    """Return placeholders of names: of hosts, users of hosts, users of the gateway, and of this machine.

    `here` are the host and the user of this machine. Names such as `root` have none.
    """
    found: dict[str, str] = {}
    counts: dict[str, int] = {}

    def add(kind: str, name: str | None) -> None:
        if name and len(name) > 1 and name.lower() not in _ORDINARY and not name.isdecimal() and name not in found:
            counts[kind] = counts.get(kind, 0) + 1
            found[name] = f"{kind}-{counts[kind]}"

    for rig in rigs:
        add("host", rig.connect.host)
        add("user", rig.connect.user)
    for result in results:
        logs = logs_of(result)
        add("host", logs.hostname)
        for user, machine in _origins(result):
            add("user", user)
            add("host", machine)
    add("host", here.get("host"))
    add("user", here.get("user"))
    for user in users:
        add("person", user)
    return found


def _origins(result: object) -> Iterator[tuple[str, str]]:
    """Yield the user and the machine of the last run on a host."""
    try:
        facts = decode(DoctorFacts, decode(Inspected, result).parts.get(DOCTOR))
    except DocumentError:
        return
    release = release_of(facts.release.text) if facts.release else None
    if release:
        yield release.origin.user, release.origin.machine


def plan_text(plan: Plan) -> str:
    """Return a plan as JSON. Programs that llamaherd brings are named by their hash."""
    data = plan.model_dump(mode="json")
    for file in data["files"]:
        file["text"] = f"sha256 {hashlib.sha256(file['text'].encode()).hexdigest()}"
    return json.dumps(data, indent=1)


def packed(files: Mapping[str, str]) -> bytes:
    """Return a .tar.gz of texts by path. It contains no user and no time of this machine. Raise UserError."""
    if not files:
        raise UserError("the bundle would be empty", "name an inventory with -i")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, text in files.items():
            data = text[:MOST_FILE].encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"herd-support/{path}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(content.getvalue(), mtime=0)


REDACTED = "[redacted]"

SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth|cookie|private", re.IGNORECASE)
"""Names of variables and keys whose value is treated as a secret."""

_LEAST_SECRET = 6
"""Characters of the shortest known secret: a shorter value is also an ordinary word."""

SECRET_FIELD = re.compile(
    r"api[_ -]?keys?|access[_-]?key|private[_-]?key|token(?!iz|s)|secret|passw(?:or)?d|passphrase|credential|\bpsk\b",
    re.IGNORECASE,
)
"""Names whose value is a secret, in a text that has many other names with `key` or `auth`."""

_ASSIGNED = re.compile(
    rf"(?P<name>(?:{SECRET_FIELD.pattern})[\w-]{{0,60}}\\*[\"']?\s{{0,8}}[=:]\s{{0,8}}|(?-i:[A-Z0-9_]_KEY=)|"
    r"--(?:api-key|hf-token|token|password)\\*[\"']?(?:[ =]|,?\s{1,8}(?:-\s)?)|"
    r"\bauthorization\\*[\"']?\s{0,8}[=:]\s{0,8}\\*[\"']?(?:(?:Basic|Bearer|Digest|Token)\s+)?|\b(?:Bearer|Basic):?\s+|"
    r"[?&](?:[\w-]{0,30}(?:signature|key)|sig)=)"
    r"(?:(?P<quote>\\*[\"'])(?P<quoted>[^\n]{1,4096}?)(?<!\\)(?P=quote)|\\*[\"']?(?P<value>[^\s\"',;}\]\\&]{4,}))",
    re.IGNORECASE,
)
"""A name, a flag or a header, and its value: in quotes of any text, of JSON, or of JSON in JSON, or without."""

_LISTED = re.compile(
    r"(?P<name>(?:api[_-]?keys?|passwords?|secrets?|auth_tokens?)\\*[\"']?\s{0,8}[=:]\s{0,8}\[)(?=\s*[^\s\]])[^\]\n]*",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"(?P<name>\b(?:set-)?cookie\\*[\"']?\s{0,8}:\s{0,8}\\*[\"']?)[^\n\"'\\]+", re.IGNORECASE)
_KINDS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk-|sk_live_|hf_|gh[opsru]_|github_pat_|glpat-|xox[abeprs]-|nvapi-|dckr_pat_|pypi-AgE|npm_)[\w-]{8,}"
    r"|\bAKIA[A-Z0-9]{12,}"
    r"|\beyJ[\w-]{4,}\.[\w-]{4,}\.[\w-]*"
    r"|(?<=://)(?!git@)[^\s/@\"'<>]{1,4096}(?=@)"
    r"|(?<=hooks\.slack\.com/services/)[\w/-]+|(?<=/api/webhooks/)[\w/-]+|(?<=/bot)[0-9]{5,}:[\w-]+"
    r"|\$(?:2[aby]|5|6|y|7|apr1|argon2\w{1,2})\$[-./\w$=,+]{8,}|\{S?SHA[0-9]*\}[\w+/=]{8,}",
    re.DOTALL,
)
"""Private keys, tokens of well-known services, JSON web tokens, credentials in URLs, and hashes of passwords."""

_RANDOM = re.compile(
    r"(?<![\w+/-])(?=[\w+/-]*?[a-z])(?=[\w+/-]*?[A-Z])(?=[\w+/-]*?[0-9])[A-Za-z0-9_+/-]{24,}={0,2}(?![\w+/-])"
)
_LONG = 60
"""Characters of a random text without a slash at its start that is no path: a line of a private key has 64 or 70."""
_PLAIN_VALUES = re.compile(r"true|false|null|none|on|off|yes|no|[0-9.]+|/[\w./-]*|\{|\[", re.IGNORECASE)

_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?<![\w:.])(?=[0-9a-fA-F]*:)[0-9a-fA-F:]{3,39}(?![\w:.])"
)
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,10}\b")
_GPU = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class Redactor:
    """Replaces secrets by `[redacted]`, and names by placeholders that stay the same in all texts."""

    def __init__(self, secrets: Iterable[str], names: Mapping[str, str] | None = None, known: str = "") -> None:
        """Prepare the patterns. `names` are placeholders by name; None keeps names and addresses.

        `known` is a text without secrets: its words, such as names of models, are never taken for random text.
        """
        self._names = names
        self._known = set(re.split(r"[\s\"',]+", known))
        self._placeholders: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        variants = {each for secret in secrets if len(secret) >= _LEAST_SECRET for each in _variants(secret)}
        self._secrets = _alternation(variants)
        self._named = _alternation(names or (), r"(?<![\w-])", r"(?![\w-])")
        self._of_name = {name.lower(): placeholder for name, placeholder in (names or {}).items()}

    def redact(self, text: str, *, log: bool = False) -> str:
        """Return a text without secrets and names. In a log, random text is a secret, too."""
        if self._secrets:
            text = self._secrets.sub(REDACTED, text)
        text = _KINDS.sub(REDACTED, text)
        text = _COOKIE.sub(rf"\g<name>{REDACTED}", _LISTED.sub(rf"\g<name>{REDACTED}", text))
        text = _ASSIGNED.sub(_assigned, text)
        if log:
            text = _RANDOM.sub(self._random, text)
        return text if self._names is None else self._without_names(text)

    def _random(self, found: re.Match[str]) -> str:
        parts = found[0].split("/")
        is_path = len(parts) > 2 and (not parts[0] or len(found[0]) < _LONG)
        is_known = is_path or found[0] in self._known or any(found[0] in word for word in self._known)
        return found[0] if is_known else REDACTED

    def _without_names(self, text: str) -> str:
        text = _EMAIL.sub(self._numbered("email"), text)
        if self._named:
            text = self._named.sub(lambda found: self._of_name.get(found[0].lower(), "name"), text)
        text = _GPU.sub(self._numbered("GPU-uuid"), text)
        text = _MAC.sub(self._numbered("mac"), text)
        return _ADDRESS.sub(self._address, text)

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ip_address(found[0])
        except ValueError:  # a time, or a version
            return found[0]
        return found[0] if address.is_loopback or address.is_unspecified else self._numbered("address")(found)

    def _numbered(self, kind: str) -> Callable[[re.Match[str]], str]:
        def placeholder(found: re.Match[str]) -> str:
            if found[0] not in self._placeholders:
                self._counts[kind] = self._counts.get(kind, 0) + 1
                self._placeholders[found[0]] = f"{kind}-{self._counts[kind]}"
            return self._placeholders[found[0]]

        return placeholder


def _assigned(found: re.Match[str]) -> str:
    """Return `name=[redacted]`; unchanged if the value is plain, such as a path or a number."""
    value = found["quoted"] or found["value"]
    if _PLAIN_VALUES.fullmatch(value) or value.startswith((REDACTED, "[")):
        return found[0]
    quote_ = found["quote"] or ""
    return f"{found['name']}{quote_}{REDACTED}{quote_}"


def _variants(secret: str) -> Iterator[str]:
    """Yield the spellings of a secret in JSON, in a URL and in base64."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield quote(secret, safe="")
    yield base64.b64encode(secret.encode("utf-8", "replace")).decode()


def _alternation(words: Iterable[str], before: str = "", after: str = "") -> re.Pattern[str] | None:
    """Return a pattern of any of the words, the longest first; None without words."""
    ordered = sorted(words, key=len, reverse=True)
    if not ordered:
        return None
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, ordered))}){after}", re.IGNORECASE if before else 0)
