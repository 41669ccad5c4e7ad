"""The order of the stages: of a run that ends, and of one that follows its source. It sees all other rooms."""
