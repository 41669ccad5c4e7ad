"""The order of the stages, for a run that ends and for one that follows its source. It sees all other rooms."""
