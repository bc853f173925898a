"""Public keys that keys are sealed to, by writers who cannot read."""
