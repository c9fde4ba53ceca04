"""Legal values in place of missing or refused ones: a layout for another model, and a value for each refused field."""

from collections.abc import Mapping
from dataclasses import asdict
from math import log2
from typing import Any

from reproduce.annex.page import answers, form, scenarios
from reproduce.planning.amounts import amount
from reproduce.planning.models import named
from reproduce.planning.plan import MODEL_FIELDS, request
from reproduce.planning.search import least_memory, takeaways
from results.records.errors import UsageError

TOKENS = 4e6  # of a batch
# Means that a training program of today has on, and whose price is small.
TODAY: tuple[dict[str, Any], ...] = ({"attention": "sdpa"}, {"sharded_optimizer": True}, {"sequence_parallel": True})


def modelled(configuration: Mapping[str, Any], name: str, cluster: str, gpus: int | None = None) -> dict[str, Any]:
    """Another model on as many GPUs, or `gpus`, with a batch of about 4 million tokens and a layout by the takeaways.

    Where the paper's takeaways find none that fits, it is the layout of least memory. `said` tells what was taken.
    """
    model, n = asdict(named(name)), gpus or answers.gpus(configuration)
    odd = n // (n & -n)  # each factor of the GPUs has to divide the batch, or the layers
    batch = odd * 2 ** max(0, round(log2(TOKENS / model["seq"] / odd)))
    fields = {field: model[field] for field in MODEL_FIELDS if model.get(field) is not None}
    machine = answers.opened(cluster)
    _, job = request({**fields, "gpus": n, "batch": batch})
    if chosen := takeaways(job, machine).chosen:
        config, how = chosen.config, "by the paper’s takeaways"
    elif least := least_memory(job, machine):
        config, how = least[1], "with the least memory"
    else:
        raise UsageError(f"{n:,} GPUs have no legal layout of this model; needs another number; try a power of two")
    found = config.to_plain()
    for changes in TODAY:
        if not answers.illegal(found | changes):
            found |= changes
    program = answers.said(configuration).get("program")
    if program and not answers.illegal(found | {"program": program}):
        found["program"] = program
    tokens = f"{batch * model['seq'] / 1e6:.2g} million tokens"
    return {"configuration": found, "said": f"Taken for this model: a layout {how}, a batch of {tokens}."}


def recipe(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The layout that the paper's takeaways choose for the model, GPUs and batch of a configuration.

    Raises `UsageError` where none of theirs fits.
    """
    filled = answers.filled(configuration)
    model = {name: filled[name] for name in MODEL_FIELDS if filled.get(name) is not None}
    _, job = request({**model, "gpus": answers.gpus(configuration), "batch": filled["B"]})
    if not (chosen := takeaways(job, answers.opened(cluster)).chosen):
        raise UsageError("2021’s recipe has no layout of this model that fits on these GPUs; try more of them")
    return {"configuration": chosen.config.to_plain()}


def instead(configuration: Mapping[str, Any], tokens: str, price: str, why: str) -> dict[str, Any]:
    """What is wrong with what was asked, a sentence by field, and what is legal in its place.

    A refused value gives way to the usual one of its field; where that is not legal either, all do. `why` is said of
    what no field's value is to blame for, such as sizes that are missing.
    """
    amounts = {"tokens": tokens, "price": price}
    wrong = {name: said for name, text in amounts.items() if text and (said := _no_amount(text))}
    usual = scenarios.offered()[0]["configuration"]
    unknown = [name for name in configuration if name not in form.LABELS]
    legal = usual | {name: value for name, value in configuration.items() if name not in unknown}
    told = [(unknown[0], f"{unknown[0]} is no field of a configuration")] if unknown else []
    while refusal := answers.illegal(legal):
        refused = [name for name in form.named_in(refusal) if name in legal and legal[name] != usual.get(name)]
        told.append((refused[0] if refused else "configuration", refusal))
        if not refused:
            legal = usual
            break
        legal = {name: value for name, value in legal.items() if name != refused[0]}
        legal |= {refused[0]: usual[refused[0]]} if refused[0] in usual else {}
    if not wrong and not told:
        told = [("configuration", why)]
    wrong |= {name: form.in_words(said) for name, said in told[:1]}  # others may be wrong because the first one is
    kept = {name: "" if name in wrong else text for name, text in amounts.items()}
    return {"wrong": wrong, "instead": {"configuration": legal, **kept}}


def _no_amount(text: str) -> str:
    try:
        amount(text)
    except UsageError as error:
        return str(error)
    return ""
