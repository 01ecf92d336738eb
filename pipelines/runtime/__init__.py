"""Ray, signals, time, waiting, progress, logs: what every stage runs on."""
