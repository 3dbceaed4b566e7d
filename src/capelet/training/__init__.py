"""What every training shares: the loop, checkpoints, the device, networks, DP-SGD."""
