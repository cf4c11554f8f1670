"""Changed records of methods, for tests."""

from dataclasses import replace

GROUPS = ("solver", "gibbs", "choose", "axes", "notes")


def changed(method, **entries):
    """The method with other entries, each in the group that has it: `changed(m, update=f)`."""
    for name, value in entries.items():
        home = group(method, name)
        given = {home: getattr(method, home)._replace(**{name: value})} if home else {name: value}
        method = replace(method, **given)
    return method


def entry(method, name):
    """The entry of a name, in the group that has it."""
    home = group(method, name)
    return getattr(getattr(method, home) if home else method, name)


def group(method, name):
    """The group of the record that has an entry; empty for a field of the record itself."""
    return next((g for g in GROUPS if name in getattr(method, g)._fields), "")
