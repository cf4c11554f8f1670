"""Set the formulas of a header as MathML, which browsers draw by themselves.

    1/2 sum_i (u_i - mu)' Lambda (u_i - mu)

A formula keeps its lines, its words and its letters in their order. `_` and `^` begin scripts, sums have
limits below, a slash without spaces is a fraction, and a prime is what it is in the header. Words beside
other words are prose. A block that is prose, or has a sign that is not known here, is not set.
"""

import re
from html import escape

GREEK = dict(
    zip(
        "alpha beta gamma delta eta theta lambda mu nu xi pi tau Lambda Phi".split(),
        "αβγδηθλμνξπτΛΦ",
        strict=True,
    )
)
FUNCTIONS = {"log", "exp", "cos", "sin", "max", "sqrt", "tr", "diag", "sum"}
ENGLISH = set("if else or and in of over on the by all any given for is as with".split())
SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "||": "‖", "...": "…", "..": "…", "~": "∼", "-": "−"}
SIGNS |= {".": "⋅"} | {sign: sign for sign in "=<>+/|,;:!()[]"}
TOKEN = re.compile(
    r"(?P<comment>\(eq\. [^)]*\))|(?P<code>`[^`]*`)|(?P<gap> {2,})|(?P<space> )"
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z]+(?:(?<=\w\w)\d|(?<=W)\d)?\*?)"
    r"|_(?P<sub>\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\([^()]*\)|[A-Za-z0-9]+)"
    r"|\^(?P<sup>\{[^{}]*\}|\([^()]*\)|-?[A-Za-z0-9]+(?:/\d)?)"
    r"|(?P<prime>'+)|(?P<angle>(?<= )<(?=\w)|(?<=\w)>(?= ))"
    r"|(?P<sign>\|\||\.\.\.|\.\.|<=|>=|!=|[=<>+\-/|,;:!()\[\].~])"
)
CLOSING = {"(": ")", "[": "]"}
MINUS = (("sign", "-"), ("sign", "+"))
BETWEEN = (("space", " "), ("sign", "-"))  # may stand between two words
Token = tuple[str, str]


class Unknown(ValueError):
    """A formula that is not set."""


def equations(block: str) -> str | None:
    """The lines of a block as one formula, or None if it is prose or has an unknown sign."""
    try:
        lines = [tokens(line.lstrip()) for line in block.splitlines()]
        if is_prose([token for line in lines for token in line]):
            return None
        rows = [
            f"<mtr><mtd>{indent(line)}{row(found)}</mtd></mtr>"
            for line, found in zip(block.splitlines(), lines, strict=True)
        ]
    except Unknown:
        return None
    text = escape(block).replace("\n", "&#10;")
    table = f'<mtable displaystyle="true">{"".join(rows)}</mtable>'
    return f'<div class="formula"><math display="block" alttext="{text}">{table}</math></div>'


