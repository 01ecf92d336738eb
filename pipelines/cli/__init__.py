"""The command line: the only click, and the only sentences for users."""
