"""What is in the store: metadata, manifests and durable files, and how their failures are named."""