def tokens(text: str) -> list[Token]:
    """Pairs of a kind and a text; runs of words are one token of the kind `text`."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise Unknown(text[at:])
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return joined(found)


def joined(found: list[Token]) -> list[Token]:
    """Runs of words that are prose, with single spaces or hyphens between them, become one token."""
    out: list[Token] = []
    at = 0
    while at < len(found):
        end = at + 1
        while end + 1 < len(found) and found[end] in BETWEEN and bare(found, end + 1):
            end += 2
        run = [text for _, text in found[at:end]]
        if bare(found, at) and prose(run[::2]):
            out.append(("text", "".join(run)))
            at = end
        else:
            out.append(found[at])
            at += 1
    return out


def bare(found: list[Token], at: int) -> bool:
    """A word without scripts that a space or nothing follows; letters are none, but for the article."""
    kind, text = found[at]
    after = found[at + 1][0] if at + 1 < len(found) else "space"
    then = found[at + 2][1] if at + 2 < len(found) else ""
    word = (
        len(text) > 1 and not text[-1].isdigit() or text == "a" and re.fullmatch("[a-z]{4,}", then)
    )
    return kind == "name" and bool(word) and (after not in {"sub", "sup", "prime"})


def prose(words: list[str]) -> bool:
    """Whether a run of words is English, as `labelled rows`, and no product, as `weight tr`."""
    plain = [word for word in words if word not in FUNCTIONS and word not in GREEK]
    return len(plain) > 1 or bool(ENGLISH & set(words))


def is_prose(found: list[Token]) -> bool:
    words = sum(len(text.split()) for kind, text in found if kind == "text")
    return words > sum(kind in {"name", "number"} for kind, _ in found)


def indent(line: str) -> str:
    spaces = min(len(line) - len(line.lstrip()), 8)
    return f'<mspace width="{spaces / 2:g}em"></mspace>' * bool(spaces)


def row(found: list[Token]) -> str:
    """The tokens of a line, one after the other."""
    out, at = [], 0
    while at < len(found):
        if found[at][0] == "space":
            piece, at = space(found[max(at - 1, 0) : at + 2]), at + 1
        elif (
            at and found[at] in MINUS and found[at - 1][0] == "space" and is_operator(found, at - 2)
        ):
            piece, at = leaf(*found[at]).replace("<mo", '<mo form="prefix"'), at + 1
        else:
            piece, at = item(found, at)
        out.append(piece)
    return "".join(out)


def is_operator(found: list[Token], at: int) -> bool:
    return at >= 0 and (
        found[at][0] == "text" or found[at][0] == "sign" and found[at][1] not in ")]|"
    )


def space(around: list[Token]) -> str:
    """The space beside prose is one of prose, that beside a word in a formula is thin."""
    if {kind for kind, _ in around} & {"text", "code", "comment"}:
        return '<mspace width="0.33em"></mspace>'
    words = [
        text for kind, text in around if kind == "name" and (text in FUNCTIONS or is_word(text))
    ]
    operators = [text for kind, text in around if kind == "sign" and text not in "()[]|"]
    return '<mspace width="0.17em"></mspace>' * (words not in ([], ["sum"]) and not operators)


def is_word(text: str) -> bool:
    return text.isalpha() and len(text) > 1 and text not in GREEK


def item(found: list[Token], at: int) -> tuple[str, int]:
    """The item at this place with its scripts, or the fraction that it begins, and the place after it."""
    inner, whole, after = scripted(found, at)
    divides = found[after : after + 1] == [("sign", "/")] and inner is not None
    if divides and after + 1 < len(found) and (below := scripted(found, after + 1))[0] is not None:
        return f'<mfrac displaystyle="false">{inner}{below[0]}</mfrac>', below[2]
    return whole, after


def scripted(found: list[Token], at: int) -> tuple[str | None, str, int]:
    """An item as a part of a fraction (None: it cannot be one), the item as it is, and the place after it."""
    kind, text = found[at]
    limits = (kind, text) == ("name", "sum")
    whole, after, inner = based(found, at)
    scripts: dict[str, str] = {}
    while after < len(found) and found[after][0] in {"sub", "sup", "prime"}:
        which, script = found[after]
        if which in scripts or kind in {"gap", "code", "comment", "text"}:
            raise Unknown(script)
        if which == "prime":
            scripts["sup"] = scripts.get("sup", "") + f"<mo>{'′' * len(script)}</mo>"
        else:
            scripts[which] = script_of(script)
        after += 1
    if scripts:
        whole = placed(whole, scripts, limits)
    part = kind in {"number", "name"} and not limits or inner is not None
    return (whole if scripts or inner is None else inner) if part else None, whole, after


def based(found: list[Token], at: int) -> tuple[str, int, str | None]:
    """An item without scripts, the place after it, and what is between its brackets."""
    kind, text = found[at]
    if kind == "sign" and text in CLOSING and (end := closing(found, at)):
        inner = f"<mrow>{row(found[at + 1 : end])}</mrow>"
        return f"<mrow><mo>{text}</mo>{inner}<mo>{CLOSING[text]}</mo></mrow>", end + 1, inner
    if kind in {"sub", "sup", "prime"}:
        raise Unknown(text)
    return leaf(kind, text), at + 1, None


def closing(found: list[Token], at: int) -> int:
    """The place of the bracket that closes this one, or 0 if it stands in another line."""
    depth, (_, opened) = 0, found[at]
    for place in range(at, len(found)):
        depth += (found[place] == ("sign", opened)) - (found[place] == ("sign", CLOSING[opened]))
        if not depth:
            return place
    return 0


def leaf(kind: str, text: str) -> str:
    if kind == "gap":
        return '<mspace width="1.5em"></mspace>'
    if kind in {"comment", "code", "text"}:
        return f"<mtext>{escape(text.strip('`'))}</mtext>"
    if kind == "angle":
        return f'<mo stretchy="false">{"⟨" if text == "<" else "⟩"}</mo>'
    if kind == "number":
        return f"<mn>{text}</mn>"
    if kind == "sign":
        fence = ' stretchy="false"' * (text in "|||()[]")
        return f"<mo{fence}>{escape(SIGNS[text])}</mo>"
    if text == "sum":
        return "<mo>∑</mo>"
    name, number, star = re.fullmatch(r"([A-Za-z]+)(\d?)(\*?)", text).groups()
    said = f"<mi>{GREEK.get(name, name)}</mi>"
    said = f"<msub>{said}<mn>{number}</mn></msub>" if number else said
    return f"<msup>{said}<mo>*</mo></msup>" if star else said


def script_of(text: str) -> str:
    """What stands in a script: letters are indices, and long words are names."""
    inside = text[1:-1] if text[0] in "{(" and ":" not in text else text
    if re.fullmatch("[a-z]{4,}", inside):
        return f"<mtext>{inside}</mtext>"
    if re.fullmatch("[A-Za-z0-9]+", inside) and inside not in GREEK:
        return "".join(leaf("number" if c.isdigit() else "name", c) for c in inside)
    return row(tokens(inside))


def placed(whole: str, scripts: dict[str, str], limits: bool) -> str:
    """An item with what stands below and above it."""
    names = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
    parts = [f"<mrow>{scripts[which]}</mrow>" for which in ("sub", "sup") if which in scripts]
    name = names[2] if len(parts) == 2 else names["sup" in scripts]
    return f"<{name}>{whole}{''.join(parts)}</{name}>"
