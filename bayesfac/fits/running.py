"""Run an engine: what the user gives is checked, settings are chosen, and the result becomes a fit."""

import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from threadpoolctl import threadpool_limits

from bayesfac.choosing import choose, reduced
from bayesfac.core import checks
from bayesfac.core.data import features
from bayesfac.core.data.cards import Card, describe
from bayesfac.core.data.counts import of_spread
from bayesfac.core.errors import ConvergenceWarning
from bayesfac.core.laws.units import in_models_unit
from bayesfac.core.method import COLLAPSED, Method, contain, lookup, settle
from bayesfac.core.programs import keep_programs, make_room
from bayesfac.core.provenance import about, identity
from bayesfac.fits import collapse, components, saving
from bayesfac.fits.fitted import F
from bayesfac.inference import alone, check_hyper, ended_early, engine_for
from bayesfac.inference.result import Job, Result, derived, start_from, unused
from bayesfac.inference.widths import against_conditionals


class Asked(NamedTuple):
    """What the user asks for: a method, an engine, data in their container, and some settings."""

    method: Method
    engine: Any
    data: Any
    seed: int
    hyper: Mapping[str, Any]


def run(
    kind: type[F], /, method: Any, data: Any, engine: Any = None, *, seed: int = 0, init: Any = None,
    progress: bool = True, **hyper: Any,
) -> F:  # fmt: skip
    """Fit a method to data; see `bf.fit`. The fit is of the class `kind`."""
    keep_programs()
    make_room()
    asked = _checked(method, data, engine, seed, hyper)
    # several BLAS threads would wait for each other, and would occupy the cores that the loops need
    with alone(), threadpool_limits(1, "blas"):
        begun = time.perf_counter()
        settings, chosen = _settings(asked)
        job, card = _job(asked, settings, init, progress)
        result, widths, reasons = _result(asked.engine, job, settings, card)
        seconds = time.perf_counter() - begun
    if said := ended_early(asked.method.name, result, reasons):
        warnings.warn(said, ConvergenceWarning, stacklevel=3)
    told = [*chosen, *features.told(asked.method, job.data, asked.data)]
    info = about(result.notes) | {"chosen": told, "widths": widths}
    own = asked.method, settings, result.engine or asked.engine, asked.seed
    return components.told(kind(*own, result, card, seconds, info))


def _checked(method: Any, data: Any, engine: Any, seed: Any, hyper: Mapping[str, Any]) -> Asked:
    """What enters; an error where the method, the engine, a setting or the data are wrong."""
    method = lookup(method)
    engine = engine_for(engine, method)
    check_hyper(method, hyper, engine)
    return Asked(method, engine, contain(method, data), checks.seeded(seed), hyper)


def _settings(asked: Asked) -> tuple[Any, list[str]]:
    """The method's Hyper with every setting, and sentences on those that were chosen."""
    chosen = choose(asked.method, asked.data, asked.hyper, asked.seed)
    settings = settle(asked.method, asked.data, chosen.hyper)
    return settings, [*reduced(asked.method, chosen.hyper, settings), *chosen.how]


def _job(asked: Asked, settings: Any, init: Any, progress: bool) -> tuple[Job, Card]:
    """What the engine gets, with data as the method needs them, and the card that the fit keeps of them."""
    method, engine, raw, seed, _ = asked
    data = method.ready(raw, settings)
    card = describe(data, raw)
    card.elsewhere |= method.parts.beside(data, settings) if method.parts else {}
    saving.check(card, engine)
    start = start_from(init, card.coords)
    name = identity(method, data, settings, engine, seed, start)
    probe, _, _ = card.locate(card.probe)
    hyper, key = in_models_unit(settings), jax.random.key(seed)
    return Job(method, data, hyper, key, start, progress, name, probe), card


def _result(engine: Any, job: Job, settings: Any, card: Card) -> tuple[Result, Any, list[str]]:
    """The result with all its notes, the widths of the intervals if the engine checks them, and the reasons
    why it may not have converged."""
    found = engine.run(job)
    result = derived(job.method, job.data, settings, found)
    widths = None
    if job.probe is not None and job.method.gibbs.conditionals and getattr(engine, "check", False):
        widths = against_conditionals(job, found.draws, job.probe)
    remarks = _remarks(job, settings, card, result)
    reasons = [*result.notes, *(note for note in remarks if note.startswith(COLLAPSED))]
    result.notes.extend(remarks)
    return result, widths, reasons


def _remarks(job: Job, settings: Any, card: Card, result: Result) -> list[str]:
    """What the start, the data, the method and the point give reason to say."""
    method, found = job.method, [*unused(job.start, result), *card.remarks]
    if "poisson" in method.notes.traits:
        found += of_spread(card.summary)
    if result.params is not None:
        found += method.notes.remarks(result.params, job.data, settings)
        found += collapse.remarks(method, result.params, job.hyper, card, job.data)
    return found
