"""Jobs for clusters of others: what is uploaded for them, and the request that starts them."""
