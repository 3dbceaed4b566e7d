"""What a release is worth and what stands beside a leak: references, utility, fairness, geometry."""
