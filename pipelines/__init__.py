"""Jobs: one file, one command, one kind of artifact each."""

# In the order of the flow: the command line, the README and their test follow it.
STAGES = (
    "init",
    "run",
    "dedup",
    "prepare",
    "mine",
    "train",
    "evaluate",
    "embed",
    "index",
    "search",
    "threshold",
    "pairs",
    "cluster",
    "apply",
    "report",
    "path",
    "export",
    "purge",
    "demo",
    "submit",
    "doctor",
)
