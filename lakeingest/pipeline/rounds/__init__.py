"""The order of the stages, for a run that ends and for a run that follows its source. It imports the other stages."""
