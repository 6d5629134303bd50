"""Planning a run on hardware that need not be here: memory, time and traffic of a step, and the command to start."""
