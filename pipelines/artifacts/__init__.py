"""What any job may know of another job's output: manifests, readers, the one writer."""
