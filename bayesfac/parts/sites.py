"""Sites of Params by name: `U`, or `U.user` for an entry of a mapping."""

from collections.abc import Mapping
from typing import Any


def get(p: Any, site: str) -> Any:
    """The value of a site; None where Params has none, and for the empty name."""
    name, dot, key = site.partition(".")
    value = getattr(p, name, None) if name else None
    return value.get(key) if dot and value is not None else value


def put(p: Any, values: Mapping[str, Any]) -> Any:
    """Params with these values of sites."""
    fields: dict[str, Any] = {}
    for site, value in values.items():
        name, dot, key = site.partition(".")
        if dot:
            fields[name] = {**(fields.get(name) or getattr(p, name) or {}), key: value}
        else:
            fields[name] = value
    return p._replace(**fields)


def field(site: str) -> str:
    """The field of Params that holds a site."""
    return site.partition(".")[0]
