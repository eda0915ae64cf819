"""The key `oauth` of a server's entry: what is known beforehand for signing in."""

from typing import Any, Final
from urllib.parse import urlsplit

from ..errors import UsageError
from .config_file import outline
from .config_variables import Variables
from .server import OAuth

__all__ = ["read_oauth"]

# The spellings of Claude Code; those in capitals are Cursor's.
_SPELLINGS: Final = {
    "clientId": "client_id",
    "client_id": "client_id",
    "CLIENT_ID": "client_id",
    "clientSecret": "client_secret",
    "client_secret": "client_secret",
    "CLIENT_SECRET": "client_secret",
    "clientMetadataUrl": "client_metadata_url",
    "callbackPort": "callback_port",
    "scopes": "scopes",
    "scope": "scopes",
    "issuer": "issuer",
    "grantType": "grant",
    "privateKey": "private_key",
    "signingAlgorithm": "signing_algorithm",
}
_GRANTS: Final = ("authorization_code", "client_credentials")


def read_oauth(value: dict[Any, Any], where: str, variables: Variables, notes: list[str]) -> OAuth | None:
    """Read the object.

    Args:
        value: as it stands in the file; null or "" in it say that nothing is given, keys that are not known are passed over.
    """
    enabled = value.get("enabled")
    if enabled is not None and not isinstance(enabled, bool):
        raise _wrong(f"{where}.enabled", "true or false", enabled)
    if enabled is False:
        return None
    given = {str(key): item for key, item in value.items() if item not in (None, "") and key != "enabled"}
    if unknown := [key[:60] for key in given if key not in _SPELLINGS]:
        notes.append(f"{where}: passed over {', '.join(unknown[:8])}: known are {', '.join(_SPELLINGS)}")
    oauth = OAuth(**{_SPELLINGS[key]: _value(key, given[key], f"{where}.{key}", variables) for key in given if key in _SPELLINGS})
    is_whole = oauth.client_id and oauth.issuer and (oauth.client_secret or oauth.private_key)
    if oauth.grant == "client_credentials" and not is_whole:
        raise UsageError(f"{where}: client_credentials need clientId, issuer, and clientSecret or privateKey")
    return oauth


def _value(key: str, value: Any, where: str, variables: Variables) -> Any:
    if _SPELLINGS[key] == "scopes":
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise _wrong(where, "a string or a list of strings", value)
        return tuple(words)
    if key == "callbackPort":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
            raise _wrong(where, "a port", value)
        return value
    if not isinstance(value, str) or not value:
        raise _wrong(where, "a string", value)
    text = variables.expand(value, where, may_be_bare=True)
    if key == "grantType" and text not in _GRANTS:
        raise UsageError(f"{where}: expected one of {', '.join(_GRANTS)}, got {text[:40]!r}")
    if key == "clientMetadataUrl" and not (text.startswith("https://") and urlsplit(text).path.strip("/")):
        raise UsageError(f"{where}: expected an address that starts with https:// and has a path")
    return text


def _wrong(where: str, expected: str, value: Any) -> UsageError:
    return UsageError(f"{where}: expected {expected}, got {outline(value)}")
