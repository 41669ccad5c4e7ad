"""The order of the stages, for a run that ends and for a run that follows its source: `rounds` imports the stages."""
