"""The parts of the index job: plan, notes, update, measurement, card."""
