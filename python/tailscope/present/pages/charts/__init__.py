"""The pictures of the pages, as SVG. Each is a function of its figures and of its width in px."""
