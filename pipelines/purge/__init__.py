"""`sbert purge`: rows that must be forgotten -> vectors and indexes without a trace of them."""
