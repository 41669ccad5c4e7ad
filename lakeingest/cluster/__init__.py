"""Jobs on clusters of cloud services: their archives, and the requests that start, follow and cancel them."""
