"""Tables of other tools and other pipelines, and how a pipeline takes them over."""
