"""What is asked, as frozen records: every door builds the same ones, and nothing else describes it.

A field is declared once, in the record that holds it: its name, type, default and help. None means
"not chosen": the default of a field stands where the question is decided, not at a door.
"""

from capelet.question.fields import (
    Between,
    Count,
    Form,
    Rounds,
    Seed,
    Units,
    bare_type,
    check_range,
    chosen,
    collect,
    extras_of,
    fill,
    help_of,
    hints_of,
    listed,
    names_of,
    not_a_number,
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
    "Between",
    "CanaryCounts",
    "ColumnNames",
    "Columns",
    "Count",
    "DualNetwork",
    "DualTraining",
    "Form",
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
    "Units",
    "bare_type",
    "check_range",
    "chosen",
    "collect",
    "extras_of",
    "fill",
    "help_of",
    "hints_of",
    "listed",
    "names_of",
    "not_a_number",
]
