"""How good vectors are. Every number is a function of arrays; files come from outside."""
