"""Names of files and folders inside an artifact; `DATA` and `MANIFEST` are core's."""

from sbert_core.corpus.published import DATA

RUN = "_run.json"
WORK = "_work"
PURGED = "_purged.json"  # an index was here that held rows to be forgotten
REPLACED = "_replaced"  # the manifest that the published one replaced
QUARANTINE = "_quarantine"
GROUPS = "groups"  # of pairs: groups of rows with equal vectors
KEEP = "keep"  # of clusters: ids that are kept
CHANGES = "changes"  # of clusters: what an update decided otherwise
FOLDERS = (DATA, QUARANTINE, GROUPS, KEEP, CHANGES)
