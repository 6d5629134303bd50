"""Where the items of a study come from: policies that are sampled, files, and logged steps of a run."""
