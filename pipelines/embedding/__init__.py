"""The parts of the embed job, in reading order: goal, roles, planning, fleet, survey, publishing,
summary, estimate. `pipelines/embed.py` puts them together."""
