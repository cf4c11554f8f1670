"""The methods whose labels may be numbers, with settings for small data."""

SMALL = {"layers": ((4, 3),), "pretraining": 3}
METHODS = {
    "heres": {"n_components": 4},
    "lsa_mml": {"n_components": 4},
    "himls": SMALL,
    "himlsd": SMALL,
    "cplst": {},
    "faie": {},
    "grople": {},
    "leml": {},
    "lsml": {},
}
