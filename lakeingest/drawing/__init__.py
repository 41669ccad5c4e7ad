"""HTML tables, SVG charts, and displays that are drawn again. They load nothing, and take the colours of their page."""
