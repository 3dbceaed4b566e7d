"""What is asked, as frozen records: every door builds the same ones, and nothing else describes it.

A field is declared once, in the record that holds it: its name, type, default and help. None means
"not chosen": the default of a field stands where the question is decided, not at a door.
"""

from capelet.question.fields import chosen, collect, fill, listed, names_of
from capelet.question.records import Attacks, Columns, Protocol
from capelet.question.training import Network, Training

__all__ = [
    "Attacks",
    "Columns",
    "Network",
    "Protocol",
    "Training",
    "chosen",
    "collect",
    "fill",
    "listed",
    "names_of",
]
