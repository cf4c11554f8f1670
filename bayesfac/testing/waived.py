"""The checks of the contract that a method does not pass, with the reasons: {method: {check: reason}}.

Engines and reports do not know this table. What they ask of a method is in its traits.
"""

from bayesfac.core.method import Method

KINK = "the hinge has no slope where it bends, and there its minimum lies"

WAIVED = {
    "emmmf": {
        "observed": "members are fitted as a product, predict as a mean; its test file has one member"
    },
    "faie": {
        "fold_in": "training rows have codes that fit their labels, new rows those of their features"
    },
    "gibbs_mmmf": {"optimum": KINK, "map": KINK},
    "grople": {
        "optimum": "V and Z have exact zeros, where J has kinks; its test file checks the subgradients",
    },
    "hpf": {
        "unseen": "new users and items have the mean xi and eta: over all, the mean can be infinite"
    },
    "lsa_mml": {
        "optimum": "columns of B end on the edge of the ball, where unconstrained numbers are infinite; "
        "its test file checks the conditions of a minimum there",
        "map": "its optimum is on the edge of the ball, which gradient engines only approach",
    },
    "mlc_hmf": {
        "relabelling": "the tree stands with rows in their order; its test file grows it on rows in another",
        "observed": "nodes are fitted together and predict by votes, so no label has a law of its own",
    },
    "pmmmf": {"observed": "theta* is made of all ratings of a user, so no single rating has a law"},
}


def waived(method: Method, check: str) -> str:
    """Why a method does not pass a check; empty if it must."""
    return WAIVED.get(method.name, {}).get(check, "")
