"""What language models remember of single writers: one model attacked, several compared.

Here `language`, which trains, and `attacks`, which judge, meet; neither knows the other.
"""

from capelet.memorisation.attack import attack_canaries, attack_model
from capelet.memorisation.comparison import Comparison, findings_of, matched, summary

__all__ = ["Comparison", "attack_canaries", "attack_model", "findings_of", "matched", "summary"]
