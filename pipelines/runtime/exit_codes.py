"""Exit codes of the command: what a scheduler can act on."""

EXIT_UNEXPECTED = 1
EXIT_BAD_INPUT = 2  # fix the input or the options
EXIT_PARTIAL = 3  # work is saved; the same command continues
EXIT_GATE = 4  # a quality gate failed; nothing was published
EXIT_BUSY = 5  # another run holds the output
