"""What a release leaks and what it is worth: leakage, references, utility, fairness, geometry."""
