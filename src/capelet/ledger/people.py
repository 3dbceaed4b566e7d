"""Who is charged: identifiers of people in one form, and what makes two of them look alike.

A budget is a person's, and a person with two identifiers has two budgets. What certainly means the
same (Unicode composition, blanks around) is made equal before anything is charged. What probably
does (capitals, inner blanks, another dash or quote) is only pointed out: "Ann Lee" and "ann lee"
may be two people, and to charge one for the other's texts would be wrong as well.
"""

from __future__ import annotations

import unicodedata

from capelet.errors import CapeletError

# What a stored release that is given out again shows beside its ε: two equal vectors are one text.
EQUALITY_IS_PUBLIC = "which of a person's texts are equal is public"

# Of unlike categories, and read as the same sign: hyphens and underscores, quotes, middle dots.
_SIGNS = {"_": "-", "−": "-", '"': "'", "`": "'", "´": "'", "ʼ": "'", "′": "'", "·": "."}


def normalise_person(identifier: str) -> str:
    """The identifier under which a person is charged: composed (NFC), without outer blanks.

    >>> normalise_person(" Zoe\\u0308 ") == "Zo\\u00eb"
    True
    """
    if not isinstance(identifier, str):
        raise CapeletError(
            f"a person's identifier is a text, and not a {type(identifier).__name__}"
        )
    person = unicodedata.normalize("NFC", identifier).strip()
    try:
        person.encode()
    except UnicodeEncodeError:
        # Half of a pair of code units, as broken JSON has it: no bytes, so no pseudonym.
        raise CapeletError("a person's identifier is no valid Unicode text") from None
    return person


def fold_person(person: str) -> str:
    """What near-equal identifiers have in common: no capitals, no blanks, one dash, one quote.

    >>> fold_person("Ann\\u2013Lee") == fold_person("ann - LEE")
    True
    >>> fold_person("ann") == fold_person("anna")
    False
    """
    # Twice: some letters decompose only once they are small.
    letters = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", person).casefold())
    return "".join(map(_fold_sign, letters)) or person


def _fold_sign(letter: str) -> str:
    category = unicodedata.category(letter)
    # Zero-width joiners and marks of direction are not seen at all.
    if letter.isspace() or category in ("Cc", "Cf"):
        return ""
    by_category = {"Pd": "-", "Pi": "'", "Pf": "'"}
    return _SIGNS.get(letter) or by_category.get(category, letter)
