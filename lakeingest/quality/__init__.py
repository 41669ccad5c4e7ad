"""Quality gates: checks of staged rows between the stages of a run."""
