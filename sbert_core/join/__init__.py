"""All-pairs similarity: bounded exact join, IVF cells with a certificate, top-k."""
