"""HTML pages, tables and timelines, SVG charts, and displays that are drawn again. They load nothing."""
