"""What is asked, as frozen records: every door builds the same ones, and nothing else describes it.

A field is declared once, in the record that holds it: its name, type, default and help. None means
"not chosen": the default of a field stands where the question is decided, not at a door.
"""

from capelet.question.fields import (
    Count,
    Rounds,
    Seed,
    chosen,
    collect,
    fill,
    listed,
    names_of,
    takes,
)
from capelet.question.language import (
    CanaryCounts,
    DualNetwork,
    DualTraining,
    LanguageNetwork,
    LanguageSchedule,
    Mitigation,
)
from capelet.question.records import Attacks, ColumnNames, Columns, Names, Protocol, Source
from capelet.question.service import Address, Service
from capelet.question.training import Network, Search, Training
from capelet.question.work import Machines, StudyFolders

__all__ = [
    "Address",
    "Attacks",
    "CanaryCounts",
    "ColumnNames",
    "Columns",
    "Count",
    "DualNetwork",
    "DualTraining",
    "LanguageNetwork",
    "LanguageSchedule",
    "Machines",
    "Mitigation",
    "Names",
    "Network",
    "Protocol",
    "Rounds",
    "Search",
    "Seed",
    "Service",
    "Source",
    "StudyFolders",
    "Training",
    "chosen",
    "collect",
    "fill",
    "listed",
    "names_of",
    "takes",
]
